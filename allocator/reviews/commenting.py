"""Comments of a review: added, edited by their author for a while, withdrawn, never deleted."""

from dataclasses import replace
from datetime import datetime, timedelta

from django.contrib.auth.models import User
from django.db import transaction
from django.http import Http404
from django.utils.translation import gettext_lazy

from allocator.models import ReviewComment
from allocator.reviews.pack import Said
from budgets.access import Person, visible_q
from budgets.models import Budget, Period
from budgets.refusals import Refused
from clusters.saying import say as _

EDITABLE = timedelta(minutes=15)
TEXT_MAX = 2000
NOT_THERE = gettext_lazy("There is no such comment, or none that you may see.")


def said(*, budget: Budget, period: Period) -> tuple[Said, ...]:
    """Return what was said, the oldest first; of what was withdrawn only by whom and when."""
    rows = ReviewComment.objects.filter(budget=budget, period=period).select_related("author")
    return tuple(
        Said(
            pk=row.pk,
            author=row.author.get_full_name() or row.author.username,
            at=row.created_at,
            text="" if row.withdrawn_at else row.text,
            withdrawn=row.withdrawn_at is not None,
            edited=row.edited_at is not None,
        )
        for row in rows.order_by("pk")
    )


def as_said_now(said: tuple[Said, ...]) -> tuple[Said, ...]:
    """Return what a kept pack tells of comments, without the text of what was withdrawn since."""
    open_then = [one.pk for one in said if not one.withdrawn]
    if not open_then:
        return said
    rows = ReviewComment.objects.filter(pk__in=open_then, withdrawn_at__isnull=False)
    gone = set(rows.values_list("pk", flat=True))
    return tuple(replace(one, text="", withdrawn=True) if one.pk in gone else one for one in said)


def find(user: Person, pk: int) -> ReviewComment:
    """Return a comment on a budget that the person may see; else Http404."""
    seen = ReviewComment.objects.filter(visible_q(user, "budget__"))
    found = seen.select_related("budget", "period", "author").filter(pk=pk).first()
    if found is None:
        raise Http404(NOT_THERE)
    return found


def may_edit(user: Person, comment: ReviewComment, now: datetime) -> bool:
    """Say whether somebody may edit a comment still: their own, for a quarter of an hour."""
    own = comment.author_id == user.pk and comment.withdrawn_at is None
    return own and now < comment.created_at + EDITABLE


def add(*, budget: Budget, period: Period, author: User, text: str, now: datetime) -> ReviewComment:
    """Write a comment on a budget's pack of a period. Callers ask `budgets.access` first."""
    return ReviewComment.objects.create(
        budget=budget, period=period, author=author, text=checked(text), created_at=now
    )


@transaction.atomic
def edit(*, comment: ReviewComment, by: Person, text: str, now: datetime) -> ReviewComment:
    """Write a comment anew, within a quarter of an hour."""
    row = _locked(comment, by)
    if not may_edit(by, row, now):
        raise Refused("text", _("A comment can be edited for 15 minutes: add another one."))
    # A clock that was set back doesn't make it edited before it was written.
    row.text, row.edited_at = checked(text), max(now, row.created_at)
    row.save(update_fields=["text", "edited_at"])
    return row


@transaction.atomic
def withdraw(*, comment: ReviewComment, by: Person, now: datetime) -> ReviewComment:
    """Take a comment back: it is said that there was one, no longer what it said."""
    row = _locked(comment, by)
    if row.withdrawn_at is None:
        row.withdrawn_at = now
        row.save(update_fields=["withdrawn_at"])
    return row


def _locked(comment: ReviewComment, by: Person) -> ReviewComment:
    row = ReviewComment.objects.select_for_update().get(pk=comment.pk)
    if row.author_id != by.pk:
        raise Refused("text", _("It is somebody else's comment: only its author changes it."))
    return row


def checked(text: str) -> str:
    """Return what was said without blanks around it; refuse nothing, and too much."""
    text = text.replace("\r\n", "\n").strip()
    if not text:
        raise Refused("text", _("Say something: the comment is empty."))
    if len(text) > TEXT_MAX or "\0" in text:
        raise Refused(
            "text", _("Give a comment of at most %(most)s plain characters.", most=TEXT_MAX)
        )
    return text
