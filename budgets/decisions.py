"""Keeps what somebody decided where no table of its own tells it."""

from datetime import datetime
from typing import Any

from django.contrib.auth.models import User

from budgets.models import Budget, Decision, Period, Role


def note(*, kind: str, subject: str, by: User | None, now: datetime, **about: Any) -> Decision:
    """Keep a decision; the rest are fields of it. The caller holds the transaction."""
    return Decision.objects.create(kind=kind, subject=subject, by=by, at=now, **about)


def on_period(*, period: Period, before: str, by: User | None, now: datetime) -> None:
    """Keep that somebody moved a period from a state to the one that it has."""
    note(
        kind=Decision.Kind.PERIOD,
        subject=period.name,
        before=before,
        after=period.status,
        period=period,
        by=by,
        now=now,
    )


def on_role(*, user: User, budget: Budget, before: str, by: User | None, now: datetime) -> None:
    """Keep that somebody changed a person's role in a budget; nothing where it is the same."""
    role = Role.objects.filter(user=user, budget=budget).first()
    after = role.kind if role else ""
    if before != after:
        note(
            kind=Decision.Kind.ROLE,
            subject=user.username,
            before=before,
            after=after,
            budget=budget,
            person=user,
            by=by,
            now=now,
        )
