"""Telling people: what is kept for them to read, and what goes out by e-mail.

A notice is written in the transaction of what it tells of, so that there is never one without the
other. E-mail is sent afterwards, by a worker: see `send_due`.
"""

import logging
from collections.abc import Iterable
from datetime import datetime

from celery import current_app
from django.conf import settings
from django.contrib.auth.models import User
from django.db import transaction
from kombu.exceptions import OperationalError

from budgets.models import Budget, Notice
from budgets.refusals import check_instant

logger = logging.getLogger(__name__)


def tell(
    *,
    users: Iterable[User],
    budget: Budget,
    kind: str,
    text: str,
    key: str,
    now: datetime,
    link: str = "",
) -> None:
    """Tell each of some people one thing about a budget, exactly once by ``key``.

    Repeated with the same key, also by two workers at once, it tells only whom it hasn't told
    yet. ``kind`` is a `Notice.Kind`; ``link`` a path of ours, left out: the budget's page. People
    who may no longer sign in are told nothing.
    """
    check_instant(now, "now")
    by_mail = settings.EMAIL_BACKEND != settings.NO_EMAIL
    notices = [
        Notice(
            user=user,
            budget=budget,
            kind=kind,
            text=text,
            link=link or f"/budgets/{budget.path}",
            key=key,
            created_at=now,
            mail_due_at=now if by_mail and user.email else None,
        )
        for user in sorted(set(users), key=lambda one: one.pk)
        if user.is_active
    ]
    Notice.objects.bulk_create(notices, ignore_conflicts=True)
    if any(notice.mail_due_at for notice in notices):
        transaction.on_commit(_wake, robust=True)


def _wake() -> None:
    """The database is what counts: where no message arrives, beat's next look sends them."""
    try:
        current_app.send_task("allocator.tasks.send_notices", retry=False)
    except (OperationalError, OSError) as error:
        logger.warning("The broker did not take the notices (%s): beat will find them.", error)
