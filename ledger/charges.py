"""Closing timesteps: what every run held is charged exactly once; and refunds."""

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from datetime import datetime

from django.conf import settings
from django.db import IntegrityError, transaction

from budgets.models import Period
from clusters.saying import say as _
from ledger.bulk import among
from ledger.entries import Attempt, hold_entry, unsaved, write
from ledger.figures import OpenHolds, open_holds
from ledger.instants import LedgerError, iso, span, whole
from ledger.lock import lock_ledger
from ledger.models import ClosedTimestep, Entry
from ledger.refunds import refunds_of
from ledger.segments import Segment, held_in, segments
from workloads.models import Run

Kind = Entry.Kind
Parked = Mapping[tuple[int, datetime], int]


def close_timestep(*, start: datetime, end: datetime, parked: Parked, now: datetime) -> bool:
    """Charge everything that was held in [start, end) and close the timestep; once.

    ``parked`` gives idle GPU-seconds by (run id, start of segment), at most what was held.
    Returns False, and writes nothing, if the timestep is closed already. Raises LedgerError if
    it has not ended, if the one before it isn't closed, or if no period covers it.
    """
    start, end = span(start, end)
    if end > whole(now, "now"):
        raise LedgerError(
            _(
                "The timestep %(start)s ends at %(end)s: close it then.",
                start=iso(start),
                end=iso(end),
            )
        )
    try:
        with transaction.atomic():
            return _close(start, end, parked, now)
    except IntegrityError:
        # Another worker closed it at the same time; all of ours was rolled back.
        if ClosedTimestep.objects.filter(start=start).exists():
            return False
        raise


def _close(start: datetime, end: datetime, parked: Parked, now: datetime) -> bool:
    # Rows of runs before the ledger's lock, as whoever ends a run takes them.
    ids = held_in(start, end).values("run_id")
    runs = Run.objects.select_for_update(no_key=True).filter(pk__in=ids).order_by("pk")
    list(runs.values_list("pk"))
    lock_ledger()
    if ClosedTimestep.objects.filter(start=start).exists():
        return False
    _refuse_a_gap(start)
    held = segments(start=start, end=end)
    charges = list(_charges(held, parked, start, now))
    # Also a run that ended as the timestep began, if that became known after the one before closed.
    over = list(Run.objects.filter(ended_at__gte=start, ended_at__lte=end).select_related("job"))
    write([*charges, *_release_what_ran(charges, over, start, now)])
    failed = [run for run in over if run.end_reason == Run.EndReason.NODE_FAILURE]
    write(refunds_of(runs=failed, now=now, policy=settings.NODE_FAILURE_REFUND))
    _mark(held, end)
    ClosedTimestep.objects.create(start=start, end=end, closed_at=now)
    return True


def _refuse_a_gap(start: datetime) -> None:
    last = ClosedTimestep.objects.order_by("-start").first()
    if last is None or last.end == start:
        return
    if start < last.end:
        raise LedgerError(
            _(
                "The ledger is closed up to %(end)s: %(start)s can't be closed after it.",
                end=iso(last.end),
                start=iso(start),
            )
        )
    raise LedgerError(
        _(
            "The timestep before %(start)s isn't closed: close %(end)s first.",
            start=iso(start),
            end=iso(last.end),
        )
    )


def _charges(
    held: Iterable[Segment], parked: Parked, timestep: datetime, now: datetime
) -> Iterator[Entry]:
    periods = list(Period.objects.filter(status__in=(Period.Status.APPROVED, Period.Status.ACTIVE)))
    # What is idle in a run at one instant counts against its funded GPUs first.
    idle = {(run_id, at): max(0, seconds) for (run_id, at), seconds in parked.items()}
    for segment in held:
        place = (segment.run_id, segment.start)
        share = min(idle.get(place, 0), segment.gpu_seconds)
        idle[place] = idle.get(place, 0) - share
        yield unsaved(
            kind=Kind.CHARGE,
            budget_id=segment.budget_id,
            period_id=_covering(periods, segment.start).pk,
            at=segment.start,
            until=segment.end,
            timestep=timestep,
            amount_mgpus=segment.amount_mgpus,
            job_id=segment.job_id,
            attempt=segment.attempt,
            run_id=segment.run_id,
            pool_id=segment.pool_id,
            funded=segment.funded,
            gpu_seconds=segment.gpu_seconds,
            parked_gpu_seconds=share,
            key=segment.key,
            created_at=now,
        )


def _covering(periods: Collection[Period], at: datetime) -> Period:
    for period in periods:
        if period.starts_at <= at < period.ends_at:
            return period
    raise LedgerError(_("No open period covers %(at)s: approve one that does.", at=iso(at)))


def _release_what_ran(
    charges: Iterable[Entry], over: Iterable[Run], timestep: datetime, now: datetime
) -> Iterator[Entry]:
    """Each funded charge uses up its attempt's hold; a run that is over keeps none."""
    left = open_holds({run.job_id for run in over} | {one.job_id for one in charges if one.job_id})
    for charge in charges:
        if charge.funded:
            yield from _uses(charge, left, now)
    for run in over:
        mine = Attempt(run.job_id, run.number)
        for period_id, amount in left.get(mine, {}).items():
            if amount > 0:
                key = f"release:{run.job_id}:{run.number}:closed:{iso(timestep)}:{period_id}"
                yield hold_entry(
                    *(Kind.RELEASE, mine, run.job.budget_id, period_id, amount, key),
                    at=timestep,
                    now=now,
                )


def _uses(charge: Entry, left: OpenHolds, now: datetime) -> Iterator[Entry]:
    """Yield what a charge takes from its attempt's hold: of its own period first."""
    assert charge.job_id is not None
    mine = Attempt(charge.job_id, charge.attempt)
    mine_left = left.get(mine, {})
    due = charge.amount_mgpus
    for period_id in sorted(mine_left, key=lambda period: (period != charge.period_id, period)):
        taken = min(due, mine_left[period_id])
        if taken <= 0:
            continue
        due -= taken
        mine_left[period_id] -= taken
        tail = "" if period_id == charge.period_id else f":{period_id}"
        key = f"release:{charge.run_id}:{iso(charge.at)}{tail}"
        entry = hold_entry(
            Kind.RELEASE, mine, charge.budget_id, period_id, taken, key, at=charge.at, now=now
        )
        entry.run_id = charge.run_id
        yield entry


def _mark(held: Iterable[Segment], end: datetime) -> None:
    """Note on each run up to when it is charged."""
    until: dict[int, datetime] = {}
    for segment in held:
        until[segment.run_id] = max(segment.end, until.get(segment.run_id, segment.end))
    by_end: dict[datetime, list[int]] = defaultdict(list)
    for run_id, instant in until.items():
        by_end[instant].append(run_id)
    Run.objects.filter(among("pk", by_end.pop(end, []))).update(charged_until=end)
    early = [Run(pk=pk, charged_until=at) for at, ids in by_end.items() for pk in ids]
    Run.objects.bulk_update(early, ["charged_until"], batch_size=200)
