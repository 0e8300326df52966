"""The block that a job would take where others may give way; yielding.py says which may."""

from typing import NamedTuple

from . import compiled, inner, number
from .stopping import Runs
from .tables import Flags, Fleet, Grid, Rows, Words
from .turns import Tree, apart, inside
from .words import below

NO_MORE = number(0)  # GPU-seconds


class Holders(NamedTuple):
    """N that hold GPUs now and might give them up, all of them at once."""

    owner: Rows  # [G]: which holds a GPU, N: none of them
    words: Words  # [N]: when each holds its GPUs
    cost: Rows  # [N]: what is lost if it gives way
    may: Flags  # [N]
    hit: Rows  # [N]: room


@compiled
def find_movable(tree: Tree, runs: Runs, free_to: Flags, leaf: int, asks: int, may: Flags) -> int:
    """Which runs may be moved for a funded job of the leaf, into `may`; how many.

    Of those that are `free_to`: its own leaf's, unfunded ones, and others' that its budget didn't
    stop lately, unless they are inside their entitlement and it would not be.
    """
    found = 0
    for r in range(len(free_to)):
        other = runs.leaf[r]
        yes = free_to[r] and not (runs.shielded.shape[1] > 0 and runs.shielded[r, leaf])
        if yes and other != leaf and runs.funded[r]:
            a, b = apart(tree, leaf, other)
            yes = inside(tree, leaf, a, asks) or not inside(tree, other, b, NO_MORE)
        may[r] = yes
        found += yes
    return found


@inner
def _without(holders: Holders, busy: Grid, size: int) -> None:
    """Into the grid's scratch: when blocks of a size are busy if all that may give way do."""
    words, none, wide = busy.scratch, len(holders.words), 1
    for g in range(len(words)):
        word, n = busy.rows[g], holders.owner[g]
        if n < none and holders.may[n]:
            word &= ~holders.words[n]
        words[g] = word
    while wide < size:
        for g in range(len(words) - wide):
            words[g] |= words[g + wide]
        wide *= 2


@compiled
def block(
    fleet: Fleet, holders: Holders, k: int, pools: int, brief: Grid, minimum: int, whole: Grid,
    length: int,
) -> int:  # fmt: skip
    """First GPU of the block for which least is lost; of equals the lowest.

    It is free from now on for `minimum` timesteps in one grid and for `length` in the other, but
    for what may give way. -1: there is no such block, or none that anything gives way for.
    """
    best, least = -1, 0
    size, outside = fleet.sizes[k], fleet.outside[pools]
    soon, long = below(minimum), below(length)
    _without(holders, brief, size)
    _without(holders, whole, size)
    for n in range(len(holders.hit)):
        holders.hit[n] = -1
    for first in range(len(brief.rows) - size + 1):
        word = fleet.wall[k, first] | outside[first]
        if word | brief.scratch[first] & soon | whole.scratch[first] & long:
            continue
        lost = 0
        for g in range(first, first + size):
            n = holders.owner[g]
            if n < len(holders.hit) and holders.may[n] and holders.hit[n] != first:
                holders.hit[n] = first
                lost += holders.cost[n]
        if lost and (best < 0 or lost < least):
            best, least = first, lost
    return best
