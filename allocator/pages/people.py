"""People, their roles by subtree, and what may be done with their accounts.

Administrators of the organisation see everybody; who gives roles somewhere below sees those who
have one there. To others there is no such page.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import reduce
from operator import or_
from typing import Any

from django.contrib.auth.models import User
from django.core.paginator import Page, Paginator
from django.db.models import Prefetch, Q, QuerySet
from django.http import Http404

from allocator.pages import keyed
from budgets.access import (
    Action,
    Person,
    Standing,
    gives_roles,
    may_administer,
    standing,
    visible_q,
)
from budgets.models import Budget, OneTimePassword, Role
from clusters.saying import say as _

ROWS = 50
STATES = ("active", "deactivated")


@dataclass(frozen=True)
class Reader:
    """Who asks: ``administers`` accounts, else only gives roles below ``tops``."""

    user: User
    held: Standing
    administers: bool
    tops: list[str]


@dataclass(frozen=True)
class PeoplePage:
    reader: Reader
    shown: Page[User]
    words: str
    state: str


@dataclass(frozen=True)
class RoleLine:
    role: Role
    may_take: bool


@dataclass(frozen=True)
class PersonPage:
    """``budgets``: where the reader may give roles. ``untouched``: why nothing may be done."""

    reader: Reader
    person: User
    roles: list[RoleLine]
    budgets: list[Budget]
    kinds: list[tuple[str, str]]
    has_token: bool
    serves_once: bool
    may_change: bool


def is_for(held: Standing) -> bool:
    """Say whether these pages are there for somebody: who gives a role somewhere."""
    return held.everything or bool(gives_roles(held))


def reader(user: Any) -> Reader:
    """Return what somebody may do here; Http404 where it is nothing. Two queries."""
    held = standing(user)
    found = Reader(user, held, may_administer(user), gives_roles(held))
    if not is_for(held):
        raise Http404(_("There is no such page, or none that you may see."))
    return found


def page(user: Person, *, query: Mapping[str, Any]) -> PeoplePage:
    """Return a page of the list, by name. A constant number of queries."""
    who = reader(user)
    words, state = keyed.words(query, "q"), keyed.words(query, "state")
    people = _seen(who)
    for word in words.split():
        names = ("username", "first_name", "last_name", "email")
        people = people.filter(reduce(or_, (Q(**{f"{name}__icontains": word}) for name in names)))
    if state in STATES:
        people = people.filter(is_active=state == "active")
    pages = Paginator(people.order_by("username", "pk"), ROWS)
    return PeoplePage(who, pages.get_page(keyed.words(query, "page")), words, state)


def person(user: Person, pk: int) -> PersonPage:
    """Return one person's page; Http404 where the reader sees nobody of that number."""
    who = reader(user)
    found = _seen(who).select_related("auth_token").filter(pk=pk).first()
    if found is None:
        raise Http404(_("There is no such person, or none that you may see."))
    roles = [
        RoleLine(role, who.held.may_give(role.kind, role.budget.path)) for role in found.roles.all()
    ]
    return PersonPage(
        who,
        found,
        roles,
        budgets(who),
        kinds(who),
        hasattr(found, "auth_token"),
        OneTimePassword.objects.filter(user=found).exists(),
        who.administers and (who.user.is_superuser or not found.is_superuser),
    )


def budgets(who: Reader) -> list[Budget]:
    """Return where the reader may give some role, by path. One query."""
    paths = Budget.objects.filter(archived_at=None).order_by("path")
    return [one for one in paths if who.held.can(Action.MANAGE_ROLES, one.path)]


def kinds(who: Reader) -> list[tuple[str, str]]:
    """Return the roles that the reader may give somewhere."""
    return list(Role.Kind.choices if who.administers else Role.Kind.choices[1:])


def check_may_replace(who: Reader, *, person: User, budget: Budget, kind: str) -> None:
    """Http404 where the reader may not give this role, or not take the one that it replaces.

    `kind` is empty where one is only taken.
    """
    had = Role.objects.filter(user=person, budget=budget).values_list("kind", flat=True)
    if not all(who.held.may_give(one, budget.path) for one in (*had, kind)):
        raise Http404(_("There is no such budget, or none in which you give this role."))


def _seen(who: Reader) -> QuerySet[User]:
    roles = Role.objects.filter(visible_q(who.user, "budget__")).select_related("budget")
    people = User.objects.prefetch_related(Prefetch("roles", roles.order_by("budget__path")))
    if who.administers:
        return people
    below = reduce(
        or_,
        (Q(budget__path=top) | Q(budget__path__startswith=f"{top}/") for top in who.tops),
    )
    return people.filter(pk__in=Role.objects.filter(below).values("user_id"))
