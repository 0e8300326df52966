"""A role for somebody whom the reader doesn't see yet: found by the exact account or address.

Who gives roles somewhere sees those who have one there. Anybody else they find only by what they
know of them already; what the page adds is the name, and the role that would be replaced.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from django.contrib.auth.models import User

from allocator import accounts
from allocator.pages import people
from budgets.access import Person
from budgets.models import Budget, Role
from clusters.words import worded


@dataclass(frozen=True)
class Found:
    """Whom a form means, where, and what they have there now (empty: nothing)."""

    person: User
    budget: Budget
    kind: str
    had: str

    @property
    def words(self) -> str:
        """The role in words, such as "member"."""
        return worded(Role.Kind(self.kind).label).lower()


@dataclass(frozen=True)
class GivingPage:
    reader: people.Reader
    budgets: list[Budget]
    kinds: list[tuple[str, str]]


def page(user: Person) -> GivingPage:
    """Return where the reader may give which roles; Http404 where nowhere."""
    who = people.reader(user)
    kinds = [(kind, worded(words)) for kind, words in people.kinds(who)]
    return GivingPage(who, people.budgets(who), kinds)


def find(page: GivingPage, *, account: str, budget: str, kind: str) -> Found:
    """Return whom the form means. Raises Refused where nobody is called so, and Http404."""
    place = next(one for one in page.budgets if one.path == budget)
    person = accounts.found(account)
    people.check_may_replace(page.reader, person=person, budget=place, kind=kind)
    had: Any = Role.objects.filter(user=person, budget=place).first()
    return Found(person, place, kind, worded(had.get_kind_display()).lower() if had else "")
