"""Which runs a job may stop, and on which block they deserve least; preempt.py has the rules."""

from typing import NamedTuple

import numpy as np

from . import compiled, inner
from .tables import Flags, Fleet, Grid, Items, Rows, Words
from .turns import Tree, gives_way
from .words import ONE, ZERO, lowest, shifts, span

TRIES = 4  # timesteps looked at per job
BLOCKS = 128  # blocks looked at per timestep


class Runs(NamedTuple):
    """R runs that may be stopped; `order` lists them, the least deserving first."""

    order: Rows
    first: Rows
    gpus: Rows
    leaf: Rows
    funded: Flags
    keeps: Rows  # GPU-seconds it would add to its leaf's first timestep, if they don't count yet
    domain: Rows  # its pool
    wish: Words  # timesteps it would like beyond its protection; 0 once it had its turn
    turned: Flags  # it had its turn
    shielded: Flags  # [R, N], or [R, 0]: leaves that may not stop it
    owner: Rows  # [G]: the run that holds a GPU, R: none
    stopped: Rows  # [D, H]: GPUs stopped so far
    limit: Rows  # [D]: 100 x the most GPUs that may be stopped in a timestep
    place: Rows  # [R]: room: its place among victims, -1: it is none
    hit: Rows  # [R]: room: the last block that it was found on
    looked: Rows  # [N]: room: for which search a leaf was compared last
    least: Rows  # [N]: room: what a run of it must keep at least to give way, in GPU-seconds
    searches: Rows  # [1]: room: how many there were


@compiled
def find_victims(tree: Tree, runs: Runs, leaf: int, asks: int) -> int:
    """Number the runs that a funded job of the leaf may stop into `place`; how many there are."""
    found = 0
    runs.searches[0] += 1
    for at in range(len(runs.order)):
        r = runs.order[at]
        runs.place[r] = -1
        if runs.turned[r] or (runs.shielded.shape[1] > 0 and runs.shielded[r, leaf]):
            continue
        if runs.funded[r]:
            other = runs.leaf[r]
            if runs.looked[other] != runs.searches[0]:
                runs.looked[other] = runs.searches[0]
                runs.least[other] = gives_way(tree, leaf, asks, other)
            if runs.keeps[r] < runs.least[other]:
                continue
        runs.place[r] = found
        found += 1
    return found


@inner
def _ignore_victims(fleet: Fleet, runs: Runs, taken: Grid, k: int) -> None:
    """Into the grid's scratch: busy blocks of a size if the victims' wishes are not respected."""
    words, none, wide = taken.scratch, len(runs.order), 1
    for g in range(len(words)):
        word = taken.rows[g]
        if runs.owner[g] < none and runs.place[runs.owner[g]] < 0:
            word |= runs.wish[runs.owner[g]]
        words[g] = word
    while wide < fleet.sizes[k]:
        for g in range(len(words) - wide):
            words[g] |= words[g + wide]
        wide *= 2


@inner
def _free(
    fleet: Fleet, words: Words, k: int, length: int, allowed: np.uint64, pools: int
) -> np.uint64:
    """Turn busy words into free starts, in place; all of them ORed."""
    found = ZERO
    a, b, c, d, e, f = shifts(length)
    count = len(words) - fleet.sizes[k] + 1
    for i in range(count):
        word = words[i] | fleet.wall[k, i] | fleet.outside[pools, i]
        word |= word >> a
        word |= word >> b
        word |= word >> c
        word |= word >> d
        word |= word >> e
        word |= word >> f
        word = ~word & allowed
        words[i] = word
        found |= word
    return found


@compiled
def within_limit(runs: Runs, domain: int, t: int, lost: int) -> bool:
    """At most the set percent of a pool's GPUs is stopped at t."""
    return lost == 0 or (runs.stopped[domain, t] + lost) * 100 <= runs.limit[domain]


@inner
def _weigh(runs: Runs, first: int, gpus: int, word: np.uint64, mark: int) -> tuple[bool, int, int]:
    """What a block costs: (whether a funded run, the most deserving run's place, GPUs lost)."""
    funded, worst, lost = False, -1, 0
    for g in range(first, first + gpus):
        r = runs.owner[g]
        if r == len(runs.order) or runs.hit[r] == mark or not runs.wish[r] & word:
            continue
        runs.hit[r] = mark
        funded |= runs.funded[r]
        worst = max(worst, runs.place[r])
        lost += runs.gpus[r]
    return funded, worst, lost


@inner
def _cheapest(runs: Runs, words: Words, domain: Rows, gpus: int, t: int, word: np.uint64) -> int:
    """The block, free at t, whose victims deserve least, then lose least; -1: none may be."""
    best, seen, bit = -1, 0, ONE << np.uint64(t)
    best_funded, best_worst, best_lost = False, 0, 0
    for r in range(len(runs.hit)):
        runs.hit[r] = -1
    for first in range(len(words) - gpus + 1):
        if not words[first] & bit:
            continue
        funded, worst, lost = _weigh(runs, first, gpus, word, first)
        # But always one block.
        if runs.stopped[domain[first], t] == 0 or within_limit(runs, domain[first], t, lost):
            less = best < 0 or funded < best_funded
            if funded == best_funded:
                less |= worst < best_worst or (worst == best_worst and lost < best_lost)
            if less:
                best, best_funded, best_worst, best_lost = first, funded, worst, lost
        seen += 1
        if seen == BLOCKS:
            break
    return best


@compiled
def block_for(
    fleet: Fleet, items: Items, runs: Runs, taken: Grid, domain: Rows, i: int, allowed: np.uint64
) -> tuple[int, int]:
    """(timestep, first GPU) of item i's earliest start that stops victims; (-1, -1): none."""
    gpus, length, k = items.gpus[i], items.length[i], items.size[i]
    _ignore_victims(fleet, runs, taken, k)
    found = _free(fleet, taken.scratch, k, length, allowed, items.pools[i])
    for _ in range(TRIES):
        if found == ZERO:
            break
        t = lowest(found)
        first = _cheapest(runs, taken.scratch, domain, gpus, t, span(t, t + length))
        if first >= 0:
            return t, first
        found &= found - ONE
    return -1, -1
