"""Whose turn is it? Fair Tree, kept up to date while a plan is built.

The most under-served leaf is found from the root down: at each level the child with the highest
level fair share, so two leaves are compared at the first level below their common ancestor. Sibling
fractions share their denominators, so a child's place is usage / shares, compared exactly by
cross-multiplying. What the plan gives raises that number for one child per level.

A running job competes with the stay bonus (10 % on its level fair share): its number counts 10
where a waiting job's counts 11. The loops are compiled (compiled/turns.py).
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from enum import IntEnum
from fractions import Fraction
from functools import cache, lru_cache
from itertools import accumulate
from typing import NamedTuple

import numpy as np

from .compiled import turns as compiled
from .compiled.tables import Rows
from .compiled.turns import ROOT, Tree
from .plan import LevelShare
from .problem import FULL_SHARE, BudgetNode, Problem


class Turn(IntEnum):
    """What a leaf's turn is for."""

    WAITING = int(compiled.WAITING)
    RUNNING = int(compiled.RUNNING)


@dataclass(frozen=True)
class Planted:
    """A problem's budgets, numbered: children one after another, by path; node 0 has no budget.

    Without budgets there is one nameless leaf.
    """

    paths: tuple[str, ...]
    leaf_of: dict[str | None, int]
    part: tuple[Fraction, ...]  # effective share of each node
    stated: tuple[int, ...]  # its entitlement as given, 0: derive it
    tree: Tree  # as it is before anything is planned, without entitlements


def plant(problem: Problem) -> Planted:
    """Number the problem's budgets."""
    if problem.budgets:
        return _plant(problem.budgets)
    alone = _alone()
    return replace(alone, leaf_of=dict.fromkeys(problem.owners, 1))


@cache
def _alone() -> Planted:
    """One nameless leaf."""
    return _plant(())


def _plant(known: Sequence[BudgetNode]) -> Planted:
    """Which budget is whose is the same from plan to plan; what they used is not."""
    lot = _laid_out(tuple((budget.path, budget.parent, budget.shares) for budget in known))
    window = [0] * len(lot.parent)
    for i in range(len(window) - 1, 0, -1):  # an inner node's usage is that of its leaves
        if known and not lot.many[i]:
            window[i] += known[lot.place[i]].usage
        window[lot.parent[i]] += window[i]
    stated = (0, *(known[place].entitled for place in lot.place[1:])) if known else (0, 0)
    return Planted(lot.paths, lot.leaf_of, lot.part, stated, _tree(lot, window))


class _Lot(NamedTuple):
    """What of a tree of budgets has nothing to do with what they used, by their numbers."""

    place: Sequence[int]  # in the problem
    parent: Sequence[int]
    many: Sequence[int]  # children
    paths: tuple[str, ...]
    leaf_of: dict[str | None, int]
    part: tuple[Fraction, ...]
    still: tuple[Rows, ...]  # parent, depth, shares, children, many


@lru_cache(maxsize=16)  # nobody writes to its arrays
def _laid_out(known: tuple[tuple[str, str | None, int], ...]) -> _Lot:
    budgets = known or (("all", None, FULL_SHARE),)
    place = [-1, *_by_level(budgets)]
    number = {budgets[at][0]: i for i, at in enumerate(place) if i}
    parent = [-1, *(number.get(budgets[at][1] or "", ROOT) for at in place[1:])]
    shares = [0, *(budgets[at][2] for at in place[1:])]
    count = len(place)
    many = np.bincount(parent[1:], minlength=count).tolist()
    depth, children = [0] * count, [0] * count
    for i in range(count - 1, 0, -1):
        children[parent[i]] = i  # in the end the first
    for i in range(1, count):
        depth[i] = depth[parent[i]] + 1
    return _Lot(
        place=place,
        parent=parent,
        many=many,
        paths=("", *(budgets[at][0] for at in place[1:])) if known else ("", ""),
        leaf_of={path: i for path, i in number.items() if not many[i]},
        part=_parts(parent, shares, alone=many[ROOT] == 1),
        still=tuple(map(_rows, (parent, depth, shares, children, many))),
    )


def _by_level(budgets: Sequence[tuple[str, str | None, int]]) -> list[int]:
    """Places of the budgets, level by level, siblings together and by path."""
    below: dict[str, list[int]] = {}
    for place, (_, parent, _) in enumerate(budgets):
        below.setdefault(parent or "", []).append(place)
    frontier = [""]
    found = []
    for path in frontier:  # grows while it is read
        for place in sorted(below.get(path, ()), key=lambda place: budgets[place][0]):
            found.append(place)
            frontier.append(budgets[place][0])
    return found


def _parts(parent: Sequence[int], shares: Sequence[int], *, alone: bool) -> tuple[Fraction, ...]:
    """Effective shares; a single root has everything."""
    part = [Fraction(1)]
    for above, share in zip(parent[1:], shares[1:], strict=True):
        whole = alone and above == ROOT
        part.append(part[above] * (1 if whole else Fraction(share, FULL_SHARE)))
    return tuple(part)


def _tree(lot: _Lot, window: Sequence[int]) -> Tree:
    count = len(lot.parent)
    used = _rows(window)
    parent, depth, shares, children, many = lot.still
    return Tree(
        parent=parent,
        depth=depth,
        shares=shares,
        children=children,
        many=many,
        window=used,
        usage=used.copy(),
        first=_rows([0] * count),
        entitled=_rows([0] * count),
        open=np.zeros((2, count), np.int64),
        heap=np.zeros((2, count), np.int64),
        length=np.zeros((2, count), np.int64),
        queued=np.zeros((2, count), np.bool_),
        stored=np.zeros((2, count), np.int64),
    )


def _rows(values: Sequence[int]) -> Rows:
    return np.array(values, np.int64)


class Turns:
    """The budget tree of a problem, with turns; one nameless leaf where there are no budgets."""

    def __init__(self, problem: Problem, healthy_seconds: int) -> None:
        planted = problem.planted
        self.leaf_of = planted.leaf_of
        self._paths, self._part = planted.paths, planted.part
        entitled = [
            stated or part.numerator * healthy_seconds // part.denominator
            for stated, part in zip(planted.stated, planted.part, strict=True)
        ]
        still = planted.tree
        self.tree: Tree = Tree._make([*still[:6], *(rows.copy() for rows in still[6:])])
        self.tree.entitled[1:] = entitled[1:]

    def owed_cells(self, leaf: int, healthy: Iterable[int]) -> list[int]:
        """Per prefix: the leaf's effective share of the healthy GPU-timesteps, rounded up."""
        over, under = self._part[leaf].as_integer_ratio()
        return [-(-over * total // under) for total in accumulate(healthy)]

    def give(self, leaf: int, seconds: int, first_seconds: int) -> None:
        """The plan gives a leaf GPU-seconds, `first_seconds` of them in the first timestep."""
        compiled.give(self.tree, leaf, seconds, first_seconds)

    def open(self, leaf: int, turn: Turn, number: int = 1) -> None:
        """So many more jobs of the leaf want a turn."""
        compiled.open_turns(self.tree, leaf, int(turn), number)

    def close(self, leaf: int, turn: Turn) -> None:
        """A job of the leaf has had its turn."""
        compiled.close_turn(self.tree, leaf, int(turn))

    def next(self) -> tuple[int, Turn] | None:
        """The most under-served leaf that wants a turn, and what for; None when all had theirs."""
        leaf, turn = compiled.next_turn(self.tree)
        return None if leaf < 0 else (leaf, Turn(turn))

    def outranks(self, leaf: int, other: int) -> bool:
        """Whether a waiting job of `leaf` comes before a run of `other`, stay bonus included."""
        return compiled.outranks(self.tree, leaf, other)

    def inside(self, leaf: int, below: int, seconds: int) -> bool:
        """Inside its entitlement at every level up to `below`, with `seconds` more at once."""
        return compiled.inside(self.tree, leaf, below, seconds)

    def may_preempt(self, leaf: int, asks: int, other: int, keeps: int) -> bool:
        """Whether a funded job of `leaf` may stop a funded run of `other`.

        It must outrank it, and a job outside its entitlement never stops one inside. `asks` and
        `keeps` are what either would use in the first timestep, in GPU-seconds.
        """
        return keeps >= int(compiled.gives_way(self.tree, leaf, asks, other))

    def compared(
        self, leaf: int, asks: int, other: int, keeps: int
    ) -> tuple[LevelShare | None, LevelShare | None]:
        """Both sides of the comparison, to be shown; None where both are one leaf."""
        if leaf == other:
            return None, None
        a, b = compiled.apart(self.tree, leaf, other)
        return self._level_share(leaf, a, asks), self._level_share(other, b, keeps)

    def _children(self, node: int) -> range:
        begin = int(self.tree.children[node])
        return range(begin, begin + int(self.tree.many[node]))

    def _level_share(self, leaf: int, at: int, seconds: int) -> LevelShare:
        tree = self.tree
        siblings = self._children(int(tree.parent[at]))
        rows = slice(siblings.start, siblings.stop)
        return LevelShare(
            path=self._paths[at],
            shares=int(tree.shares[at]),
            siblings_shares=int(tree.shares[rows].sum()),
            usage=int(tree.usage[at]),
            siblings_usage=int(tree.usage[rows].sum()),
            inside=self.inside(leaf, at, seconds),
        )

    def ranks(self) -> list[int]:
        """Per node: its place if all leaves are walked now, best first (leaves only are used)."""
        shares, usage = self.tree.shares.tolist(), self.tree.usage.tolist()

        def key(child: int) -> tuple[bool, Fraction, int, int]:
            part = Fraction(usage[child], shares[child] or 1)
            return shares[child] == 0, part, -shares[child], child

        places = [0] * len(shares)
        stack, place = [ROOT], 0
        while stack:
            at = stack.pop()
            places[at] = place
            place += 1
            stack.extend(sorted(self._children(at), key=key, reverse=True))
        return places

    def path(self, leaf: int) -> str:
        return self._paths[leaf]
