"""Factors that are remembered are those that would be worked out."""

from random import Random

import pytest

from allocator.core.fairshare import budget_factors
from allocator.core.problem import BudgetNode
from allocator.core.simulation.known_factors import KnownFactors


def a_tree(rng: Random, shares: tuple[int, ...]) -> list[BudgetNode]:
    """A root, programs, and projects below most of them."""
    nodes = [BudgetNode("org", None, 100_000, 0)]
    for p in range(rng.randint(1, 4)):
        nodes.append(BudgetNode(f"p{p}", "org", rng.choice(shares), 0))
        for q in range(rng.randint(0, 4)):
            nodes.append(BudgetNode(f"p{p}q{q}", f"p{p}", rng.choice(shares), 0))
    return nodes


def used(rng: Random, tree: list[BudgetNode]) -> list[BudgetNode]:
    inner = {node.parent for node in tree}
    return [
        BudgetNode(
            node.path, node.parent, node.shares,
            0 if node.path in inner else rng.choice((0, 1, 2, 3, 6, 10**12)),
        )
        for node in tree
    ]  # fmt: skip


@pytest.mark.parametrize("shares", [(1, 2, 3, 6), (0, 1, 2)])
def test_they_are_those_of_the_tree_with_ties_and_without_shares(shares: tuple[int, ...]) -> None:
    rng = Random(1)
    for _ in range(60):
        tree = a_tree(rng, shares)
        known = KnownFactors(tree)
        for _ in range(20):
            budgets = used(rng, tree)
            assert dict(known.of(budgets)) == dict(budget_factors(budgets))
