"""The construction: one pass that gives a legal plan and keeps the contract.

1. Pins: what protected runs still owe, and drains. 2. Real time, within its swap caps. 3. Turns:
funded work first, then unfunded; again and again the most under-served leaf places its best job at
the earliest start, on the block that leaves the free pool most usable. A run over its protection
has a turn too, at its own block. A job that fits nowhere holds up nobody. 4. Debug jobs that
would wait start, in the place of their own budget's runs if need be (debug_jobs.py). 5. GPUs that
would stand idle now are filled with work that may be stopped by the time others are due
(filling.py).

The turns of waiting jobs are compiled (compiled/building.py); what stops a run is decided here.
"""

from functools import cached_property

import numpy as np

from .compiled import building
from .compiled.building import Course
from .compiled.tables import Rows
from .debug_jobs import start_debug_jobs
from .filling import fill
from .grid import Grid
from .items import Item, Placed, Run, Stoppable, item_of, items_of, line_up_runs, write_rest
from .layout import Layout
from .plan import Assignment, Cause, Preemption
from .preempt import Preemptor
from .present import pins, protected_use
from .problem import Problem
from .serving import Services
from .settings import Settings
from .turns import Turns


class Construction:
    """One problem, planned once; `placed`, `grid` and `fixed` are what later passes start from."""

    def __init__(self, problem: Problem, settings: Settings | None = None) -> None:
        self.problem = problem
        self.layout: Layout = problem.layout
        self.healthy = self.layout.healthy
        self.turns = Turns(problem, sum(self.healthy) * problem.timestep_seconds)
        self.placed = Placed()
        self.fixed: set[str] = set()  # runs, and jobs that stopped one: no later pass moves them
        self.filled = False  # gaps in front of planned starts hold work that starts now
        self.promised: dict[str, int] = {}  # planned behind a filler: when it was due
        self.table, self.queue = problem.waiting.copies()
        self.rests: dict[int, int] = {}  # row of what is left of each run that is stopped
        self.runs = self._pin()  # those that want more than their protection
        held = self.runs.held
        self.grid = Grid(problem, self.layout, pins(problem), self.runs)
        self.preemptor = Preemptor(self.grid, self.turns, settings or Settings())
        self.services = Services(problem, self.grid, self.turns, self.preemptor)
        size = len(self.table.size)
        self.course = Course(
            start=np.full(size, -1, np.int64),
            first=np.zeros(size, np.int64),
            log=np.zeros(size + len(self.runs), np.int64),
            logged=np.zeros(1, np.int64),
        )
        self.stays = line_up_runs(held, self.grid, problem)
        self.spares = self.preemptor.spares(size)

    def build(self) -> Placed:
        """The whole pass."""
        self.services.promise()
        self.services.serve(funded=True)
        self._phase(funded=True)
        self.services.serve(funded=False)
        if self.problem.waiting.unfunded or not self.runs.held.funded.all():
            self._phase(funded=False)
        self.placed.realtime = self.services.sets()
        self.placed.preemptions = self.preemptor.record
        self.fixed.update(self.runs.names())
        self._list()
        started = start_debug_jobs(self)
        self.fixed |= started
        started = fill(self) or started
        self.filled = bool(started)
        if started:
            self.fixed |= {a.job for a in self.placed.assignments if a.start == 0}
            self.placed.preemptions = self.preemptor.record
        return self.placed

    @cached_property
    def turned(self) -> Rows:
        """Rows of `table` in the order of their turns: everything that waited."""
        log = self.course.log[: int(self.course.logged[0])]
        return log[log >= 0]

    @cached_property
    def items(self) -> list[Item]:
        """Everything that waited, in the order of its turn."""
        return items_of(self.problem, self.table, self.turned.tolist())

    def name(self, i: int) -> str:
        """The name of row i of `table`."""
        names = self.problem.waiting.names
        return names[i] if i < len(names) else item_of(self.problem, self.table, i).name

    def names(self, rows: Rows) -> list[str]:
        """The names of rows of `table`."""
        return [self.name(i) for i in rows.tolist()]

    def rest_of(self, run: Run, ran: int) -> int:
        """The row of `table` for what is left of a run that is stopped after `ran` timesteps."""
        row = self.rests.get(run.index)
        if row is None:
            row = self.rests[run.index] = len(self.problem.waiting.names) + len(self.rests)
        write_rest(self.problem, self.table, row, run, ran)
        return row

    def rest_of_stopped(self, run: Run) -> Item:
        """The same for one that is stopped at once when every turn is over: it waits, too."""
        new = run.index not in self.rests
        row = self.rest_of(run, 0)
        if new:
            building.note(self.course, row)
        for known in ("turned", "items"):
            self.__dict__.pop(known, None)
        return item_of(self.problem, self.table, row)

    # 1. pins

    def _pin(self) -> Stoppable:
        """Protected time is taken; what remains wants a turn: those runs."""
        horizon, seconds = self.problem.horizon, self.problem.timestep_seconds
        rows, held = self.problem.present.rows, self.problem.present.held
        for leaf, whole, now in protected_use(held):
            self.turns.give(leaf, whole * seconds, now * seconds)
        more = held.protected < np.minimum(held.remaining, horizon)
        columns = (rows[~more], *(held.of(~more)[:4]))
        names = self.problem.columns.names
        for row, first, gpus, _, protected in zip(*(c.tolist() for c in columns), strict=True):
            self._assign(names[row], first, gpus, 0, protected)
            self.fixed.add(names[row])
        return Stoppable(self.problem, held.of(more), rows[more])

    def _assign(self, name: str, first: int, gpus: int, start: int, end: int) -> None:
        self.placed.assignments.append(Assignment(name, first, gpus, start, end))

    # 2. real time: serving.py; 3. turns

    def _phase(self, *, funded: bool) -> None:
        grid, tree = self.grid, self.turns.tree
        building.open_phase(tree, self.queue, self.stays, int(funded))
        while True:
            what, which, t, first = building.advance(
                self.layout.fleet, self.table, tree, self.queue, self.stays, grid.wanted.grid,
                grid.taken.grid, grid.both, int(funded), grid.waiting,
                self.problem.timestep_seconds, self.course,
            )  # fmt: skip
            grid.count_turns()
            if what == building.DONE:
                return
            if what == building.RUN:
                self._stay(self.runs[which])
            else:
                self._force(which, t, first)

    def _stay(self, run: Run) -> None:
        """A run's turn: it goes on where it is, until a job that came before it needs the block."""
        job = run.job
        assert job.running is not None
        end = self.grid.settle(run)
        run.until = end
        building.note(self.course, -1 - run.index)
        seconds = job.gpus * self.problem.timestep_seconds
        first = seconds if run.protected == 0 < end else 0
        self.turns.give(run.leaf, (end - run.protected) * seconds, first)
        if end >= min(job.running.remaining, self.problem.horizon):
            return
        if run.stopped_for is None:  # nothing was placed on it, so its node is drained
            self.preemptor.record.append(Preemption(job.name, None, end, Cause.DRAIN))
        building.enqueue(self.turns.tree, self.table, self.queue, self.rest_of(run, end))

    def _force(self, i: int, t: int, first: int) -> None:
        """A job that does not start at once may stop runs that are less deserving."""
        before = t if t >= 0 else self.problem.horizon
        by_force = self.preemptor.block_for(self.table, i, before)
        if by_force is not None:
            t, first = by_force
            item = item_of(self.problem, self.table, i)
            victims = self.preemptor.in_the_way(self.table, i, t, first)
            self.preemptor.stop(victims, t, item.name, item.leaf, item.gpus)
            self.fixed.add(item.name)
        if t >= 0:
            self._settle(i, t, first)

    def _settle(self, i: int, t: int, first: int) -> None:
        grid = self.grid
        building.settle(
            self.layout.fleet, self.table, self.turns.tree, grid.wanted.grid, grid.taken.grid,
            grid.both, self.problem.timestep_seconds, self.course, i, t, first,
        )  # fmt: skip

    def _list(self) -> None:
        """What was decided, by name and in order."""
        table, course = self.table, self.course
        rows = zip(
            *(column.tolist() for column in (course.start, course.first, table.gpus, table.length)),
            strict=True,
        )
        places, horizon = list(rows), self.problem.horizon
        names, until = self.runs.names(), self.runs.until.tolist()
        blocks = list(zip(self.runs.held.first.tolist(), self.runs.held.gpus.tolist(), strict=True))
        for what in course.log[: int(course.logged[0])].tolist():
            if what < 0:
                run = -1 - what
                if until[run]:
                    first, gpus = blocks[run]
                    self._assign(names[run], first, gpus, 0, until[run])
                continue
            start, first, gpus, length = places[what]
            if start >= 0:
                end = min(start + length, horizon)
                self._assign(self.name(what), first, gpus, start, end)
