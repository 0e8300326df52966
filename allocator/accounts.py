"""What administrators do with people's accounts; each is kept for the audit log."""

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from typing import Any

from django.apps import apps
from django.contrib.auth.models import User
from django.core.exceptions import ValidationError

from budgets import decisions, signing_in
from budgets.access import may_administer
from budgets.models import Decision
from budgets.refusals import Refused
from budgets.roles import keeping_an_administrator
from clusters.saying import say as _

ACTIVE, INACTIVE = "active", "deactivated"


def found(called: str) -> User:
    """Return the active account that is called exactly so, or has this address. Raises Refused.

    For who may give a role but doesn't see everybody: nothing is matched in part, capitals aside,
    and an account that isn't there is answered as one that is deactivated or not the only one.
    """
    active, called = User.objects.filter(is_active=True), called.strip().replace("\0", "")
    for same in ({"username": called}, {"username__iexact": called}, {"email__iexact": called}):
        people = list(active.filter(**same)[:2]) if called else []
        if len(people) == 1:
            return people[0]
    raise Refused(
        "account",
        _("No active account has exactly this name or address: ask the person how it is written."),
    )


def deactivate(*, user: User, by: User, now: datetime) -> None:
    """Keep a person out: no sign-in, no token, no session. Their jobs and roles stay."""
    if user.pk == by.pk:
        raise Refused("account", _("You can't deactivate yourself: ask another administrator."))
    with _changing(user, by):
        if User.objects.filter(pk=user.pk, is_active=True).update(is_active=False):
            _note(user, ACTIVE, INACTIVE, by, now)


def reactivate(*, user: User, by: User, now: datetime) -> None:
    """Let a person in again, with the roles and the token that they had."""
    with _changing(user, by):
        if User.objects.filter(pk=user.pk, is_active=False).update(is_active=True):
            _note(user, INACTIVE, ACTIVE, by, now)


def reset_token(*, user: User, by: User, now: datetime) -> str:
    """Give a person another token for the API and return it; the one before ends."""
    with _changing(user, by):
        tokens: Any = apps.get_model("authtoken", "Token")._default_manager
        had, _ = tokens.filter(user=user).delete()
        token: str = tokens.create(user=user).key
        _note(user, "token" if had else "", "another token" if had else "token", by, now)
    return token


def reset_password(*, user: User, by: User, now: datetime) -> str:
    """Give a person a password that serves once, and return it; their sessions end."""
    with _changing(user, by):
        password = signing_in.give_one_time_password(user=user, now=now)
        _note(user, "password", "one-time password", by, now)
    return password


def invite(*, username: str, name: str, email: str, by: User, now: datetime) -> tuple[User, str]:
    """Make an account; return it with a password that serves once. Raises Refused by field."""
    first, _blank, last = name.strip().partition(" ")
    user = User(username=username.strip(), first_name=first, last_name=last.strip(), email=email)
    user.set_unusable_password()
    if User.objects.filter(username__iexact=user.username).exists():
        raise Refused(
            "username",
            _("There is an account %(user)s: take another name.", user=repr(user.username)),
        )
    try:
        user.full_clean()
    except ValidationError as error:
        fields = {"first_name": "name", "last_name": "name"}
        field, sentences = next(iter(error.message_dict.items()))
        raise Refused(fields.get(field, field), " ".join(sentences)) from None
    with _changing(user, by):
        user.save()
        password = signing_in.give_one_time_password(user=user, now=now)
        _note(user, "", "account", by, now)
    return user, password


@contextmanager
def _changing(user: User, by: User) -> Iterator[None]:
    """Refuse whose account it isn't; asked once nobody else changes administrators."""
    with keeping_an_administrator():
        if not may_administer(User.objects.get(pk=by.pk)):
            raise Refused("account", _("You administer the organisation no more."))
        if user.is_superuser and not by.is_superuser:
            words = _("The account is a superuser's: only another superuser changes it.")
            raise Refused("account", words)
        yield


def _note(user: User, before: str, after: str, by: User, now: datetime) -> None:
    decisions.note(
        kind=Decision.Kind.PERSON,
        subject=user.username,
        before=before,
        after=after,
        person=user,
        by=by,
        now=now,
    )
