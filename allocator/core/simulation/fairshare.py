"""The product's own policy: the cycle's problem, built from a simulated cluster, and its planner.

Each decision is one call of `solve`, as the cycle makes it, of which only what starts or stops now
is taken. Where nothing could come of a call, it isn't made.
"""

from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction

import numpy as np

from forecasting.core.quantiles import ENDLESS_S

from .. import contract
from ..columns import Written
from ..compiled.tables import Rows
from ..offering import Offering
from ..plan import Cause, Result
from ..problem import BudgetNode, Job, Node, Problem
from ..settings import Settings
from ..solve import solve
from ..weights import RAW_URGENCY, Urgencies, gpu_seconds, time_decay, weight
from .besides import Besides
from .known_factors import KnownFactors
from .policy import Decision
from .services import SimService
from .sheet import Sheet
from .standstill import Standstill
from .world import SimJob, World

Watch = Callable[[Problem, Result], None]


class FairShare:
    """Hierarchical fair share, as in the product."""

    proves = True  # whether a plan is left out where nothing can come of it

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
        self._sheet = Sheet(world)
        self._besides = Besides(world)
        self._factors = KnownFactors(setup.tree)

    def added(self, job: SimJob) -> None:
        """A job waits."""
        self._sheet.changed(job)
        kind = (job.leaf, job.funded, job.gpus, job.debug)
        rank = -RAW_URGENCY[job.row.urgency]
        self.offering.add(job.number, kind, rank, job.left_s)
        self.urgencies.add(job.leaf, job.row.urgency, gpu_seconds(job.gpus, job.expected[0]))

    def left(self, job: SimJob) -> None:
        """A job waits no longer: it starts, or another kind of funding moves it."""
        self.offering.remove(job.number)
        self.urgencies.remove(job.leaf, job.row.urgency, gpu_seconds(job.gpus, job.expected[0]))

    def serves(self, service: SimService) -> None:
        """A service is there."""
        self.urgencies.add(*_size(service))

    def serves_no_more(self, service: SimService) -> None:
        """A service is gone."""
        self.urgencies.remove(*_size(service))

    def decide(self) -> Decision:
        """Plan, and say what is due now."""
        self._besides.look()
        self._sheet.wait_for_drains(self._besides.awaits_a_drain)
        world, setup = self.world, self.setup
        budgets = self._budgets()
        if self.proves and self._nothing_could_come(budgets):
            return Decision(planned=False)
        live = sorted(world.running)
        offered = self._sheet.in_order(self.offering.offered())
        numbers = np.concatenate([np.array(live, np.int64), offered])
        problem = self._problem(numbers, budgets)
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
        found = Decision(renewed=not self._besides.settled)
        self._besides.due(result, found)
        for name in contract.stops_now(result.plan, names):
            preemptor = by.get(name)
            found.stops.append((names[name], None if preemptor is None else self._who(preemptor)))
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

    def _who(self, name: str) -> SimJob | SimService:
        """What a run yields to."""
        services = (one for one in self._besides.here if one.name == name)
        return next(services, None) or self._job(name)

    def _nothing_could_come(self, budgets: tuple[BudgetNode, ...]) -> bool:
        """Whether it is certain that a plan would start, stop and give nothing now."""
        besides = self._besides
        if not besides.here and not besides.awaits_a_drain:
            return Standstill(self.world, budgets).holds(self.offering.kinds())
        return not self._could_change() and not besides.something_is_due

    def _could_change(self) -> bool:
        """Whether a plan could start anything now: a block that is free, or might be emptied."""
        fleet = self.world.fleet
        open_gpus = fleet.free | self.world.interruptible()
        return any(
            fleet.starts(open_gpus if funded else fleet.free, gpus)
            for _, funded, gpus, _ in self.offering.kinds()
        )

    # The problem

    def _problem(self, numbers: Rows, budgets: tuple[BudgetNode, ...]) -> Problem:
        setup, now = self.setup, self.world.now
        classes, one_of = self._sheet.classes(numbers)
        factors = self._factors.of(budgets)
        weights = {}
        for number, job in one_of.items():
            urgency = self.urgencies.factor(job.leaf, job.row.urgency)
            factor = factors[job.budget]
            weights[number] = weight(factor=factor, urgency=urgency, funded=job.funded)
        columns = self._sheet.columns(numbers, [weights[number] for number in classes.tolist()])
        return Problem(
            name=f"second {now}",
            family="simulated",
            horizon=setup.horizon,
            timestep_minutes=setup.timestep_minutes,
            time_decay=self._decay,
            overrun=True,
            nodes=self._nodes,
            jobs=self._with_services(Written(columns), factors),
            drains=self._besides.drains,
            budgets=budgets,
        )

    def _with_services(self, jobs: Written, factors: Mapping[str, Fraction]) -> Sequence[Job]:
        """Services beside jobs: those that run first, as the cycle reads them."""
        if not self._besides.here:
            return jobs

        def value(service: SimService) -> float:
            urgency = self.urgencies.factor(service.leaf, service.row.urgency)
            return weight(factor=factors[service.budget], urgency=urgency, funded=True)

        services = self._besides.services(value)
        running = [one for runs, one in services if runs]
        return (*running, *jobs, *(one for runs, one in services if not runs))

    def _budgets(self) -> tuple[BudgetNode, ...]:
        meters, step = self.world.meters, self.setup.step_s
        used = meters.window_use()
        entitled = meters.window_entitled((self.world.now // step + 1) * step)
        return tuple(
            BudgetNode(node.path, node.parent, node.shares, used.get(n, 0), entitled[n])
            for n, node in enumerate(self.setup.tree)
        )

    def started(self, job: SimJob) -> None:
        """It counts among its leaf's jobs while it runs."""
        self._sheet.changed(job)
        self.urgencies.add(job.leaf, job.row.urgency, gpu_seconds(job.gpus, job.expected[0]))

    def stopped(self, job: SimJob) -> None:
        """Its run is over."""
        self.urgencies.remove(job.leaf, job.row.urgency, gpu_seconds(job.gpus, job.expected[0]))


def _size(service: SimService) -> tuple[int, str, int]:
    """A service as one of its leaf's jobs: the leaf, its urgency, and how much it asks for."""
    return service.leaf, service.row.urgency, gpu_seconds(service.gpus, ENDLESS_S)
