"""Inserting thousands of rows by a few statements, on either database."""

from collections.abc import Iterator, Sequence
from functools import cache
from itertools import chain
from typing import Any

from django.db import connection, models

BATCH = 1000  # rows to a statement, of less than a score of values each: SQLite takes 32,766

Rows = Sequence[Sequence[Any]]


def insert(
    model: type[models.Model], columns: tuple[str, ...], rows: Rows, *, then: str = ""
) -> None:
    """Insert rows of values that drivers know, in the order of ``columns``.

    ``then`` follows the values: what to do where a key is there already. In one transaction or
    not at all is the caller's to see to. PostgreSQL takes a stream of rows, or, where something
    follows, each column as one array: with a place for every value, its driver spends longer on
    reading the statement than the server on the rows.
    """
    if not rows:
        return
    arrays = connection.vendor == "postgresql"
    if arrays and not then:
        _copy(model, columns, rows)
        return
    head, places = _statement(model, columns, arrays)
    with connection.cursor() as cursor:
        if arrays:
            values = [list(column) for column in zip(*rows, strict=True)]
            cursor.execute(f"{head} SELECT * FROM unnest({places}) {then}", values)
            return
        for some in _batched(rows):
            given = ", ".join([f"({places})"] * len(some))
            cursor.execute(f"{head} VALUES {given} {then}", list(chain.from_iterable(some)))


def _copy(model: type[models.Model], columns: tuple[str, ...], rows: Rows) -> None:
    quote = connection.ops.quote_name
    names = ", ".join(map(quote, columns))
    statement = f"COPY {quote(model._meta.db_table)} ({names}) FROM STDIN"
    with (
        connection.cursor() as cursor,
        connection.wrap_database_errors,
        cursor.copy(statement) as to,
    ):
        for row in rows:
            to.write_row(row)


@cache
def _statement(
    model: type[models.Model], columns: tuple[str, ...], arrays: bool
) -> tuple[str, str]:
    """Return how the statement begins, and the places of its values."""
    quote = connection.ops.quote_name
    fields = {str(field.column): field for field in model._meta.concrete_fields}
    names = ", ".join(map(quote, columns))
    places = ["%s"] * len(columns)
    if arrays:
        places = [f"%s::{_plain(fields[name].db_type(connection))}[]" for name in columns]
    return f"INSERT INTO {quote(model._meta.db_table)} ({names})", ", ".join(places)


def _plain(kind: str | None) -> str:
    """Return a type without its length: a cast to that would cut what is too long, unsaid."""
    return str(kind).partition("(")[0]


def _batched(rows: Rows) -> Iterator[Rows]:
    """Yield rows by as many as one statement takes: a trigger makes each statement dear."""
    for start in range(0, len(rows), BATCH):
        yield rows[start : start + BATCH]
