"""The product's own policy: the cycle's problem, built from a simulated cluster, and its planner.

Each decision is one call of `solve`, as the cycle makes it, of which only what starts or stops now
is taken. Where nothing could come of a call, it isn't made.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

from .. import contract
from ..offering import Offering
from ..plan import Cause, Result
from ..problem import BatchJob, BudgetNode, Kind, Node, Problem, Running
from ..settings import Settings
from ..solve import solve
from ..weights import RAW_URGENCY, Urgencies, gpu_seconds, time_decay, weight
from .known_factors import KnownFactors
from .policy import Decision
from .world import SimJob, SimRun, World

Watch = Callable[[Problem, Result], None]


@dataclass(slots=True)
class _Seen:
    """A job as it was last written into a problem, and until when nothing of it changes."""

    by_weight: dict[float, BatchJob]
    run: SimRun | None
    funded: bool
    until: int

    def holds(self, job: SimJob, now: int) -> bool:
        """Whether it would be written the same now, but for its weight."""
        return now <= self.until and self.run is job.run and self.funded == job.funded


def _reweighed(seen: _Seen, value: float) -> BatchJob:
    return replace(next(iter(seen.by_weight.values())), priority=value)


class FairShare:
    """Hierarchical fair share, as in the product."""

    def __init__(self, world: World, watch: Watch | None = None) -> None:
        self.world = world
        self.setup = setup = world.setup
        self.watch = watch
        self.offering: Offering[tuple[int, bool, int, bool]] = Offering(
            setup.offered_first, setup.offered_short
        )
        self.urgencies = Urgencies()
        self._settings = Settings(preempted_percent=setup.preempted_percent)
        self._decay = time_decay(setup.timestep_minutes)
        self._nodes: tuple[Node, ...] = setup.nodes
        self._seen: dict[int, _Seen] = {}
        self._factors = KnownFactors(setup.tree)

    def added(self, job: SimJob) -> None:
        """A job waits."""
        kind = (job.leaf, job.funded, job.gpus, job.debug)
        rank = -RAW_URGENCY[job.row.urgency]
        self.offering.add(job.number, kind, rank, job.left_s)
        self.urgencies.add(job.leaf, job.row.urgency, gpu_seconds(job.gpus, job.expected[0]))

    def left(self, job: SimJob) -> None:
        """A job waits no longer: it starts, or another kind of funding moves it."""
        self.offering.remove(job.number)
        self.urgencies.remove(job.leaf, job.row.urgency, gpu_seconds(job.gpus, job.expected[0]))

    def decide(self) -> Decision:
        """Plan, and say what is due now."""
        if not self._could_change():
            return Decision(planned=False)
        world, setup = self.world, self.setup
        live = sorted(world.running)
        offered = self.offering.offered()
        offered.sort(key=self._place)
        problem = self._problem([*(world.running[n] for n in live), *self._jobs(offered)])
        result = solve(
            problem, mode="fast", iterations=setup.iterations, seed=0, settings=self._settings
        )
        if self.watch is not None:
            self.watch(problem, result)
        return self._due(result, live)

    def _due(self, result: Result, live: list[int]) -> Decision:
        world = self.world
        names = {world.running[n].name: world.running[n] for n in live}
        by = {stop.victim: stop.preemptor for stop in result.preemptions if stop.timestep == 0}
        found = Decision()
        for name in contract.stops_now(result.plan, names):
            preemptor = by.get(name)
            found.stops.append((names[name], None if preemptor is None else self._job(preemptor)))
        for a in contract.starts_now(result.plan, names):
            job = self._job(a.job)
            job.ahead = job.debug and a.job in by.values()
            found.starts.append((job, a.first_gpu))
        now = (stop for stop in result.preemptions if stop.timestep == 0)
        found.soon = any(stop.cause == Cause.MOVED for stop in now)
        started = [job.number for job, _ in found.starts]
        found.again = bool(started) and self.offering.used_up(started)
        return found

    def _job(self, name: str) -> SimJob:
        number = int(name.removeprefix("job-"))
        world = self.world
        return world.running.get(number) or world.waiting[number]

    def _place(self, number: int) -> tuple[int, int]:
        """Sorts jobs of equal weight in their leaf."""
        job = self.world.waiting[number]
        return -contract.aged(job.gpus, self.world.now - job.submitted), number

    def _jobs(self, numbers: list[int]) -> list[SimJob]:
        return [self.world.waiting[n] for n in numbers]

    def _could_change(self) -> bool:
        """Whether a plan could start anything now: a block that is free, or might be emptied."""
        fleet = self.world.fleet
        open_gpus = fleet.free | self.world.interruptible()
        return any(
            fleet.starts(open_gpus if funded else fleet.free, gpus)
            for _, funded, gpus, _ in self.offering.kinds()
        )

    # The problem

    def _problem(self, jobs: list[SimJob]) -> Problem:
        setup, now = self.setup, self.world.now
        budgets = self._budgets()
        factors = self._factors.of(budgets)
        boundary = (now // setup.step_s + 1) * setup.step_s
        weights: dict[tuple[int, str, bool], float] = {}
        found = []
        for job in jobs:
            kind = (job.leaf, job.row.urgency, job.funded)
            if kind not in weights:
                urgency = self.urgencies.factor(job.leaf, job.row.urgency)
                factor = factors[job.budget]
                weights[kind] = weight(factor=factor, urgency=urgency, funded=job.funded)
            seen = self._seen.get(job.number)
            if seen is None or not seen.holds(job, now):
                before = None if seen is None or seen.funded != job.funded else seen
                seen = self._written(job, weights[kind], boundary, before)
                self._seen[job.number] = seen
            if weights[kind] not in seen.by_weight:
                seen.by_weight[weights[kind]] = _reweighed(seen, weights[kind])
            found.append(seen.by_weight[weights[kind]])
        return Problem(
            name=f"second {now}",
            family="simulated",
            horizon=setup.horizon,
            timestep_minutes=setup.timestep_minutes,
            time_decay=self._decay,
            overrun=True,
            nodes=self._nodes,
            jobs=tuple(found),
            budgets=budgets,
        )

    def _budgets(self) -> tuple[BudgetNode, ...]:
        meters, step = self.world.meters, self.setup.step_s
        used = meters.window_use()
        entitled = meters.window_entitled((self.world.now // step + 1) * step)
        return tuple(
            BudgetNode(node.path, node.parent, node.shares, used.get(n, 0), entitled[n])
            for n, node in enumerate(self.setup.tree)
        )

    def _written(self, job: SimJob, value: float, boundary: int, before: _Seen | None) -> _Seen:
        """The job as the cycle's snapshot would write it now, and how long that holds.

        ``before``: as it was written at an earlier instant, if its funding is the same.
        """
        setup, now, run = self.setup, self.world.now, job.run
        step, into = setup.step_s, now % setup.step_s
        done = job.progress_s + (0 if run is None else now - run.since)
        left = contract.remaining_s(done, job.expected, job.row.time_limit_s, step)
        duration = contract.planned_duration(into_s=into, left_s=left, step_s=step)
        kept = job.minimum_s if job.funded else 0
        minimum = contract.planned_minimum(
            into_s=into, protected_s=kept, duration=duration, step_s=step
        )
        until = now + -(into + kept) % step  # later in the timestep it touches one more
        if run is None:
            until = min(until, now + -(into + left) % step)
            running = None
        else:
            running = self._running(job, run, duration)
            until = min(until, now if done >= job.expected[1] else now + left - 1)
            if run.protected_until > now:
                until = min(until, run.protected_until - 1)
            if job.stopped_by:
                until = min(until, self.world.unchanged_until(job))
        can_return = minimum if job.row.resumable else None
        if before is not None:
            known = before.by_weight.get(value) or _reweighed(before, value)
            batch = known.later(duration=duration, minimum=can_return, running=running)
            return _Seen({value: batch}, run, job.funded, min(until, boundary - 1))
        batch = BatchJob(
            name=job.name,
            kind=Kind(job.row.kind),
            priority=value,
            gpus=job.gpus,
            duration=duration,
            budget=job.budget,
            funded=job.funded,
            running=running,
            minimum=can_return,
            debug=job.debug,
        )
        return _Seen({value: batch}, run, job.funded, min(until, boundary - 1))

    def _running(self, job: SimJob, run: SimRun, duration: int) -> Running:
        setup, now = self.setup, self.world.now
        protected = 0
        if run.protected_until > now:
            ahead = run.protected_until - now + now % setup.step_s
            protected = contract.touched(ahead, setup.step_s)
        shielded = self.world.shielded(job) if job.stopped_by else ()
        barred = self.world.barred(job) if job.stopped_by else ()
        planned = max(duration, protected)
        return Running(run.first, planned, protected, shielded, barred, job.ahead)

    def started(self, job: SimJob) -> None:
        """It counts among its leaf's jobs while it runs."""
        self.urgencies.add(job.leaf, job.row.urgency, gpu_seconds(job.gpus, job.expected[0]))

    def stopped(self, job: SimJob) -> None:
        """Its run is over."""
        self.urgencies.remove(job.leaf, job.row.urgency, gpu_seconds(job.gpus, job.expected[0]))
        self._seen.pop(job.number, None)
