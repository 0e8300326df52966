"""Debug jobs that would wait: they start beside everything, or in the place of their budget's runs.

Where nothing needs a block until it is over, a debug job starts on it, whosever turn it is. Else
jobs of its own budget that would start now and runs of it give way, so that no other budget
notices; they are planned right behind it. Of one budget the debug jobs that are ahead of its order
hold at most 16 GPUs at once, as many as two of the largest, so that nothing is gained by calling
work debugging: those in the place of runs are counted, and for the place of a start all that run.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from .bits import Busy, span, starts_at
from .compiled.tables import Rows
from .contract import DEBUG_GPUS
from .items import Item, allowed_starts
from .plan import Assignment, Cause
from .problem import REST
from .yielding import NOW, block_among, may_yield

if TYPE_CHECKING:
    from .heuristic import Construction

AHEAD = 2 * DEBUG_GPUS


def start_debug_jobs(construction: Construction) -> set[str]:
    """Start them; the names of those that were. Changes assignments and the grid."""
    columns = construction.problem.columns
    debug = np.flatnonzero(columns.debug & columns.funded & ~columns.running)
    waiting = {columns.names[row] for row in debug.tolist()}
    if waiting:
        waiting -= {a.job for a in construction.placed.assignments if a.start == 0}
    return _Ahead(construction, waiting).run() if waiting else set()


class _Ahead:
    """``busy``: the plan as it stands."""

    def __init__(self, construction: Construction, waiting: set[str]) -> None:
        self.construction = construction
        self.problem, self.waiting = construction.problem, waiting
        self.horizon = self.problem.horizon
        self.planned = {a.job: a for a in construction.placed.assignments}
        self.busy = Busy(construction.layout, construction.grid.taken.rows)
        self.started: set[str] = set()
        columns = self.problem.columns
        rows = np.flatnonzero(columns.debug & ~columns.running)
        debug = {columns.names[row] for row in rows.tolist()}
        stays = debug | construction.fixed
        self.movable = {item.name: item for item in construction.items if item.name not in stays}

    def run(self) -> set[str]:
        ahead, all_now = self._ahead()
        for item in self.construction.items:
            if item.name not in self.waiting or not allowed_starts(self.problem, item) & NOW:
                continue
            self._forget(item.name)
            before = ahead.get(item.leaf, 0), all_now.get(item.leaf, 0)
            if not self._beside(item) and (taken := self._in_place(item, before)):
                ahead[item.leaf] = before[0] + taken
            if item.name in self.started:
                all_now[item.leaf] = before[1] + item.gpus
            elif (a := self.planned.get(item.name)) is not None:
                self.busy.hold(a.first_gpu, a.gpus, span(a.start, a.end))
        if self.started:
            self.construction.placed.assignments = list(self.planned.values())
            self.construction.grid.taken.replace(self.busy.rows)
        return self.started

    def _ahead(self) -> tuple[dict[int, int], dict[int, int]]:
        """Per leaf: GPUs that its debug jobs hold in the place of its runs; that they hold now."""
        ahead: dict[int, int] = {}
        all_now: dict[int, int] = {}
        columns, leaves = self.problem.columns, self.problem.columns.leaves(self.problem)
        for row in np.flatnonzero(columns.debug | columns.ahead).tolist():
            name, leaf, gpus = columns.names[row], int(leaves[row]), int(columns.gpus[row])
            if name in self.waiting:
                continue
            a = self.planned.get(name)
            if columns.debug[row] and a is not None and a.start == 0:
                all_now[leaf] = all_now.get(leaf, 0) + gpus
            if columns.ahead[row]:
                ahead[leaf] = ahead.get(leaf, 0) + gpus
        return ahead, all_now

    def _length(self, item: Item) -> int:
        return min(item.length, self.horizon)

    def _beside(self, item: Item) -> bool:
        length = self._length(item)
        free = starts_at(self.busy.free_starts(item.gpus, length, NOW, item.pools), 0)
        if not len(free):
            return False
        self._start(item, self.busy.best_block(free, item.gpus, span(0, length)))
        return True

    def _in_place(self, item: Item, before: tuple[int, int]) -> int:
        """Start it on what its own budget gives up; GPUs that are so ahead in the place of runs."""
        construction, (ahead, all_now) = self.construction, before
        runs: Rows = np.zeros(0, np.int64)
        if ahead + item.gpus <= AHEAD:
            runs = may_yield(construction, item)
        starts = self._starts(item) if all_now + item.gpus <= AHEAD else []
        found = block_among(construction, runs, starts, item, self.busy, self._length(item))
        if found is None:
            return 0
        first, victims, given_up = found
        for run in victims:
            for name in (run.job.name, run.job.name + REST):
                self._forget(name)
                self.planned.pop(name, None)
        for a in given_up:
            self._forget(a.job)
            self.planned.pop(a.job, None)
        construction.preemptor.stop(victims, 0, item.name, item.leaf, item.gpus, Cause.DEBUG)
        self._start(item, first)
        for run in victims:
            self._go_on(construction.rest_of_stopped(run), run.first, self._length(item))
        for a in given_up:
            self._go_on(self.movable[a.job], a.first_gpu, self._length(item))
        return item.gpus if victims else 0

    def _starts(self, item: Item) -> list[Assignment]:
        """Jobs of the item's leaf that would start now; giving them up loses nothing."""
        named = (self.planned.get(name) for name in self.movable)
        return [
            a
            for a in named
            if a is not None and a.start == 0 and self.movable[a.job].leaf == item.leaf
        ]

    def _start(self, item: Item, first: int) -> None:
        self._plan(item, first, 0)
        self.started.add(item.name)

    def _go_on(self, item: Item, first: int, after: int) -> None:
        """Plan what gave way: where it stood, else where it can go on first."""
        allowed = allowed_starts(self.problem, item) & ~NOW
        same = self.busy.free_starts(item.gpus, item.length, 1 << after & allowed, item.pools)
        if same[first]:
            self._plan(item, first, after)
            return
        found = self.busy.earliest(item.gpus, item.length, allowed, item.pools)
        if found is not None:
            self._plan(item, found[1], found[0])

    def _plan(self, item: Item, first: int, start: int) -> None:
        end = min(start + item.length, self.horizon)
        self.planned[item.name] = Assignment(item.name, first, item.gpus, start, end)
        self.busy.hold(first, item.gpus, span(start, end))

    def _forget(self, name: str) -> None:
        """What was planned for it no longer counts."""
        a = self.planned.get(name)
        if a is not None:
            rows = self.busy.rows.copy()
            rows[a.first_gpu : a.first_gpu + a.gpus] &= ~np.uint64(span(a.start, a.end))
            self.busy.replace(rows)
