"""One job: what happened to it, what it cost, why it waits, and when it will end."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime

from django.db.models import Prefetch
from django.http import Http404

from allocator import admission, urgency
from allocator.pages import job_axis, job_story, job_waits, queue, session
from allocator.pages.job_axis import Axis
from allocator.pages.job_story import Story
from allocator.pages.names import Names
from allocator.pages.queue import Why
from allocator.pages.session import TimeBox
from allocator.start_estimates import Record, record_for
from budgets.access import Person, Standing, visible_q
from budgets.hues import Hue
from budgets.periods import active
from clusters.models import Pool
from clusters.saying import say as _
from forecasting.models import Forecast
from ledger import reports
from ledger.entries import Attempt
from ledger.figures import accounts
from ledger.instants import iso, to_seconds
from ledger.rates import Rates
from ledger.reports import ChargeLine, JobCharges
from workloads.models import Holding, Job, JobEvent, Run

LINES = 6  # of charges that the page itself shows
Ends = tuple[datetime, datetime, datetime]


@dataclass(frozen=True)
class RunSum:
    """What one run was charged so far; milli-GPU-seconds and GPU-seconds."""

    number: int
    timesteps: int
    amount_mgpus: int
    unfunded_gpu_seconds: int


@dataclass(frozen=True)
class Money:
    """A job's credits in milli-GPU-seconds; ``quoted`` from early to late, None for a service."""

    charges: JobCharges
    runs: list[RunSum]
    in_flight_mgpus: int
    held_mgpus: int
    quoted: tuple[int, int, int] | None
    at_end: tuple[int, int, int] | None
    parked_mgpus: int

    @property
    def so_far_mgpus(self) -> int:
        charges = self.charges
        settled = charges.charged_mgpus - charges.refunded_mgpus + charges.adjusted_mgpus
        return settled + self.in_flight_mgpus


@dataclass(frozen=True)
class Place:
    """Where a run runs: its first and last node, and GPUs."""

    run: Run
    gpus: int
    nodes: list[str]


@dataclass(frozen=True)
class JobPage:
    """All that the page shows."""

    job: Job
    now: datetime
    hue: Hue
    why: Why | None
    run: Run | None  # the live one
    places: dict[int, Place]  # by run id
    ends: Ends | None
    axis: Axis
    story: Story
    money: Money
    may_cancel: bool
    may_change_urgency: bool
    waits_for: list[Job]
    waited_for_by: list[Job]
    done_s: int
    box: TimeBox | None  # of a session
    record: Record | None  # how good estimates of a start like this one have been

    @property
    def place(self) -> Place | None:
        return self.places.get(self.run.pk) if self.run else None

    @property
    def last_lines(self) -> list[ChargeLine]:
        return list(reversed(self.money.charges.lines))[:LINES]

    @property
    def is_protected(self) -> bool:
        until = self.run.protected_until if self.run else None
        return until is not None and until > self.now

    @property
    def waited_s(self) -> int:
        """Seconds in its present state."""
        return max(0, int((self.now - self.job.state_since).total_seconds()))

    @property
    def story_runs(self) -> int:
        return sum(1 for place in self.places.values() if place.run.started_at is not None)

    @property
    def least_demand(self) -> int:
        """The lowest demand of a service's profile, in GPUs."""
        return min(self.job.service.profile, default=0)

    @property
    def estimate(self) -> tuple[str, str, str] | None:
        """Where the early, likely and late end lie on a line that begins now, in percent."""
        if self.ends is None or self.ends[2] <= self.now:
            return None
        whole = (self.ends[2] - self.now) / 0.9
        low, likely, high = (f"{2 + 96 * ((end - self.now) / whole):.1f}%" for end in self.ends)
        return low, likely, high

    @property
    def forecasts(self) -> list[Forecast]:
        """What was foretold of it, that which it is planned with first; nothing of a service."""
        return [] if self.job.is_realtime else list(self.job.forecasts.all())

    @property
    def pools(self) -> str:
        return ", ".join(pool.name for pool in self.job.pools.all())


def find(user: Person, pk: int) -> Job:
    """Return the job with all that its page shows, if the reader may see it; else Http404."""
    held = Holding.objects.select_related("node").order_by("pk")
    runs = Run.objects.select_related("pool").prefetch_related(Prefetch("holdings", held))
    jobs = Job.objects.filter(visible_q(user, "budget__"), pk=pk)
    job = (
        jobs.select_related("budget", "submitted_by", "service", "outlook__cycle")
        .prefetch_related(
            "pools",
            "forecasts",
            "waits",
            Prefetch("runs", runs.order_by("number")),
            Prefetch("events", JobEvent.objects.select_related("actor", "run")),
        )
        .first()
    )
    if job is None:
        raise Http404(_("There is no such job, or none that you may see."))
    return job


def page(user: Person, pk: int, *, now: datetime) -> JobPage:
    """Read one job. A constant number of queries."""
    job = find(user, pk)
    names = Names.load(user)
    charges = reports.job_charges(job=job)
    run = next((one for one in job.runs.all() if one.state in Run.LIVE), None)
    ends = queue.ends(job, run, now) if run else None
    money = money_of(job, run, charges, ends, now)
    why = queue.why(job, names) if job.state == Job.State.QUEUED else None
    places = {one.pk: _place(one) for one in job.runs.all()}
    related = Job.objects.filter(visible_q(user, "budget__")).select_related("budget")
    return JobPage(
        job=job,
        now=now,
        hue=names.hue_of(job.budget.path),
        why=why,
        run=run,
        places=places,
        ends=ends,
        axis=job_axis.axis(job, charges, money.in_flight_mgpus, why, ends, now=now),
        story=job_story.story(
            job, names, charges, places, job_waits.Waits(job, names, now=now), now=now
        ),
        money=money,
        may_cancel=may_cancel(names, user, job),
        may_change_urgency=not urgency.refusal(job) and urgency.may_change(names.held, user, job),
        waits_for=list(related.filter(dependents=job).order_by("pk")),
        waited_for_by=list(related.filter(dependencies=job).order_by("pk")),
        done_s=_done(job, run, now),
        box=session.time_box(job, run, money, user=user, held=names.held, now=now),
        record=record_for(getattr(job, "outlook", None) if why else None, now=now),
    )


def time_box(job: Job, *, user: Person, held: Standing, now: datetime) -> TimeBox | None:
    """Return the time box of a session whose runs were fetched with it; None for other jobs."""
    if not job.session:
        return None
    run = next((one for one in job.runs.all() if one.state in Run.LIVE), None)
    money = money_of(job, run, reports.job_charges(job=job), None, now)
    return session.time_box(job, run, money, user=user, held=held, now=now)


def may_cancel(names: Names, user: Person, job: Job) -> bool:
    """Say whether the reader may cancel it: their own, or anyone's in what they manage."""
    if job.has_ended or job.cancel_requested_at is not None:
        return False
    return admission.may_cancel(names.held, user, job)


CHARGE_COLUMNS = (
    *("run", "timestep", "start", "end", "funded"),
    *("gpu_seconds", "parked_gpu_seconds", "amount_mgpus"),
)


def charge_rows(job: Job) -> Iterator[tuple[object, ...]]:
    """Yield a job's charges as rows of CHARGE_COLUMNS; integers, and instants with Z."""
    for line in reports.job_charges(job=job).lines:
        instants = (iso(at) for at in (line.timestep, line.start, line.end))
        money = (line.gpu_seconds, line.parked_gpu_seconds, line.amount_mgpus)
        yield (line.run_number, *instants, int(line.funded), *money)


def _place(run: Run) -> Place:
    held = [h for h in run.holdings.all() if h.started_at != h.ended_at or h.ended_at is None]
    live = [h for h in held if h.ended_at is None] or held
    nodes = list(dict.fromkeys(h.node.name for h in live))
    masks: dict[int, int] = {}
    for holding in live:
        masks[holding.node_id] = masks.get(holding.node_id, 0) | holding.mask
    return Place(run, sum(mask.bit_count() for mask in masks.values()), nodes)


def _done(job: Job, run: Run | None, now: datetime) -> int:
    """Seconds of work done so far: kept by earlier runs, and of the live one."""
    if run is None or run.started_at is None:
        return job.progress_s
    return job.progress_s + max(0, int((now - run.started_at).total_seconds()))


def money_of(
    job: Job, run: Run | None, charges: JobCharges, ends: Ends | None, now: datetime
) -> Money:
    """Return what a job has cost, what is held for it, and what it will have cost."""
    period = active(now)
    in_flight = held = 0
    if period is not None and not job.has_ended:
        mine = Attempt(job.pk, job.attempt)
        found = accounts(period=period, at=now, jobs=[job.pk])
        in_flight, held = found.running.get(mine, 0), found.put_by(mine)
    rates = Rates.load()
    money = Money(
        charges=charges,
        runs=_run_sums(charges),
        in_flight_mgpus=in_flight,
        held_mgpus=held,
        quoted=_quoted(job, rates),
        at_end=None,
        parked_mgpus=sum(_parked(line) for line in charges.lines),
    )
    if run is None or ends is None or not job.funded:
        return money
    rest = [_price(job.gpus, run.pool_id, now, end, rates) for end in ends]
    so_far = money.so_far_mgpus
    low, likely, high = (so_far + amount for amount in rest)
    return Money(**{**vars(money), "at_end": (low, likely, high)})


def _run_sums(charges: JobCharges) -> list[RunSum]:
    by_run: dict[int, list[ChargeLine]] = {}
    for line in charges.lines:
        by_run.setdefault(line.run_number, []).append(line)
    return [
        RunSum(
            number=number,
            timesteps=len({line.timestep for line in lines}),
            amount_mgpus=sum(line.amount_mgpus for line in lines),
            unfunded_gpu_seconds=sum(one.gpu_seconds for one in lines if not one.funded),
        )
        for number, lines in by_run.items()
    ]


def _parked(line: ChargeLine) -> int:
    return (
        line.amount_mgpus * line.parked_gpu_seconds // line.gpu_seconds if line.gpu_seconds else 0
    )


def _quoted(job: Job, rates: Rates) -> tuple[int, int, int] | None:
    """What the first estimate came to at the dearest pool that the job accepts."""
    forecasts: list[Forecast] = list(job.forecasts.all())
    if not forecasts or job.is_realtime or job.minimum_runtime_s == 0:
        return None
    pools = [pool.pk for pool in job.pools.all()] or list(Pool.objects.values_list("pk", flat=True))
    rate = rates.highest(pools, job.submitted_at)
    first = forecasts[0]
    low, likely, high = (job.gpus * rate * s for s in (first.p10_s, first.p50_s, first.p90_s))
    return low, likely, high


def _price(gpus: int, pool_id: int, start: datetime, end: datetime, rates: Rates) -> int:
    return gpus * rates.price(pool_id, to_seconds(start), to_seconds(max(start, end)))
