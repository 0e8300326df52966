"""`simulate(trace, setup, policy) -> Outcome`: a cluster's days on a virtual clock.

The clock jumps from one instant at which something happens to the next: a job arrives, a run ends
or loses its funding, a node fails or comes back, a timestep begins. All of one second come
together, in the order in which a cycle takes them: what ended leaves, the timestep that is over is
closed, what waits is funded, and the policy decides. The same trace, setup and policy give the same
outcome.
"""

import math
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from heapq import heappop, heappush

from .contract import ANSWERED_S
from .problem import ProblemError
from .simulation.baselines import Backfill, Fifo, PeakReserve, Priority, ShortestFirst
from .simulation.fairshare import FairShare, Watch
from .simulation.measures import Outcome, measure
from .simulation.policy import Policy
from .simulation.services import SimService
from .simulation.setup import Setup
from .simulation.world import SimJob, World, make_job
from .traces import Trace, TraceJob

POLICIES = ("fairshare", "fifo", "backfill", "priority", "shortest-first", "peak-reserve")
# What is due, in the order in which it comes within a second: of a run that ends with its work in
# the second in which its node fails nothing is lost.
ENDS, UNFUNDED, ASK, GONE, FAILS, BACK, THERE = range(7)
Progress = Callable[[int], None]  # told of the clock, in seconds of the simulated span


@dataclass(frozen=True)
class Played:
    """A world at its end, and its jobs; what measures are taken of."""

    world: World
    jobs: Sequence[SimJob]
    decisions: int


def simulate(
    trace: Trace,
    setup: Setup,
    policy: str = "fairshare",
    *,
    progress: Progress | None = None,
    watch: Watch | None = None,
) -> Outcome:
    """Play a trace under a policy and measure what came of it.

    ``progress`` is told of the clock once a simulated hour at most; ``watch`` of every problem and
    plan of fairshare. Raises `ProblemError` where a job can't be placed on the fleet at all.
    """
    played = play(trace, setup, policy, progress=progress, watch=watch)
    return measure(played.world, played.jobs, policy, played.decisions)


def play(
    trace: Trace,
    setup: Setup,
    policy: str = "fairshare",
    *,
    progress: Progress | None = None,
    watch: Watch | None = None,
) -> Played:
    """Play a trace to the end of the span."""
    world = World(setup)
    jobs, services = _jobs(trace, world), _services(trace, world)
    course = _Course(world, jobs, services, _policy(policy, world, trace, watch), progress)
    course.run()
    world.services.close()
    return Played(world, jobs, course.decisions)


def _policy(name: str, world: World, trace: Trace, watch: Watch | None) -> Policy:
    if name == "fairshare":
        return FairShare(world, watch)
    if name == "peak-reserve":
        return PeakReserve(world, (*trace.jobs, *trace.services))
    simple = {
        "fifo": Fifo, "backfill": Backfill, "priority": Priority, "shortest-first": ShortestFirst,
    }  # fmt: skip
    if name not in simple:
        raise ProblemError(f"there is no policy {name!r}: choose from {', '.join(POLICIES)}.")
    return simple[name](world)


def _jobs(trace: Trace, world: World) -> list[SimJob]:
    setup, draw = world.setup, random.Random(world.setup.seed)
    found = []
    for number, row in enumerate(trace.jobs):
        # Drawn for each job, so that leaving one out doesn't change the others.
        error = math.exp(draw.gauss(0, setup.spread)) if setup.spread else 1.0
        if not world.fleet.fits(row.block):
            raise ProblemError(
                f"job {row.job_id!r} needs {row.block} GPUs in one block, and the fleet has no "
                "such block: give more or larger nodes."
            )
        found.append(make_job(number, row, setup, _leaf(row, world), row.group, error))
    return found


def _services(trace: Trace, world: World) -> list[SimService]:
    """Numbered after the jobs."""
    numbered = enumerate(trace.services, len(trace.jobs))
    return [SimService(number, row, _leaf(row, world)) for number, row in numbered]


def _leaf(row: TraceJob, world: World) -> int:
    leaf = world.budgets.number.get(row.group)
    if leaf is None or leaf not in world.budgets.leaves:
        raise ProblemError(f"job {row.job_id!r}: group {row.group!r} is no leaf of the tree.")
    return leaf


class _Course:
    """The clock and what is due on it."""

    def __init__(
        self,
        world: World,
        jobs: Sequence[SimJob],
        services: Sequence[SimService],
        policy: Policy,
        progress: Progress | None,
    ) -> None:
        self.world, self.jobs, self.policy, self.progress = world, jobs, policy, progress
        world.services.all = list(services)
        self.step, self.until = world.setup.step_s, world.setup.seconds
        self.due = self._known_beforehand()  # when, what, job or node, attempt
        self.arrived = 0
        self.decisions = 0

    def _known_beforehand(self) -> list[tuple[int, int, int, int]]:
        """When services come and go, nodes fail and come back, and windows become known."""
        world = self.world
        found = []
        for service in world.services.all:
            found += [
                (service.submitted, THERE, service.number, 0),
                (service.ends, GONE, service.number, 0),
            ]
        for one in world.meters.available.outages:
            found += [(one.down_s, FAILS, one.node, 0), (one.up_s, BACK, one.node, 0)]
        for window in world.setup.events.windows:
            changes = (window.known_s, window.replaced_s)
            found += [(at, ASK, 0, 0) for at in changes if at is not None]
        return sorted(found)  # which is a heap

    def run(self) -> None:
        """Until the span is over."""
        tick = self.step
        told = 0
        while True:
            now = min(tick, self._next_due(), self._next_arrival(), self.until)
            self.world.meters.advance(now)
            happened = self._what_is_due(now)
            if now == tick or now == self.until:
                self.world.meters.close(now - (tick - self.step))
            if now >= self.until:
                return
            if now == tick:
                tick += self.step
                self.world.services.begin_timestep()
                self._cover(tick)
                happened = True
            happened |= self._arrivals(now)
            if happened:  # else only the end of a run that was stopped before
                self._fund()
                self._decide(tick)
            if self.progress is not None and now - told >= 3600:
                told = now
                self.progress(now)

    def _next_due(self) -> int:
        return self.due[0][0] if self.due else self.until

    def _next_arrival(self) -> int:
        left = self.arrived < len(self.jobs)
        return self.jobs[self.arrived].submitted if left else self.until

    def _what_is_due(self, now: int) -> bool:
        """Ends of runs and of their funding; whether there were any."""
        happened = False
        while self.due and self.due[0][0] <= now:
            _, what, number, attempt = heappop(self.due)
            if what >= ASK:
                self._befall(what, number)
                happened = True
                continue
            job = self.jobs[number]
            if job.run is None or job.attempts != attempt:
                continue
            if what == ENDS:
                self.policy.stopped(job)
                self.world.end(job)
            else:
                self.world.unfund(job)
            happened = True
        return happened

    def _befall(self, what: int, number: int) -> None:
        """A service comes or goes, or a node fails or comes back."""
        world, policy = self.world, self.policy
        if what in (THERE, GONE):
            service = world.services.all[number - len(self.jobs)]
            if what == THERE:
                world.services.arrive(service)
                policy.serves(service)
            else:
                world.services.leave(service)
                policy.serves_no_more(service)
        elif what == FAILS:
            for job in world.hit(number):
                policy.stopped(job)
                world.fail(job)
                policy.added(job)
            world.services.fail_on(world.fleet.node_bits[number])
            world.nodes.fail(number)
        elif what == BACK:
            world.nodes.come_back(number)

    def _cover(self, until: int) -> None:
        """Set aside what each funded run costs in the timestep that begins, oldest job first."""
        for number in sorted(self.world.running):
            job = self.world.running[number]
            if job.funded:
                self._pay(job, until)

    def _pay(self, job: SimJob, until: int) -> None:
        unpaid = self.world.cover(job, until)
        if unpaid is None:
            return
        if unpaid <= self.world.now:
            self.world.unfund(job)
        elif unpaid < until:
            heappush(self.due, (unpaid, UNFUNDED, job.number, job.attempts))

    def _arrivals(self, now: int) -> bool:
        """Jobs that are submitted; whether there were any."""
        before = self.arrived
        while self.arrived < len(self.jobs) and self.jobs[self.arrived].submitted <= now:
            job = self.jobs[self.arrived]
            self.arrived += 1
            self.world.arrive(job)
            self.policy.added(job)
        return self.arrived > before

    def _fund(self) -> None:
        """What waits without credits may have some now, and then is another kind of job."""
        if not self.world.unfunded_waiting:
            return
        for job in self.world.fund_waiting():
            self.policy.left(job)
            self.policy.added(job)

    def _decide(self, boundary: int) -> None:
        again = True
        while again:
            decision = self.policy.decide()
            self.decisions += decision.planned
            for job, by in decision.stops:
                self.policy.stopped(job)
                self.world.preempt(job, by)
                if job.row.resumable:
                    self.policy.added(job)
            for service, gpus in decision.serves:
                self.world.services.release(service, gpus)
            for job, first in decision.starts:
                self.policy.left(job)
                run = self.world.start(job, first)
                heappush(self.due, (run.ends, ENDS, job.number, job.attempts))
                self.policy.started(job)
                if job.funded:
                    self._pay(job, boundary)
            self.world.services.serve(decision.serves, boundary, renewed=decision.renewed)
            if decision.soon:
                heappush(self.due, (self.world.now + ANSWERED_S, ASK, 0, 0))
            again = decision.again
