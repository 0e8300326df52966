"""What pages and the API show of budgets to one person: place in the tree and shares."""

from dataclasses import dataclass
from datetime import datetime
from fractions import Fraction

from budgets import shares
from budgets.access import Standing
from budgets.models import WHOLE, Budget
from budgets.shares import TreeNode
from clusters.models import Pool


@dataclass(frozen=True)
class BudgetRow:
    """A budget as someone may see it. Shares are None where it isn't active at the instant."""

    budget: Budget
    node: TreeNode | None
    pools: dict[int, str]

    @property
    def parent_path(self) -> str | None:
        return self.budget.path.rpartition("/")[0] or None

    @property
    def depth(self) -> int:
        return self.budget.path.count("/")

    @property
    def is_leaf(self) -> bool:
        return self.node is not None and self.node.is_leaf

    @property
    def share_thousandths(self) -> int | None:
        return self.node.thousandths if self.node else None

    @property
    def share_overrides(self) -> dict[str, int]:
        """Shares in single pools, by the pool's slug."""
        overrides = self.node.overrides if self.node else {}
        return {self.pools[pool]: value for pool, value in overrides.items()}

    @property
    def effective_share(self) -> Fraction | None:
        return self.node.effective if self.node else None

    @property
    def effective_thousandths(self) -> int | None:
        """The effective share in thousandths of a percent, rounded down."""
        return int(self.node.effective * WHOLE) if self.node else None


def rows(held: Standing, *, at: datetime, archived: bool = False) -> list[BudgetRow]:
    """Return the active budgets a person may see, in the order of the tree.

    With `archived`, also those that are not active at the instant, at the end. Four queries.
    """
    nodes = shares.tree(at=at)
    pools = dict(Pool.objects.values_list("pk", "slug"))
    found = [BudgetRow(node.budget, node, pools) for node in nodes.values()]
    if archived:
        others = Budget.objects.exclude(pk__in=nodes)
        found += [BudgetRow(budget, None, pools) for budget in others]
    return [row for row in found if held.sees(row.budget.path)]


def row(budget: Budget, *, at: datetime) -> BudgetRow:
    """Return one budget's row, active or not."""
    pools = dict(Pool.objects.values_list("pk", "slug"))
    return BudgetRow(budget, shares.tree(at=at).get(budget.pk), pools)
