"""Playing what was asked for, one after another, in a worker that may die at any moment.

The database is what counts: a worker takes the next that waits, which it can only while none runs,
and writes how far it is at most once a second. The next is the oldest of whoever was served least
lately, so that nobody's three hold up all others. One whose worker was not heard of for a while
waits again, and is given up after a few attempts. A worker that finds its simulation cancelled, or
taken by another, stops.
"""

import logging
from collections.abc import Callable
from datetime import datetime, timedelta
from time import monotonic

from celery import current_app
from django.db import IntegrityError, OperationalError, connection, transaction
from django.db.models import F, OuterRef, QuerySet, Subquery
from kombu.exceptions import OperationalError as BrokerError

from allocator.core.simulate import Played, play
from allocator.core.validate import ProblemError
from allocator.models import Simulation
from allocator.simulating import inputs, results
from allocator.simulating.pace import Pace
from allocator.simulating.setups import setup_of
from budgets.refusals import Refused
from clusters.saying import say as _

logger = logging.getLogger(__name__)
Clock = Callable[[], datetime]
State = Simulation.State

EVERY_S = 1.0  # between two writes of progress
LOST_AFTER = timedelta(minutes=3)  # without a word of its worker
MOST_ATTEMPTS = 3
MOST_TIME = timedelta(minutes=45)
FORETOLD_AFTER = timedelta(minutes=5)  # one that is to take twice as long as it may is ended then
MINUTE = timedelta(minutes=1)


class Stopped(Exception):
    """It was cancelled meanwhile, or another worker has it."""


class TooLong(Exception):
    """It takes longer than a worker has for it."""


def wake() -> None:
    """Tell a worker that a simulation waits, once that is committed; beat finds it otherwise."""
    transaction.on_commit(_wake, robust=True)


def _wake() -> None:
    try:
        current_app.send_task("allocator.tasks.simulate", retry=False)
    except (BrokerError, OSError) as error:
        logger.warning("The broker did not take the simulation (%s): beat will find it.", error)


def queue() -> QuerySet[Simulation]:
    """Return those that wait, in the order in which they are taken as things are."""
    theirs = Simulation.objects.filter(asked_by=OuterRef("asked_by"), started_at__isnull=False)
    served = Subquery(theirs.order_by("-started_at").values("started_at")[:1])
    waiting = Simulation.objects.filter(state=State.QUEUED).annotate(served=served)
    return waiting.order_by(F("served").asc(nulls_first=True), "pk")


def waits() -> bool:
    """Say whether any simulation waits for a worker."""
    return Simulation.objects.filter(state=State.QUEUED).exists()


def keep(*, now: datetime) -> int:
    """Have those wait again whose worker is lost, or give them up; return how many there were."""
    lost = Simulation.objects.filter(state=State.RUNNING, seen_at__lt=now - LOST_AFTER)
    given_up = lost.filter(attempts__gte=MOST_ATTEMPTS).update(
        state=State.FAILED,
        ended_at=now,
        error=_(
            "Its worker ended %(most)s times before it was done: choose fewer days.",
            most=MOST_ATTEMPTS,
        ),
    )
    return given_up + lost.update(
        state=State.QUEUED, progress_per_mille=0, simulated_s=0, left_s=None
    )


def run_next(*, clock: Clock) -> Simulation | None:
    """Play the next that waits, to its end; None if none does, or one runs already."""
    row = _take(clock())
    if row is None:
        return None
    try:
        result, picture = _played(row, clock)
        _end(
            row, clock(), state=State.DONE, progress_per_mille=1000, result=result, picture=picture
        )
    except Stopped:
        logger.info("Simulation %s was stopped.", row.pk)
    except (Refused, ProblemError, TooLong) as error:
        _end(row, clock(), state=State.FAILED, error=getattr(error, "sentence", str(error))[:300])
    except Exception:
        logger.exception("Simulation %s failed.", row.pk)
        said = _("An error of ours ended it; the worker's log has it.")
        _end(row, clock(), state=State.FAILED, error=said)
    row.refresh_from_db()
    return row


def _take(now: datetime) -> Simulation | None:
    next_one = queue().first()
    if next_one is None:
        return None
    try:
        with transaction.atomic():  # refused by the database while another one runs
            taken = Simulation.objects.filter(pk=next_one.pk, state=State.QUEUED).update(
                state=State.RUNNING,
                attempts=F("attempts") + 1,
                started_at=now,
                seen_at=now,
                progress_per_mille=0,
                simulated_s=0,
                left_s=None,
            )
    except IntegrityError:
        return None
    if not taken:
        return None
    next_one.refresh_from_db()
    return next_one


def _mine(row: Simulation) -> QuerySet[Simulation]:
    return Simulation.objects.filter(pk=row.pk, state=State.RUNNING, attempts=row.attempts)


def _end(row: Simulation, now: datetime, **fields: object) -> None:
    """Write how it ended, unless it was cancelled or taken meanwhile."""
    _mine(row).update(ended_at=now, seen_at=now, **fields)


def _played(row: Simulation, clock: Clock) -> tuple[dict[str, object], bytes]:
    loaded = inputs.load(row, now=clock())
    played: list[results.Course] = []
    wanted = [
        (key, tree, policy) for key, tree in inputs.trees_of(row).items() for policy in row.policies
    ]
    pace = Pace([policy for _, _, policy in wanted])
    for number, (key, tree, policy) in enumerate(wanted):
        setup = setup_of(
            nodes=loaded.nodes,
            tree=tree.nodes,
            seconds=loaded.seconds,
            seed=row.seed,
            events=loaded.events,
        )
        told = _Progress(row, clock, pace, number, loaded.seconds)
        told.show(0)
        found: Played = play(loaded.trace, setup, policy, progress=told.show)
        played.append(results.course(key, policy, found))
    return results.result(row, loaded, played), results.picture(loaded, played)


class _Progress:
    """Writes how far one of several plays is, and finds out whether it is still wanted."""

    def __init__(
        self, row: Simulation, clock: Clock, pace: Pace, number: int, seconds: int
    ) -> None:
        self.row, self.clock, self.pace, self.number = row, clock, pace, number
        self.seconds, self.shown = seconds, 0.0

    def show(self, at: int) -> None:
        if at and monotonic() - self.shown < EVERY_S:
            return
        self.shown = monotonic()
        now = self.clock()
        if not at:
            self.pace.begin(self.number, now.timestamp())
        left = self.pace.left_s(now.timestamp(), at, self.seconds)
        self._check_time(now, left)
        plays = len(self.pace.policies)
        done = 1000 * (self.number * self.seconds + at) // (plays * self.seconds)
        said = {"progress_per_mille": done, "simulated_s": at, "left_s": left}
        try:
            kept = _mine(self.row).update(**said, seen_at=now)
        except OperationalError as error:
            logger.warning("Simulation %s could not say how far it is: %s", self.row.pk, error)
            if not connection.in_atomic_block:
                connection.close_if_unusable_or_obsolete()
            return  # the next word comes in a second; without any it is taken for lost
        if not kept:
            raise Stopped

    def _check_time(self, now: datetime, left_s: int | None) -> None:
        """End it once its time is over, or early where it would take twice that by far."""
        assert self.row.started_at is not None, "it runs"
        spent, most = now - self.row.started_at, MOST_TIME // MINUTE
        if spent > MOST_TIME:
            raise TooLong(
                _("It took over %(most)s minutes: choose fewer days or policies.", most=most)
            )
        if left_s is None or spent < FORETOLD_AFTER:
            return
        whole = spent + timedelta(seconds=left_s)
        if whole > 2 * MOST_TIME:
            raise TooLong(
                _(
                    "It would take about %(whole)s minutes, and at most %(most)s go: choose fewer "
                    "days or policies.",
                    whole=whole // MINUTE,
                    most=most,
                )
            )
