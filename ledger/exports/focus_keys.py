"""Which keys stand in a file more often than once, however many there are of them."""

import sqlite3
from collections.abc import Iterator
from itertools import groupby
from operator import itemgetter
from typing import NamedTuple

BATCH = 10_000  # rows that are kept in memory


class Place(NamedTuple):
    """Where a key stands: its row, and whether that is Used, Unused or neither."""

    key: str
    row: int
    status: str


class Keys:
    """Keys with their rows, in a temporary file of SQLite's own that is gone once it is closed."""

    def __init__(self) -> None:
        self._store = sqlite3.connect("")
        self._store.execute("CREATE TABLE places (key TEXT, number INTEGER, status TEXT)")
        self._waiting: list[Place] = []

    def close(self) -> None:
        self._store.close()

    def add(self, place: Place) -> None:
        self._waiting.append(place)
        if len(self._waiting) >= BATCH:
            self._write()

    def repeated(self) -> Iterator[list[Place]]:
        """Yield the places of each key that stands in several, in order of their rows."""
        self._write()
        rows = self._store.execute("SELECT key, number, status FROM places ORDER BY key, number")
        for _, places in groupby(map(Place._make, rows), key=itemgetter(0)):
            if len(mine := list(places)) > 1:
                yield mine

    def _write(self) -> None:
        self._store.executemany("INSERT INTO places VALUES (?, ?, ?)", self._waiting)
        self._waiting = []
