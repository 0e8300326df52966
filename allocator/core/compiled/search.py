"""The search over orders: each pass places everything anew, the best plan is kept.

A pass takes the order at hand, moves one to three places or changes how a place chooses among
blocks, and puts each item at its earliest start. Services either stay where the construction put
them, or jobs are packed first, as long as enough cells stay free for every service's count, and
services move aside afterwards. A plan is kept if it is worth more and every leaf has what it is
owed; one that is worth the same only moves the search on.
"""

import numpy as np

from . import compiled, inner, number
from .blocks import best_block, hold, refill
from .moving import move_aside
from .tables import Desk, Fleet, Grid, Items, Room, Rows, Search, Services, State, Words
from .words import ONE, ZERO, lowest, shifts, span

CONTACT, LOW, HIGH = number(0), number(1), number(2)  # how a place chooses among free blocks
CHOICES, MOVES = number(3), number(8)
SLACK = 1e-9  # past any error of summation, relative


@inner
def _random(state: State, below: int) -> int:
    """A number in [0, below): xorshift, so that a seed gives the same plan on every machine."""
    x = state.random[0]
    x ^= x << np.uint64(13)
    x ^= x >> np.uint64(7)
    x ^= x << np.uint64(17)
    state.random[0] = x
    return int(np.int64((x >> np.uint64(33)) % np.uint64(below)))


@inner
def _free(
    fleet: Fleet, search: Search, grid: Grid, items: Items, i: int, tight: Words
) -> np.uint64:
    """Free starts of item i per block, into the grid's scratch; all of them ORed.

    `tight` per pool: timesteps at which the services need the cells.
    """
    found, allowed = ZERO, items.allowed[i]
    s, t, u, v, w, x = shifts(items.length[i])
    busy, outside = grid.blocks[items.size[i]], fleet.outside[items.pools[i]]
    for b in range(len(grid.rows) - items.gpus[i] + 1):
        word = busy[b] | outside[b] | tight[search.domain[b]]
        word |= word >> s
        word |= word >> t
        word |= word >> u
        word |= word >> v
        word |= word >> w
        word |= word >> x
        word = ~word & allowed
        grid.scratch[b] = word
        found |= word
    return found


@inner
def _choose(fleet: Fleet, grid: Grid, k: int, t: int, word: np.uint64, choice: int) -> int:
    """One of the blocks that are free at t."""
    if choice == CONTACT:
        return best_block(fleet, grid, k, grid.scratch, t, word)
    bit, chosen = ONE << np.uint64(t), -1
    for b in range(len(grid.rows) - fleet.sizes[k] + 1):
        if grid.scratch[b] & bit:
            chosen = b
            if choice == LOW:
                break
    return chosen


@inner
def _tighten(slack: Rows, gpus: int, horizon: int, tight: Words) -> None:
    for d in range(len(tight)):
        word = ZERO
        for t in range(horizon):
            if slack[d, t] < gpus:
                word |= ONE << np.uint64(t)
        tight[d] = word


@inner
def _start_over(fleet: Fleet, search: Search, desk: Desk) -> None:
    for kind in range(len(desk.used)):
        desk.used[kind] = 0
    for d in range(len(desk.tight)):
        desk.tight[d] = ZERO
        for t in range(fleet.horizon):
            desk.slack[d, t] = search.slack[d, t]


@inner
def place(
    fleet: Fleet, items: Items, search: Search, aside: bool, hinted: bool, grid: Grid, desk: Desk
) -> float:
    """Put each item at its earliest start, in the desk's order; what the plan's jobs are worth.

    Where a hint is followed, the desk's order is the hint's, and items go to its starts and blocks
    where those are free; of a class the oldest goes first, whichever of them the hint knows.
    """
    value = 0.0
    _start_over(fleet, search, desk)
    for at in range(len(desk.order)):
        kind = desk.order[at]
        i = search.members[search.begins[kind] + desk.used[kind]]
        desk.used[kind] += 1
        desk.start[i] = -1
        if items.allowed[i] == ZERO:
            continue
        gpus = items.gpus[i]
        if aside:
            _tighten(desk.slack, gpus, fleet.horizon, desk.tight)
        found = _free(fleet, search, grid, items, i, desk.tight)
        if found == ZERO:
            continue
        t, b = lowest(found), -1
        like = search.hint[at]  # where a hint is followed: of i's class, and it or one like it
        if hinted and search.hint_start[like] >= 0:
            wanted = ONE << np.uint64(search.hint_start[like])
            if grid.scratch[search.hint_first[like]] & wanted:
                t, b = search.hint_start[like], search.hint_first[like]
        end = min(t + items.length[i], fleet.horizon)
        word = span(t, end)
        if b < 0:
            b = _choose(fleet, grid, items.size[i], t, word, desk.choice[at])
        hold(fleet, grid, b, gpus, word)
        desk.start[i], desk.first[i] = t, b
        if aside:
            for u in range(t, end):
                desk.slack[search.domain[b], u] -= gpus
        value += items.value[i] * gpus * (search.worth[end] - search.worth[t])
    return value


@inner
def keeps(fleet: Fleet, items: Items, search: Search, desk: Desk) -> bool:
    """Whether every leaf has what it is owed in every prefix."""
    rows, horizon = len(search.floor), fleet.horizon
    for row in range(rows):
        for t in range(horizon):
            desk.given[row, t] = 0
    for i in range(len(desk.start)):
        row, start = search.group[i], desk.start[i]
        if start >= 0 and row >= 0:
            desk.given[row, start] += items.gpus[i]
            if start + items.length[i] < horizon:
                desk.given[row, start + items.length[i]] -= items.gpus[i]
    for row in range(rows):
        held, total = 0, 0
        for t in range(horizon):
            held += desk.given[row, t]
            total += held
            if total < search.floor[row, t]:
                return False
    return True


@inner
def _move(state: State, search: Search, order: Rows, choice: Rows) -> None:
    """One to three places moved or exchanged, or their choice changed; funded work in front."""
    n = len(order)
    for _ in range(1 + _random(state, CHOICES)):
        a = _random(state, n)
        low, high = (0, search.funded) if a < search.funded else (search.funded, n)
        b = low + _random(state, high - low)
        what = _random(state, MOVES)
        if what == 7:
            choice[a] = _random(state, CHOICES)
        elif what < 3:
            order[a], order[b] = order[b], order[a]
            choice[a], choice[b] = choice[b], choice[a]
        else:
            step = 1 if a < b else -1
            kind, how = order[a], choice[a]
            for j in range(a, b, step):
                order[j], choice[j] = order[j + step], choice[j + step]
            order[b], choice[b] = kind, how


@inner
def _pick(search: Search, state: State, desk: Desk, known: Rows, number: int) -> None:
    """The next order to try: the hint's, a known one, or moves on the order at hand."""
    number -= search.hinted
    for at in range(len(desk.order)):
        if number < 0:
            desk.order[at], desk.choice[at] = search.kind[search.hint[at]], CONTACT
        elif number < len(known):
            desk.order[at], desk.choice[at] = known[number, at], CONTACT
        else:
            desk.order[at], desk.choice[at] = state.order[at], state.choice[at]
    if number >= len(known):
        _move(state, search, desk.order, desk.choice)


@inner
def _keep(state: State, desk: Desk, value: float, aside: bool) -> None:
    """The best plan so far."""
    state.value[1] = value
    for i in range(len(desk.start)):
        state.start[i], state.first[i] = desk.start[i], desk.first[i]
    state.aside[0] = aside
    if aside:
        for s in range(len(desk.serving)):
            for g in range(desk.serving.shape[1]):
                state.serving[s, g] = desk.serving[s, g]


@compiled
def run(
    fleet: Fleet,
    items: Items,
    services: Services,
    search: Search,
    still: Grid,
    without: Grid,
    grid: Grid,
    desk: Desk,
    room: Room,
    state: State,
    known: Rows,
    done: int,
    passes: int,
) -> None:
    """So many passes, after `done`: first the orders of `known` [m, n], then moves.

    `still`: the grid with services where the construction put them; `without`: without those that
    may move aside; `grid`: room for a pass.
    """
    for turn in range(done, done + passes):
        aside = search.moves and turn % 4 != 0
        _pick(search, state, desk, known, turn)
        refill(fleet, without if aside else still, grid)
        value = place(fleet, items, search, aside, turn < search.hinted, grid, desk)
        near = SLACK * max(1.0, abs(state.value[1]))
        if value < state.value[0] - near or not keeps(fleet, items, search, desk):
            continue
        if aside and not move_aside(fleet, services, grid.rows, desk.serving, room):
            continue
        state.value[0] = max(value, state.value[0])
        for at in range(len(desk.order)):
            state.order[at], state.choice[at] = desk.order[at], desk.choice[at]
        if value > state.value[1] + near:
            _keep(state, desk, value, aside)
