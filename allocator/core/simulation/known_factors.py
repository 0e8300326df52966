"""Fair Tree factors of one tree, again and again: worked out once for each order of siblings."""

from collections.abc import Mapping, Sequence
from fractions import Fraction
from math import lcm

from ..fairshare import budget_factors
from ..problem import BudgetNode

Order = tuple[int, ...]


class KnownFactors:
    """The factors follow from how siblings are ordered by use ÷ shares, and from who ties.

    Where budgets that have others below them tie, or some have no share, they follow from more than
    that, and are worked out anew.
    """

    def __init__(self, tree: Sequence[BudgetNode]) -> None:
        number = {node.path: n for n, node in enumerate(tree)}
        groups: dict[str | None, list[int]] = {}
        for n, node in enumerate(tree):
            groups.setdefault(node.parent, []).append(n)
        self._groups = list(groups.values())
        self._inner = [node.path in groups for node in tree]
        self._lines = [_line(n, tree, number) for n in range(len(tree))]
        # use ÷ shares is use × scale, where siblings' shares have one common multiple
        self._scale = [0] * len(tree)
        self._shared = all(node.shares for node in tree)
        for group in self._groups if self._shared else ():
            common = lcm(*(tree[n].shares for n in group))
            for n in group:
                self._scale[n] = common // tree[n].shares
        self._known: dict[Order, Mapping[str, Fraction]] = {}

    def of(self, budgets: Sequence[BudgetNode]) -> Mapping[str, Fraction]:
        """The factor of each leaf by path; budgets are the tree's, with their use."""
        order = self._order(budgets)
        if order is None:
            return budget_factors(budgets)
        if order not in self._known:
            self._known[order] = dict(budget_factors(budgets))
        return self._known[order]

    def _order(self, budgets: Sequence[BudgetNode]) -> Order | None:
        """Each node's place among its siblings."""
        if not self._shared:
            return None
        use = [0] * len(budgets)
        for line, budget in zip(self._lines, budgets, strict=True):
            if budget.usage:
                for n in line:
                    use[n] += budget.usage
        places = [0] * len(budgets)
        for group in self._groups:
            values = [use[n] * self._scale[n] for n in group]
            place = {value: at for at, value in enumerate(sorted(set(values)))}
            if len(place) < len(group) and any(self._inner[n] for n in group):
                return None
            for n, value in zip(group, values, strict=True):
                places[n] = place[value]
        return tuple(places)


def _line(n: int, tree: Sequence[BudgetNode], number: Mapping[str, int]) -> list[int]:
    """A node and all above it."""
    found, parent = [n], tree[n].parent
    while parent is not None:
        found.append(number[parent])
        parent = tree[number[parent]].parent
    return found
