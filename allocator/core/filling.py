"""Gaps in front of planned starts, filled with work that may be stopped by then.

A plan holds what it starts to its end, so GPUs that are kept for a large job's later start would
stand idle until then. A job whose minimum runtime (``minimum``) fits such a gap starts now; what it
stands in front of is planned later, behind it. By the time that was due its protection is over,
and the next plans let whoever is better entitled stop it, as the contract says. So the gap is
measured against the plan as it was before anything was filled in: no filler, nor several of them,
protects itself beyond a start that was planned.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from .bits import Busy, span, starts_at
from .items import Item, allowed_starts
from .plan import Assignment

if TYPE_CHECKING:
    from .heuristic import Construction

NOW = 1  # the word of timestep 0


def fill(construction: Construction) -> set[str]:
    """Start what fits a gap now; returns the names of all that starts now, if anything did.

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
    minimum is over: that and all planned starts."""

    def __init__(self, construction: Construction) -> None:
        self.construction = construction
        self.problem, self.placed = construction.problem, construction.placed
        self.movable = {item.name: item for item in construction.items}
        for name in construction.fixed:
            self.movable.pop(name, None)
        self.planned = {a.job: a for a in self.placed.assignments if a.job in self.movable}
        self.due = construction.grid.taken.copy()
        kept = self.due.rows.copy()
        for a in self.planned.values():
            kept[a.first_gpu : a.first_gpu + a.gpus] &= ~np.uint64(span(a.start, a.end))
        self.kept = Busy(construction.layout, kept)

    def run(self) -> set[str]:
        started = {}
        for item in self.construction.items:
            if self._may_fill(item) and (first := self._gap(item)) is not None:
                started[item.name] = self._start(item, first)
        if not started:
            return set()
        self._plan_behind(started)
        return {a.job for a in self.placed.assignments if a.start == 0}

    def _may_fill(self, item: Item) -> bool:
        """Whether an item waits, could begin now, and may be stopped."""
        if item.minimum is None or item.earliest > 0 or item.name not in self.movable:
            return False
        own = self.planned.get(item.name)
        waits = own is None or own.start > 0
        return waits and bool(allowed_starts(self.problem, item) & NOW)

    def _gap(self, item: Item) -> int | None:
        """The best block that is free now for its minimum, and never needed by what is kept."""
        assert item.minimum is not None
        brief = self.due.free_starts(item.gpus, item.minimum, NOW, item.pools)
        whole = self.kept.free_starts(item.gpus, self._length(item), NOW, item.pools)
        found = starts_at(brief & whole, 0)
        if not len(found):
            return None
        return self.due.best_block(found, item.gpus, span(0, item.minimum))

    def _length(self, item: Item) -> int:
        return min(item.length, self.problem.horizon)

    def _start(self, item: Item, first: int) -> Assignment:
        assert item.minimum is not None
        length = self._length(item)
        self.due.hold(first, item.gpus, span(0, item.minimum))
        self.kept.hold(first, item.gpus, span(0, length))
        self.planned.pop(item.name, None)
        return Assignment(item.name, first, item.gpus, 0, length)

    def _plan_behind(self, started: dict[str, Assignment]) -> None:
        """All other planned starts again, in the order of their turns, around what was filled in.

        What keeps its place keeps it: only what a filler stands in front of moves.
        """
        stay = [a for a in self.placed.assignments if a.job not in self.movable]
        busy = self.kept.copy()
        moved: list[Item] = []
        unmoved = []
        for name, a in self.planned.items():
            if any(_meet(a, filler) for filler in started.values()):
                moved.append(self.movable[name])
            else:
                busy.hold(a.first_gpu, a.gpus, span(a.start, a.end))
                unmoved.append(a)
        self.placed.assignments = [*stay, *started.values(), *unmoved]
        for item in moved:
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
