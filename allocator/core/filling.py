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
from .compiled import filling as compiled
from .compiled.filling import Gaps
from .compiled.tables import Rows
from .items import Item, Run, allowed_starts, item_of
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
    if not construction.problem.waiting.minimum.any():
        return set()
    if (construction.grid.taken.rows & np.uint64(NOW)).all():
        return set()  # no GPU is free now
    return _Filling(construction).run()


class _Filling:
    """``kept``: what no filler may touch for all its length. ``due``: what it must leave when its
    minimum is over: that, and the planned starts of all that came before it.

    The loop over what waits is compiled (compiled/filling.py); who is moved is decided here.
    """

    def __init__(self, construction: Construction) -> None:
        self.construction = construction
        self.problem, self.placed = construction.problem, construction.placed
        self.order: Rows = construction.turned
        self.names = construction.names(self.order)
        self.row = dict(zip(self.names, self.order.tolist(), strict=True))
        for name in construction.fixed:
            self.row.pop(name, None)
        self.planned = {a.job: a for a in self.placed.assignments if a.job in self.row}
        self.gaps = self._gaps()
        self.kept, self.due = Busy.room(construction.layout), Busy.room(construction.layout)
        self.free = compiled.open_gaps(
            construction.layout.fleet, construction.table, self.gaps, construction.grid.taken.grid,
            self.due.grid, self.kept.grid,
        )  # fmt: skip
        self.moved: dict[str, Assignment] = {}  # what is left of runs that were moved

    def _gaps(self) -> Gaps:
        construction, many = self.construction, len(self.construction.table.size)
        start, first = np.full(many, -1, np.int64), np.zeros(many, np.int64)
        rows = [self.row[name] for name in self.planned]
        start[rows] = [a.start for a in self.planned.values()]
        first[rows] = [a.first_gpu for a in self.planned.values()]
        movable = np.zeros(many, np.bool_)
        movable[list(self.row.values())] = True
        leaves, sizes = len(construction.turns.tree.parent), len(construction.layout.fleet.sizes)
        return Gaps(
            order=self.order,
            minimum=self.problem.waiting.minimum,
            movable=movable,
            start=start,
            first=first,
            started=np.full(many, -1, np.int64),
            vain=np.zeros((leaves, sizes), np.bool_),
        )

    def run(self) -> set[str]:
        runs, moves = Movable(self.construction), True
        at, free = self._go_on(runs, 0, moves)
        while at < len(self.order):
            self.free = free
            moves = self._by_moves(runs, int(self.order[at]))
            if moves:
                runs = Movable(self.construction)  # they are others now
                at += 1
            at, free = self._go_on(runs, at, moves)
        if not (self.gaps.started >= 0).any():
            return set()
        self._plan_behind(self._started())
        return {a.job for a in self.placed.assignments if a.start == 0}

    def _go_on(self, runs: Movable, at: int, moves: bool) -> tuple[int, int]:
        """Start what fits, until runs might be moved: at which place, and GPUs that are free."""
        construction, preemptor = self.construction, self.construction.preemptor
        return compiled.start_in_gaps(
            construction.layout.fleet, construction.table, construction.turns.tree, preemptor.runs,
            runs.holders, runs.free_to, construction.spares, self.gaps, self.due.grid,
            self.kept.grid, self.free, self.problem.timestep_seconds, at, moves,
        )  # fmt: skip

    def _started(self) -> dict[str, Assignment]:
        """What starts now after all, by turn."""
        found, started = {}, self.gaps.started[self.order]
        for n in np.flatnonzero(started >= 0).tolist():
            item = item_of(self.problem, self.construction.table, int(self.order[n]))
            first, length = int(started[n]), self._length(item)
            found[item.name] = Assignment(item.name, first, item.gpus, 0, length)
        return found

    def _length(self, item: Item) -> int:
        return min(item.length, self.problem.horizon)

    def _start(self, item: Item, first: int) -> None:
        assert item.minimum is not None
        self._hold(first, item.gpus, item.minimum, self._length(item))
        self.gaps.started[self.row[item.name]] = first

    def _hold(self, first: int, gpus: int, minimum: int, length: int) -> None:
        self.due.hold(first, gpus, span(0, minimum))
        self.kept.hold(first, gpus, span(0, length))
        self.free -= gpus

    # Consolidation

    def _by_moves(self, runs: Movable, i: int) -> bool:
        """Start row i on a block that runs leave which can go on elsewhere at once."""
        item, vain = item_of(self.problem, self.construction.table, i), self.gaps.vain
        assert item.minimum is not None
        kind = item.leaf, self.construction.layout.size_index[item.gpus]
        vain[kind] = True
        brief, whole = (self.due, item.minimum), (self.kept, self._length(item))
        found = runs.block(item, brief, whole)
        if found is None:
            return False
        first, victims = found
        victims.sort(key=lambda run: (-run.job.gpus, run.first))
        spots = self._spots(item, first, victims)
        if spots is None:
            return False
        self._move(item, first, victims, spots)
        vain[kind] = False
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
        for run in victims:
            gone |= {run.job.name, run.job.name + REST}
            for busy in (self.due, self.kept):
                rows = busy.rows.copy()
                rows[run.rows] &= ~np.uint64(span(0, run.until))
                busy.replace(rows)
            self.free += run.job.gpus
            self.planned.pop(run.job.name + REST, None)
            row = self.row.pop(run.job.name + REST, None)
            if row is not None:  # it was stopped later, and now is at once
                self.gaps.movable[row] = False
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

    def _plan_behind(self, started: dict[str, Assignment]) -> None:
        """All other planned starts again, in the order of their turns, around what was filled in.

        What keeps its place keeps it: only what a filler stands in front of moves.
        """
        stay = [a for a in self.placed.assignments if a.job not in self.row]
        fillers = [*started.values(), *self.moved.values()]
        planned = {name: a for name, a in self.planned.items() if name not in started}
        behind = {n for n, a in planned.items() if any(_meet(a, filler) for filler in fillers)}
        unmoved = [a for name, a in planned.items() if name not in behind]
        self.placed.assignments = [*stay, *fillers, *unmoved]
        self.construction.fixed |= set(self.moved)  # what was promised to it stays
        if not behind:
            return
        busy = self.kept.copy()
        for a in unmoved:
            busy.hold(a.first_gpu, a.gpus, span(a.start, a.end))
        for name in planned:
            if name in behind:
                self.construction.promised[name] = planned[name].start
                self._place(busy, item_of(self.problem, self.construction.table, self.row[name]))

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
