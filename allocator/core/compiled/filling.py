"""Gaps in front of planned starts, compiled: what starts in them now; filling.py has the rules."""

from typing import NamedTuple

import numpy as np

from . import compiled, inner, number
from .blocks import best_block, build, hold
from .stopping import Runs
from .tables import Flags, Fleet, Grid, Items, Rows
from .turns import Tree
from .words import ONE, ZERO, below, span
from .yielding import Holders, block, find_movable

NOW = number(0)


class Gaps(NamedTuple):
    """Per row of the items' table, but for `order` and `vain`; changed in place."""

    order: Rows  # rows by turn
    minimum: Rows  # timesteps after which it may be stopped, 0: never
    movable: Flags  # whether it may start now, or be planned anew
    start: Rows  # when it is planned, -1: never
    first: Rows  # and on which block
    started: Rows  # first GPU of what starts now after all, -1: it does not
    vain: Flags  # [N, K]: leaves and sizes for which moves were sought


@inner
def _planned(fleet: Fleet, items: Items, gaps: Gaps, i: int) -> np.uint64:
    """The word of the timesteps in which row i is planned."""
    return span(gaps.start[i], min(gaps.start[i] + items.length[i], fleet.horizon))


@compiled
def open_gaps(fleet: Fleet, items: Items, gaps: Gaps, taken: Grid, due: Grid, kept: Grid) -> int:
    """Into `kept`: what is taken but for all that may be planned anew; into `due`: the same with
    what of that starts now. How many GPUs are free now."""
    for g in range(len(taken.rows)):
        kept.rows[g] = taken.rows[g]
    for n in range(len(gaps.order)):
        i = gaps.order[n]
        if gaps.movable[i] and gaps.start[i] >= 0:
            word = ~_planned(fleet, items, gaps, i)
            for g in range(gaps.first[i], gaps.first[i] + items.gpus[i]):
                kept.rows[g] &= word
    build(fleet, kept)
    for g in range(len(taken.rows)):
        due.rows[g] = kept.rows[g]
        for k in range(len(fleet.sizes)):
            due.blocks[k, g] = kept.blocks[k, g]
    for n in range(len(gaps.order)):
        i = gaps.order[n]
        if gaps.movable[i] and gaps.start[i] == 0:
            hold(fleet, due, gaps.first[i], items.gpus[i], _planned(fleet, items, gaps, i))
    free = 0
    for g in range(len(due.rows)):
        free += not due.rows[g] & ONE
    return free


@inner
def _may_fill(items: Items, gaps: Gaps, i: int) -> bool:
    """Whether row i waits, could begin now, and may be stopped."""
    if gaps.minimum[i] == 0 or items.earliest[i] > 0 or not gaps.movable[i]:
        return False
    return gaps.start[i] != 0 and items.allowed[i] & ONE != ZERO


@inner
def _gap(fleet: Fleet, items: Items, gaps: Gaps, due: Grid, kept: Grid, i: int) -> int:
    """The best block that is free for its minimum, and of what is kept for all; -1: none."""
    k, brief = items.size[i], below(gaps.minimum[i])
    whole, some = below(min(items.length[i], fleet.horizon)), False
    outside, free = fleet.outside[items.pools[i]], due.scratch
    for b in range(len(free) - fleet.sizes[k] + 1):
        busy = due.blocks[k, b] & brief | kept.blocks[k, b] & whole | outside[b] & ONE
        free[b] = ZERO if busy else ONE
        some |= not busy
    return best_block(fleet, due, k, free, NOW, brief) if some else -1


@inner
def _could_move(
    fleet: Fleet, items: Items, tree: Tree, runs: Runs, holders: Holders, free_to: Flags,
    spares: Flags, gaps: Gaps, due: Grid, kept: Grid, free: int, seconds: int, i: int,
) -> bool:  # fmt: skip
    """Whether moving runs might make room for row i; asked once for each leaf and size."""
    k, leaf = items.size[i], items.leaf[i]
    if not items.funded[i] or items.gpus[i] > free or gaps.vain[leaf, k]:
        return False
    if spares[i]:
        return True
    gaps.vain[leaf, k] = True
    if find_movable(tree, runs, free_to, leaf, items.gpus[i] * seconds, holders.may) == 0:
        return False
    whole = min(items.length[i], fleet.horizon)
    found = block(fleet, holders, k, items.pools[i], due, gaps.minimum[i], kept, whole)
    return found >= 0


@compiled
def start_in_gaps(
    fleet: Fleet, items: Items, tree: Tree, runs: Runs, holders: Holders, free_to: Flags,
    spares: Flags, gaps: Gaps, due: Grid, kept: Grid, free: int, seconds: int, at: int, moves: bool,
) -> tuple[int, int]:  # fmt: skip
    """Go through `order` from a place on, until all is done or runs might be moved for a row:
    (its place, GPUs that are free). `moves` False: they were, or can't be, for the first."""
    for n in range(at, len(gaps.order)):
        i = gaps.order[n]
        if _may_fill(items, gaps, i):
            first = -1 if items.gpus[i] > free else _gap(fleet, items, gaps, due, kept, i)
            if first >= 0:
                gaps.started[i] = first
                hold(fleet, due, first, items.gpus[i], below(gaps.minimum[i]))
                whole = below(min(items.length[i], fleet.horizon))
                hold(fleet, kept, first, items.gpus[i], whole)
                free -= items.gpus[i]
                continue
            if (moves or n > at) and _could_move(
                fleet, items, tree, runs, holders, free_to, spares, gaps, due, kept, free, seconds,
                i,
            ):  # fmt: skip
                return n, free
        if gaps.start[i] > 0 and gaps.movable[i]:  # what comes after it must leave it alone
            hold(fleet, due, gaps.first[i], items.gpus[i], _planned(fleet, items, gaps, i))
    return len(gaps.order), free
