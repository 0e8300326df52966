"""What of a parent's shares is scheduled, and writing it anew with a change in it.

A set of a later version stands in for those scheduled before it. So what is to change from now on
and yet leave the schedule as it is, is written as a whole future: for each vector in force or
scheduled one set, at its own instant, in order.
"""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from datetime import datetime
from typing import NamedTuple

from django.contrib.auth.models import User

from budgets import shares as reads
from budgets.change_sets import approve, write_set
from budgets.models import Budget, ChangeSet
from budgets.refusals import Refused
from budgets.shares import Vector
from budgets.vectors import check_sums
from clusters.saying import say as _


class Decided(NamedTuple):
    """A proposal that is approved, and who approves it: their names stand on what it writes."""

    proposal: ChangeSet
    by: User


class Step(NamedTuple):
    """The shares of a parent's children from an instant on, until the next step."""

    at: datetime
    vector: Vector


def steps(parent: Budget, *, now: datetime) -> list[Step]:
    """Return the vector in force now and those that are scheduled, each at its instant."""
    scheduled = ChangeSet.objects.filter(
        parent=parent, status=ChangeSet.Status.APPROVED, effective_at__gt=now
    )
    found = [(now, reads.in_force(parent, at=now))]
    for at in sorted(set(scheduled.values_list("effective_at", flat=True))):
        then = reads.in_force(parent, at=at)
        if then != found[-1][1]:
            found.append((at, then))
    return [Step(at, reads.vector_of(one)) for at, one in found]


def write(
    *,
    parent: Budget,
    steps: Iterable[Step],
    reason: str,
    author: User,
    now: datetime,
    decided: Decided | None = None,
) -> list[ChangeSet]:
    """Write and approve one set for each step; the caller holds the parent's lock.

    With ``decided`` the first step of the proposal's parent is the proposal itself. Raises Refused
    where the shares of a step total over 100 % in a pool, or aren't those that were proposed.
    """
    made: list[ChangeSet] = []
    by = decided.by if decided else author
    for step in steps:
        if decided and not made and decided.proposal.parent_id == parent.pk:
            made.append(_as_proposed(decided, step, now))
            continue
        base = reads.head(parent)
        with _fits(step, now):
            written = write_set(
                parent=parent,
                vector=step.vector,
                before=reads.vector_of(base),
                reason=reason,
                author=author,
                base=base,
                effective_at=step.at,
                now=now,
            )
        made.append(approve(change_set=written, by=by, now=now))
    return made


def _as_proposed(decided: Decided, step: Step, now: datetime) -> ChangeSet:
    """Approve a proposal as the first step: from now on, whatever was scheduled meanwhile."""
    approved = approve(change_set=decided.proposal, by=decided.by, now=now)
    if reads.vector_of(approved) != step.vector or approved.effective_at != step.at:
        raise Refused(
            "status",
            _(
                "Shares that were scheduled have come into force since it was proposed: "
                "decline it, then propose it anew."
            ),
        )
    return approved


def check(*, parent: Budget, steps: Iterable[Step], now: datetime) -> None:
    """Refuse what `write` would refuse of the steps' shares. Writes nothing."""
    before = reads.vector_of(reads.head(parent))
    for step in steps:
        with _fits(step, now):
            check_sums(parent, step.vector, before=before)
        before = step.vector


@contextmanager
def _fits(step: Step, now: datetime) -> Iterator[None]:
    """Say of shares that are refused when they are scheduled for."""
    try:
        yield
    except Refused as refused:
        if step.at == now:
            raise
        when = f"{step.at:%d %b %Y %H:%M}"
        said = _(
            "It does not fit what is scheduled for %(when)s UTC: %(sentence)s",
            when=when,
            sentence=refused.sentence,
        )
        raise Refused("until", said) from refused
