"""The construction's turns, compiled: leaf by leaf, each job at its earliest start.

Where a decision needs more than that (a run's turn, or a job that might stop a run), `advance`
stops and says what it came to; its caller decides and calls it again.
"""

from typing import NamedTuple

import numpy as np

from . import compiled, inner
from .blocks import earliest, free_starts, hold
from .tables import Flags, Fleet, Grid, Items, Rows, Words
from .turns import ONE_MORE, RUNNING, WAITING, Tree, close_turn, give, next_turn, open_turns
from .words import ONE, ZERO, below, count, span

DONE, RUN, FORCE = 0, 1, 2  # what `advance` came to


class Queue(NamedTuple):
    """Per leaf and kind (0 unfunded, 1 funded): its items, best first, in [begin, end)."""

    items: Rows
    begin: Rows  # [2, N]
    end: Rows  # [2, N]


class Stays(NamedTuple):
    """R runs that may be stopped, and whose turns are still to come.

    Where a run has its whole wish, which is nearly always, its turn is taken here.
    """

    first: Rows
    gpus: Rows
    leaf: Rows
    full: Words  # what it would like beyond its protection; 0: less than all it has left
    cells: Rows  # how many timesteps that is
    now: Flags  # the first timestep is one of them
    wish: Words  # the same, less what it must yield; 0 once it had its turn
    wishes: Words  # [G]
    turned: Flags
    items: Rows  # by leaf and kind, as in a queue, but the best is the last
    begin: Rows  # [2, N]
    end: Rows  # [2, N]


class Course(NamedTuple):
    """What was decided: per item its start and first GPU, and the order of decisions."""

    start: Rows  # [M], -1: not placed
    first: Rows  # [M]
    log: Rows  # items by turn; a run's turn is -1 - its index
    logged: Rows  # [1]


@compiled
def open_phase(tree: Tree, queue: Queue, stays: Stays, funded: int) -> None:
    """A turn for every job that waits and every run that may be stopped, of one kind."""
    for leaf in range(len(tree.parent)):
        number = queue.end[funded, leaf] - queue.begin[funded, leaf]
        if number > 0:
            open_turns(tree, leaf, WAITING, number)
        number = stays.end[funded, leaf] - stays.begin[funded, leaf]
        if number > 0:
            open_turns(tree, leaf, RUNNING, number)


@inner
def more_urgent(items: Items, i: int, j: int) -> bool:
    """Sorts a leaf's own jobs: value, then age, then the file's order."""
    if items.value[i] != items.value[j]:
        return items.value[i] > items.value[j]
    if items.earliest[i] != items.earliest[j]:
        return items.earliest[i] < items.earliest[j]
    return items.order[i] < items.order[j]


@compiled
def enqueue(tree: Tree, items: Items, queue: Queue, i: int) -> None:
    """One more item waits; its leaf's stretch of the queue has room for it."""
    leaf, funded = items.leaf[i], int(items.funded[i])
    at = queue.end[funded, leaf]
    while at > queue.begin[funded, leaf] and more_urgent(items, i, queue.items[at - 1]):
        queue.items[at] = queue.items[at - 1]
        at -= 1
    queue.items[at] = i
    queue.end[funded, leaf] += 1
    open_turns(tree, leaf, WAITING, ONE_MORE)


@compiled
def note(course: Course, what: int) -> None:
    """One more decision."""
    course.log[course.logged[0]] = what
    course.logged[0] += 1


@compiled
def settle(
    fleet: Fleet,
    items: Items,
    tree: Tree,
    wanted: Grid,
    taken: Grid,
    both: bool,
    seconds: int,
    course: Course,
    i: int,
    t: int,
    first: int,
) -> None:
    """Decide: item i starts at t on the block from `first`; it counts for its leaf's next turn."""
    gpus, end = items.gpus[i], min(t + items.length[i], fleet.horizon)
    word = span(t, end)
    hold(fleet, taken, first, gpus, word)
    if both:
        hold(fleet, wanted, first, gpus, word)
    course.start[i], course.first[i] = t, first
    cells = gpus * seconds
    give(tree, items.leaf[i], cells * (end - t), cells if t == 0 else 0)


@inner
def could_force(fleet: Fleet, items: Items, taken: Grid, i: int, allowed: np.uint64) -> bool:
    """Whether item i could start then if every run that had no turn yet were stopped."""
    if allowed == ZERO:
        return False
    k, length, pools = items.size[i], items.length[i], items.pools[i]
    return free_starts(fleet, taken, k, length, allowed, pools, taken.scratch) != ZERO


@inner
def _stay(
    fleet: Fleet, tree: Tree, stays: Stays, taken: Grid, seconds: int, course: Course, r: int
) -> bool:
    """The turn of run r, if it has its whole wish. It is in the wanted grid already."""
    word, first, gpus = stays.wish[r], stays.first[r], stays.gpus[r]
    if word == ZERO or word != stays.full[r]:
        return False
    for g in range(first, first + gpus):
        if taken.rows[g] & word:
            return False
    hold(fleet, taken, first, gpus, word)
    for g in range(first, first + gpus):
        stays.wishes[g] = ZERO
    stays.wish[r] = ZERO
    stays.turned[r] = True
    note(course, -1 - r)
    cells = gpus * seconds
    give(tree, stays.leaf[r], stays.cells[r] * cells, cells if stays.now[r] else 0)
    return True


@compiled
def advance(
    fleet: Fleet,
    items: Items,
    tree: Tree,
    queue: Queue,
    stays: Stays,
    wanted: Grid,
    taken: Grid,
    both: bool,
    funded: int,
    runs: int,
    seconds: int,
    course: Course,
) -> tuple[int, int, int, int]:
    """Turns until all are over or one needs its caller: (what, run or item, start, first GPU).

    `wanted` is `taken` with the wishes of runs that had no turn yet; `both` says that they differ,
    `runs` how many such runs there are.
    """
    while True:
        leaf, turn = next_turn(tree)
        if leaf < 0:
            return DONE, 0, 0, 0
        close_turn(tree, leaf, turn)
        if turn == RUNNING:
            stays.end[funded, leaf] -= 1
            r = stays.items[stays.end[funded, leaf]]
            if not _stay(fleet, tree, stays, taken, seconds, course, r):
                return RUN, r, 0, 0
            runs -= 1
            continue
        i = queue.items[queue.begin[funded, leaf]]
        queue.begin[funded, leaf] += 1
        note(course, i)
        allowed = items.allowed[i]
        t, first = earliest(fleet, wanted, items.size[i], items.length[i], allowed, items.pools[i])
        if runs > 0 and items.funded[i] and not items.rest[i]:
            sooner = allowed if t < 0 else allowed & below(t)
            if could_force(fleet, items, taken, i, sooner):
                return FORCE, i, t, first
        if t >= 0:
            settle(fleet, items, tree, wanted, taken, both, seconds, course, i, t, first)


@compiled
def hold_words(
    fleet: Fleet, wanted: Grid, taken: Grid, both: bool, words: Words
) -> tuple[int, int]:
    """Mark what a service takes, one word per GPU: (cells in all, cells in the first timestep)."""
    cells, first = 0, 0
    for g in range(len(words)):
        if words[g] != ZERO:
            hold(fleet, taken, g, ONE_MORE, words[g])
            if both:
                hold(fleet, wanted, g, ONE_MORE, words[g])
            cells += count(words[g])
            first += 1 if words[g] & ONE else 0
    return cells, first


@compiled
def stack(
    fleet: Fleet,
    services: Rows,
    needed: Words,
    pools: Rows,
    base: Rows,
    base_needed: Words,
    base_service: Rows,
    busy: Words,
    serving: Words,
) -> bool:
    """All services in one corner: their positions by GPU, deepest first; False: no room.

    `base`: the GPUs that services hold now, each needed by its service in `base_needed`; `needed`
    and `services` are the open positions, those needed longest first. `busy` words are not free,
    and are changed; the answer is written to `serving` [S, G], which is all 0 before.
    """
    words = busy
    for position in range(len(base)):
        g = base[position]
        if words[g] & base_needed[position]:
            return False
        words[g] |= base_needed[position]
        serving[base_service[position], g] |= base_needed[position]
    for position in range(len(needed)):
        s, word, found = services[position], needed[position], -1
        for g in range(len(words) - 1, -1, -1):
            if not (words[g] & word) and fleet.outside[pools[s], g] == ZERO:
                found = g
                break
        if found < 0:
            return False
        words[found] |= word
        serving[s, found] |= word
    return True
