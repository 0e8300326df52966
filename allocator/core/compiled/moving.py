"""Services move aside: GPU by GPU within their swap caps, onto what jobs leave free.

A GPU is held only while the swap cap lets its service leave it in time: for every later timestep u
the held GPUs that are taken away by u are at most cap times the timesteps until then. So what is
taken away at once is never more than the cap.
"""

import numpy as np

from . import compiled, inner
from .tables import Flags, Fleet, Room, Services, Words
from .words import ALL, ONE, ZERO, lowest

NEVER = 64  # the deadline of a GPU that nobody else needs


@compiled
def move_aside(fleet: Fleet, services: Services, rows: Words, serving: Words, room: Room) -> bool:
    """Give every service its counts on GPUs that are free in `rows`; False where that fails.

    Writes who holds what to `serving` [S, G] and marks it in `rows`.
    """
    for s in range(len(services.cap)):
        _clear(fleet, services, s, rows, room)
        number = 0
        for g in range(len(rows)):
            serving[s, g] = ZERO
        if services.starts[s]:
            number = _inherit(services, s, room)
        for t in range(fleet.horizon):
            number = _step(services, s, t, number, room)
            if number < 0:
                return False
            for g in range(len(rows)):
                if room.have[g]:
                    serving[s, g] |= ONE << np.uint64(t)
        for g in range(len(rows)):
            rows[g] |= serving[s, g]
    return True


@inner
def _clear(fleet: Fleet, services: Services, s: int, rows: Words, room: Room) -> None:
    """What others need: until a service is served itself, it keeps what it holds now."""
    pools = services.pools[s]
    for g in range(len(rows)):
        word = rows[g] | fleet.outside[pools, g]
        if services.steady[s] and services.held[s, g]:
            word &= ~ONE  # marked as taken so that no job takes it
        for other in range(s + 1, len(services.cap)):
            word |= services.held[other, g]
        room.busy[g] = word
        room.deadline[g] = lowest(word) if word else NEVER
        room.have[g] = False
    for u in range(len(room.due)):
        room.due[u] = 0


@inner
def _inherit(services: Services, s: int, room: Room) -> int:
    number = 0
    for g in range(len(room.have)):
        if services.held[s, g]:
            room.have[g] = True
            room.due[room.deadline[g]] += 1
            number += 1
    return number


@inner
def _step(services: Services, s: int, t: int, number: int, room: Room) -> int:
    """Shrink or grow to the count of timestep t; how many are held, or -1 if that can't be."""
    wanted, cap = services.counts[s, t], services.cap[s]
    if t == 0 and not services.starts[s]:
        cap = len(room.have)
    elif t == 0 and services.steady[s]:
        cap = 0
    left = _leave(t, room)
    number -= left
    while number > wanted:
        _drop(room)
        number -= 1
        left += 1
    while left <= cap and not _leaves_in_time(t, services.cap[s], room):
        _drop(room)
        number -= 1
        left += 1
    gains = wanted - number
    if left > cap or gains > cap:
        return -1
    for _ in range(gains):
        if not _gain(t, services.cap[s], room):
            return -1
    for _ in range(cap - max(left, gains)):
        if not _gather(t, services.corner, room):
            break
    return wanted


@inner
def _leave(t: int, room: Room) -> int:
    """Bring deadlines up to date and leave what is taken away at t; returns how many."""
    left = 0
    for g in range(len(room.have)):
        if room.have[g] and room.deadline[g] == t:
            room.have[g] = False
            room.due[t] -= 1
            left += 1
        if room.deadline[g] < t:
            later = room.busy[g] & (ALL << np.uint64(t))
            room.deadline[g] = lowest(later) if later else NEVER
    return left


@inner
def _drop(room: Room) -> None:
    """Leave the held GPU that is taken away first; of several the lowest."""
    worst = -1
    for g in range(len(room.have)):
        if room.have[g] and (worst < 0 or room.deadline[g] < room.deadline[worst]):
            worst = g
    room.have[worst] = False
    room.due[room.deadline[worst]] -= 1


@inner
def _leaves_in_time(t: int, cap: int, room: Room) -> bool:
    total = 0
    for u in range(t + 1, NEVER):
        total += room.due[u]
        if total > cap * (u - t):
            return False
    return True


@inner
def _gather(t: int, corner: Flags, room: Room) -> bool:
    """Leave the lowest GPU held outside the corner for one inside that stays free as long."""
    old = -1
    for g in range(len(room.have)):
        if room.have[g] and not corner[g]:
            old = g
            break
    if old < 0:
        return False
    for g in range(len(room.have) - 1, old, -1):
        free = corner[g] and not room.have[g] and room.deadline[g] > t
        if free and room.deadline[g] >= room.deadline[old]:
            room.have[old], room.have[g] = False, True
            room.due[room.deadline[old]] -= 1
            room.due[room.deadline[g]] += 1
            return True
    return False


@inner
def _gain(t: int, cap: int, room: Room) -> bool:
    """Take the free GPU that stays free longest, of several the highest, if it can be left."""
    best = -1
    for g in range(len(room.have)):
        if room.have[g] or room.deadline[g] <= t:
            continue
        if best < 0 or room.deadline[g] >= room.deadline[best]:
            best = g
    if best < 0:
        return False
    room.have[best] = True
    room.due[room.deadline[best]] += 1
    return _leaves_in_time(t, cap, room)
