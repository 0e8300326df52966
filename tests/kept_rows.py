"""Rows that took long to make, kept in memory to be written again: all of the database's.

Of a database that held nothing else. They are written past its triggers, which judge how rows come
about; foreign keys are looked at as always.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from django.apps import apps
from django.db import connection

OF_THE_SCHEMA = {"auth_permission", "django_content_type"}
# By table: its columns, and what is there.
Rows = dict[str, tuple[list[str], list[tuple[Any, ...]]]]


def take() -> Rows:
    """Return all rows as the database gives them."""
    found: Rows = {}
    with connection.cursor() as cursor:
        for model in apps.get_models(include_auto_created=True):
            table, fields = model._meta.db_table, model._meta.local_concrete_fields
            if table in OF_THE_SCHEMA or model._meta.proxy:
                continue
            columns = [str(field.column) for field in fields if not field.generated]
            names = ", ".join(f'"{column}"' for column in columns)
            cursor.execute(f'SELECT {names} FROM "{table}"')
            if rows := cursor.fetchall():
                found[table] = columns, rows
    return found


def put(rows: Rows) -> None:
    """Write them, with their numbers, inside a transaction."""
    with connection.cursor() as cursor, _without_triggers(cursor, list(rows)):
        for table, (columns, values) in rows.items():
            names = ", ".join(f'"{column}"' for column in columns)
            places = ", ".join(["%s"] * len(columns))
            cursor.executemany(f'INSERT INTO "{table}" ({names}) VALUES ({places})', values)


@contextmanager
def _without_triggers(cursor: Any, tables: list[str]) -> Iterator[None]:
    if connection.vendor == "postgresql":
        for table in tables:
            cursor.execute(f'ALTER TABLE "{table}" DISABLE TRIGGER USER')
        yield
        cursor.execute("SET CONSTRAINTS ALL IMMEDIATE")  # no table with checks to come is altered
        for table in tables:
            cursor.execute(f'ALTER TABLE "{table}" ENABLE TRIGGER USER')
        cursor.execute("SET CONSTRAINTS ALL DEFERRED")
        return
    cursor.execute("SELECT name, sql FROM sqlite_master WHERE type = 'trigger'")
    triggers = cursor.fetchall()
    for name, _ in triggers:
        cursor.execute(f'DROP TRIGGER "{name}"')
    yield
    for _, sql in triggers:
        cursor.execute(sql)
