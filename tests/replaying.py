"""People who replay cycles while a test does something else, and what others are told then."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from threading import Event

from django.db import connection

from allocator import repeating

MINE = "You have a replay that still runs"
ALL = "2 replays run, as many as may at once"


@contextmanager
def replaying(*people: int) -> Iterator[None]:
    """Let these people replay meanwhile, each as a web worker of its own would."""
    over = Event()

    def one(person: int, under_way: Event) -> None:
        try:
            with repeating.turn(person):
                under_way.set()
                assert over.wait(60)
        finally:
            under_way.set()
            connection.close()

    with ThreadPoolExecutor(len(people)) as pool:
        works = []
        for person in people:
            under_way = Event()
            works.append(pool.submit(one, person, under_way))
            assert under_way.wait(60)
        try:
            yield
        finally:
            over.set()
        for work in works:
            work.result()
