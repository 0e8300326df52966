"""Long lists in parts, by key and not by number: a part stays where it is while rows are added."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from django.db.models import QuerySet
from django.http import QueryDict

LONGEST = 100  # characters of a filter that are read


@dataclass(frozen=True)
class Part:
    """Rows, the newest first, and the addresses of the parts beside it; empty: there is none."""

    rows: list[Any]
    newer: str
    older: str


def by_id(rows: QuerySet[Any], query: Mapping[str, Any], size: int) -> Part:
    """Return the part after ``?before=`` or before ``?after=`` a row's id, else the newest."""
    before, after = number(query.get("before")), number(query.get("after"))
    if after is not None and before is None:
        found = list(rows.filter(pk__gt=after).order_by("pk")[: size + 1])
        more, shown = len(found) > size, found[:size][::-1]
        if not more:  # the first part, whole
            return by_id(rows, without(query, "after"), size)
        return Part(shown, link(query, after=shown[0].pk), link(query, before=shown[-1].pk))
    if before is not None:
        rows = rows.filter(pk__lt=before)
    found = list(rows.order_by("-pk")[: size + 1])
    shown = found[:size]
    newer = link(query, after=shown[0].pk) if before is not None and shown else ""
    if before is not None and not shown:
        newer = link(query)
    return Part(shown, newer, link(query, before=shown[-1].pk) if len(found) > size else "")


def link(query: Mapping[str, Any], **more: Any) -> str:
    """Return the address of another part under the same filters."""
    kept = without(query, "before", "after")
    made = QueryDict(mutable=True)
    made.update({name: str(value) for name, value in {**kept, **more}.items()})
    return f"?{made.urlencode()}"


def without(query: Mapping[str, Any], *names: str) -> dict[str, Any]:
    """Return what an address asks for but some names."""
    return {name: query[name] for name in query if name not in names}


def number(text: Any) -> int | None:
    """Return the number that an address names, or None."""
    plain = str(text or "")
    return int(plain) if plain.isascii() and plain.isdigit() and len(plain) < 19 else None


def words(query: Mapping[str, Any], name: str) -> str:
    """Return a filter's text, as far as it is read."""
    return str(query.get(name, "")).replace("\0", "").strip()[:LONGEST]
