"""The product's tree of budgets as the simulator's: one share per budget over the whole fleet.

A budget is called by its present path in every tree, even where a draft gives it another parent,
so that the same jobs can be played under several trees.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from fractions import Fraction
from typing import Any, Self

from allocator.core.problem import FULL_SHARE, BudgetNode
from budgets import shares
from budgets.shares import TreeNode, Vector


@dataclass(frozen=True)
class SharesTree:
    """A tree to simulate with; ``budgets`` are its names by the budget's id, where it has any."""

    nodes: tuple[BudgetNode, ...]
    budgets: Mapping[int, str]

    @property
    def leaves(self) -> dict[int, str]:
        """The names of the budgets that take work, by the budget's id."""
        inner = {node.parent for node in self.nodes}
        return {pk: path for pk, path in self.budgets.items() if path not in inner}

    def to_json(self) -> dict[str, Any]:
        """Return it as it is kept: shares in thousandths of a percent."""
        return {
            "nodes": [[node.path, node.parent, node.shares] for node in self.nodes],
            "budgets": {str(pk): path for pk, path in self.budgets.items()},
        }

    @classmethod
    def from_json(cls, kept: Mapping[str, Any]) -> Self:
        """Return what `to_json` gave."""
        nodes = (BudgetNode(path, parent, share, 0) for path, parent, share in kept["nodes"])
        return cls(tuple(nodes), {int(pk): path for pk, path in kept["budgets"].items()})


def at_instant(
    at: datetime, gpus: Mapping[int, int], instead: Mapping[int, Vector] | None = None
) -> SharesTree:
    """Return the tree as it is at an instant, for a fleet with so many GPUs of each pool (by id).

    Where budgets have shares of their own in single pools, a share is what its effective shares
    come to over the fleet, rounded down. `instead`: as `budgets.shares.trees` has it. 3 queries.
    """
    return _tree(shares.trees(at=at, pools=(None, *gpus), instead=instead), gpus)


def _tree(
    trees: Mapping[int | None, Mapping[int, TreeNode]], gpus: Mapping[int, int]
) -> SharesTree:
    overall = trees[None]
    whole = sum(gpus.values())
    effective = {
        pk: sum((trees[pool][pk].effective * count for pool, count in gpus.items()), Fraction(0))
        / whole
        if whole
        else node.effective
        for pk, node in overall.items()
    }
    return SharesTree(
        nodes=tuple(_node(node, overall, effective) for node in overall.values()),
        budgets={pk: node.budget.path for pk, node in overall.items()},
    )


def _node(
    node: TreeNode, overall: Mapping[int, TreeNode], effective: Mapping[int, Fraction]
) -> BudgetNode:
    if node.parent_id is None:
        return BudgetNode(node.budget.path, None, FULL_SHARE, 0)
    above = effective[node.parent_id]
    own = effective[node.budget.pk]
    share = int(own * FULL_SHARE / above) if above else node.thousandths
    return BudgetNode(node.budget.path, overall[node.parent_id].budget.path, share, 0)


def common_leaves(trees: Iterable[SharesTree]) -> dict[int, str]:
    """Return the leaves that all of the trees have, by the budget's id."""
    first, *others = trees
    return {
        pk: path for pk, path in first.leaves.items() if all(pk in one.leaves for one in others)
    }
