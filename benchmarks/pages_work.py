"""A year of an institute's jobs, for the bench of pages: 100,000 that ended, wait and run.

Most ran for a few minutes; each has what the product leaves behind: a run on GPUs of a node, its
charge, its story, forecasts and an estimate of its start. Some were cancelled while they waited,
some were preempted and ran twice. Services run beside the full fleet. In the end a real cycle
plans what waits, on what a simulated cluster says of what runs.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import islice
from random import Random
from typing import Any, TypeVar

from django.contrib.auth.models import User
from django.db import transaction

from allocator.models import StartEstimate
from clusters.models import Cluster, GpuState, Node, SimulatedPlacement, SimulatedTask
from forecasting.models import Forecast
from ledger.entries import write
from ledger.models import Entry
from workloads.models import Holding, Job, JobEvent, Run

from .ledger_year import GPUS, LIVE, LIVE_STEPS, RATE, START, STEP, World

AT_ONCE = 5000
WAITING = 3000
LIVE_JOBS = 2000  # that ledger_year has running
OF_A_DAY = 300  # nodes that the year's runs of a day take turns on; short ones have the others
NAMES = ("sft-7b", "eval-grid", "tokenize", "probe", "distill", "ablation", "warmup", "debug")
KINDS, OF_KIND = ("training", "batch_inference", "quantization"), (70, 20, 10)
OUTCOMES, OF_OUTCOME = ("completed", "failed", "timed_out", "cancelled"), (85, 6, 4, 5)
FULL = (1 << GPUS) - 1
Progress = Callable[[str], None]
Row = dict[str, Any]
One = TypeVar("One")


@dataclass(frozen=True, slots=True)
class Maker:
    """What every part of the year is made with."""

    world: World
    people: Sequence[User]
    random: Random
    progress: Progress

    @property
    def live_until(self) -> datetime:
        """End of the last timestep that is closed."""
        return LIVE + LIVE_STEPS * STEP


def fill(maker: Maker, *, jobs: int) -> None:
    """Add so many jobs as are wanting to a database that ledger_year filled."""
    short = jobs - Job.objects.count() - WAITING
    _place_the_year(maker)
    for number, several in enumerate(in_parts(_starts(maker, max(0, short)))):
        with transaction.atomic():
            _short_jobs(maker, several, number * AT_ONCE)
        maker.progress(f"{number * AT_ONCE + len(several):,} of {short:,} short jobs")
    _wait(maker)
    _observe(maker)
    for told in in_parts(Job.objects.select_related("submitted_by").iterator()):
        _tell(maker, told)
    maker.progress("told every job's story")


def in_parts(rows: Iterable[One]) -> Iterator[list[One]]:
    """Yield them all, not too many at once."""
    left = iter(rows)
    while part := list(islice(left, AT_ONCE)):
        yield part


def _starts(maker: Maker, number: int) -> Iterator[datetime]:
    span = int((LIVE - START) / STEP) - 2
    for step in sorted(maker.random.randrange(span) for _ in range(number)):
        yield START + step * STEP + timedelta(minutes=maker.random.randrange(1, 12))


def _place_the_year(maker: Maker) -> None:
    """Give the year's runs of a day the nodes that they ran on."""
    runs = Run.objects.filter(state=Run.State.ENDED).order_by("started_at", "pk")
    nodes = maker.world.nodes[:OF_A_DAY]
    for several in in_parts(enumerate(runs.iterator())):
        _held((run, nodes[number % len(nodes)], FULL) for number, run in several)


def _held(places: Iterator[tuple[Run, Node, int]]) -> None:
    """Write what runs that ended held, and what their cluster said of it meanwhile."""
    held, said = [], []
    for run, node, mask in places:
        span = {"started_at": run.started_at, "ended_at": run.ended_at}
        held.append(Holding(run=run, node=node, mask=mask, funded=True, **span))
        left = FULL & ~mask
        assert run.started_at is not None
        assert run.ended_at is not None
        said.append(GpuState(node=node, at=run.started_at, held=mask, free=left, down=0))
        said.append(GpuState(node=node, at=run.ended_at, held=0, free=FULL, down=0))
    Holding.objects.bulk_create(held)
    GpuState.objects.bulk_create(said, ignore_conflicts=True)


# --- Jobs of a few minutes ------------------------------------------------------------------------


def _short_jobs(maker: Maker, starts: Sequence[datetime], first: int) -> None:
    random = maker.random
    drawn = [random.choices(OUTCOMES, OF_OUTCOME)[0] for _ in starts]
    made = Job.objects.bulk_create(
        _job(maker, at, state=state, ended_at=at + timedelta(minutes=random.randrange(1, 18)))
        for at, state in zip(starts, drawn, strict=True)
    )
    ran = [job for job in made if job.state != Job.State.CANCELLED]
    runs = [run for job in ran for run in _runs_of(maker, job)]
    runs = Run.objects.bulk_create(runs)
    nodes = maker.world.nodes[OF_A_DAY:]
    _held(
        (run, nodes[(first + number) % len(nodes)], (1 << min(GPUS, run.job.gpus)) - 1)
        for number, run in enumerate(runs)
    )
    write([entry for run in runs for entry in _charged(maker, run)])


def _job(maker: Maker, at: datetime, **fields: Any) -> Job:
    random = maker.random
    likely = random.randrange(300, 7200)
    ended_at = fields.get("ended_at")
    return Job(
        budget=random.choice(maker.world.leaves),
        submitted_by=random.choice(maker.people),
        submitted_at=at - timedelta(minutes=random.randrange(0, 300)),
        state_since=ended_at or at,
        name=f"{random.choice(NAMES)}-{random.randrange(1000)}",
        kind=random.choices(KINDS, OF_KIND)[0],
        gpus=random.choice((1, 1, 1, 2, 2, 4, 8)),
        minimum_runtime_s=600,
        resumable=random.random() < 0.5,
        expected_duration_s=likely if random.random() < 0.6 else None,
        funded=ended_at is None,
        estimate_p10_s=likely // 2,
        estimate_p50_s=likely,
        estimate_p90_s=likely * 2,
        **fields,
    )


def _runs_of(maker: Maker, job: Job) -> Iterator[Run]:
    """Yield its run; one in twenty was preempted half way, and ran again."""
    assert job.ended_at is not None
    timestep = START + (job.ended_at - START) // STEP * STEP
    begun = max(job.submitted_at, timestep, job.ended_at - timedelta(minutes=17))
    half = begun + (job.ended_at - begun) / 2
    half = half.replace(microsecond=0)
    cut = maker.random.random() < 0.05
    spans = [(begun, half), (half, job.ended_at)] if cut else [(begun, job.ended_at)]
    for number, (start, end) in enumerate(spans, 1):
        yield Run(
            job=job,
            number=number,
            pool=maker.world.pool,
            state=Run.State.ENDED,
            decided_at=start,
            started_at=start,
            protected_until=start,
            ended_at=end,
            end_reason=job.state if end == job.ended_at else Run.EndReason.PREEMPTED,
            charged_until=end,
        )


def _charged(maker: Maker, run: Run) -> Iterator[Entry]:
    """Yield the charge of a run inside one timestep."""
    assert run.started_at is not None
    assert run.ended_at is not None
    seconds = run.job.gpus * int((run.ended_at - run.started_at).total_seconds())
    yield charge(maker, run, run.started_at, run.ended_at, seconds)


def charge(maker: Maker, run: Run, at: datetime, until: datetime, seconds: int) -> Entry:
    """What a run was charged for a part of a timestep."""
    return Entry(
        kind=Entry.Kind.CHARGE,
        budget_id=run.job.budget_id,
        period_id=maker.world.period.pk,
        at=at,
        until=until,
        timestep=START + (at - START) // STEP * STEP,
        amount_mgpus=seconds * RATE,
        gpu_seconds=seconds,
        parked_gpu_seconds=seconds // 10,
        pool_id=maker.world.pool.pk,
        job_id=run.job_id,
        attempt=run.number,
        run_id=run.pk,
        key=f"charge:{run.pk}:{at:%Y-%m-%dT%H:%M:%SZ}",
        created_at=until,
    )


# --- What waits and what runs ---------------------------------------------------------------------


def _wait(maker: Maker) -> None:
    """Queue jobs of the last three days; some wait for others."""
    random, now = maker.random, maker.world.now
    made = Job.objects.bulk_create(
        _job(maker, now - timedelta(minutes=random.randrange(5, 3 * 24 * 60)), state="queued")
        for _ in range(WAITING)
    )
    Job.objects.filter(state="queued").update(funded=False)
    links = Job.dependencies.through
    links.objects.bulk_create(
        links(from_job_id=one.pk, to_job_id=other.pk)
        for one, other in zip(made[-200:], made[:200], strict=True)
    )


def _observe(maker: Maker) -> None:
    """Have the simulated cluster run what runs, and have said so until the last close."""
    cluster = maker.world.pool.cluster
    holdings = Holding.objects.filter(ended_at=None).select_related("run__job", "node")
    by_run: dict[int, list[Holding]] = {}
    said: dict[int, int] = {}
    for one in holdings:
        by_run.setdefault(one.run_id, []).append(one)
        said[one.node_id] = said.get(one.node_id, 0) | one.mask
    tasks = {
        task.external_id: task
        for task in SimulatedTask.objects.bulk_create(
            _task(maker, cluster, held[0].run) for held in by_run.values()
        )
    }
    SimulatedPlacement.objects.bulk_create(
        SimulatedPlacement(
            task=tasks[one.run.external_id], node=one.node, mask=one.mask, started_at=LIVE
        )
        for held in by_run.values()
        for one in held
    )
    GpuState.objects.bulk_create(
        [_said(node, said.get(node.pk, 0)) for node in Node.objects.all()],
        update_conflicts=True,
        unique_fields=["node", "at"],
        update_fields=["held", "free"],
    )
    Cluster.objects.filter(pk=cluster.pk).update(observed_until=maker.live_until)


def _said(node: Node, held: int) -> GpuState:
    return GpuState(node=node, at=LIVE, held=held, free=FULL & ~held, down=0)


def _task(maker: Maker, cluster: Cluster, run: Run) -> SimulatedTask:
    ends_at = None
    if not run.job.is_realtime:
        ends_at = LIVE + timedelta(hours=maker.random.randrange(7, 60))
    return SimulatedTask(
        cluster=cluster,
        external_id=run.external_id,
        started_at=LIVE,
        ends_at=ends_at,
        outcome="completed",
    )


# --- What each leaves behind ----------------------------------------------------------------------


def _tell(maker: Maker, jobs: Sequence[Job]) -> None:
    runs: dict[int, list[Run]] = {}
    for run in Run.objects.filter(job__in=[job.pk for job in jobs]).order_by("pk"):
        runs.setdefault(run.job_id, []).append(run)
    with transaction.atomic():
        JobEvent.objects.bulk_create(
            event for job in jobs for event in _story(job, runs.get(job.pk, []))
        )
        Forecast.objects.bulk_create(
            forecast for job in jobs for forecast in _forecasts(maker, job)
        )
        StartEstimate.objects.bulk_create(_start_estimate(job) for job in jobs)


def _story(job: Job, runs: Sequence[Run]) -> Iterator[JobEvent]:
    likely: Row = {name: getattr(job, f"estimate_{name}") for name in ("p10_s", "p50_s", "p90_s")}
    likely["method"] = "history"
    told: Row = {"job": job, "actor": job.submitted_by}
    yield JobEvent(
        at=job.submitted_at, kind="submitted", data=likely | {"method": "history"}, **told
    )
    held = job.minimum_runtime_s * job.gpus * RATE
    yield JobEvent(job=job, at=job.submitted_at, kind="funded", data={"held_mgpus": held})
    for run in runs:
        yield JobEvent(job=job, run=run, at=run.decided_at, kind="started", data={"gpus": job.gpus})
        if run.ended_at is not None:
            yield JobEvent(job=job, run=run, at=run.ended_at, kind=f"run_{run.end_reason}")
    if job.ended_at is not None and not runs:
        yield JobEvent(at=job.ended_at, kind="cancelled", **told)


def _forecasts(maker: Maker, job: Job) -> Iterator[Forecast]:
    """Yield the one that was planned with, and one beside it where a duration was declared."""
    if job.is_realtime:
        return
    low, likely, high = (getattr(job, f"estimate_p{part}_s") for part in (10, 50, 90))
    scored: Row = {}
    if job.state == Job.State.COMPLETED:
        took = max(1, int(likely * maker.random.lognormvariate(0, 0.5)))
        scored = {
            "actual_s": took,
            "scored_at": job.ended_at,
            "loss_p10_ds": abs(took - low),
            "loss_p50_ds": 5 * abs(took - likely),
            "loss_p90_ds": abs(took - high),
            "error_per_mille": 1000 * abs(took - likely) // took,
            "inside": low <= took <= high,
        }
    made: Row = {"job": job, "made_at": job.submitted_at, "version": "1"} | scored
    made |= {"p10_s": low, "p50_s": likely, "p90_s": high}
    yield Forecast(method="history", variant=job.name.partition("-")[0], **made)
    if job.expected_duration_s is not None:
        yield Forecast(method="declared", planned=False, **made)


def _start_estimate(job: Job) -> StartEstimate:
    at = job.submitted_at
    return StartEstimate(
        job=job,
        attempt=1,
        made_at=at,
        ahead_s=1800,
        low=at + STEP / 2,
        likely=at + STEP,
        high=at + 2 * STEP,
    )
