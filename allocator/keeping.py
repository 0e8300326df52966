"""What is looked after by beat: requests that end, checkpoints that are due, holds that nobody
needs; books by night.

Whatever can't be done is named by an alarm until it is done, and keeps nothing else waiting.
"""

import logging
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from typing import Any

from django.conf import settings
from django.db import connection
from django.db.models import Min, Q, QuerySet

from allocator import alarms, reading, requests
from allocator.models import Alarm, Cycle, Simulation
from budgets.one_by_one import Tries
from budgets.requests import expire_due
from ledger import reports
from ledger.services import end_due, sweep_holds
from ledger.takeback import take_due
from ledger.takeback_notices import announce

logger = logging.getLogger(__name__)

REQUESTS, CHECKPOINTS, HOLDS, BOOKS = "requests", "checkpoints", "holds", "books"  # alarms
# SQLite's rows of each index that are looked at. All of a year's entries took seconds, in which
# nobody writes; of a thousand it guessed so badly that a report was as slow as without.
SAMPLE = 100_000
CYCLES_AT_ONCE = 200
SIMULATIONS_AT_ONCE = 20
LOOK_BACK = timedelta(days=7)  # of charges; all else is looked at altogether


def keep_requests(*, at: datetime) -> None:
    """Expire requests and end what was given for a time."""
    expired = ("Requests can't be looked at", lambda: expire_due(now=at))
    _, ended = _each(REQUESTS, at, expired, ("What was given can't end", lambda: end_due(now=at)))
    if ended:
        requests.replan("shares")


def keep_checkpoints(*, at: datetime) -> int:
    """Carry out checkpoints whose instant has passed, and tell of the next; return how many."""
    done, told = _each(
        CHECKPOINTS,
        at,
        ("Checkpoints can't be looked at", lambda: take_due(now=at)),
        ("What checkpoints will take can't be told", lambda: announce(now=at)),
    )
    return len(done or ()) + (told or 0)


def keep_holds(*, at: datetime) -> int:
    """Release what is set aside for attempts that are over; return how many. The log names each.

    Whatever ends an attempt releases its hold. Should that ever be missed, its budget has the
    credits back before somebody finds them missing.
    """
    (swept,) = _each(HOLDS, at, ("Holds can't be looked at", lambda: sweep_holds(now=at)))
    for one in swept or ():
        logger.warning(
            "Job %s, attempt %s, of %s: %s mGPU-s were set aside for what will never run.",
            *(one.job_id, one.attempt, one.budget_path, one.amount_mgpus),
        )
    if swept:
        requests.replan("shares")
    return len(swept or ())


def keep_statistics() -> bool:
    """Have SQLite look at how rows are spread, which tells it by which index to read.

    Return whether it did: not inside a transaction, which others would wait for, and not on
    PostgreSQL, which looks by itself.
    """
    if connection.vendor != "sqlite" or connection.in_atomic_block:
        return False
    with connection.cursor() as cursor:
        cursor.execute(f"PRAGMA analysis_limit = {SAMPLE}")
        cursor.execute("ANALYZE")
    return True


def keep_cycles(*, at: datetime) -> int:
    """Let go of what old cycles saw and planned, which is nearly all they take; return how many.

    Their rows stay, since stories name them. Nor is that let go of which shows why a plan was
    illegal, and the newest plan, which is in force however old it is.
    """
    if not settings.CYCLES_KEPT_DAYS:
        return 0
    old = Cycle.objects.filter(at__lt=at - timedelta(days=settings.CYCLES_KEPT_DAYS))
    old = old.exclude(snapshot=b"").exclude(status=Cycle.Status.ILLEGAL)
    if (newest := reading.newest()) is not None:
        old = old.exclude(pk=newest.pk)
    return sum(
        Cycle.objects.filter(pk__in=few).update(snapshot=b"", plan=b"", hint={})
        for few in _a_few(old, CYCLES_AT_ONCE)
    )


def keep_pictures(*, at: datetime) -> int:
    """Let go of old simulations' pictures and trace files, nearly all they take; return how many.

    What was asked for, under which shares, and the figures stay: they are why somebody decided.
    """
    if not settings.SIMULATIONS_KEPT_DAYS:
        return 0
    over = Simulation.objects.filter(
        ended_at__lt=at - timedelta(days=settings.SIMULATIONS_KEPT_DAYS)
    )
    old = over.exclude(state__in=Simulation.OPEN).exclude(Q(picture=None) & Q(trace=""))
    return sum(
        Simulation.objects.filter(pk__in=few).update(picture=None, trace="")
        for few in _a_few(old, SIMULATIONS_AT_ONCE)
    )


def _a_few(rows: QuerySet[Any], most: int) -> Iterator[list[int]]:
    """Yield their ids, a few at a time: on SQLite nobody else writes while they are written.

    Each time on from the last: what was let go before is looked at once, not with every few.
    """
    ids = rows.order_by("pk").values_list("pk", flat=True)
    last = 0
    while few := list(ids.filter(pk__gt=last)[:most]):
        last = few[-1]
        yield few


def keep_books(*, at: datetime) -> int:
    """Prove the last week's books, as `reconcile` does; return how many problems there are.

    What isn't so any more a moment later was being written while it was looked at. Books that
    are too wrong to be read are a problem, too.
    """
    tries = Tries()
    found = tries.go("The books can't be proven", lambda: _lasting(at)) or []
    problems = [*tries.problems, *found]
    if problems:
        alarms.raise_for_each(kind=BOOKS, problems=problems, at=at)
    else:
        alarms.clear(kind=BOOKS, at=at)
    return len(problems)


def _lasting(at: datetime) -> list[str]:
    found = _differences(at)
    again = set(_differences(at)) if found else set()
    return [one for one in found if one in again]


def _differences(at: datetime) -> list[str]:
    span = {"start": _since(at), "end": at}
    return [*map(str, reports.differences(**span)), *map(str, reports.entry_problems(**span))]


def _since(at: datetime) -> datetime:
    """A week ago; while an alarm is open, as far back as it looked, so that time mends nothing."""
    raised = Alarm.objects.filter(kind=BOOKS, cleared_at=None).aggregate(first=Min("raised_at"))
    return min(at, raised["first"] or at) - LOOK_BACK


def _each(kind: str, at: datetime, *acts: tuple[str, Callable[[], Any]]) -> list[Any]:
    tries = Tries()
    done = [tries.go(what, act) for what, act in acts]
    if tries.problems:
        alarms.raise_for_each(kind=kind, problems=tries.problems, at=at)
    else:
        alarms.clear(kind=kind, at=at)
    return done
