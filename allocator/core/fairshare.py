"""Fair Tree: who is most under-served, in exact integers.

Level fair share of a budget = (its part of its siblings' shares) / (its part of their usage). The
tree is walked from the root in falling level fair share; leaves are ranked in the order in which
they are met, and a leaf's factor is its rank / number of leaves. Share 0 comes last, usage 0 first;
siblings that tie are merged and their children compared together; ties share the best rank.

Source: Slurm's Fair Tree (PriorityFlags=FAIR_TREE, "fair_tree.html"). The peer compares floating
point numbers, so it can split an exact tie; this compares fractions of integers, so it never does.
"""

import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import inf, lcm
from typing import Any, Final, cast

from .problem import BudgetNode
from .validate import ProblemError, no_duplicates, number, shown, text, whole

PARENT: Final = "parent"  # shares: competes at its parent's level
INFINITE: Final = inf
ALONE: Final = -1  # a group of ties that joins no other
LARGEST: Final = sys.float_info.max  # what quotients past it are rounded to


@dataclass(frozen=True, slots=True)
class ShareNode:
    """A node of a tree: `shares` a number (None at a root = 1) or "parent"; usage at leaves."""

    name: str
    parent: str | None
    shares: Fraction | int | str
    usage: Fraction | int


class Factors(Mapping[str, Fraction]):
    """Fair Tree factors in (0, 1] by leaf, exact: rank from the end / number of leaves.

    Only those that are asked for are divided out.
    """

    def __init__(self, before: dict[str, int]) -> None:
        self._before = before  # leaves that are ahead of it, by leaf

    def __getitem__(self, leaf: str) -> Fraction:
        return Fraction(len(self._before) - self._before[leaf], len(self._before))

    def __iter__(self) -> Iterator[str]:
        return iter(self._before)

    def __len__(self) -> int:
        return len(self._before)


def factors(nodes: Sequence[ShareNode]) -> Factors:
    """Fair Tree factor of every leaf."""
    names = [node.name for node in nodes]
    parents = [node.parent for node in nodes]
    shares, usage = [node.shares for node in nodes], [node.usage for node in nodes]
    return Factors(_Forest(names, parents, shares, usage).leaves_before())


def budget_factors(budgets: Iterable[BudgetNode]) -> Factors:
    """Fair Tree factors of a problem's budgets, by path of the leaf."""
    budgets = list(budgets)
    paths, parents = [b.path for b in budgets], [b.parent for b in budgets]
    shares, usage = [b.shares for b in budgets], [b.usage for b in budgets]
    return Factors(_Forest(paths, parents, shares, usage).leaves_before())


def read_tree(data: object) -> list[ShareNode]:
    """The tree file's nodes; raises `ProblemError` with one sentence."""
    if not isinstance(data, Mapping) or set(data) != {"tree"}:
        raise ProblemError('the file must be an object with one field, "tree".')
    rows = data["tree"]
    if not isinstance(rows, list) or not rows:
        raise ProblemError("tree must be a list of at least one node.")
    nodes = [_read_node(row) for row in rows]
    no_duplicates([node.name for node in nodes], "node")
    return nodes


def _read_node(row: object) -> ShareNode:
    if not isinstance(row, Mapping):
        raise ProblemError(f"a node of the tree must be an object, not {shown(row)}.")
    for key in row:
        if key not in ("name", "parent", "shares", "usage", "type", "account"):
            raise ProblemError(f"a node of the tree: {shown(key)} is not a field; remove it.")
    for key in ("name", "parent", "shares", "usage"):
        if key not in row:
            raise ProblemError(f"a node of the tree: the field {key!r} is missing.")
    what = f"node {text(row['name'], 'the name of a node')!r}"
    parent = row["parent"]
    if parent is not None:
        text(parent, f"{what}: parent")
    return ShareNode(row["name"], parent, _read_shares(row["shares"], parent, what),
                     _exact(row["usage"], f"{what}: usage"))  # fmt: skip


def _read_shares(shares: Any, parent: str | None, what: str) -> Fraction | int | str:
    if shares is None and parent is None:
        return 1  # a root has no siblings to compare with
    if shares == PARENT:
        if parent is None:
            raise ProblemError(f'{what}: a root has no parent, so shares can\'t be "parent".')
        return PARENT
    if isinstance(shares, str):
        raise ProblemError(f'{what}: shares must be a number or "parent", not {shown(shares)}.')
    return _exact(shares, f"{what}: shares")


def _exact(value: Any, what: str) -> Fraction | int:
    if isinstance(value, float):
        return Fraction(str(number(value, what, 0)))
    return whole(value, what, 0)


class _Forest:
    """Nodes by number, as columns: a tree of 10,000 is ranked in a hundredth of a second."""

    def __init__(
        self,
        names: Sequence[str],
        parents: Sequence[str | None],
        shares: Sequence[Fraction | int | str],
        usage: Sequence[Fraction | int],
    ) -> None:
        self.names = names
        number = {name: i for i, name in enumerate(names)}
        above = _numbers(names, parents, number)
        self.order = _parents_first(names, above)
        self.shares, flat = _whole_shares(shares)
        self.usage = _whole(usage)
        self.first: set[int] = set()  # leaves with shares "parent": first inside their account
        self.below: list[list[int]] = [[] for _ in names]  # who competes there; a leaf: nobody
        self.roots: list[int] = []
        self._place(above, flat)
        count = len(names)
        # Level fair share as a fraction, and rounded; `under` 0 is infinite.
        self.over, self.under, self.key = [0] * count, [1] * count, [0.0] * count

    def _place(self, above: Sequence[int | None], flat: set[int]) -> None:
        """Link who competes where, and sum up usage; children of "parent" accounts go one up."""
        usage, below = self.usage, self.below
        inner = {parent for parent in above if parent is not None}
        for i in inner:
            usage[i] = 0
        for i in reversed(self.order):
            parent = above[i]
            if parent is not None:
                usage[parent] += usage[i]
        self.first = flat - inner
        flat &= inner
        home = list(above)
        for i in self.order if flat else ():
            parent = above[i]
            home[i] = home[parent] if parent is not None and parent in flat else parent
        for i in self.order:
            place = home[i]
            if i not in flat:
                (self.roots if place is None else below[place]).append(i)

    def leaves_before(self) -> dict[str, int]:
        """Return how many leaves are ahead of each; leaves that tie have equally many.

        Siblings that tie are walked together: their leaves first, which the best of their
        children joins.
        """
        before: dict[str, int] = {}
        names, below = self.names, self.below
        self._level_fair_shares()
        stack = [(group, ALONE) for group in self._tied_groups(self.roots)]
        while stack:
            group, joined = stack.pop()
            merged: list[int] = []
            for i in group:
                if below[i]:
                    merged += below[i]
                else:
                    joined = len(before) if joined == ALONE else joined
                    before[names[i]] = joined
            if merged:
                stack += [(group, ALONE) for group in self._tied_groups(merged)]
                stack[-1] = stack[-1][0], joined
        return before

    def _level_fair_shares(self) -> None:
        """Set over / under = (shares / Σ shares) / (usage / Σ usage), and its rounded key."""
        shares, usage, over, under, key = self.shares, self.usage, self.over, self.under, self.key
        for siblings in (self.roots, *filter(None, self.below)):
            all_shares = sum([shares[i] for i in siblings])
            all_usage = sum([usage[i] for i in siblings])
            for i in siblings:
                if not shares[i]:
                    continue
                if used := usage[i]:
                    over[i] = above = shares[i] * all_usage
                    under[i] = used = used * all_shares
                    try:
                        key[i] = above / used
                    except OverflowError:
                        key[i] = LARGEST
                else:
                    over[i], under[i], key[i] = 1, 0, INFINITE
        for i in self.first:
            over[i], under[i], key[i] = 1, 0, INFINITE

    def _tied_groups(self, level: Sequence[int]) -> list[list[int]]:
        """Return who is on a level in rising level fair share, exact ties together.

        Integer division is correctly rounded, so the rounded key never contradicts the exact
        order; only members with equal keys need exact fractions.
        """
        if len(level) == 1:
            return [[level[0]]]
        key = self.key
        near: dict[float, list[int]] = {}
        for i in level:
            if (members := near.get(key[i])) is None:
                near[key[i]] = [i]
            else:
                members.append(i)
        ordered = [near[rounded] for rounded in sorted(near)]
        if len(ordered) == len(level):
            return ordered
        return [group for members in ordered for group in self._exact_groups(members)]

    def _exact_groups(self, members: list[int]) -> list[list[int]]:
        """Tell apart those whose level fair shares are equal only when rounded."""
        over, under = self.over, self.under
        a, b = over[members[0]], under[members[0]]
        if all(a * under[i] == over[i] * b for i in members):
            return [members]
        exact: dict[Fraction, list[int]] = {}
        for i in members:
            exact.setdefault(Fraction(over[i], under[i]), []).append(i)
        return [exact[share] for share in sorted(exact)]


def _numbers(
    names: Sequence[str], parents: Sequence[str | None], number: Mapping[str, int]
) -> list[int | None]:
    """Return the parent's number of each node."""
    try:
        return [None if parent is None else number[parent] for parent in parents]
    except KeyError as missing:
        name = names[parents.index(missing.args[0])]
        raise ProblemError(f"node {name!r}: there is no node {missing.args[0]!r}.") from None


def _parents_first(names: Sequence[str], above: Sequence[int | None]) -> Sequence[int]:
    if all(parent is None or parent < i for i, parent in enumerate(above)):
        return range(len(above))
    children: dict[int | None, list[int]] = {}
    for i, parent in enumerate(above):
        children.setdefault(parent, []).append(i)
    order = list(children.get(None, ()))
    for i in order:  # grows while it is read
        order.extend(children.get(i, ()))
    if len(order) < len(names):
        lost = min(set(names) - {names[i] for i in order})
        raise ProblemError(f"node {lost!r} hangs on no root; break the circle of parents.")
    return order


def _whole_shares(shares: Sequence[Fraction | int | str]) -> tuple[list[int], set[int]]:
    """Return shares as integers of one scale, and the numbers of those that are "parent"."""
    if str not in set(map(type, shares)):
        return _whole(cast(Sequence[Fraction | int], shares)), set()
    flat = {i for i, one in enumerate(shares) if isinstance(one, str)}
    return _whole([0 if isinstance(one, str) else one for one in shares]), flat


def _whole(values: Sequence[Fraction | int]) -> list[int]:
    """Return numbers as integers of one scale."""
    if set(map(type, values)) <= {int}:
        return list(cast(Sequence[int], values))
    scale = lcm(*(Fraction(one).denominator for one in values))
    return [int(one * scale) for one in values]
