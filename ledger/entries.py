"""The shape of entries about holds, and writing entries: the one place where that is done."""

from collections.abc import Sequence
from datetime import datetime
from functools import cache
from operator import itemgetter
from typing import Any, NamedTuple

from django.db import connection, transaction
from django.db.models.base import ModelState

from ledger import rollups
from ledger.bulk import insert
from ledger.models import Entry

PLAIN = frozenset({int, str, bool, type(None)})


class Attempt(NamedTuple):
    """Whose hold it is: one attempt of a job."""

    job_id: int
    number: int


def unsaved(**values: Any) -> Entry:
    """Return an entry of some values by column; the others have their defaults.

    A model that is made the usual way looks at each of its fields for 20 to 30 µs in all, and a
    tick makes three entries for every run.
    """
    defaults = _defaults()
    known = defaults | values
    if len(known) > len(defaults):
        unknown = known.keys() - defaults.keys()
        raise TypeError(f"An entry has no column {', '.join(sorted(unknown))}.")
    entry = Entry.__new__(Entry)
    entry.__dict__ = known
    entry._state = ModelState()
    return entry


@cache
def _defaults() -> dict[str, Any]:
    return {field.attname: field.get_default() for field in Entry._meta.concrete_fields}


def hold_entry(
    kind: Entry.Kind,
    mine: Attempt,
    budget_id: int,
    period_id: int,
    amount: int,
    key: str,
    *,
    at: datetime,
    now: datetime,
) -> Entry:
    """Return a hold or a release, unsaved."""
    return unsaved(
        kind=kind,
        budget_id=budget_id,
        period_id=period_id,
        at=at,
        amount_mgpus=amount,
        job_id=mine.job_id,
        attempt=mine.number,
        key=key,
        created_at=now,
    )


def free_key(taken: set[str], key: str) -> str:
    """Return the key, or its next number, and take it: one thing may happen twice at an instant.

    ``taken``: the keys of that kind that are there, read under the ledger's lock.
    """
    free, number = key, 1
    while free in taken:
        number += 1
        free = f"{key}:{number}"
    taken.add(free)
    return free


def write(entries: Sequence[Entry]) -> None:
    """Insert entries and count them in the sums, or neither. Nothing else writes an entry.

    Raises IntegrityError for a key that is there already: nothing is written or counted then.
    A tick writes three for every run: the model's own bulk insert spends ten times as long on
    preparing values as the database on keeping them. These rows leave without a primary key.
    """
    if not entries:
        return
    with transaction.atomic(savepoint=False):
        _insert(entries)
        rollups.add(entries)


def _insert(entries: Sequence[Entry]) -> None:
    columns, names = _columns()
    values_of = itemgetter(*names)  # not through the fields' descriptors
    rows = [values_of(entry.__dict__) for entry in entries]
    insert(Entry, columns, list(zip(*map(_plain, zip(*rows, strict=True)), strict=True)))


@cache
def _columns() -> tuple[tuple[str, ...], tuple[str, ...]]:
    fields = [field for field in Entry._meta.concrete_fields if not field.primary_key]
    return tuple(str(field.column) for field in fields), tuple(field.attname for field in fields)


def _plain(column: Sequence[Any]) -> Sequence[Any]:
    """Return a column's values as drivers know them: few are different where any needs a change."""
    if PLAIN.issuperset(map(type, column)):
        return column
    known = {value: _known(value) for value in set(column)}
    return [known[value] for value in column]


def _known(value: Any) -> Any:
    if isinstance(value, datetime):
        return connection.ops.adapt_datetimefield_value(value)
    # Choices are strings of a class of their own.
    return str(value) if isinstance(value, str) else value
