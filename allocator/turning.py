"""Periods turn by themselves: an approved one starts when it begins, one that is over is closed.

After an outage the same code catches up, in order. Whatever keeps a period from turning, a fault
of ours too, is an alarm, never an error in the cycle, and is tried again.
"""

import logging
from collections.abc import Callable, Iterable
from datetime import datetime, timedelta

from django.db import transaction
from django.db.models import QuerySet

from allocator import alarms, delivery, observed, timesteps
from budgets.models import Period
from ledger import services as ledger
from workloads import services as workloads
from workloads.models import Job, Run

logger = logging.getLogger(__name__)

Status = Period.Status
START, CLOSE = "period-start", "period-close"  # alarms
SECOND = timedelta(seconds=1)


def start_due(*, at: datetime) -> None:
    """Start the approved periods that have begun: their grants are written and holds move on.

    One that is over by now is started too, as it would have been: the next carries over from it.
    What the new period has no credits for loses its hold: a run goes on unfunded, a waiting job
    waits for funds.
    """
    begun = Period.objects.filter(status=Status.APPROVED, starts_at__lte=at)
    _each(begun.order_by("starts_at", "pk"), _start, START, at)


def close_over(*, at: datetime) -> None:
    """Close the active periods that are over and charged to their end.

    A period may end inside a timestep: it can't be charged to its end before that one is over. Nor
    before every cluster has told what its runs held: one may have started before the end. Where no
    period follows, what still has a hold loses it, as when a period has no credits for it.
    """
    _each(_over(at).order_by("ends_at", "pk"), _close, CLOSE, at)


def is_due(*, at: datetime) -> bool:
    """Say whether a period would turn now. What an alarm stands for is left to the next tick."""
    begun = Period.objects.filter(status=Status.APPROVED, starts_at__lte=at)
    due = (begun, START), (_over(at), CLOSE)
    return any(which.exists() and not alarms.is_open(kind=kind) for which, kind in due)


def next_start(*, after: datetime) -> datetime | None:
    """When the next approved period begins."""
    ahead = Period.objects.filter(status=Status.APPROVED, starts_at__gt=after)
    return ahead.order_by("starts_at").values_list("starts_at", flat=True).first()


def _over(at: datetime) -> QuerySet[Period]:
    """Active periods that are over and known to their end."""
    over = Period.objects.filter(status=Status.ACTIVE, ends_at__lte=timesteps.floor(at))
    if not over.exists():  # as nearly always: what clusters have told need not be asked
        return over
    return over.filter(ends_at__lte=timesteps.floor(observed.known_until(at=at)))


def _each(
    periods: Iterable[Period], turn: Callable[[Period, datetime], None], kind: str, at: datetime
) -> None:
    problems = [text for period in periods if (text := _problem(period, turn, kind, at))]
    if problems:
        alarms.raise_for_each(kind=kind, problems=problems, at=at)
    else:
        alarms.clear(kind=kind, at=at)


def _problem(
    period: Period, turn: Callable[[Period, datetime], None], kind: str, at: datetime
) -> str:
    """Turn a period; return what keeps it from that, if something does."""
    before = period.status
    try:
        turn(period, at)
    except ledger.NotChargedYet as error:
        # Clusters that can't be reached have an alarm of their own until the timestep is over.
        return str(error) if _is_late(period, kind, at) else ""
    except ledger.LedgerError as error:
        text = str(error)
    except Exception as error:
        done = "started" if kind == START else "closed"
        text = f"{period.name} can't be {done} ({type(error).__name__}): the log says why."
        logger.exception(text)
    else:
        return ""
    period.refresh_from_db()
    return text if period.status == before else ""  # else another worker was quicker


def _is_late(period: Period, kind: str, at: datetime) -> bool:
    border = period.starts_at if kind == START else period.ends_at
    return timesteps.floor(at) >= border


@transaction.atomic
def _start(period: Period, at: datetime) -> None:
    """A period that has started and runs that have lost their hold: both or neither."""
    started = ledger.start_period(period=period, at=min(at, period.ends_at - SECOND))
    for job_id, attempt in started.unfunded:
        _lose_hold(job_id, attempt, at)


@transaction.atomic
def _close(period: Period, at: datetime) -> None:
    """A period that is closed and, where none follows, runs that nobody pays for: both at once."""
    delivered = delivery.summary(start=period.starts_at, end=period.ends_at)
    for job_id, attempt in ledger.close_period(period=period, at=at, delivered=delivered):
        _lose_hold(job_id, attempt, at)


def _lose_hold(job_id: int, attempt: int, at: datetime) -> None:
    job = Job.objects.get(pk=job_id)
    run = Run.objects.filter(job=job, number=attempt, state__in=Run.LIVE).first()
    if run is not None:
        workloads.unfund(run=run, at=at)
    elif job.attempt == attempt:
        workloads.lose_funding(job=job, at=at)
