"""What came of a simulation: the figures that policies are compared by.

- occupancy: held ÷ healthy GPU-seconds of the span; crowded: the same over the seconds in which
  GPUs held and asked for were at least those that were healthy.
- owed, delivered: per budget and timestep, entitled = effective share × healthy GPU-seconds,
  demand = held by funded runs + asked by funded jobs that waited, owed = the lesser, delivered =
  the lesser of held by funded runs and owed; the whole is that of the programs. By window: the
  same with held and owed summed over each fair-share window first, since fair share lets one
  timestep make up for another.
- waits: from submission to the first start; of a job that never started, to the end of the span.
  Debug jobs have at most 8 GPUs and a time limit, or in lack of one a duration, of 15 minutes, and
  those with a limit are told apart; large ones the fewest GPUs such that at most a
  tenth of the jobs have as many; all others are small.
- finish-time fairness ρ: from submission to end, over the same if the budget's jobs ran first in,
  first out on as many GPUs as it is entitled to and nothing else; of jobs that ended.
- starved: never started, though submitted more than a day before the end.
- useful: held, less what runs that can't resume lost by preemption and all lost with their nodes,
  less what was parked.
- shortfall: GPU-seconds that real-time services wanted and did not hold.
"""

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from heapq import heapreplace
from typing import Any

from .world import SimJob, State, World

DAY_S = 24 * 3600
QUANTILES = (50, 90, 99)
CLASSES = ("debug", "small", "large")
LIMITED = "debug_limited"  # debug jobs whose time limit says so


@dataclass(frozen=True)
class Waits:
    """Seconds at quantiles, of so many jobs; `unstarted` of them wait at the end still."""

    jobs: int
    unstarted: int
    p50_s: int
    p90_s: int
    p99_s: int


@dataclass(frozen=True)
class BudgetOutcome:
    """One budget's GPU-seconds over the span; an inner one's are those of its leaves."""

    path: str
    parent: str | None
    entitled_gpu_seconds: int
    asked_gpu_seconds: int  # by the jobs submitted: GPUs × what each takes
    funded_gpu_seconds: int
    unfunded_gpu_seconds: int
    owed_gpu_seconds: int
    delivered_gpu_seconds: int
    delivered_by_window_gpu_seconds: int
    realtime_gpu_seconds: int  # held by services, which are among funded and unfunded
    shortfall_gpu_seconds: int
    waits: Waits


@dataclass(frozen=True)
class Outcome:
    """One policy's figures. Ratios are None where nothing is to be divided by."""

    policy: str
    seconds: int
    gpus: int
    jobs: int
    completed: int
    timed_out: int
    lost: int  # preempted, and could not resume
    occupancy: float
    crowded_occupancy: float | None
    crowded_seconds: int
    delivered: float | None
    worst_budget: str
    worst_delivered: float | None
    delivered_by_window: float | None
    worst_by_window: float | None
    worst_budget_by_window: str
    funded_gpu_seconds: int
    unfunded_gpu_seconds: int
    useful_gpu_seconds: int
    preemptions: int
    starved: int
    rho_p50: float | None
    rho_p90: float | None
    large_gpus: int
    decisions: int
    services: int
    realtime_gpu_seconds: int
    realtime_wanted_gpu_seconds: int
    shortfall_gpu_seconds: int
    down_gpu_seconds: int
    failed_runs: int
    waits: dict[str, Waits]
    budgets: tuple[BudgetOutcome, ...]

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


def measure(world: World, jobs: Sequence[SimJob], policy: str, decisions: int) -> Outcome:
    """All figures of a world whose span is over."""
    setup, meters, services = world.setup, world.meters, world.services.all
    healthy = meters.available.gpu_seconds(0, setup.seconds)
    budgets = tuple(_budgets(world, jobs))
    programs = [budgets[n] for n in world.budgets.programs]
    owed = sum(one.owed_gpu_seconds for one in programs)
    leaves = [budgets[n] for n in world.budgets.leaves if budgets[n].owed_gpu_seconds]
    worst = min(leaves, key=lambda one: (_delivered_part(one), one.path), default=None)
    by_window = min(leaves, key=lambda one: (_part_by_window(one), one.path), default=None)
    rho = sorted(_rho(world, jobs))
    levels = meters.levels.values()
    large = large_gpus(jobs)
    return Outcome(
        policy=policy,
        seconds=setup.seconds,
        gpus=setup.gpus,
        jobs=len(jobs),
        completed=sum(job.state == State.COMPLETED for job in jobs),
        timed_out=sum(job.state == State.TIMED_OUT for job in jobs),
        lost=sum(job.state == State.LOST for job in jobs),
        occupancy=meters.held_s / healthy if healthy else 0.0,
        crowded_occupancy=_ratio(meters.crowded_held_s, meters.crowded_healthy_s),
        crowded_seconds=meters.crowded_s,
        delivered=_ratio(sum(one.delivered_gpu_seconds for one in programs), owed),
        worst_budget="" if worst is None else worst.path,
        worst_delivered=_delivered_part(worst) if worst else None,
        delivered_by_window=_ratio(
            sum(one.delivered_by_window_gpu_seconds for one in programs), owed
        ),
        worst_by_window=_part_by_window(by_window) if by_window else None,
        worst_budget_by_window="" if by_window is None else by_window.path,
        funded_gpu_seconds=sum(level.funded_s for level in levels),
        unfunded_gpu_seconds=sum(level.unfunded_s for level in levels),
        useful_gpu_seconds=meters.held_s - sum(map(_wasted, jobs)),
        preemptions=world.preemptions,
        starved=_starved(jobs, setup.seconds),
        rho_p50=_quantile(rho, 50) if rho else None,
        rho_p90=_quantile(rho, 90) if rho else None,
        large_gpus=large,
        decisions=decisions,
        services=len(services),
        realtime_gpu_seconds=sum(one.held_s for one in services),
        realtime_wanted_gpu_seconds=sum(one.wanted_s for one in services),
        shortfall_gpu_seconds=sum(one.short_s for one in services),
        down_gpu_seconds=setup.gpus * setup.seconds - healthy,
        failed_runs=sum(job.failed for job in jobs) + world.services.failures,
        waits=_waits_by_class(jobs, large, setup.seconds),
        budgets=budgets,
    )


def _starved(jobs: Sequence[SimJob], seconds: int) -> int:
    return sum(job.first_start is None and seconds - job.submitted > DAY_S for job in jobs)


def _waits_by_class(jobs: Sequence[SimJob], large: int, seconds: int) -> dict[str, Waits]:
    classes = {
        name: _waits([job for job in jobs if class_of(job, large) == name], seconds)
        for name in CLASSES
    }
    return classes | {LIMITED: _waits([job for job in jobs if _limited(job)], seconds)}


def _delivered_part(budget: BudgetOutcome) -> float:
    return budget.delivered_gpu_seconds / budget.owed_gpu_seconds


def _part_by_window(budget: BudgetOutcome) -> float:
    return budget.delivered_by_window_gpu_seconds / budget.owed_gpu_seconds


def large_gpus(jobs: Iterable[SimJob]) -> int:
    """The fewest GPUs that at most a tenth of the jobs have; else the most that any has."""
    sizes = sorted((job.gpus for job in jobs), reverse=True)
    if not sizes:
        return 1
    over = sizes[len(sizes) // 10]  # so many and more have too many jobs
    return min((size for size in sizes if size > over), default=sizes[0])


def class_of(job: SimJob, large: int) -> str:
    """Which class's waits a job counts for."""
    if job.debug:
        return "debug"
    return "large" if job.gpus >= large else "small"


def _limited(job: SimJob) -> bool:
    return job.debug and job.row.time_limit_s is not None


def _waits(jobs: Sequence[SimJob], end: int) -> Waits:
    return waits_of([(job.submitted, job.first_start) for job in jobs], end)


def waits_of(starts: Sequence[tuple[int, int | None]], end: int) -> Waits:
    """Waits of jobs that were submitted and started at some seconds; None: not before the end."""
    waits = sorted((end if began is None else began) - submitted for submitted, began in starts)
    unstarted = sum(began is None for _, began in starts)
    p50, p90, p99 = (int(_quantile(waits, q)) if waits else 0 for q in QUANTILES)
    return Waits(len(starts), unstarted, p50, p90, p99)


def _budgets(world: World, jobs: Sequence[SimJob]) -> Iterable[BudgetOutcome]:
    tree, meters, setup = world.budgets, world.meters, world.setup
    sums = {n: [0, 0, 0, 0, 0] for n in range(len(tree.nodes))}
    below: dict[int, list[SimJob]] = {n: [] for n in sums}
    for leaf, level in meters.levels.items():
        for n in tree.above[leaf]:
            sums[n][0] += level.funded_s
            sums[n][1] += level.unfunded_s
    for job in jobs:
        for n in tree.above[job.leaf]:
            sums[n][2] += job.gpus * job.work_s
            below[n].append(job)
    for service in world.services.all:
        for n in tree.above[service.leaf]:
            sums[n][2] += service.wanted_s
            sums[n][3] += service.held_s
            sums[n][4] += service.short_s
    healthy = meters.available.gpu_seconds(0, setup.seconds)
    for n, node in enumerate(tree.nodes):
        funded, unfunded, asked, served, short = sums[n]
        yield BudgetOutcome(
            path=node.path,
            parent=node.parent,
            entitled_gpu_seconds=tree.entitled(n, healthy),
            asked_gpu_seconds=asked,
            funded_gpu_seconds=funded,
            unfunded_gpu_seconds=unfunded,
            owed_gpu_seconds=meters.due[n].owed,
            delivered_gpu_seconds=meters.due[n].delivered,
            delivered_by_window_gpu_seconds=meters.due[n].delivered_by_window,
            realtime_gpu_seconds=served,
            shortfall_gpu_seconds=short,
            waits=_waits(below[n], setup.seconds),
        )


def _wasted(job: SimJob) -> int:
    """GPU-seconds that came to nothing: lost by preemption, and parked at the end of its work."""
    done = job.progress_s
    if job.run is not None:
        return job.gpus * job.lost_s
    parked = max(0, done - max(0, job.row.duration_s - job.row.parked_s))
    return job.gpus * (job.lost_s + parked)


def _rho(world: World, jobs: Sequence[SimJob]) -> Iterable[float]:
    alone = alone_ends(world, jobs)
    for job in jobs:
        if job.ended is not None and job.state != State.LOST and job.number in alone:
            yield (job.ended - job.submitted) / max(1, alone[job.number] - job.submitted)


def alone_ends(world: World, jobs: Sequence[SimJob]) -> dict[int, int]:
    """When each job would end on the GPUs its budget is entitled to, first in, first out.

    Blocks don't matter there. A job with more GPUs than that takes longer in proportion.
    """
    entitled = {leaf: world.budgets.entitled(leaf, world.setup.gpus) for leaf in world.meters.due}
    free_at = {leaf: [0] * gpus for leaf, gpus in entitled.items() if gpus}
    before: dict[int, int] = {}
    found = {}
    for job in jobs:
        heap = free_at.get(job.leaf)
        if heap is None:
            continue
        gpus = min(job.gpus, len(heap))
        lasts = -(-job.work_s * job.gpus // gpus)
        # The last of as many GPUs as it needs; none starts before one that came first.
        start = max(job.submitted, before.get(job.leaf, 0), sorted(heap)[gpus - 1])
        before[job.leaf] = start
        for _ in range(gpus):
            heapreplace(heap, start + lasts)
        found[job.number] = start + lasts
    return found


def _quantile(ordered: Sequence[float], percent: int) -> float:
    """The least value that so many percent do not exceed."""
    return ordered[min(len(ordered) - 1, max(0, -(-len(ordered) * percent // 100) - 1))]


def _ratio(part: int, whole: int) -> float | None:
    return part / whole if whole else None
