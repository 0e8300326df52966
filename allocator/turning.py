"""Periods turn by themselves: an approved one starts when it begins, one that is over is closed."""

from datetime import datetime

from allocator import alarms
from budgets.models import Period
from ledger import services as ledger
from workloads import services as workloads
from workloads.models import Job, Run


def start_due(*, at: datetime) -> None:
    """Start the approved periods that have begun: their grants are written and holds move on.

    What the new period has no credits for loses its hold: a run goes on unfunded, a waiting job
    waits for funds. A period that can't start yet, or never planned its capacity, is an alarm and
    is tried again.
    """
    begun = Period.objects.filter(
        status=Period.Status.APPROVED, starts_at__lte=at, ends_at__gt=at
    ).order_by("starts_at", "pk")
    problem = ""
    for period in begun:
        try:
            started = ledger.start_period(period=period, at=at)
        except ledger.LedgerError as error:
            problem = str(error)
            continue
        for job_id, attempt in started.unfunded:
            _lose_hold(job_id, attempt, at)
    _say("period-start", problem, at)


def close_over(*, at: datetime) -> None:
    """Close the active periods that are over and charged to their end."""
    problem = ""
    over = Period.objects.filter(status=Period.Status.ACTIVE, ends_at__lte=at)
    for period in over.order_by("ends_at", "pk"):
        try:
            ledger.close_period(period=period, at=at)
        except ledger.LedgerError as error:
            problem = str(error)
    _say("period-close", problem, at)


def _lose_hold(job_id: int, attempt: int, at: datetime) -> None:
    job = Job.objects.get(pk=job_id)
    run = Run.objects.filter(job=job, number=attempt, state__in=Run.LIVE).first()
    if run is not None:
        workloads.unfund(run=run, at=at)
    elif job.attempt == attempt:
        workloads.lose_funding(job=job, at=at)


def _say(kind: str, problem: str, at: datetime) -> None:
    if problem:
        alarms.raise_alarm(kind=kind, text=problem, at=at)
    else:
        alarms.clear(kind=kind, at=at)
