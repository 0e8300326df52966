"""Which rule binds for each item, and who holds the block it gets; explain.py tells what it means.

Jobs are known by their place in the plan, in the order in which they were decided (A of them),
services by A + their number.
"""

from typing import NamedTuple

import numpy as np

from . import compiled, inner
from .tables import Flags, Fleet, Grid, Items, Rows, Words
from .words import ZERO, below, count, lowest, shifts, span

NOW, ARRIVAL, BEYOND, NO_BLOCK, DRAINING, POOL, BEHIND = 0, 1, 2, 3, 4, 5, 6
MOST = 65  # more busy timesteps than a word has
Start = tuple[int, int]  # first GPU, timestep; -1, -1: there is none


class Plan(NamedTuple):
    """A plan's blocks, [A] each, and its services' words [S, G]."""

    first: Rows
    gpus: Rows
    start: Rows
    end: Rows
    serving: Words
    by_gpu: Rows  # blocks of each GPU, in order; those of GPU g begin at begins[g]
    begins: Rows  # [G + 1]


class Told(NamedTuple):
    """What is found, per item [n]; `behind` is filled as far as it has room."""

    rule: Rows
    node: Rows  # the drained node
    pools: Flags  # [n, D]: pools it did not ask for in which it could start at once
    behind: Rows
    begins: Rows  # [n + 1]: where an item's part of `behind` begins
    seen: Rows  # [A + S]: the last item that a job stood in the way of


@compiled
def list_by_gpu(plan: Plan) -> None:
    """Fill `by_gpu` and `begins`."""
    gpus = len(plan.begins) - 1
    for g in range(gpus + 1):
        plan.begins[g] = 0
    for a in range(len(plan.first)):
        for g in range(plan.first[a], plan.first[a] + plan.gpus[a]):
            plan.begins[g + 1] += 1
    for g in range(gpus):
        plan.begins[g + 1] += plan.begins[g]
    for a in range(len(plan.first)):
        for g in range(plan.first[a], plan.first[a] + plan.gpus[a]):
            plan.by_gpu[plan.begins[g]] = a
            plan.begins[g] += 1
    for g in range(gpus, 0, -1):  # each has moved to where the next begins
        plan.begins[g] = plan.begins[g - 1]
    plan.begins[0] = 0


@inner
def _free_start(fleet: Fleet, grid: Grid, items: Items, i: int, starts: np.uint64) -> Start:
    """A block that is free for all the item takes from one of the starts, and that start."""
    k, pools = items.size[i], items.pools[i]
    a, b, c, d, e, f = shifts(items.length[i])
    for block in range(len(grid.rows) - items.gpus[i] + 1):
        word = grid.blocks[k, block] | fleet.outside[pools, block]
        word |= word >> a
        word |= word >> b
        word |= word >> c
        word |= word >> d
        word |= word >> e
        word |= word >> f
        word = ~word & starts
        if word != ZERO:
            return block, lowest(word)
    return -1, -1


@inner
def _nearest_block(fleet: Fleet, grid: Grid, items: Items, i: int, window: np.uint64) -> int:
    """The legal block with the fewest busy timesteps in the window, -1: there is none."""
    k, pools, best, fewest = items.size[i], items.pools[i], -1, MOST
    for b in range(len(grid.rows) - items.gpus[i] + 1):
        if fleet.wall[k, b] == ZERO and fleet.outside[pools, b] == ZERO:
            busy = count(grid.blocks[k, b] & window)
            if busy < fewest:
                best, fewest = b, busy
    return best


@inner
def _drained_node(fleet: Fleet, drained: Words, block: int, gpus: int, window: np.uint64) -> int:
    """A node of the block that is drained during the window."""
    for g in range(block, block + gpus):
        if drained[g] & window:
            return fleet.node_of[g]
    return -1


@inner
def _open_pools(
    fleet: Fleet, grid: Grid, domain: Rows, items: Items, i: int, window: np.uint64, told: Flags
) -> bool:
    """Mark the pools that the item did not ask for in which it could start at once."""
    k, pools, some = items.size[i], items.pools[i], False
    if pools == 0:
        return False
    for b in range(len(grid.rows) - items.gpus[i] + 1):
        if fleet.outside[pools, b] != ZERO and grid.blocks[k, b] & window == ZERO:
            told[domain[b]] = True
            some = True
    return some


@inner
def _behind(
    plan: Plan, told: Told, n: int, block: int, gpus: int, before: int, since: int, until: int
) -> int:
    """Note who holds the block in [since, until), if decided before; returns the new end."""
    end, blocks = told.begins[n], len(plan.first)
    word = span(since, until)
    for g in range(block, block + gpus):
        for at in range(plan.begins[g], plan.begins[g + 1]):
            a = plan.by_gpu[at]
            if a < before and plan.start[a] < until and since < plan.end[a] and told.seen[a] != n:
                told.seen[a] = n
                if end < len(told.behind):
                    told.behind[end] = a
                end += 1
        for s in range(len(plan.serving)):
            if plan.serving[s, g] & word and told.seen[blocks + s] != n:
                told.seen[blocks + s] = n
                if end < len(told.behind):
                    told.behind[end] = blocks + s
                end += 1
    return end


@compiled
def tell(
    fleet: Fleet,
    items: Items,
    rows: Rows,
    position: Rows,
    plan: Plan,
    domain: Rows,
    drained: Words,
    still: Grid,
    undrained: Grid,
    final: Grid,
    drains: bool,
    told: Told,
) -> None:
    """The rule of each item of `rows` [n], whose block in the plan is `position` (-1: none).

    `still`: what no waiting job changes; `undrained`: the same without drains; `final`: all of it.
    """
    for n in range(len(rows)):
        i, at = rows[n], position[n]
        told.begins[n + 1] = told.begins[n]
        since, start = items.earliest[i], plan.start[at] if at >= 0 else -1
        if start == 0 or start == since:
            told.rule[n] = NOW if start == 0 else ARRIVAL
            continue
        if items.allowed[i] == ZERO:
            told.rule[n] = BEYOND
            continue
        window = span(since, min(since + items.length[i], fleet.horizon))
        if at >= 0:
            block, until, before = plan.first[at], start, at
        else:
            block = _nearest_block(fleet, final, items, i, window)
            until, before = since + items.length[i], len(plan.first)
        if block >= 0:
            told.begins[n + 1] = _behind(plan, told, n, block, items.gpus[i], before, since, until)
        starts = items.allowed[i] & below(until if at >= 0 else fleet.horizon)
        told.rule[n] = BEHIND
        if _free_start(fleet, still, items, i, starts)[0] < 0:
            told.rule[n] = NO_BLOCK
            if drains:
                free, t = _free_start(fleet, undrained, items, i, starts)
                if free >= 0:
                    told.rule[n] = DRAINING
                    window = span(t, min(t + items.length[i], fleet.horizon))
                    node = _drained_node(fleet, drained, free, items.gpus[i], window)
                    told.node[n] = node
        soon = span(since, min(since + items.length[i], fleet.horizon))
        if _open_pools(fleet, final, domain, items, i, soon, told.pools[n]):
            told.rule[n] = POOL
