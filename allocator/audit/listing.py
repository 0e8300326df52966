"""One list of all readers, merged by instant: a part at a time, each in as many queries as another.

Readers are asked for as many rows as the part has, each from the key on; the newest of them all
are the part. So a part costs what its size does, however long the tables are.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime

from django.contrib.auth.models import User
from django.db.models import Q

from allocator.audit import of_budgets, of_work
from allocator.audit.rows import Asked, Filters, Key, Reader, Row
from budgets.access import Person, standing

# In this order where they tell of one instant: the first is shown first.
READERS: tuple[Reader, ...] = (
    *(of_budgets.Decided(), of_budgets.Proposed(), of_budgets.Answered(), of_budgets.Asking()),
    *(of_budgets.Transferred(), of_budgets.ByHand(), of_budgets.Planned(), of_budgets.Decisions()),
    *(of_budgets.Checkpoints(), of_budgets.ExemptionDecided(), of_budgets.ExemptionAsked()),
    *(of_budgets.Renamed(), of_work.Jobs(), of_work.Windows(), of_work.Nodes()),
    *(of_work.Simulations(), of_work.Reviews(), of_work.Administration(), of_work.Tokens()),
)
RANKS = {reader.name: rank for rank, reader in enumerate(READERS)}
KINDS = (
    *("shares", "requests", "credits", "plans", "periods", "checkpoints", "roles", "names"),
    *("jobs", "windows", "nodes", "simulations", "reviews", "people", "settings"),
)
MOST = 10_000  # rows of a file
AT_ONCE = 500


@dataclass(frozen=True)
class Part:
    """Rows, the newest first, and where the next part goes on; empty: there is none."""

    rows: list[Row]
    older: str


def part(user: Person, *, filters: Filters, key: str, size: int) -> Part:
    """Return a part of the list as somebody may see it. A constant number of queries."""
    asked = Asked(user, standing(user), filters, read_key(key), _people(filters.who))
    found: list[Row] = []
    for rank, reader in enumerate(READERS):
        if not filters.kind or reader.kind in ("", filters.kind):
            found += reader.fetch(asked, rank, size + 1)
    found.sort(key=lambda row: (row.at, -RANKS[row.reader], row.pk), reverse=True)
    shown = found[:size]
    return Part(shown, shown[-1].key if len(found) > size else "")


def every(user: Person, *, filters: Filters, most: int = MOST) -> Iterator[Row]:
    """Yield the newest rows for a file, part after part."""
    key, left = "", most
    while left > 0:
        found = part(user, filters=filters, key=key, size=min(AT_ONCE, left))
        yield from found.rows
        key, left = found.older, left - len(found.rows)
        if not key:
            return


def read_key(text: str) -> Key | None:
    """Return where a part goes on; None for the newest, and for what is no key."""
    at, _, rest = text.partition("~")
    name, _, pk = rest.partition("~")
    if name not in RANKS or not (pk.isascii() and pk.isdigit() and len(pk) < 19):
        return None
    try:
        seconds, _, micros = at.partition(".")
        instant = datetime.fromtimestamp(int(seconds), UTC).replace(microsecond=int(micros or 0))
    except (ValueError, OverflowError, OSError):
        return None
    return Key(instant, RANKS[name], int(pk))


def _people(who: str) -> dict[int, User]:
    """Return those whose account or name has these words. At most one query."""
    if not who:
        return {}
    fits = Q(username__icontains=who)
    for word in who.split():
        fits |= Q(first_name__icontains=word) | Q(last_name__icontains=word)
    return {user.pk: user for user in User.objects.filter(fits)}
