"""What the list is made of: rows, what is asked for, and where a part of it goes on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from typing import Any

from django.contrib.auth.models import User
from django.db.models import Q, QuerySet

from budgets.access import Person, Standing, may_administer
from budgets.notices import name_of


@dataclass(frozen=True)
class Row:
    """One decision. ``moves``: (what, before, after); before is empty where there was nothing."""

    at: datetime
    reader: str
    pk: int
    kind: str
    by: User | None  # None: nobody, a rule or what was observed
    text: str
    moves: tuple[tuple[str, str, str], ...] = ()
    reason: str = ""
    budget: str = ""  # path
    url: str = ""

    @property
    def who(self) -> str:
        return name_of(self.by) if self.by else ""

    @property
    def changes(self) -> str:
        """The moves in one line."""
        parts = (f"{name} {before} → {after}".strip() for name, before, after in self.moves)
        return ", ".join(parts)

    @property
    def key(self) -> str:
        """Where a part that follows this row goes on."""
        return f"{int(self.at.timestamp())}.{self.at.microsecond:06}~{self.reader}~{self.pk}"


@dataclass(frozen=True)
class Key:
    """The last row of the part before: its instant, its reader's rank, its id."""

    at: datetime
    rank: int
    pk: int


@dataclass(frozen=True)
class Filters:
    """What is asked for; empty: all of it. [start, end), ``budget`` with all below it."""

    who: str = ""
    kind: str = ""
    budget: str = ""
    start: datetime | None = None
    end: datetime | None = None

    @property
    def narrow(self) -> bool:
        return any((self.who, self.kind, self.budget, self.start, self.end))


@dataclass(frozen=True)
class Asked:
    """Who asks for what, and from where on."""

    user: Person
    held: Standing
    filters: Filters
    key: Key | None
    people: Mapping[int, User]  # of the filter on who; empty where nobody is called so

    @cached_property
    def administers(self) -> bool:
        return self.held.everything or may_administer(self.user)


class Reader:
    """Reads decisions of one table, the newest first. Ranks tell rows of one instant apart."""

    name = ""
    kind = ""  # what the filter calls it; empty: it tells several
    at = "at"  # field of the instant
    actor = "by"  # field of who did it; empty: nobody
    budget = ""  # prefix that leads to the budget's fields; empty: it is of none

    def base(self, asked: Asked) -> QuerySet[Any] | None:
        """Return the rows that the reader may see, or None where there can be none."""
        raise NotImplementedError

    def rows(self, found: list[Any], asked: Asked) -> list[Row]:
        """Tell what was found."""
        return [self.row(one, asked) for one in found]

    def row(self, one: Any, asked: Asked) -> Row:
        raise NotImplementedError

    def fetch(self, asked: Asked, rank: int, limit: int) -> list[Row]:
        """Return at most so many rows, those after the key. A constant number of queries."""
        wanted = self.base(asked)
        narrowed = None if wanted is None else self._narrowed(wanted, asked)
        if narrowed is None:
            return []
        if asked.key is not None:
            narrowed = narrowed.filter(self._after(asked.key, rank))
        return self.rows(list(narrowed.order_by(f"-{self.at}", "-pk")[:limit]), asked)

    def _narrowed(self, wanted: QuerySet[Any], asked: Asked) -> QuerySet[Any] | None:
        filters = asked.filters
        if filters.who:
            if not self.actor or not asked.people:
                return None
            wanted = self.by_people(wanted, list(asked.people))
        if filters.budget:
            if not self.budget:
                return None
            path = f"{self.budget}path"
            below = Q(**{f"{path}__startswith": f"{filters.budget}/"})
            wanted = wanted.filter(Q(**{path: filters.budget}) | below)
        if filters.start:
            wanted = wanted.filter(**{f"{self.at}__gte": filters.start})
        if filters.end:
            wanted = wanted.filter(**{f"{self.at}__lt": filters.end})
        return wanted

    def by_people(self, wanted: QuerySet[Any], people: list[int]) -> QuerySet[Any]:
        """Keep what some people did."""
        return wanted.filter(**{f"{self.actor}__in": people})

    def _after(self, key: Key, rank: int) -> Q:
        """Which rows come after a key: earlier ones, and at its instant those of later readers."""
        earlier, same = Q(**{f"{self.at}__lt": key.at}), Q(**{self.at: key.at})
        if rank < key.rank:
            return earlier
        return earlier | (same & Q(pk__lt=key.pk) if rank == key.rank else same)

    def tell(self, one: Any, text: str, **more: Any) -> Row:
        """Return a row of an object."""
        by = getattr(one, self.actor) if self.actor else None
        at = getattr(one, self.at)
        return Row(at, self.name, one.pk, self.kind, by, text, **more)
