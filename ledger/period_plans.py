"""A period's plan beside what is in force now: shares, and the grants they come to."""

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from budgets import period_plans, shares
from budgets.models import Budget, Period
from budgets.periods import active
from budgets.shares import TreeNode, Vector
from ledger.standing import figures


@dataclass(frozen=True, slots=True)
class PlannedBudget:
    """One budget now and at the period's start. Shares in thousandths of a percent of its parent
    (None: not active then), money in milli-GPU-seconds.

    ``granted_mgpus`` is all it was granted in the running period (None: there is none);
    ``planned_mgpus`` what starting the other one would grant it, before carry-over.
    """

    budget: Budget
    depth: int
    share_now: int | None
    share_planned: int | None
    granted_mgpus: int | None
    planned_mgpus: int
    shares_version: int

    @property
    def is_changed(self) -> bool:
        return self.share_now != self.share_planned


def compare(*, period: Period, now: datetime) -> list[PlannedBudget]:
    """Return every budget that is active now or at the period's start, parents first.

    What is proposed for the start counts as if it were approved; `budgets.period_plans.concerns`
    says what isn't. A constant number of queries.
    """
    running = active(now)
    granted = figures(period=running, now=now) if running else {}
    wanted = period_plans.proposed(period)
    today = shares.tree(at=now)
    then = shares.trees(at=period.starts_at, pools=[None], instead=wanted)[None]
    planned = _by_budget(granted_by_shares(period=period, instead=wanted))
    versions = shares.versions()

    def row(node: TreeNode) -> PlannedBudget:
        pk = node.budget.pk
        mine = granted.get(pk)
        return PlannedBudget(
            budget=node.budget,
            depth=node.depth,
            share_now=today[pk].thousandths if pk in today else None,
            share_planned=then[pk].thousandths if pk in then else None,
            granted_mgpus=(mine.granted_mgpus if mine else 0) if running else None,
            planned_mgpus=planned.get(pk, 0),
            shares_version=versions.get(pk, 0),
        )

    gone = [node for pk, node in today.items() if pk not in then]
    return [row(node) for node in (*then.values(), *gone)]


def granted_by_shares(
    *, period: Period, instead: Mapping[int, Vector] | None = None
) -> dict[tuple[int, int], int]:
    """Return effective share × planned GPU-seconds × rate, rounded down, by pool and budget id.

    By the shares in force at the period's start; ``instead`` has other vectors for some parents.
    """
    capacities = list(period.capacities.order_by("pool_id"))
    pools = [one.pool_id for one in capacities]
    trees = shares.trees(at=period.starts_at, pools=pools, instead=instead)
    return {
        (one.pool_id, pk): amount
        for one in capacities
        for pk, node in sorted(trees[one.pool_id].items())
        if (amount := int(node.effective * one.gpu_seconds * one.rate_per_mille))
    }


def _by_budget(amounts: Mapping[tuple[int, int], int]) -> dict[int, int]:
    total: dict[int, int] = defaultdict(int)
    for (_, budget), amount in amounts.items():
        total[budget] += amount
    return total
