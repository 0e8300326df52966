"""Giving and taking roles. Who may is decided by `budgets.access`."""

from collections.abc import Iterator
from contextlib import contextmanager

from django.contrib.auth.models import User
from django.db import transaction

from budgets.access import administrators
from budgets.models import Budget, Role
from budgets.refusals import Refused
from clusters.saying import say as _


def give_role(*, user: User, budget: Budget, kind: str) -> Role:
    """Give a person a role in a budget's subtree, in place of the one they had there."""
    if kind not in Role.Kind.values:
        raise Refused(
            "kind",
            _(
                "%(kind)s is no role: use one of %(kinds)s.",
                kind=repr(kind),
                kinds=", ".join(Role.Kind.values),
            ),
        )
    role, _made = Role.objects.update_or_create(user=user, budget=budget, defaults={"kind": kind})
    return role


def take_role(*, user: User, budget: Budget) -> bool:
    """Take a person's role in a budget away; False if there was none."""
    deleted, _by_model = Role.objects.filter(user=user, budget=budget).delete()
    return bool(deleted)


@contextmanager
def keeping_an_administrator() -> Iterator[None]:
    """Undo what leaves the organisation without an administrator who may sign in, and refuse it.

    Whoever does such a thing beside waits, and then counts anew.
    """
    with transaction.atomic():
        before = len(administrators().order_by("pk").select_for_update())
        yield
        if before and not administrators().exists():
            raise Refused(
                "kind",
                _(
                    "Nobody would be left who administers the organisation: make somebody else its "
                    "administrator first."
                ),
            )
