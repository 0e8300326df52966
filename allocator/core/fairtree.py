"""Fair Tree's walk, a level of the tree at a time: 10,000 budgets are ranked in milliseconds.

Everything is decided in exact integers. Rounded quotients only sort what is far enough apart that
rounding can't matter; what is near is compared as fractions.
"""

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise
from typing import Any, Final, Self

import numpy as np
from numpy.typing import NDArray

Numbers = NDArray[np.int64]
Whole = NDArray[Any]  # 64-bit integers where every product fits, else Python's own: both exact

ROOT: Final = -1  # competes above all
NOWHERE: Final = -2  # competes with nobody: its children compete one level up
ALONE: Final = -1  # a group of ties that joins no other
FITS: Final = 2**62
NEAR: Final = 1e-14  # relative; four roundings move a quotient by less than 1e-15
LARGEST: Final = sys.float_info.max  # what quotients past it are rounded to


@dataclass(frozen=True, slots=True)
class Level:
    """Nodes equally deep, siblings together in the order of their parents.

    ``inner``: places in ``nodes`` of those that have children; ``children``: how many each has.
    """

    nodes: Numbers
    inner: Numbers
    children: Numbers


def leaves_before(
    home: Sequence[int],
    shares: Sequence[int],
    usage: Sequence[int],
    first: Sequence[int],
) -> tuple[Numbers, Numbers]:
    """Return the leaves, and how many leaves are ahead of each; those that tie have equally many.

    By number of the node: ``home`` the one below which it competes, ROOT or NOWHERE; ``usage``
    counts at leaves; ``first`` are ahead of their siblings whatever they used. Siblings that tie
    are walked together: their leaves first, which the best of their children joins.
    """
    levels = _levels(np.array(home, dtype=np.int64))
    tree = _Tree(levels, _whole(shares), _whole(usage), np.array(first, dtype=np.int64))
    walk = _Walk.begin(len(levels[0].nodes))
    leaves, before = [], []
    for depth, level in enumerate(levels):
        groups = _groups(walk.place, *tree.level_fair_shares(depth))
        leaf = np.ones(len(level.nodes), dtype=bool)
        leaf[level.inner] = False
        leaves.append(level.nodes[leaf])
        walk = walk.down(groups, level, leaf, tree.leaves[level.nodes])
        before.append(walk.joins[groups.of[leaf]])
    return np.concatenate(leaves), np.concatenate(before)


def _levels(home: Numbers) -> list[Level]:
    """Return the tree's levels from the roots down; a circle of parents is on none."""
    inside = np.argsort(home, kind="stable")
    since = np.searchsorted(home[inside], np.arange(ROOT, len(home) + 1))
    count = np.diff(since)[1:]  # children of each node
    levels, nodes = [], inside[since[0] : since[1]]
    while len(nodes):
        inner = np.flatnonzero(count[nodes])
        parents = nodes[inner]
        children = count[parents]
        levels.append(Level(nodes, inner, children))
        gaps = since[parents + 1] - (np.cumsum(children) - children)
        nodes = inside[np.repeat(gaps, children) + np.arange(children.sum())]
    return levels


def _whole(values: Sequence[int]) -> Whole:
    return np.array(values, dtype=np.int64 if sum(values) < FITS else object)


class _Tree:
    """Usage and leaves below each node, and what its siblings have together."""

    def __init__(self, levels: list[Level], shares: Whole, usage: Whole, first: Numbers) -> None:
        self.levels, self.shares, self.usage, self.first = levels, shares, usage, first
        self.leaves = np.ones(len(shares), dtype=np.int64)
        for level, below in zip(levels[-2::-1], levels[:0:-1], strict=True):
            starts = _starts(level.children)
            parents = level.nodes[level.inner]
            usage[parents] = np.add.reduceat(usage[below.nodes], starts)
            self.leaves[parents] = np.add.reduceat(self.leaves[below.nodes], starts)

    def level_fair_shares(self, depth: int) -> tuple[Whole, Whole]:
        """Return (shares / Σ shares) / (usage / Σ usage) of a level's nodes, over and under.

        Share 0 is 0 / 1, usage 0 is 1 / 0.
        """
        nodes = self.levels[depth].nodes
        siblings = self.levels[depth - 1].children if depth else np.array([len(nodes)])
        shares, usage = self.shares[nodes], self.usage[nodes]
        starts = _starts(siblings)
        all_shares, all_usage = np.add.reduceat(shares, starts), np.add.reduceat(usage, starts)
        if int(max(all_shares)) * int(max(all_usage)) >= FITS:
            shares, usage = shares.astype(object), usage.astype(object)
        over = shares * np.repeat(all_usage, siblings)
        under = usage * np.repeat(all_shares, siblings)
        nothing = shares == 0
        infinite = (usage == 0) & ~nothing
        infinite |= np.isin(nodes, self.first) if len(self.first) else False
        over[nothing], under[nothing] = 0, 1
        over[infinite], under[infinite] = 1, 0
        return over, under


def _starts(lengths: Numbers) -> Numbers:
    return np.cumsum(lengths) - lengths


@dataclass(frozen=True, slots=True)
class Groups:
    """A level's nodes in groups that tie, best first inside each place; ``of`` each node."""

    of: Numbers
    place: Numbers  # of each group


def _groups(place: Numbers, over: Whole, under: Whole) -> Groups:
    """Group the nodes of each place that have the same level fair share."""
    key = _rounded(over, under)
    order = np.lexsort((-key, place))
    opens = np.ones(len(order), dtype=bool)
    if len(order) > 1:
        key, at = key[order], place[order]
        near = (at[1:] == at[:-1]) & (key[1:] >= key[:-1] * (1 - NEAR))
        if near.any():
            _tell_apart(order, opens, near, over, under)
    of = np.empty(len(order), dtype=np.int64)
    of[order] = np.cumsum(opens) - 1
    return Groups(of, place[order[opens]])


def _rounded(over: Whole, under: Whole) -> NDArray[np.float64]:
    """Return the quotients, at most four roundings away; infinite where ``under`` is 0."""
    if over.dtype == object or under.dtype == object:
        return np.array([_divided(a, b) for a, b in zip(over, under, strict=True)])
    with np.errstate(divide="ignore"):
        return over / under


def _divided(over: int, under: int) -> float:
    try:
        return over / under
    except ZeroDivisionError:
        return float("inf")
    except OverflowError:
        return LARGEST


def _tell_apart(
    order: Numbers, opens: NDArray[np.bool_], near: NDArray[np.bool_], over: Whole, under: Whole
) -> None:
    """Sort those that are near by their exact fractions; a group opens where they differ."""
    over, under = over[order], under[order]
    equal = near & (over[1:] == over[:-1]) & (under[1:] == under[:-1])
    if (near & ~equal).any():
        common = np.gcd(over, under)
        over, under = over // common, under // common
        equal = near & (over[1:] == over[:-1]) & (under[1:] == under[:-1])
    opens[1:] = ~equal
    run = np.concatenate(([0], np.cumsum(~near)))
    for number in np.unique(run[1:][near & ~equal]):
        bounds = np.searchsorted(run, [number, number + 1])
        _sort_run(order, opens, over, under, slice(*bounds))


def _sort_run(
    order: Numbers, opens: NDArray[np.bool_], over: Whole, under: Whole, run: slice
) -> None:
    fractions = [Fraction(int(a), int(b)) for a, b in zip(over[run], under[run], strict=True)]
    best = sorted(range(len(fractions)), key=fractions.__getitem__, reverse=True)
    order[run] = order[run][best]
    opens[run] = [True] + [fractions[a] != fractions[b] for a, b in pairwise(best)]


@dataclass(frozen=True, slots=True)
class _Walk:
    """How many leaves are ahead of what is below each group of a level.

    ``place``: under which group each node of the next level stands. ``after``: leaves ahead of the
    first leaf below. ``joins``: leaves ahead of the group's own, which the best group below it
    joins; ALONE where it has none.
    """

    place: Numbers
    after: Numbers
    joins: Numbers

    @classmethod
    def begin(cls, roots: int) -> "_Walk":
        return cls(np.zeros(roots, dtype=np.int64), np.array([0]), np.array([ALONE]))

    def down(self, groups: Groups, level: Level, leaf: NDArray[np.bool_], leaves: Numbers) -> Self:
        """Return the same of the next level; ``leaves``: how many each node of this one has."""
        count = len(groups.place)
        own = np.bincount(groups.of[leaf], minlength=count)
        below = np.bincount(groups.of, leaves, minlength=count).astype(np.int64)
        best = np.ones(count, dtype=bool)
        best[1:] = groups.place[1:] != groups.place[:-1]
        ahead = np.cumsum(below) - below
        start = ahead - ahead[best][np.cumsum(best) - 1] + self.after[groups.place]
        joins = np.where(best, self.joins[groups.place], ALONE)
        joins = np.where((joins == ALONE) & (own > 0), start, joins)
        place = np.repeat(groups.of[level.inner], level.children)
        return type(self)(place, start + own, joins)
