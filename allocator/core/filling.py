"""GPUs that would stand idle now, filled with work that may be stopped by the time others are due.

A plan holds what it starts to its end, so GPUs that are kept for a large job's later start would
stand idle until then. A job whose minimum runtime (``minimum``) fits such a gap starts now; what it
stands in front of is planned later, behind it. By the time that was due its protection is over,
and the next plans let whoever is better entitled stop it, as the contract says. So the gap is
measured against the plan of all that had its turn before: no filler, nor several of them, protects
itself beyond the start of a job that came before it; one that came after holds up nobody.

Where free GPUs lie scattered, runs that keep them from being one block are moved (consolidation):
each must find another block on which it can go on at once, by the same measure. That costs a
restart, and fills GPUs that nothing that waits could use.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from .bits import Busy, span, starts_at
from .items import Item, Run, allowed_starts
from .plan import Assignment, Cause
from .problem import REST
from .yielding import NOW, Movable

if TYPE_CHECKING:
    from .heuristic import Construction


def fill(construction: Construction) -> set[str]:
    """Start what fits now; returns the names of all that starts now, if anything did.

    Changes the construction's assignments, and notes in ``promised`` when
    each job that was planned behind a filler was due. What starts now then stays as it is: the
    improvement does not know what was due, and would protect other work beyond it.
    """
    if not any(job.minimum for job in construction.problem.waiting.jobs):
        return set()
    if (construction.grid.taken.rows & np.uint64(NOW)).all():
        return set()  # no GPU is free now
    return _Filling(construction).run()


class _Filling:
    """``kept``: what no filler may touch for all its length. ``due``: what it must leave when its
    minimum is over: that, and the planned starts of all that came before it."""

    def __init__(self, construction: Construction) -> None:
        self.construction = construction
        self.problem, self.placed = construction.problem, construction.placed
        self.movable = {item.name: item for item in construction.items}
        for name in construction.fixed:
            self.movable.pop(name, None)
        self.planned = {a.job: a for a in self.placed.assignments if a.job in self.movable}
        rows = construction.grid.taken.rows.copy()
        for a in self.planned.values():
            rows[a.first_gpu : a.first_gpu + a.gpus] &= ~np.uint64(span(a.start, a.end))
        self.kept = Busy(construction.layout, rows)
        self.due = self.kept.copy()
        for a in self.planned.values():
            if a.start == 0:
                self.due.hold(a.first_gpu, a.gpus, span(a.start, a.end))
        self.free = int(np.count_nonzero(self.due.rows & np.uint64(NOW) == 0))
        self.started: dict[str, Assignment] = {}
        self.moved: dict[str, Assignment] = {}  # what is left of runs that were moved
        self.in_vain: set[tuple[int, bool, int]] = set()  # moves that were sought
        self.runs: Movable | None = None

    def run(self) -> set[str]:
        for item in self.construction.items:
            if not (self._may_fill(item) and (self._in_gap(item) or self._by_moves(item))):
                self._heed(item)
        if not self.started:
            return set()
        self._plan_behind()
        return {a.job for a in self.placed.assignments if a.start == 0}

    def _may_fill(self, item: Item) -> bool:
        """Whether an item waits, could begin now, and may be stopped."""
        if item.minimum is None or item.earliest > 0 or item.name not in self.movable:
            return False
        own = self.planned.get(item.name)
        waits = own is None or own.start > 0
        return waits and bool(allowed_starts(self.problem, item) & NOW)

    def _heed(self, item: Item) -> None:
        """What comes after it must leave its planned start alone."""
        a = self.planned.get(item.name)
        if a is not None and a.start > 0:
            self.due.hold(a.first_gpu, a.gpus, span(a.start, a.end))

    # Gaps

    def _in_gap(self, item: Item) -> bool:
        """Start it on the best block that is free for its minimum, and of what is kept for all."""
        assert item.minimum is not None
        if item.gpus > self.free:
            return False
        brief = self.due.free_starts(item.gpus, item.minimum, NOW, item.pools)
        whole = self.kept.free_starts(item.gpus, self._length(item), NOW, item.pools)
        found = starts_at(brief & whole, 0)
        if not len(found):
            return False
        self._start(item, self.due.best_block(found, item.gpus, span(0, item.minimum)))
        return True

    def _length(self, item: Item) -> int:
        return min(item.length, self.problem.horizon)

    def _start(self, item: Item, first: int) -> None:
        assert item.minimum is not None
        length = self._length(item)
        self._hold(first, item.gpus, item.minimum, length)
        self.planned.pop(item.name, None)
        self.started[item.name] = Assignment(item.name, first, item.gpus, 0, length)

    def _hold(self, first: int, gpus: int, minimum: int, length: int) -> None:
        self.due.hold(first, gpus, span(0, minimum))
        self.kept.hold(first, gpus, span(0, length))
        self.free -= gpus

    # Consolidation

    def _by_moves(self, item: Item) -> bool:
        """Start it on a block that runs leave which can go on elsewhere at once."""
        assert item.minimum is not None
        kind = (item.leaf, item.funded, item.gpus)
        if not item.funded or item.gpus > self.free or kind in self.in_vain:
            return False
        self.in_vain.add(kind)
        if self.runs is None:
            self.runs = Movable(self.construction)
        brief, whole = (self.due, item.minimum), (self.kept, self._length(item))
        found = self.runs.block(item, brief, whole)
        if found is None:
            return False
        first, victims = found
        victims.sort(key=lambda run: (-run.job.gpus, run.first))
        spots = self._spots(item, first, victims)
        if spots is None:
            return False
        self._move(item, first, victims, spots)
        self.in_vain.discard(kind)
        return True

    def _spots(self, item: Item, first: int, victims: list[Run]) -> list[int] | None:
        """Where each victim could go on now, beside the item; None: not all of them can."""
        assert item.minimum is not None
        due, kept = self.due.copy(), self.kept.copy()
        due.hold(first, item.gpus, span(0, item.minimum))
        kept.hold(first, item.gpus, span(0, self._length(item)))
        spots = []
        for run in victims:
            job = run.job
            assert job.minimum is not None
            assert job.running is not None
            length = min(job.running.remaining + 1, self.problem.horizon)
            brief = due.free_starts(job.gpus, job.minimum, NOW, job.pools)
            whole = kept.free_starts(job.gpus, length, NOW, job.pools)
            found = starts_at(brief & whole, 0)
            if not len(found):
                return None
            spot = due.best_block(found, job.gpus, span(0, job.minimum))
            due.hold(spot, job.gpus, span(0, job.minimum))
            kept.hold(spot, job.gpus, span(0, length))
            spots.append(spot)
        return spots

    def _move(self, item: Item, first: int, victims: list[Run], spots: list[int]) -> None:
        horizon, gone = self.problem.horizon, set()
        self.runs = None  # they are others now
        for run in victims:
            gone |= {run.job.name, run.job.name + REST}
            for busy in (self.due, self.kept):
                rows = busy.rows.copy()
                rows[run.rows] &= ~np.uint64(span(0, run.until))
                busy.replace(rows)
            self.free += run.job.gpus
            self.planned.pop(run.job.name + REST, None)
            self.movable.pop(run.job.name + REST, None)
        self.placed.assignments = [a for a in self.placed.assignments if a.job not in gone]
        self.construction.preemptor.stop(victims, 0, item.name, item.leaf, item.gpus, Cause.MOVED)
        self._start(item, first)
        for run, spot in zip(victims, spots, strict=True):
            rest = self.construction.rest_of_stopped(run)
            end = min(rest.earliest + rest.length, horizon)
            assert run.job.minimum is not None
            self._hold(spot, rest.gpus, run.job.minimum, end)
            self.moved[rest.name] = Assignment(rest.name, spot, rest.gpus, rest.earliest, end)

    # Everything else

    def _plan_behind(self) -> None:
        """All other planned starts again, in the order of their turns, around what was filled in.

        What keeps its place keeps it: only what a filler stands in front of moves.
        """
        stay = [a for a in self.placed.assignments if a.job not in self.movable]
        fillers = [*self.started.values(), *self.moved.values()]
        busy = self.kept.copy()
        behind: list[Item] = []
        unmoved = []
        for name, a in self.planned.items():
            if any(_meet(a, filler) for filler in fillers):
                behind.append(self.movable[name])
            else:
                busy.hold(a.first_gpu, a.gpus, span(a.start, a.end))
                unmoved.append(a)
        self.placed.assignments = [*stay, *fillers, *unmoved]
        self.construction.fixed |= set(self.moved)  # what was promised to it stays
        for item in behind:
            self.construction.promised[item.name] = self.planned[item.name].start
            self._place(busy, item)

    def _place(self, busy: Busy, item: Item) -> None:
        """Plan an item later. Not now: what starts now was measured against what is due."""
        allowed = allowed_starts(self.problem, item) & ~NOW
        spot = busy.earliest(item.gpus, item.length, allowed, item.pools)
        if spot is not None:
            t, first = spot
            end = min(t + item.length, self.problem.horizon)
            busy.hold(first, item.gpus, span(t, end))
            self.placed.assignments.append(Assignment(item.name, first, item.gpus, t, end))


def _meet(a: Assignment, b: Assignment) -> bool:
    """Whether two assignments want a cell in common."""
    return (
        a.first_gpu < b.first_gpu + b.gpus
        and b.first_gpu < a.first_gpu + a.gpus
        and a.start < b.end
        and b.start < a.end
    )
