"""Inserting thousands of rows by a few statements, on either database."""

from collections.abc import Callable, Collection, Iterator, Sequence
from functools import cache
from itertools import chain
from typing import Any

from django.db import connection, models
from django.db.models import F, Func, Q, Value

BATCH = 1000  # rows to a statement, of less than a score of values each: SQLite takes 32,766

Rows = Sequence[Sequence[Any]]
NO_VALUE = r"\N"  # for COPY
SPECIAL = {"\\": r"\\", "\t": r"\t", "\n": r"\n", "\r": r"\r"}
SPECIAL_AS = str.maketrans(SPECIAL)
QUOTED_AS = str.maketrans({"\\": r"\\", '"': r"\""})


def insert(
    model: type[models.Model], columns: tuple[str, ...], rows: Rows, *, then: str = ""
) -> None:
    """Insert rows of values that drivers know, in the order of ``columns``.

    ``then`` follows the values: what to do where a key is there already. In one transaction or
    not at all is the caller's to see to. PostgreSQL takes a stream of rows, or, where something
    follows, each column as one array: with a place for every value, its driver spends longer on
    reading the statement than the server on the rows. Both are written as text here, a column at a
    time, which takes a third of what the driver does value by value.
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
            values = [array(column) for column in zip(*rows, strict=True)]
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
        texts = [_texts(column, NO_VALUE, _escaped) for column in zip(*rows, strict=True)]
        to.write("".join(f"{row}\n" for row in map("\t".join, zip(*texts, strict=True))))


def array(values: Sequence[Any]) -> str:
    """Return values as PostgreSQL reads an array of them from text."""
    return f"{{{','.join(_texts(values, 'NULL', _quoted))}}}"


class _Among(Func):
    arg_joiner, template = " = ANY(", "%(expressions)s::%(kind)s[])"
    output_field = models.BooleanField()


def among(name: str, values: Collection[int] | Collection[str]) -> Q:
    """Return what picks rows of which a column is one of thousands of values.

    PostgreSQL takes them as one array: with a place for each, its driver and the server's parser
    take longer than finding the rows.
    """
    if connection.vendor != "postgresql" or not values:
        return Q(**{f"{name}__in": values})
    kind = "varchar" if any(isinstance(value, str) for value in values) else "bigint"
    return Q(_Among(F(name), Value(array(list(values))), kind=kind))


def _texts(
    values: Sequence[Any], no_value: str, escaped: Callable[[Sequence[str]], Sequence[str]]
) -> Sequence[str]:
    """Return a column's values as PostgreSQL reads them; most are numbers, or few different."""
    kinds = set(map(type, values))
    if kinds == {str}:
        return escaped(values)
    if kinds == {int}:
        return list(map(str, values))
    different = list({(type(value), value) for value in values})
    texts = escaped([str(value) for _, value in different])
    known = dict(zip(different, texts, strict=True)) | {(type(None), None): no_value}
    return [known[type(value), value] for value in values]


def _escaped(texts: Sequence[str]) -> Sequence[str]:
    """Return texts for COPY, in which a tab or the end of a line would end a value."""
    if not any(map("\0".join(texts).__contains__, SPECIAL)):
        return texts
    return [text.translate(SPECIAL_AS) for text in texts]


def _quoted(texts: Sequence[str]) -> Sequence[str]:
    """Return texts for an array, in which a comma, a brace or the word NULL would be none."""
    return [f'"{text.translate(QUOTED_AS)}"' for text in texts]


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
