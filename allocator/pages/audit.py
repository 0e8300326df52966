"""The audit log: what somebody decided, filtered as the address says."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from typing import Any

from django.utils import timezone

from allocator.audit import listing
from allocator.audit.listing import KINDS
from allocator.audit.rows import Filters, Row
from allocator.pages import keyed
from allocator.pages.names import Names
from budgets.access import Person, gives_roles, may_administer, standing, visible
from budgets.models import Budget
from ledger.instants import iso

ROWS = 50
COLUMNS = ("at", "who", "kind", "what", "changes", "reason", "budget", "link")


@dataclass(frozen=True)
class AuditPage:
    """All that the list shows. ``since`` and ``until`` are the days of the filter, as typed."""

    filters: Filters
    rows: list[Row]
    part: keyed.Part
    names: Names
    budgets: list[Budget]
    since: str
    until: str
    now: datetime
    file: str  # address of the same as CSV
    has_people: bool  # the reader may look at people
    kinds: tuple[str, ...] = KINDS


def page(user: Person, *, query: Mapping[str, Any], now: datetime) -> AuditPage:
    """Read a part of the list. A constant number of queries."""
    filters, held = read(query), standing(user)
    before = keyed.words(query, "before")
    found = listing.part(user, filters=filters, key=before, size=ROWS)
    newest = keyed.link(query) if before else ""
    older = keyed.link(query, before=found.older) if found.older else ""
    return AuditPage(
        filters=filters,
        rows=found.rows,
        part=keyed.Part(found.rows, newest, older),
        names=Names.load(user),
        budgets=list(visible(user).filter(archived_at=None).order_by("path")),
        since=keyed.words(query, "from"),
        until=keyed.words(query, "to"),
        now=now,
        file=keyed.link(query),
        has_people=bool(gives_roles(held)) or may_administer(user),
    )


def read(query: Mapping[str, Any]) -> Filters:
    """Return what an address asks for; what it can't mean is dropped. Days are the reader's."""
    kind = keyed.words(query, "kind")
    last = _day(keyed.words(query, "to"))
    return Filters(
        who=keyed.words(query, "who"),
        kind=kind if kind in KINDS else "",
        budget=keyed.words(query, "budget"),
        start=_midnight(_day(keyed.words(query, "from"))),
        end=_midnight(last + timedelta(days=1) if last else None),
    )


def lines(user: Person, query: Mapping[str, Any]) -> Iterator[tuple[str, ...]]:
    """Yield the rows of the file: at most the newest 10,000."""
    for row in listing.every(user, filters=read(query)):
        yield (
            *(iso(row.at.replace(microsecond=0)), row.who, row.kind, row.text),
            *(row.changes, row.reason, row.budget, row.url),
        )


def _day(text: str) -> date | None:
    try:
        return date.fromisoformat(text)
    except ValueError:
        return None


def _midnight(day: date | None) -> datetime | None:
    """When a day begins where the reader is."""
    if day is None or not 1970 < day.year < 9999:
        return None
    return timezone.make_aware(datetime(day.year, day.month, day.day))  # noqa: DTZ001
