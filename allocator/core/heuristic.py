"""The construction: one pass that gives a legal plan and keeps the contract.

1. Pins: what protected runs still owe, and drains. 2. Real time, within its swap caps. 3. Turns:
funded work first, then unfunded; again and again the most under-served leaf places its best job at
the earliest start, on the block that leaves the free pool most usable. A run over its protection
has a turn too, at its own block. A job that fits nowhere holds up nobody. 4. Gaps in front of
planned starts are filled with work that may be stopped by then (filling.py).
"""

import heapq

import numpy as np

from .bits import lowest, span, union
from .filling import fill
from .grid import Grid
from .items import Item, Placed, Run, Settings, rest_item, waiting_item
from .layout import Layout
from .plan import Assignment, Preemption
from .preempt import Preemptor
from .problem import BatchJob, Problem, RealtimeJob
from .serving import Services
from .turns import Turn, Turns


class Construction:
    """One problem, planned once; `placed`, `grid` and `fixed` are what later passes start from."""

    def __init__(self, problem: Problem, settings: Settings | None = None) -> None:
        self.problem = problem
        self.layout: Layout = problem.layout
        self.healthy = self.layout.healthy
        self.turns = Turns(problem, sum(self.healthy) * problem.timestep_seconds)
        self.placed = Placed()
        self.fixed: set[str] = set()  # runs, and jobs that stopped one: no later pass moves them
        self.items: list[Item] = []  # everything that waited, in the order of its turn
        self.filled = False  # gaps in front of planned starts hold work that starts now
        self.promised: dict[str, int] = {}  # planned behind a filler: when it was due
        self._queues: dict[tuple[int, bool], list[tuple[tuple[float, int, int], Item]]] = {}
        self._runs_of: dict[tuple[int, bool], list[Run]] = {}
        self._pinned = self.layout.drained.copy()
        runs = self._pin()
        self.grid = Grid(problem, self.layout, self._pinned, runs)
        self.preemptor = Preemptor(self.grid, self.turns, settings or Settings())
        self.services = Services(problem, self.grid, self.turns, self.preemptor)

    def build(self) -> Placed:
        """The whole pass."""
        self.services.promise()
        self.services.serve(funded=True)
        for order, job in enumerate(self.problem.jobs):
            if isinstance(job, BatchJob) and job.running is None:
                self._enqueue(waiting_item(self.problem, job, order, self._leaf(job)))
        for run in self.grid.runs:
            self._runs_of.setdefault((run.leaf, run.job.funded), []).append(run)
        for runs in self._runs_of.values():
            runs.sort(key=lambda run: (run.job.priority, -run.order))
        self._phase(funded=True)
        self.services.serve(funded=False)
        self._phase(funded=False)
        self.placed.realtime = self.services.sets
        self.placed.preemptions = self.preemptor.record
        started = fill(self)
        self.filled = bool(started)
        self.fixed |= started
        return self.placed

    def _leaf(self, job: BatchJob | RealtimeJob) -> int:
        return self.turns.leaf_of[job.budget]

    def _enqueue(self, item: Item) -> None:
        heapq.heappush(self._queues.setdefault((item.leaf, item.funded), []), (item.urgency, item))

    # 1. pins

    def _pin(self) -> list[Run]:
        """Protected time is taken; returns the runs that want more than that."""
        runs: list[Run] = []
        for order, job in enumerate(self.problem.jobs):
            if not isinstance(job, BatchJob) or job.running is None:
                continue
            run = self._run(job, order, len(runs))
            self._pinned[run.rows] |= np.uint64(span(0, run.protected))
            self._give(job, job.gpus * run.protected, job.gpus if run.protected else 0)
            if run.protected < min(job.running.remaining, self.problem.horizon):
                runs.append(run)
            else:
                self._assign(job.name, run.first, job.gpus, 0, run.protected)
                self.fixed.add(job.name)
        return runs

    def _run(self, job: BatchJob, order: int, index: int) -> Run:
        assert job.running is not None
        first, horizon = job.running.first_gpu, self.problem.horizon
        protected = min(job.running.protected, horizon)
        later = union(self.layout.drained[first : first + job.gpus])
        drained = lowest(later) if later else 64
        until = max(protected, min(job.running.remaining, horizon, drained))
        return Run(job, order, self._leaf(job), first, protected, until, index)

    def _assign(self, name: str, first: int, gpus: int, start: int, end: int) -> None:
        self.placed.assignments.append(Assignment(name, first, gpus, start, end))

    def _give(self, job: BatchJob | RealtimeJob, cells: int, first_cells: int) -> None:
        """Count funded GPU-timesteps for the job's leaf."""
        if job.funded:
            seconds = self.problem.timestep_seconds
            self.turns.give(self._leaf(job), cells * seconds, first_cells * seconds)

    # 2. real time: serving.py; 3. turns

    def _phase(self, *, funded: bool) -> None:
        for (leaf, kind), queue in self._queues.items():
            if kind == funded:
                for _ in queue:
                    self.turns.open(leaf, Turn.WAITING)
        for (leaf, kind), runs in self._runs_of.items():
            if kind == funded:
                for _ in runs:
                    self.turns.open(leaf, Turn.RUNNING)
        while (turn := self.turns.next()) is not None:
            leaf, what = turn
            self.turns.close(leaf, what)
            if what is Turn.RUNNING:
                self._stay(self._runs_of[leaf, funded].pop())
            else:
                self._place(heapq.heappop(self._queues[leaf, funded])[1])

    def _stay(self, run: Run) -> None:
        """A run's turn: it goes on where it is, until a job that came before it needs the block."""
        job = run.job
        assert job.running is not None
        end = self.grid.settle(run)
        self.fixed.add(job.name)
        if end:
            self._assign(job.name, run.first, job.gpus, 0, end)
        self._count(run.leaf, job.gpus, run.protected, end)
        if end >= min(job.running.remaining, self.problem.horizon):
            return
        if run.stopped_for is None:  # nothing was placed on it, so its node is drained
            self.preemptor.record.append(Preemption(job.name, None, end))
        self._enqueue(rest_item(run, end))
        self.turns.open(run.leaf, Turn.WAITING)

    def _place(self, item: Item) -> None:
        """A waiting job's turn: the earliest start, on free GPUs or on those of a run it stops."""
        self.items.append(item)
        free = self.grid.earliest(item)
        by_force = self.preemptor.block_for(item, free[0] if free else self.problem.horizon)
        if by_force is not None:
            t, first, victims = by_force
            self.preemptor.stop(victims, t, item.name, item.leaf, item.gpus)
            self.fixed.add(item.name)
        elif free is not None:
            t, first = free
        else:
            self.placed.unplaced.append(item)
            return
        end = min(t + item.length, self.problem.horizon)
        self.grid.hold(first, item.gpus, t, end)
        self._assign(item.name, first, item.gpus, t, end)
        self._count(item.leaf, item.gpus, t, end)

    def _count(self, leaf: int, gpus: int, start: int, end: int) -> None:
        """What a leaf is given counts for the next turn; unfunded work too, within its phase."""
        seconds = gpus * self.problem.timestep_seconds
        self.turns.give(leaf, (end - start) * seconds, seconds if start == 0 < end else 0)
