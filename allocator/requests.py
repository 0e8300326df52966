"""Asking for a replan, and the lock that lets one cycle run at a time."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager

from celery import current_app
from django.conf import settings
from django.db import transaction
from django.db.models import F
from kombu.exceptions import OperationalError

from allocator import locks
from allocator.models import AllocatorState

logger = logging.getLogger(__name__)

LOCK_KEY = 7_300_417  # any number of our own


def state() -> AllocatorState:
    return AllocatorState.objects.get_or_create(pk=1)[0]


def is_open() -> bool:
    """Whether a replan was asked for that no cycle has answered yet."""
    found = state()
    return found.requested > found.handled


def replan(trigger: str) -> None:
    """Note in the database that a replan is due, and wake a worker once that is committed.

    The database is what counts: a lost message only costs the seconds until ``watch`` looks. It
    is the last write of the caller's transaction, so that its row is locked for a moment only.
    """
    if not AllocatorState.objects.filter(pk=1).update(requested=F("requested") + 1):
        AllocatorState.objects.get_or_create(pk=1, defaults={"requested": 1})
    if settings.REPLAN_AT_ONCE:
        transaction.on_commit(lambda: _wake(trigger), robust=True)


def _wake(trigger: str) -> None:
    try:
        current_app.send_task("allocator.tasks.replan", args=[trigger], retry=False)
    except (OperationalError, OSError) as error:
        logger.warning("The broker did not take the replan (%s): watch will find it.", error)


@contextmanager
def single_flight() -> Iterator[bool]:
    """Hold the cycle's lock, or yield False at once if another cycle holds it."""
    with locks.attempt(LOCK_KEY, "cycle") as got:
        yield got
