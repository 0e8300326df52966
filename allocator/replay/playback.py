"""Plays a trace's jobs through the real cycle, and holds what the report is made of."""

import math
import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from django.conf import settings

from allocator import admission, playing
from allocator.models import Cycle
from allocator.replay.trace import DAY_S, BadInput, TraceJob
from allocator.replay.world import START, World
from clusters.models import Node
from workloads.models import Job
from workloads.specs import JobSpec

SPREAD = 0.5  # σ of the log-normal error of declared durations


@dataclass(frozen=True)
class Course:
    """How to play: from which day of the trace on, how long, and how wrong people declare."""

    start_day: int
    days: int
    seed: int = 0
    exact: bool = False
    time_limit_s: float | None = None


@dataclass
class Played:
    """What playing came to. ``reached`` is short of the end where the time limit was hit."""

    reached: datetime = START
    cycles: int = 0
    illegal: int = 0
    seconds: float = 0.0
    rounded: int = 0
    too_large: list[str] = field(default_factory=list)
    in_time: bool = True


Watch = Callable[[Played, Cycle], object]


def play(world: World, jobs: Sequence[TraceJob], course: Course, watch: Watch) -> Played:
    """Submit every job at its instant and run all cycles; ``watch`` is told of each."""
    played = Played()
    began = time.monotonic()
    arrivals = _arrivals(world, jobs, course, played)
    end = START + timedelta(days=course.days)
    with playing.quietly():
        for made in playing.play(start=START, end=end, arrivals=arrivals):
            played.reached = made.at
            played.cycles += 1
            played.illegal += made.status == Cycle.Status.ILLEGAL
            played.seconds = time.monotonic() - began
            watch(played, made)
            if course.time_limit_s is not None and played.seconds > course.time_limit_s:
                played.in_time = made.at >= end
                break
    return played


def _arrivals(
    world: World, jobs: Sequence[TraceJob], course: Course, played: Played
) -> list[playing.Arrival]:
    """What comes when; jobs that fit into no pool are named and left out."""
    draw = random.Random(course.seed)
    largest = max(_pool_sizes())
    found = []
    for job in jobs:
        row = job.later(course.start_day * DAY_S)
        at = START + timedelta(seconds=row.submit_time_s)
        # Drawn for each job, so that leaving one out doesn't change the others.
        exact = course.exact or row.is_realtime
        error = 1.0 if exact else math.exp(draw.gauss(0, SPREAD))
        if (row.peak if row.is_realtime else row.block) > largest:
            played.too_large.append(job.job_id)
            continue
        if row.is_realtime:
            found += _service(world, row, at)
            continue
        played.rounded += row.block != row.gpus
        found.append(playing.Arrival(at, _submission(world, row, error)))
    return found


def _service(world: World, row: TraceJob, at: datetime) -> list[playing.Arrival]:
    """A service comes, and is cancelled when its time is over."""

    def cancel(now: datetime) -> object:
        job = Job.objects.get(idempotency_key=_key(row))
        return admission.cancel(job=job, by=None, now=now)

    over = at + timedelta(seconds=row.duration_s)
    return [playing.Arrival(at, _submission(world, row, 1.0)), playing.Arrival(over, cancel)]


def _pool_sizes() -> list[int]:
    sizes: dict[int, int] = {}
    for pool, gpus in Node.objects.values_list("pool_id", "gpus"):
        sizes[pool] = sizes.get(pool, 0) + gpus
    return list(sizes.values())


def _submission(world: World, job: TraceJob, error: float) -> Callable[[datetime], object]:
    spec = spec_of(job, error)

    def submit(at: datetime) -> object:
        return admission.submit(
            budget=world.budgets[job.group], user=world.users[job.user], spec=spec, now=at
        )

    return submit


def spec_of(job: TraceJob, error: float) -> JobSpec:
    """What the job's owner would have asked for: its duration is declared with an error."""
    simulate: dict[str, object] = {"duration_s": job.duration_s}
    if job.parked_s:
        simulate["idle"] = [[max(0, job.duration_s - job.parked_s), None]]
    if job.is_realtime:
        return _service_spec(job, error)
    return JobSpec(
        name=job.job_id[:100],
        kind=job.kind,
        gpus=job.block,
        minimum_runtime_s=_minimum_runtime(job),
        resumable=job.resumable,
        urgency=job.urgency,
        expected_duration_s=max(1, round(job.duration_s * error)),
        time_limit_s=job.time_limit_s,
        when_unfunded="run",
        spec={"simulate": simulate},
        idempotency_key=_key(job),
    )


def _key(job: TraceJob) -> str:
    return f"trace:{job.job_id}"[:100]


def _service_spec(job: TraceJob, error: float) -> JobSpec:
    """A service with a profile of a day, or of a week where its demand doesn't fit one."""
    demand = job.demand or (job.gpus,)
    step = job.demand_step_s
    spans = (span for span in (DAY_S, 7 * DAY_S) if not span % (len(demand) * step))
    span = next(spans, 0)
    if not span or step % 60:
        raise BadInput(
            f"Service {job.job_id!r}: its demand does not repeat within a day or a week of whole "
            "minutes; give one that does."
        )
    return JobSpec(
        name=job.job_id[:100],
        kind=job.kind,
        urgency=job.urgency,
        expected_duration_s=max(1, round(job.duration_s * error)),
        profile=demand * (span // (len(demand) * step)),
        step_minutes=step // 60,
        swap_cap=job.cap,
        idempotency_key=_key(job),
    )


def _minimum_runtime(job: TraceJob) -> int | None:
    """As recorded, within what is allowed here; None leaves it to the setting."""
    if job.min_runtime_s is None:
        return None
    longest = settings.MINIMUM_RUNTIME_MAX_HOURS * 3600
    return min(job.min_runtime_s, longest, job.time_limit_s or longest)
