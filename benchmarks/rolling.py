"""The rolling case: a week re-planned every half hour, of which only the first timestep is kept."""

import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any

from allocator.core.check import check
from allocator.core.plan import Plan
from allocator.core.problem import BatchJob, Job, Problem, RealtimeJob, Running
from allocator.core.solve import solve

from .baselines import conservative, priority_first
from .measuring import timed
from .tables import Floor, Table, milliseconds, percent
from .weeks import HORIZON, STEP_MINUTES, Arrival, Week, make_week

Hint = Mapping[str, tuple[int, int]]  # where the last plan put jobs: timesteps from now, first GPU
Planner = Callable[[Problem, int, Hint], Plan]  # the problem as seen at a timestep
DECAY = 0.985  # 0.97 an hour
PENALTY = 8.0


@dataclass(frozen=True, slots=True)
class Case:
    """One way to plan the week. With foresight durations are true and arrivals known ahead."""

    name: str
    plan: Planner
    foresight: bool = False
    decay: float = DECAY


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of a week. Values count what really ran in it, in priority × GPU-timesteps, less
    the penalty for shortfall; `timely` decays each GPU-timestep with the age of its job. Waits are
    in hours. `thrash` is the share of planned starts that the next plan did not keep, `retimed` of
    those that it moved in time and not only to another block, `later` of those it put off."""

    delivered: float
    timely: float
    utilization: float
    shortfall_hours: float
    started: float
    wait_p50: float
    wait_p90: float
    thrash: float
    retimed: float
    later: float
    plan_seconds: float
    most_seconds: float
    illegal: float


def cases(full_seconds: float = 0, workers: int = 2) -> list[Case]:
    """The first is what the others are measured against."""
    found = [
        Case("perfect foresight, fast", _fast, foresight=True),
        Case("perfect foresight, fast, no decay", _fast, foresight=True, decay=1.0),
        Case("fast", _fast),
        Case("fast, no decay", _fast, decay=1.0),
        Case("fast, last plan as a hint", _hinted),
        Case("construction alone", lambda problem, k, hint: solve(problem, iterations=0).plan),
        Case("priority first", lambda problem, k, hint: priority_first(problem)),
        Case("FIFO, conservative backfill", lambda problem, k, hint: conservative(problem)),
    ]
    if full_seconds:
        found.insert(5, Case("fast, hinted, and full every hour", _hourly(full_seconds, workers)))
    return found


def _fast(problem: Problem, k: int, hint: Hint) -> Plan:
    """As the cycle calls it: the search follows from the problem's size, and repeats itself."""
    return solve(problem).plan


def _hinted(problem: Problem, k: int, hint: Hint) -> Plan:
    return solve(problem, hint=hint).plan


def _hourly(seconds: float, workers: int) -> Planner:
    def plan(problem: Problem, k: int, hint: Hint) -> Plan:
        if k * STEP_MINUTES % 60:
            return _hinted(problem, k, hint)
        return solve(problem, mode="full", time_limit=seconds, workers=workers, hint=hint).plan

    return plan


def roll(week: Week, case: Case) -> Outcome:
    """Play the week."""
    state = _State(week, case)
    for k in range(week.steps):
        state.step(k)
    return state.outcome()


class _State:
    def __init__(self, week: Week, case: Case) -> None:
        self.week = week
        self.case = case
        self.waiting: dict[str, Arrival] = {}
        self.running: dict[str, tuple[Arrival, int, int]] = {}  # job, first GPU, since
        self.held: dict[str, tuple[int, ...]] = {}
        self.planned: dict[str, tuple[int, int]] = {}  # by the last plan: when, first GPU
        self.delivered = self.timely = 0.0
        self.busy = self.shortfall = self.kept = self.moved = self.retimed = self.put_off = (
            self.illegal
        ) = 0
        self.waits: list[int] = []
        self.seconds: list[float] = []

    def step(self, k: int) -> None:
        """What ended leaves, what arrived is seen, a plan is made, what starts now starts."""
        over = [name for name, (job, _, since) in self.running.items() if since + job.truth <= k]
        for name in over:
            del self.running[name]
        self.waiting |= {job.name: job for job in self.week.arrivals if job.arrival == k}
        problem = self._problem(k)
        plan, taken = timed(self.case.plan, problem, k, self._hint(k))
        self.seconds.append(taken)
        self.illegal += bool(check(problem, plan))
        self._compare(plan, k)
        self._commit(plan, k)
        self._count(k)

    def outcome(self) -> Outcome:
        steps, hours = self.week.steps, STEP_MINUTES / 60
        waits = sorted(self.waits) or [0]
        compared = max(self.kept + self.moved, 1)
        return Outcome(
            delivered=self.delivered,
            timely=self.timely,
            utilization=self.busy / (self.week.gpus * steps),
            shortfall_hours=self.shortfall * hours,
            started=len(self.waits),
            wait_p50=hours * waits[len(waits) // 2],
            wait_p90=hours * waits[9 * len(waits) // 10],
            thrash=self.moved / compared,
            retimed=self.retimed / compared,
            later=self.put_off / compared,
            plan_seconds=statistics.median(self.seconds),
            most_seconds=max(self.seconds),
            illegal=self.illegal,
        )

    # what the plan sees

    def _problem(self, k: int) -> Problem:
        jobs: list[Job] = [self._service(i, k) for i in range(len(self.week.services))]
        jobs += [self._run(*found, k) for found in self.running.values()]
        jobs += [self._job(job, 0) for job in self.waiting.values()]
        if self.case.foresight:
            seen = (job for job in self.week.arrivals if k < job.arrival < k + HORIZON)
            jobs += [self._job(job, job.arrival - k) for job in seen]
        return Problem(
            name=f"week-{k}",
            horizon=HORIZON,
            timestep_minutes=STEP_MINUTES,
            nodes=self.week.nodes,
            jobs=tuple(jobs),
            time_decay=self.case.decay,
            shortfall_penalty=PENALTY,
            overrun=True,
        )

    def _hint(self, k: int) -> dict[str, tuple[int, int]]:
        return {name: (max(at - k, 0), first) for name, (at, first) in self.planned.items()}

    def _service(self, i: int, k: int) -> RealtimeJob:
        curve = self.week.services[i]
        demand = curve.demand[k : k + HORIZON]
        held = self.held.get(curve.name)
        return RealtimeJob(curve.name, curve.priority, demand, curve.swap_cap, held)

    def _known(self, job: Arrival) -> int:
        return job.truth if self.case.foresight else job.estimate

    def _run(self, job: Arrival, first: int, since: int, k: int) -> BatchJob:
        """A run over its estimate is thought to end after this timestep, again and again."""
        left = max(self._known(job) - (k - since), 1)
        running = Running(first, left, left)
        return BatchJob(job.name, job.kind, job.priority, job.gpus, left, running=running)

    def _job(self, job: Arrival, arrival: int) -> BatchJob:
        known = self._known(job)
        return BatchJob(job.name, job.kind, job.priority, job.gpus, known, arrival)

    # what comes of it

    def _compare(self, plan: Plan, k: int) -> None:
        """Which of the last plan's starts that have not happened yet does this plan keep?"""
        new = {a.job: (k + a.start, a.first_gpu) for a in plan.assignments}
        for name, old in self.planned.items():
            same = new.get(name) == old
            self.kept += same
            self.moved += not same
            self.retimed += name not in new or new[name][0] != old[0]
            self.put_off += name not in new or new[name][0] > old[0]
        self.planned = {
            a.job: new[a.job] for a in plan.assignments if a.start and a.job in self.waiting
        }

    def _commit(self, plan: Plan, k: int) -> None:
        for a in plan.assignments:
            if a.start == 0 and a.job in self.waiting:
                job = self.waiting.pop(a.job)
                self.running[a.job] = (job, a.first_gpu, k)
                self.waits.append(k - job.arrival)
        for curve in self.week.services:
            sets = plan.realtime.get(curve.name)
            self.held[curve.name] = sets[0] if sets else ()

    def _count(self, k: int) -> None:
        for job, _, _ in self.running.values():
            worth = job.priority * job.gpus
            self.busy += job.gpus
            self.delivered += worth
            self.timely += worth * DECAY ** (k - job.arrival)
        for curve in self.week.services:
            held = len(self.held[curve.name])
            missing = curve.demand[k] - held
            self.busy += held
            self.shortfall += missing
            self.delivered -= PENALTY * curve.priority * missing
            self.timely -= PENALTY * curve.priority * missing


# The report


def measure_all(
    chosen: Sequence[Case], *, weeks: int = 1, nodes: int = 8, days: int = 7
) -> dict[str, list[Outcome]]:
    """Each case on each week."""
    made = [make_week(seed, nodes=nodes, days=days) for seed in range(weeks)]
    return {case.name: [roll(week, case) for week in made] for case in chosen}


def tables(found: dict[str, list[Outcome]]) -> list[Table]:
    """Means over the weeks; values are shares of the first case's."""
    head = (
        "planned with", "value", "of foresight", "timely", "util", "short GPU-h", "started",
        "p50 wait h", "p90 wait h", "thrash", "in time", "put off", "plan ms", "most ms",
    )  # fmt: skip
    against = _mean(next(iter(found.values())))
    lines = []
    for name, outcomes in found.items():
        mean = _mean(outcomes)
        lines.append(
            (
                name,
                f"{mean.delivered:,.0f}",
                percent(mean.delivered / against.delivered),
                percent(mean.timely / against.timely),
                percent(mean.utilization),
                f"{mean.shortfall_hours:.1f}",
                f"{mean.started:.0f}",
                f"{mean.wait_p50:.1f}",
                f"{mean.wait_p90:.1f}",
                percent(mean.thrash),
                percent(mean.retimed),
                percent(mean.later),
                milliseconds(mean.plan_seconds),
                milliseconds(mean.most_seconds),
            )
        )
    return [Table("A week, re-planned every 30 minutes", head, lines)]


def floors(found: dict[str, list[Outcome]]) -> list[Floor]:
    wrong = sum(int(outcome.illegal) for outcomes in found.values() for outcome in outcomes)
    return [Floor("rolling: every plan legal", "all", "0 illegal", str(wrong), not wrong)]


def to_json(found: dict[str, list[Outcome]]) -> dict[str, Any]:
    return {name: [asdict(outcome) for outcome in outcomes] for name, outcomes in found.items()}


def _mean(outcomes: Sequence[Outcome]) -> Outcome:
    return Outcome(
        **{f.name: statistics.fmean(getattr(o, f.name) for o in outcomes) for f in fields(Outcome)}
    )
