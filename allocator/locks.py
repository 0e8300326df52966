"""Locks that nobody waits for: whoever comes second is told so at once.

They belong to the process that holds them: a kill -9 frees them, no lease has to run out.
"""

import fcntl
from collections.abc import Iterator
from contextlib import contextmanager

from django.db import connection


@contextmanager
def attempt(key: int, name: str) -> Iterator[bool]:
    """Hold a lock, or yield False at once if somebody else holds it.

    ``key`` (63 bits) is its number on PostgreSQL, whose advisory locks are per database; ``name``
    its file beside an SQLite database.
    """
    if connection.vendor == "postgresql":
        with connection.cursor() as cursor:
            cursor.execute("SELECT pg_try_advisory_lock(%s)", [key])
            got = bool(cursor.fetchone()[0])
        try:
            yield got
        finally:
            if got:
                with connection.cursor() as cursor:
                    cursor.execute("SELECT pg_advisory_unlock(%s)", [key])
        return
    path = f"{connection.settings_dict['NAME']}.{name}-lock"
    with open(path, "w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield False
            return
        yield True
