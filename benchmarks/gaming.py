"""Does it pay to game the allocator? Twin teams with the same work and the same shares, one honest.

Weeks are simulated for each trick of the other twin, beside a third team, under the product's
policy and under others. What counts is useful GPU-time: work of the twins' own jobs, not what was
parked, repeated or wasted.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from allocator.core.contract import DEBUG_GPUS, DEBUG_S
from allocator.core.made_traces import Lab, made_trace
from allocator.core.simulate import play
from allocator.core.simulation.setup import Setup, equal_tree, nodes_of
from allocator.core.simulation.world import SimJob, World
from allocator.core.traces import DAY_S, Trace, TraceJob

from .tables import Floor, Table, percent, signed

HONEST, OTHER, REST = "honest", "other", "rest"
NODES, GPUS, DAYS = "8x8", 64, 7
DEMAND = 2.5  # of the fleet, by three teams
SEEDS = 5
HOUR_S = 3600
POLICIES = ("fairshare", "priority", "backfill")
NOISE = 0.02  # twins who do the same differ by so much, since no GPU can be had by both
WARM_UP_S = 3 * 60  # of each piece that work is cut into, which does nothing useful
CUT_S = 4 * HOUR_S  # only work up to so long is cut into pieces

Trick = Callable[[TraceJob], Iterable[tuple[TraceJob, float]]]  # jobs instead, and how useful


def _plain(job: TraceJob) -> Iterable[tuple[TraceJob, float]]:
    yield job, 1.0


def _parks(job: TraceJob) -> Iterable[tuple[TraceJob, float]]:
    """It keeps its GPUs for another two hours, just in case."""
    kept = 2 * HOUR_S
    yield replace(job, duration_s=job.duration_s + kept, parked_s=kept), 1.0


def _all_high(job: TraceJob) -> Iterable[tuple[TraceJob, float]]:
    yield replace(job, urgency="high"), 1.0


def _splits(job: TraceJob) -> Iterable[tuple[TraceJob, float]]:
    """Four jobs, each of a quarter of the time."""
    for n in range(4):
        part = max(1, job.duration_s // 4)
        yield replace(job, job_id=f"{job.job_id}-{n}", duration_s=part), 1.0


def _long_minimum(job: TraceJob) -> Iterable[tuple[TraceJob, float]]:
    """The longest minimum runtime there is."""
    yield replace(job, min_runtime_s=8 * HOUR_S), 1.0


def _floods(job: TraceJob) -> Iterable[tuple[TraceJob, float]]:
    """Three copies that ask for no credits, of which nothing new comes."""
    yield job, 1.0
    for n in range(3):
        yield replace(job, job_id=f"{job.job_id}-{n}", min_runtime_s=0), 0.0


def _as_debug(job: TraceJob) -> Iterable[tuple[TraceJob, float]]:
    """Small work in pieces of a quarter of an hour, each with a time limit."""
    if job.gpus > DEBUG_GPUS or job.duration_s > CUT_S:
        yield job, 1.0
        return
    useful = DEBUG_S - WARM_UP_S
    for n in range(-(-job.duration_s // useful)):
        part = min(useful, job.duration_s - n * useful) + WARM_UP_S
        piece = replace(job, job_id=f"{job.job_id}-{n}", duration_s=part, time_limit_s=DEBUG_S)
        yield piece, 1 - WARM_UP_S / part


def _twice_the_gpus(job: TraceJob) -> Iterable[tuple[TraceJob, float]]:
    """Its age grows twice as fast, and half of its GPUs do nothing."""
    wide = min(2 * job.gpus, GPUS)
    yield replace(job, gpus=wide), job.gpus / wide


TRICKS: dict[str, Trick] = {
    "none": _plain,
    "parks GPUs for 2 h after each job": _parks,
    "marks everything high": _all_high,
    "splits jobs into four": _splits,
    "asks for 8 h of minimum runtime": _long_minimum,
    "floods with unfunded copies": _floods,
    "cuts small work into debug jobs": _as_debug,
    "asks for twice the GPUs": _twice_the_gpus,
}


@dataclass(frozen=True, slots=True)
class Week:
    """One trick under a policy, over all seeds: useful GPU-seconds of each twin."""

    trick: str
    policy: str
    honest: float
    other: float

    @property
    def gain(self) -> float:
        """What the other twin has more than the honest one, as a part."""
        return self.other / self.honest - 1


def measure_all(seeds: int = SEEDS, tricks: Iterable[str] = TRICKS) -> list[Week]:
    found = []
    for trick in tricks:
        for policy in POLICIES:
            weeks = [_played(trick, policy, seed) for seed in range(seeds)]
            honest, other = (sum(side) for side in zip(*weeks, strict=True))
            found.append(Week(trick, policy, honest, other))
    return found


def _played(trick: str, policy: str, seed: int) -> tuple[float, float]:
    """Useful GPU-seconds of the honest twin and of the other."""
    jobs, useful = _jobs(TRICKS[trick], seed)
    trace = Trace(tuple(sorted(jobs, key=lambda job: (job.submit_time_s, job.job_id))))
    setup = Setup(nodes_of(NODES), equal_tree((HONEST, OTHER, REST)), DAYS * DAY_S, seed=seed)
    played = play(trace, setup, policy)
    sums = dict.fromkeys((HONEST, OTHER, REST), 0.0)
    for job in played.jobs:
        sums[job.budget] += _done(job, played.world) * useful[job.row.job_id]
    return sums[HONEST], sums[OTHER]


def _jobs(trick: Trick, seed: int) -> tuple[list[TraceJob], dict[str, float]]:
    """The twins' jobs come in pairs at the same seconds; who is asked first changes."""
    lab = Lab(gpus=GPUS, days=DAYS, groups=1, demand=DEMAND / 3, seed=2 * seed)
    work = made_trace(lab).jobs
    rest = made_trace(replace(lab, seed=2 * seed + 1)).jobs
    jobs, useful = [], {}
    for n, job in enumerate(work):
        sides = ("a", "b") if n % 2 else ("b", "a")  # of two jobs of one second a comes first
        mine = replace(job, job_id=f"{job.job_id}{sides[0]}", group=HONEST)
        other = replace(job, job_id=f"{job.job_id}{sides[1]}", group=OTHER)
        for one, part in ((mine, 1.0), *trick(other)):
            jobs.append(one)
            useful[one.job_id] = part
    for job in rest:
        jobs.append(replace(job, job_id=f"rest-{job.job_id}", group=REST))
        useful[jobs[-1].job_id] = 1.0
    return jobs, useful


def _done(job: SimJob, world: World) -> int:
    """GPU-seconds of its work that were done, without what it parked."""
    done = job.progress_s + (0 if job.run is None else world.now - job.run.since)
    return job.gpus * min(done, job.row.duration_s - job.row.parked_s)


def tables(rows: Sequence[Week]) -> list[Table]:
    head = ("the other twin", "honest, useful GPU-h", "other", *(f"gain, {p}" for p in POLICIES))
    gains = {(row.trick, row.policy): signed(row.gain) for row in rows}
    found = [
        (
            row.trick,
            *(f"{one / HOUR_S:,.0f}" for one in (row.honest, row.other)),
            *(gains[row.trick, policy] for policy in POLICIES),
        )
        for row in rows
        if row.policy == POLICIES[0]
    ]
    return [Table("Twins with the same work and shares", head, found)]


def floors(rows: Sequence[Week]) -> list[Floor]:
    """No trick leaves the honest twin with less useful GPU-time, but for noise."""
    return [
        Floor(
            "gaming: gain", row.trick, f"≤ {percent(NOISE)}", percent(row.gain), row.gain <= NOISE
        )
        for row in rows
        if row.policy == POLICIES[0]
    ]


def to_json(rows: Sequence[Week]) -> list[dict[str, Any]]:
    return [asdict(row) | {"gain": row.gain} for row in rows]
