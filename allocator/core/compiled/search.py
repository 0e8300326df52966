"""The search over orders: each pass places everything anew, the best plan is kept.

A pass takes the order at hand, moves one to three places or changes how a place chooses among
blocks, and puts each item at its earliest start. Services either stay where the construction put
them, or jobs are packed first, as long as enough cells stay free for every service's count, and
services move aside afterwards. A plan is kept if it is worth more and every leaf has what it is
owed; one that is worth the same only moves the search on.
"""

import numpy as np

from . import compiled
from .blocks import best_block, hold, refill
from .moving import Room, move_aside
from .tables import Fleet, Grid, Items, Rows, Search, Services, State, Words
from .words import ONE, ZERO, lowest, shifts, span

CONTACT, LOW, HIGH, APART = 0, 1, 2, 3  # how a place chooses among free blocks
SLACK = 1e-9  # past any error of summation, relative


@compiled
def _random(state: State, below: int) -> int:
    """A number in [0, below): xorshift, so that a seed gives the same plan on every machine."""
    x = state.random[0]
    x ^= x << np.uint64(13)
    x ^= x >> np.uint64(7)
    x ^= x << np.uint64(17)
    state.random[0] = x
    return int(np.int64((x >> np.uint64(33)) % np.uint64(below)))


@compiled
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


@compiled
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


@compiled
def _tighten(slack: Rows, gpus: int, horizon: int, tight: Words) -> None:
    for d in range(len(tight)):
        word = ZERO
        for t in range(horizon):
            if slack[d, t] < gpus:
                word |= ONE << np.uint64(t)
        tight[d] = word


@compiled
def place(
    fleet: Fleet,
    items: Items,
    search: Search,
    order: Rows,
    choice: Rows,
    aside: bool,
    grid: Grid,
    slack: Rows,
    used: Rows,
    tight: Words,
    start: Rows,
    first: Rows,
) -> float:
    """Put each item at its earliest start, in order; what the plan's jobs are worth."""
    value = 0.0
    used[:] = 0
    tight[:] = ZERO
    slack[:, :] = search.slack
    for place_ in range(len(order)):
        kind = order[place_]
        i = search.members[search.begins[kind] + used[kind]]
        used[kind] += 1
        start[i] = -1
        if items.allowed[i] == ZERO:
            continue
        gpus = items.gpus[i]
        if aside:
            _tighten(slack, gpus, fleet.horizon, tight)
        found = _free(fleet, search, grid, items, i, tight)
        if found == ZERO:
            continue
        t = lowest(found)
        end = min(t + items.length[i], fleet.horizon)
        word = span(t, end)
        b = _choose(fleet, grid, items.size[i], t, word, choice[place_])
        hold(fleet, grid, b, gpus, word)
        start[i], first[i] = t, b
        if aside:
            for u in range(t, end):
                slack[search.domain[b], u] -= gpus
        value += items.value[i] * gpus * (search.worth[end] - search.worth[t])
    return value


@compiled
def keeps(fleet: Fleet, items: Items, search: Search, start: Rows, given: Rows) -> bool:
    """Whether every leaf has what it is owed in every prefix."""
    if len(search.floor) == 0:
        return True
    given[:, :] = 0
    for i in range(len(start)):
        if start[i] >= 0 and search.group[i] >= 0:
            given[search.group[i], start[i]] += items.gpus[i]
            end = start[i] + items.length[i]
            if end < fleet.horizon:
                given[search.group[i], end] -= items.gpus[i]
    for row in range(len(search.floor)):
        held, total = 0, 0
        for t in range(fleet.horizon):
            held += given[row, t]
            total += held
            if total < search.floor[row, t]:
                return False
    return True


@compiled
def _move(state: State, search: Search, order: Rows, choice: Rows) -> None:
    """One to three places moved or exchanged, or their choice changed; funded work in front."""
    n = len(order)
    for _ in range(1 + _random(state, 3)):
        a = _random(state, n)
        low, high = (0, search.funded) if a < search.funded else (search.funded, n)
        b = low + _random(state, high - low)
        what = _random(state, 8)
        if what == 7:
            choice[a] = _random(state, 3)
        elif what < 3:
            order[a], order[b] = order[b], order[a]
            choice[a], choice[b] = choice[b], choice[a]
        else:
            step = 1 if a < b else -1
            kind, how = order[a], choice[a]
            for j in range(a, b, step):
                order[j], choice[j] = order[j + step], choice[j + step]
            order[b], choice[b] = kind, how


@compiled
def run(
    fleet: Fleet,
    items: Items,
    services: Services,
    search: Search,
    still: Grid,
    without: Grid,
    state: State,
    passes: int,
    known: Rows,
    done: int,
) -> None:
    """So many passes; first the orders of `known` [m, n], then moves on the order at hand.

    `done` passes were made before.

    `still`: the grid with services where the construction put them; `without`: without those that
    may move aside.
    """
    n, gpus = len(state.order), len(still.rows)
    order, choice = np.empty(n, np.int64), np.empty(n, np.int64)
    start, first = np.empty(n, np.int64), np.empty(n, np.int64)
    used, tight = np.zeros(len(search.begins), np.int64), np.empty(len(search.slack), np.uint64)
    slack, given = np.empty_like(search.slack), np.empty_like(search.floor)
    serving = np.zeros_like(state.serving)
    grid = Grid(np.empty(gpus, np.uint64), np.empty_like(still.blocks), np.empty(gpus, np.uint64))
    room = Room(
        np.empty(gpus, np.uint64),
        np.empty(gpus, np.int64),
        np.empty(gpus, np.bool_),
        np.empty(65, np.int64),
    )
    for number in range(passes):
        aside = search.moves and (done + number) % 4 != 0
        if number < len(known):
            order[:] = known[number]
            choice[:] = CONTACT
        else:
            order[:] = state.order
            choice[:] = state.choice
            _move(state, search, order, choice)
        refill(fleet, without if aside else still, grid)
        value = place(
            fleet, items, search, order, choice, aside, grid, slack, used, tight, start, first
        )
        near = SLACK * max(1.0, abs(state.value[1]))
        if value < state.value[0] - near or not keeps(fleet, items, search, start, given):
            continue
        if aside and not move_aside(fleet, services, grid.rows, serving, room):
            continue
        state.value[0] = max(value, state.value[0])
        state.order[:] = order
        state.choice[:] = choice
        if value > state.value[1] + near:
            state.value[1] = value
            state.start[:] = start
            state.first[:] = first
            state.aside[0] = aside
            if aside:
                state.serving[:, :] = serving
