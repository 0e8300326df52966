"""The tick's part of a cycle: close every timestep that is over, then fund the one that begins."""

import logging
from collections import defaultdict
from datetime import datetime

from django.db import transaction
from django.db.models import Min, Q

from allocator import admission, alarms, delivery, timesteps
from clusters.connectors import connector_for
from clusters.connectors.base import ConnectorError, IdleWindow
from clusters.models import Cluster
from ledger import services as ledger
from ledger.models import ClosedTimestep, Entry
from workloads import services as workloads
from workloads.models import Job, Run

logger = logging.getLogger(__name__)


def due(*, at: datetime) -> list[datetime]:
    """Starts of the timesteps that are over and not closed, oldest first."""
    last = ClosedTimestep.objects.order_by("-start").first()
    if last is not None:
        return list(timesteps.between(last.end, at))
    first = Run.objects.aggregate(first=Min("started_at"))["first"]
    return [] if first is None else list(timesteps.between(timesteps.floor(first), at))


def close_due(*, at: datetime) -> list[datetime]:
    """Charge what really ran, timestep by timestep; missed ones by the same code.

    Closing a timestep and funding the next are one transaction: a crash leaves both or neither.
    """
    closed = []
    for start in due(at=at):
        end = start + timesteps.step()
        segments = ledger.segments(start=start, end=end)
        parked = _parked(segments, at)
        with transaction.atomic():
            if not ledger.close_timestep(start=start, end=end, parked=parked, now=at):
                continue
            delivery.record(start=start, end=end, segments=segments)
            _cover(end)
        closed.append(start)
    return closed


def fund_waiting(*, at: datetime) -> dict[int, ledger.HoldResult]:
    """Try again to fund what waits without a hold, oldest first; refusals by job id."""
    queued = Job.objects.filter(state=Job.State.QUEUED, funded=False, minimum_runtime_s__gt=0)
    waiting = list(
        queued.exclude(kind=Job.Kind.REALTIME)
        .select_related("budget")
        .prefetch_related("pools")
        .order_by("id")
    )
    if not waiting:
        return {}
    with transaction.atomic():
        return admission.fund_all(jobs=waiting, now=at)


def _cover(boundary: datetime) -> None:
    """Top up the holds of what goes on past a timestep's end; what can't be is unfunded from it."""
    runs = _held_past(boundary)
    end = boundary + timesteps.step()
    short = ledger.cover(runs=runs, start=boundary, end=end, now=boundary)
    for run in runs:
        if run.pk in short:
            workloads.unfund(run=run, at=boundary)


def cover_services(*, at: datetime) -> None:
    """Set aside what each real-time service's funded GPUs cost to the timestep's end.

    After the cluster has confirmed their sets; what can't be covered is unfunded from now on.
    """
    end = timesteps.floor(at) + timesteps.step()
    services = Run.objects.filter(
        state=Run.State.RUNNING, job__kind=Job.Kind.REALTIME, holdings__funded=True
    ).filter(holdings__ended_at=None)
    runs = list(services.distinct().select_related("job", "job__budget", "pool").order_by("id"))
    if not runs or _set_aside(runs, since=timesteps.floor(at)):
        return
    with transaction.atomic():
        short = ledger.cover(runs=runs, start=at, end=end, now=at)
        for run in runs:
            if run.pk in short:
                workloads.unfund(run=run, at=at)


def _set_aside(runs: list[Run], *, since: datetime) -> bool:
    """Whether each service has had its hold for the timestep that began at ``since``."""
    jobs = [run.job_id for run in runs]
    paid = Entry.objects.filter(kind=Entry.Kind.HOLD, job_id__in=jobs, at__gte=since)
    return paid.values("job_id").distinct().count() == len(jobs)


def _held_past(boundary: datetime) -> list[Run]:
    """Funded batch-like runs that held GPUs at an instant and after it."""
    beyond = Q(holdings__ended_at=None) | Q(holdings__ended_at__gt=boundary)
    runs = Run.objects.filter(
        beyond, holdings__funded=True, holdings__started_at__lte=boundary
    ).exclude(job__kind=Job.Kind.REALTIME)
    return list(runs.distinct().select_related("job", "job__budget", "pool").order_by("id"))


def _parked(segments: list[ledger.Segment], at: datetime) -> dict[tuple[int, datetime], int]:
    """Parked GPU-seconds of each segment, asked of its cluster: key (run id, segment start).

    A cluster that can't say counts as busy, with an alarm: a charge is never lost for it.
    """
    by_cluster: dict[int, list[tuple[Run, ledger.Segment]]] = defaultdict(list)
    runs = Run.objects.select_related("pool").in_bulk({s.run_id for s in segments})
    for segment in segments:
        run = runs[segment.run_id]
        by_cluster[run.pool.cluster_id].append((run, segment))
    parked: dict[tuple[int, datetime], int] = defaultdict(int)
    for cluster in Cluster.objects.filter(pk__in=by_cluster):
        pairs = by_cluster[cluster.pk]
        try:
            answers = connector_for(cluster).idle([_window(run, seg) for run, seg in pairs])
        except ConnectorError as error:
            alarms.raise_alarm(kind=f"no-telemetry:{cluster.slug}", text=str(error), at=at)
            continue
        for (run, segment), seconds in zip(pairs, answers, strict=True):
            parked[run.pk, segment.start] += seconds
    return dict(parked)


def _window(run: Run, segment: ledger.Segment) -> IdleWindow:
    seconds = int((segment.end - segment.start).total_seconds())
    return IdleWindow(
        external_id=run.external_id,
        start=segment.start,
        end=segment.end,
        gpus=segment.gpu_seconds // max(1, seconds),
    )
