"""The product's own history as a trace: the jobs of a window, and what they did in it.

The window is half-open, [start, end); seconds count from its start. A job has the seconds that it
ran in total, over all its runs; one that waits, runs, or was preempted for good has besides what
its estimate leaves. What waited or ran at the start is there from second 0 on with the rest. A job
that waited for others is submitted when the last of them had completed. Real-time services want
what they did, and what befell the fleet befalls it again.
"""

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from django.conf import settings
from django.db.models import Q, QuerySet, Sum

from allocator.core import contract
from allocator.core.events import NOTHING, Events
from allocator.core.problem import Node
from allocator.core.simulation.fleet import Fleet
from allocator.core.traces import MOST_SECONDS, Trace, TraceJob
from allocator.simulating import befalling, serving
from budgets.refusals import Refused
from clusters import services as clusters
from clusters.saying import say as _
from ledger.models import Entry
from workloads.models import Holding, Job, Run

SECOND = timedelta(seconds=1)
Spans = list[tuple[datetime, datetime]]


@dataclass
class LeftOut:
    """How many jobs of the window are not in the trace, and why."""

    never_ran: int = 0  # cancelled or refused before they ran
    befell: int = 0  # windows and failures of nodes that aren't in the fleet that is simulated
    waiting_for_others: int = 0  # until after the window
    no_leaf: int = 0  # their budget is no leaf of the tree that is simulated
    too_large: int = 0  # for any block of the fleet


@dataclass
class Did:
    """What a job really did in the window: GPU-seconds held, and seconds it waited in it."""

    path: str
    submitted_s: int
    first_start_s: int | None
    is_service: bool = False
    funded_gpu_seconds: int = 0
    unfunded_gpu_seconds: int = 0


@dataclass(frozen=True)
class Past:
    """A window: its jobs as a trace, the fleet and what befell it, what jobs did."""

    start: datetime
    end: datetime
    trace: Trace
    nodes: tuple[Node, ...]
    estimated: int  # jobs whose duration is estimated in part
    carried: int  # jobs that waited or ran at the start
    events: Events
    left_out: LeftOut
    did: Mapping[str, Did] = field(repr=False)  # by the trace's job_id

    @property
    def seconds(self) -> int:
        return _seconds(self.start, self.end)


def fleet(*, end: datetime) -> tuple[Node, ...]:
    """Return the nodes in use at a window's end."""
    rows = (node for node in clusters.all_nodes() if node.is_active(end - SECOND))
    return tuple(Node(node.name, node.gpus, node.pool.slug) for node in rows)


def pool_gpus(*, at: datetime) -> dict[int, int]:
    """Return the GPUs in use at an instant, by the pool's id."""
    found: dict[int, int] = defaultdict(int)
    for node in clusters.all_nodes():
        if node.is_active(at):
            found[node.pool_id] += node.gpus
    return dict(found)


def check_window(start: datetime, end: datetime, now: datetime) -> None:
    """Refuse a window that is empty or not over."""
    if start >= end:
        raise Refused("from", _("The window ends before it begins: give a later end."))
    if end > now:
        raise Refused("to", _("The window ends in the future: history ends now."))
    if start < end - timedelta(seconds=MOST_SECONDS):
        raise Refused("from", _("The window is longer than a year: give a later start."))


def read(
    *,
    start: datetime,
    end: datetime,
    now: datetime,
    leaves: Mapping[int, str],
    nodes: tuple[Node, ...] | None = None,
) -> Past:
    """Read a window for the leaves of a tree (names by budget's id), on its own fleet or another.

    Refused where nothing is left to simulate. A constant number of queries.
    """
    check_window(start, end, now)
    own = fleet(end=end)
    events = befalling.read(start=start, end=end, names={node.name for node in own})
    other = nodes is not None and nodes != own
    nodes = nodes or own
    if not nodes:
        raise Refused("from", _("No GPU was in use at the end of that window: choose another."))
    reader = _Reader(start, end, now, leaves, Fleet(nodes))
    if other:  # nobody knows what would have befallen it
        reader.left_out.befell = len(events.windows) + len(events.failures)
        events = NOTHING
    rows = sorted(reader.rows(), key=lambda row: (row.submit_time_s, int(row.job_id)))
    if not rows:
        raise Refused("from", _("No job waited or ran in that window: choose another."))
    return Past(
        start=start,
        end=end,
        trace=Trace(
            tuple(row for row in rows if not row.is_realtime),
            services=tuple(row for row in rows if row.is_realtime),
        ),
        nodes=nodes,
        estimated=reader.estimated,
        carried=reader.carried,
        events=events,
        left_out=reader.left_out,
        did=reader.did,
    )


def jobs_of(start: datetime, end: datetime) -> QuerySet[Job]:
    """Return the jobs that waited, ran or were submitted in a window."""
    lasted = Q(ended_at=None) | Q(ended_at__gt=start)
    return Job.objects.filter(lasted, submitted_at__lt=end)


class _Reader:
    """Turns jobs into rows, and counts what it can't turn."""

    def __init__(
        self,
        start: datetime,
        end: datetime,
        now: datetime,
        leaves: Mapping[int, str],
        blocks: Fleet,
    ) -> None:
        self.start, self.end, self.now = start, end, now
        self.leaves, self.blocks = leaves, blocks
        self.left_out = LeftOut()
        self.estimated = self.carried = 0
        self.did: dict[str, Did] = {}
        inside = jobs_of(start, end)
        jobs = inside.select_related("service").order_by("pk")
        self.jobs = jobs.defer("command", "spec", "request_digest", "service__forecast")
        self.demand = serving.told(start, end)
        self.waited_for = _waited_for(inside)
        self.runs = _runs(inside, now)
        self.parked = _parked(inside, start)

    def rows(self) -> list[TraceJob]:
        found = [row for job in self.jobs if (row := self._row(job)) is not None]
        self._count_held()
        return found

    def _row(self, job: Job) -> TraceJob | None:
        return self._service(job) if job.is_realtime else self._job(job)

    def _service(self, job: Job) -> TraceJob | None:
        path = self.leaves.get(job.budget_id)
        if path is None:
            self.left_out.no_leaf += 1
            return None
        row = serving.written(job, path, self.demand, self.start, self.end)
        if row is None:
            self.left_out.never_ran += 1
            return None
        self.did[row.job_id] = Did(path, row.submit_time_s, None, is_service=True)
        return row

    def _job(self, job: Job) -> TraceJob | None:
        runs, left = self.runs.get(job.pk, []), self.left_out
        ready = self._ready(job)
        total, is_estimate = self._total(job, runs)
        rest = total - _ran(runs, self.start)
        if ready is None:
            left.waiting_for_others += 1
        elif rest <= 0:
            left.never_ran += not total
        elif job.budget_id not in self.leaves:
            left.no_leaf += 1
        elif not self.blocks.fits(1 << (job.gpus - 1).bit_length()):
            left.too_large += 1
        else:
            self.estimated += is_estimate
            self.carried += ready < self.start
            return self._written(job, runs, max(ready, self.start), rest)
        return None

    def _written(self, job: Job, runs: Spans, ready: datetime, rest: int) -> TraceJob:
        submitted = _seconds(self.start, ready)
        name = str(job.pk)
        path = self.leaves[job.budget_id]
        self.did[name] = Did(path, submitted, self._first_start(runs, ready))
        return TraceJob(
            job_id=name,
            submit_time_s=submitted,
            gpus=job.gpus,
            duration_s=rest,
            group=path,
            kind=job.kind,
            min_runtime_s=min(job.minimum_runtime_s, rest),
            resumable=job.resumable,
            urgency=job.urgency,
            # A job without a limit is no debug job, however short it turned out to be.
            time_limit_s=job.time_limit_s or MOST_SECONDS,
            parked_s=min(rest, self.parked.get(job.pk, 0) // job.gpus),
        )

    def _ready(self, job: Job) -> datetime | None:
        """When nothing but GPUs was lacking any more; None: not within the window."""
        latest = job.submitted_at
        for end in self.waited_for.get(job.pk, ()):
            if end is None:
                return None
            latest = max(latest, end)
        return latest if latest < self.end else None

    def _total(self, job: Job, runs: Spans) -> tuple[int, bool]:
        """Seconds of all its runs, with what is left of it by its estimate; whether any is."""
        ran = _ran(runs, self.now)
        if job.has_ended and job.state != Job.State.PREEMPTED:
            return ran, False
        left = contract.remaining_s(
            ran,
            (job.estimate_p50_s, job.estimate_p90_s),
            job.time_limit_s,
            60 * settings.TIMESTEP_MINUTES,
        )
        return ran + left, True

    def _first_start(self, runs: Spans, ready: datetime) -> int | None:
        """Its first second on GPUs from an instant on; None: not within the window."""
        starts = (max(began, ready) for began, until in runs if until > ready)
        first = min(starts, default=None)
        return None if first is None or first >= self.end else _seconds(self.start, first)

    def _count_held(self) -> None:
        rows = _held(self.start, self.end)
        for job_id, gpus, funded, began, until in rows.values_list(
            "run__job_id", "gpus", "funded", "started_at", "ended_at"
        ):
            did = self.did.get(str(job_id))
            if did is None:
                continue
            held = gpus * _overlap(began, until or self.now, self.start, self.end)
            if funded:
                did.funded_gpu_seconds += held
            else:
                did.unfunded_gpu_seconds += held


def _runs(jobs: QuerySet[Job], now: datetime) -> dict[int, Spans]:
    """What each job ran, by its id, in order."""
    found: dict[int, Spans] = defaultdict(list)
    rows = Run.objects.filter(job__in=jobs.values("pk"), started_at__isnull=False)
    for job_id, began, until in rows.order_by("started_at", "pk").values_list(
        "job_id", "started_at", "ended_at"
    ):
        assert began is not None, "only runs that started were asked for"
        found[job_id].append((began, until or now))
    return found


def _waited_for(jobs: QuerySet[Job]) -> dict[int, list[datetime | None]]:
    """When what each job waited for had completed, by the job's id; None: it has not."""
    found: dict[int, list[datetime | None]] = defaultdict(list)
    links = Job.dependencies.through.objects.filter(from_job__in=jobs.values("pk"))
    for job_id, state, ended_at in links.values_list(
        "from_job_id", "to_job__state", "to_job__ended_at"
    ):
        found[job_id].append(ended_at if state == Job.State.COMPLETED else None)
    return found


def _parked(jobs: QuerySet[Job], start: datetime) -> dict[int, int]:
    """GPU-seconds parked since the window's start, by job."""
    charges = Entry.objects.filter(
        kind=Entry.Kind.CHARGE, at__gte=start, parked_gpu_seconds__gt=0, job__in=jobs.values("pk")
    )
    sums = charges.order_by().values_list("job_id").annotate(Sum("parked_gpu_seconds"))
    return {job: parked for job, parked in sums if job is not None}


def _held(start: datetime, end: datetime) -> QuerySet[Holding]:
    lasted = Q(ended_at=None) | Q(ended_at__gt=start)
    return Holding.objects.filter(lasted, started_at__lt=end).order_by("pk")


def _ran(runs: Spans, until: datetime) -> int:
    """Seconds on GPUs before an instant."""
    return sum(max(0, _seconds(began, min(ended, until))) for began, ended in runs)


def _overlap(began: datetime | None, until: datetime, start: datetime, end: datetime) -> int:
    return 0 if began is None else max(0, _seconds(max(began, start), min(until, end)))


def _seconds(start: datetime, end: datetime) -> int:
    return (end - start) // SECOND
