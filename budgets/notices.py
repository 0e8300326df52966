"""Telling people: what is kept for them to read, and what goes out by e-mail.

A notice is written in the transaction of what it tells of, so that there is never one without the
other. E-mail is sent afterwards, by a worker: see `send_due`.
"""

import logging
from collections.abc import Iterable
from datetime import datetime, timedelta
from urllib.parse import urlsplit

from celery import current_app
from django.conf import settings
from django.contrib.auth.models import User
from django.core.mail import EmailMessage, get_connection
from django.core.mail.backends.base import BaseEmailBackend
from django.db import transaction
from django.db.models import F
from django.utils import translation
from kombu.exceptions import OperationalError

from budgets import languages
from budgets.models import Budget, Notice
from budgets.refusals import check_instant
from clusters.saying import Said, in_english, kept, state

logger = logging.getLogger(__name__)
# Minutes until an e-mail that failed is tried again; after the last one it is given up.
WAITS = (1, 5, 30, 120, 720)


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
    english = in_english(text)
    sentence = kept(text) if isinstance(text, Said) else {}
    notices = [
        Notice(
            user=user,
            budget=budget,
            kind=kind,
            text=english,
            sentence=sentence,
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


def name_of(user: User) -> str:
    """Return what a person is called in sentences."""
    return user.get_full_name() or user.get_username()


def _wake() -> None:
    """The database is what counts: where no message arrives, beat's next look sends them."""
    try:
        current_app.send_task("allocator.tasks.send_notices", retry=False)
    except (OperationalError, OSError) as error:
        logger.warning("The broker did not take the notices (%s): beat will find them.", error)


def mark_read(*, user: User, now: datetime, pk: int | None = None) -> int:
    """Note that a person has read one of their notices, or all; return how many were unread."""
    unread = Notice.objects.filter(user=user, read_at=None)
    return (unread if pk is None else unread.filter(pk=pk)).update(read_at=now)


def send_due(*, now: datetime) -> int:
    """Send the e-mails that are due; return how many were sent.

    Each is taken out of those due before it is sent, so that no two workers send it, nor one that
    dies on the way and its successor: what was on its way then may be lost, but stands in the
    application. One that the mail server refuses is due again later.
    """
    check_instant(now, "now")
    connection = get_connection()
    due = Notice.objects.filter(mail_due_at__lte=now).order_by("mail_due_at", "pk")
    sent = sum(_send(pk, connection, now) for pk in list(due.values_list("pk", flat=True)))
    connection.close()
    return sent


def _send(pk: int, connection: BaseEmailBackend, now: datetime) -> bool:
    """Send one, unless somebody else does; say whether it was sent."""
    row = Notice.objects.filter(pk=pk)
    if not row.filter(mail_due_at__lte=now).update(
        mail_due_at=None, mail_tries=F("mail_tries") + 1
    ):
        return False
    notice = row.select_related("user", "budget").get()
    if not (notice.user.is_active and notice.user.email):
        return False
    try:
        connection.open()  # once for all of them
        _message(notice, connection).send()
    except Exception as error:  # one address that can't be written to keeps no other waiting
        connection.close()
        _try_later(notice, error, now)
        return False
    row.update(emailed_at=now)
    return True


def _message(notice: Notice, connection: BaseEmailBackend) -> EmailMessage:
    """The same message whenever it is sent, in its reader's language: servers know it by its id."""
    host = urlsplit(settings.SITE_URL).hostname or "localhost"
    with translation.override(languages.of(notice.user)):
        kind, said = state(notice.get_kind_display()), notice.said
    return EmailMessage(
        subject=f"[Allotment] {notice.budget.path}: {kind}",
        body=f"{said}\n\n{settings.SITE_URL}{notice.link}\n",
        to=[notice.user.email],
        connection=connection,
        headers={"Message-ID": f"<notice-{notice.pk}@{host}>"},
    )


def _try_later(notice: Notice, error: Exception, now: datetime) -> None:
    given_up = notice.mail_tries > len(WAITS)
    what = "given up" if given_up else "tried again later"
    logger.warning("E-mail of notice %s failed (%s): %s.", notice.pk, error, what)
    if not given_up:
        wait = timedelta(minutes=WAITS[notice.mail_tries - 1])
        Notice.objects.filter(pk=notice.pk).update(mail_due_at=now + wait)
