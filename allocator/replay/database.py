"""A database of a replay's own, so that the installation's is never touched."""

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from django.conf import settings
from django.core.management import call_command
from django.db import DEFAULT_DB_ALIAS, connections

OPTIONS = {
    "transaction_mode": "IMMEDIATE",
    "timeout": 20,
    # Nothing is lost with it that another replay can't make again.
    "init_command": "PRAGMA journal_mode=WAL; PRAGMA synchronous=OFF;",
}


@contextmanager
def own(keep: Path | None) -> Iterator[Path]:
    """Use a fresh SQLite file as the database meanwhile: ``keep``, or one that is deleted."""
    with tempfile.TemporaryDirectory(prefix="allotment-replay-") as folder:
        path = keep or Path(folder) / "replay.sqlite3"
        with _used(path):
            call_command("migrate", verbosity=0, interactive=False)
            yield path


@contextmanager
def _used(path: Path) -> Iterator[None]:
    """Put a connection to the file in place of the default one, and that back afterwards."""
    entry: dict[str, Any] = {"ENGINE": "django.db.backends.sqlite3", "NAME": str(path)}
    known, before = connections.settings, connections[DEFAULT_DB_ALIAS]
    entry_before = known[DEFAULT_DB_ALIAS]
    known[DEFAULT_DB_ALIAS] = {**_defaults(), **entry, "OPTIONS": OPTIONS}
    connections[DEFAULT_DB_ALIAS] = connections.create_connection(DEFAULT_DB_ALIAS)
    try:
        yield
    finally:
        connections[DEFAULT_DB_ALIAS].close()
        known[DEFAULT_DB_ALIAS] = entry_before
        connections[DEFAULT_DB_ALIAS] = before


def _defaults() -> dict[str, Any]:
    """What Django adds to an entry of DATABASES."""
    return dict(
        connections.configure_settings({DEFAULT_DB_ALIAS: {"ENGINE": "", "NAME": ""}})[
            DEFAULT_DB_ALIAS
        ],
        TIME_ZONE=None if settings.USE_TZ else settings.TIME_ZONE,
    )
