"""The block that a job would take where runs may give way; yielding.py says which may."""

from . import compiled
from .tables import Fleet, Rows, Words
from .words import ONE


@compiled
def block(fleet: Fleet, free: Words, k: int, owner: Rows, cost: Rows, hit: Rows) -> int:
    """First GPU of the block, free at timestep 0, for which least is lost; of equals the lowest.

    `owner` [G]: what holds a GPU and may give way, -1: nothing; `cost`: what is lost if it does,
    all of it at once; `hit`: room, one for each. -1: there is no such block, or none that anything
    gives way for.
    """
    best, least = -1, 0
    size = fleet.sizes[k]
    for n in range(len(hit)):
        hit[n] = -1
    for first in range(len(free) - size + 1):
        if not free[first] & ONE:
            continue
        lost = 0
        for g in range(first, first + size):
            n = owner[g]
            if n >= 0 and hit[n] != first:
                hit[n] = first
                lost += cost[n]
        if lost and (best < 0 or lost < least):
            best, least = first, lost
    return best
