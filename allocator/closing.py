"""The tick's part of a cycle: close every timestep that is over, then fund the one that begins."""

import logging
from collections import defaultdict
from collections.abc import Collection, Sequence
from datetime import datetime
from typing import NamedTuple

from django.conf import settings
from django.db import transaction
from django.db.models import F, Min, Q

from allocator import admission, alarms, delivery, observed, timesteps, turning
from allocator.calls import Calls, NoAnswer
from clusters.connectors.base import IdleWindow
from clusters.models import Cluster, Pool
from clusters.saying import say
from ledger import figures
from ledger import services as ledger
from ledger.entries import Attempt
from ledger.models import ClosedTimestep
from ledger.rates import Rates
from workloads import services as workloads
from workloads.models import Holding, Job, Run, external_id

logger = logging.getLogger(__name__)

LATE_END = "late-end"  # an alarm: what was charged past an end is not given back yet


class Held(NamedTuple):
    """What is asked of each run that goes on: thousands of models take longer than charges."""

    pk: int
    ended_at: datetime | None
    is_realtime: bool


def due(*, at: datetime) -> list[datetime]:
    """Starts of the timesteps that are over and not closed, oldest first."""
    last = ClosedTimestep.objects.order_by("-start").first()
    if last is not None:
        return list(timesteps.between(last.end, at))
    first = Run.objects.aggregate(first=Min("started_at"))["first"]
    return [] if first is None else list(timesteps.between(timesteps.floor(first), at))


def close_due(*, at: datetime, calls: Calls | None = None) -> list[datetime]:
    """Charge what really ran, timestep by timestep; missed ones by the same code.

    What can't be closed, with no period to charge it to, waits for one; an alarm says so.
    """
    calls, closed = calls or Calls(), []
    try:
        over = due(at=at)
        # Between ticks nothing is over: what clusters have told need not be asked.
        until = observed.known_until(at=at) if over else at
        for start in (start for start in over if start + timesteps.step() <= until):
            if _close(start, at, until, calls):
                closed.append(start)
    except ledger.LedgerError as error:
        alarms.raise_alarm(kind="not-closed", text=str(error), at=at)
    else:
        alarms.clear(kind="not-closed", at=at)
    return closed


def _close(start: datetime, at: datetime, until: datetime, calls: Calls) -> bool:
    """Closing a timestep and funding the next are one transaction: a crash leaves both or none."""
    end = start + timesteps.step()
    segments = ledger.segments(start=start, end=end)
    parked = _parked(segments, at, calls)
    with transaction.atomic():
        if not ledger.close_timestep(start=start, end=end, parked=parked, now=at):
            return False
        delivery.record(start=start, end=end, segments=segments)
        turning.start_due(at=end)
        _cover(end, until)
        turning.close_over(at=end)
    return True


def settle_late_end(*, run: Run, now: datetime) -> bool:
    """Give back what was charged past a run's end. Without an open period it waits for one."""
    try:
        ledger.settle_late_end(run=run, now=now, policy=settings.NODE_FAILURE_REFUND)
    except ledger.LedgerError as error:
        text = say("%(run)s ended earlier than charged. %(error)s", run=run, error=error)
        alarms.raise_alarm(kind=LATE_END, text=text, at=now)
        return False
    return True


def settle_what_waited(*, at: datetime) -> None:
    """Give back what could not be given back when it became known."""
    if not alarms.is_open(kind=LATE_END):
        return
    late = Run.objects.filter(charged_until__gt=F("ended_at")).order_by("id")
    if all(settle_late_end(run=run, now=at) for run in late):
        alarms.clear(kind=LATE_END, at=at)


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


def _cover(boundary: datetime, until: datetime) -> None:
    """Top up the holds of what goes on past a timestep's end; what can't be is unfunded from it.

    A service is asked after its new set is confirmed (``cover_services``), so here only for the
    time that has passed already, up to ``until``, when a tick is late.
    """
    end = boundary + timesteps.step()
    runs = held_past(boundary)
    ended = _whole([run.pk for run in runs if run.ended_at is not None])
    for run in ended:
        # It gave back its hold when it ended: what it was promised comes before all others.
        if run.protected_until is not None and run.protected_until > boundary:
            ledger.cover(runs=[run], start=boundary, end=run.protected_until, now=boundary)
    top_up([run for run in runs if not run.is_realtime], boundary, end)
    if boundary < until:
        top_up([run for run in runs if run.is_realtime], boundary, min(end, until))
    if end > until:
        for run in ended:
            ledger.release_rest(job=run.job, attempt=run.number, at=boundary, now=boundary)


def top_up(runs: Sequence[Run | Held], start: datetime, end: datetime) -> None:
    """Make holds cover [start, end); what can't be is unfunded from there on."""
    for run in _whole(ledger.cover(runs=runs, start=start, end=end, now=start)):
        # What the minimum runtime was promised and is paid for stays so to its end.
        paid_until = max(start, run.protected_until or start)
        workloads.unfund(run=run, at=paid_until)
        # A service may pay again from the next timestep on.
        if paid_until == start and not run.job.is_realtime:
            ledger.release_rest(job=run.job, attempt=run.number, at=start, now=start)


def cover_services(*, at: datetime) -> None:
    """Set aside what each real-time service's funded GPUs cost to the timestep's end.

    After the cluster has confirmed their sets; what can't be covered is unfunded from now on.
    """
    end = timesteps.floor(at) + timesteps.step()
    services = Run.objects.filter(
        state=Run.State.RUNNING, job__kind=Job.Kind.REALTIME, holdings__funded=True
    ).filter(holdings__ended_at=None)
    runs = list(services.distinct().select_related("job", "job__budget", "pool").order_by("id"))
    if not runs or set_aside(runs, end=end):
        return
    with transaction.atomic():
        top_up(runs, at, end)


def set_aside(runs: list[Run], *, end: datetime) -> bool:
    """Whether the holds of all the runs cover what is not charged yet and goes on to ``end``."""
    since = figures.closed_until() or observed.NOTHING
    needed: dict[Attempt, int] = defaultdict(int)
    rates, by_id = Rates.load(), {run.pk: run for run in runs}
    uncharged = Q(ended_at=None) | Q(ended_at__gt=since)
    for holding in Holding.objects.filter(uncharged, run__in=runs, funded=True):
        run = by_id[holding.run_id]
        span = max(holding.started_at or end, since), holding.ended_at or end
        price = rates.price(run.pool_id, *(int(instant.timestamp()) for instant in span))
        needed[Attempt(run.job_id, run.number)] += holding.gpus * price
    left = figures.open_holds([run.job_id for run in runs])
    return all(sum(left.get(mine, {}).values()) >= cost for mine, cost in needed.items())


def held_past(boundary: datetime) -> list[Held]:
    """Funded runs that held GPUs at an instant and after it, by id."""
    beyond = Q(holdings__ended_at=None) | Q(holdings__ended_at__gt=boundary)
    runs = Run.objects.filter(beyond, holdings__funded=True, holdings__started_at__lte=boundary)
    rows = runs.order_by("id").distinct().values_list("id", "ended_at", "job__kind")
    return [Held(pk, ended_at, kind == Job.Kind.REALTIME) for pk, ended_at, kind in rows]


def _whole(ids: Collection[int]) -> list[Run]:
    """Read runs whole, with what they are of; by id."""
    if not ids:
        return []
    runs = Run.objects.select_related("job", "job__budget", "pool").in_bulk(ids)
    return [runs[pk] for pk in sorted(runs)]


def _parked(
    segments: list[ledger.Segment], at: datetime, calls: Calls
) -> dict[tuple[int, datetime], int]:
    """Parked GPU-seconds of each segment, asked of its cluster: key (run id, segment start).

    A cluster that can't say counts as busy, with an alarm: a charge is never lost for it.
    """
    by_cluster: dict[int, list[ledger.Segment]] = defaultdict(list)
    clusters = dict(Pool.objects.order_by().values_list("pk", "cluster_id"))
    for segment in segments:
        by_cluster[clusters[segment.pool_id]].append(segment)
    parked: dict[tuple[int, datetime], int] = defaultdict(int)
    for cluster in Cluster.objects.filter(pk__in=by_cluster):
        held = by_cluster[cluster.pk]
        try:
            answers = calls.to(cluster).idle([_window(segment) for segment in held])
        except NoAnswer as failure:
            alarms.raise_alarm(kind=f"no-telemetry:{cluster.slug}", text=str(failure), at=at)
            continue
        alarms.clear(kind=f"no-telemetry:{cluster.slug}", at=at)
        for segment, seconds in zip(held, answers, strict=True):
            parked[segment.run_id, segment.start] += seconds
    return dict(parked)


def _window(segment: ledger.Segment) -> IdleWindow:
    seconds = int((segment.end - segment.start).total_seconds())
    return IdleWindow(
        external_id=external_id(segment.job_id, segment.attempt),
        start=segment.start,
        end=segment.end,
        gpus=segment.gpu_seconds // max(1, seconds),
    )
