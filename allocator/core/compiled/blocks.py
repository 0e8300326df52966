"""Free blocks: where a job can start first, and on which block it leaves the most usable pool."""

import numpy as np

from . import compiled, inner
from .tables import Fleet, Grid, Words
from .words import ONE, ZERO, count, lowest, shifts, span


@compiled
def build(fleet: Fleet, grid: Grid) -> None:
    """Work out `blocks` from `rows`: doubling, one OR per block and size."""
    gpus, wide = len(grid.rows), 1
    for i in range(gpus):
        grid.scratch[i] = grid.rows[i]
    for k in range(len(fleet.sizes)):
        size = fleet.sizes[k]
        while wide < size:
            for i in range(gpus - wide):
                grid.scratch[i] |= grid.scratch[i + wide]
            wide *= 2
        for i in range(gpus):
            grid.blocks[k, i] = grid.scratch[i] | fleet.wall[k, i]


@compiled
def hold(fleet: Fleet, grid: Grid, first: int, gpus: int, word: np.uint64) -> None:
    """Mark the word's timesteps busy on GPUs [first, first + gpus)."""
    last = first + gpus
    for i in range(first, last):
        grid.rows[i] |= word
    for k in range(len(fleet.sizes)):
        for i in range(max(first - fleet.sizes[k] + 1, 0), last):
            grid.blocks[k, i] |= word


@compiled
def free_starts(
    fleet: Fleet, grid: Grid, k: int, length: int, allowed: np.uint64, pools: int, free: Words
) -> np.uint64:
    """Per block, into `free`: the allowed timesteps at which `length` free timesteps begin.

    Returns all of them ORed.
    """
    found = ZERO
    busy, outside = grid.blocks[k], fleet.outside[pools]
    a, b, c, d, e, f = shifts(length)
    for i in range(len(grid.rows) - fleet.sizes[k] + 1):
        word = busy[i] | outside[i]
        word |= word >> a
        word |= word >> b
        word |= word >> c
        word |= word >> d
        word |= word >> e
        word |= word >> f
        word = ~word & allowed
        free[i] = word
        found |= word
    return found


@compiled
def best_block(fleet: Fleet, grid: Grid, k: int, free: Words, t: int, word: np.uint64) -> int:
    """The block, among those free at t, that leaves the free pool most usable.

    Most contact with busy cells and node borders on both sides during the word, then the fullest
    node, then the lowest GPU.
    """
    size, total, bit = fleet.sizes[k], count(word), ONE << np.uint64(t)
    best, most, fullest, node, fill = -1, -1, -1, -1, 0
    for i in range(len(grid.rows) - size + 1):
        if not free[i] & bit:
            continue
        last = i + size - 1
        contact = total if fleet.starts_node[i] else count(grid.rows[i - 1] & word)
        contact += total if fleet.ends_node[last] else count(grid.rows[last + 1] & word)
        if contact < most:
            continue
        if fleet.node_of[i] != node:
            node = fleet.node_of[i]
            fill = 0
            for g in range(fleet.node_first[node], fleet.node_first[node + 1]):
                fill += count(grid.rows[g] & word)
        if contact > most or fill > fullest:
            best, most, fullest = i, contact, fill
    return best


@compiled
def earliest(
    fleet: Fleet, grid: Grid, k: int, length: int, allowed: np.uint64, pools: int
) -> tuple[int, int]:
    """(timestep, first GPU) of the earliest free start, on the best block; (-1, -1): none."""
    if allowed == ZERO:
        return -1, -1
    found = free_starts(fleet, grid, k, length, allowed, pools, grid.scratch)
    if found == ZERO:
        return -1, -1
    t = lowest(found)
    word = span(t, min(t + length, fleet.horizon))
    return t, best_block(fleet, grid, k, grid.scratch, t, word)


@inner
def refill(fleet: Fleet, source: Grid, target: Grid) -> None:
    """Make `target` busy where `source` is."""
    for i in range(len(source.rows)):
        target.rows[i] = source.rows[i]
    for k in range(len(fleet.sizes)):
        for i in range(len(source.rows)):
            target.blocks[k, i] = source.blocks[k, i]
