"""Replays of cycles keep web workers busy: one at a time for a person, two for all together."""

from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from threading import Event

import pytest
from django.db import OperationalError, connection

from allocator import repeating
from tests.replaying import ALL, MINE, replaying


def refused(person: int) -> str:
    try:
        with repeating.turn(person):
            return ""
    except repeating.Busy as error:
        return str(error)


@pytest.mark.django_db(transaction=True)
def test_a_person_has_one_replay_and_all_together_two():
    assert refused(1) == ""
    with replaying(1):
        assert refused(1).startswith(MINE)
        assert refused(2) == ""
        with replaying(2):
            assert refused(1).startswith(MINE)
            assert refused(3).startswith(ALL)
        assert refused(3) == ""
    assert refused(1) == ""


@pytest.mark.django_db(transaction=True)
def test_eight_at_once_are_two_that_replay_and_six_that_are_told():
    with ThreadPoolExecutor(8) as pool:
        over, sentences = Event(), []

        def one(person: int) -> None:
            try:
                with repeating.turn(person):
                    over.wait(60)
            except repeating.Busy as error:
                sentences.append(str(error))
                if len(sentences) == 6:  # those that replay wait for the last one
                    over.set()
            finally:
                connection.close()

        for work in [pool.submit(one, person) for person in range(8)]:
            work.result()
    assert len(sentences) == 6
    assert all(sentence.startswith(ALL) for sentence in sentences)


@pytest.mark.django_db(transaction=True)
def test_what_dies_while_it_replays_leaves_no_lock_behind():
    """Its connection is cut, as with the process: nothing was let go in good order."""
    if connection.vendor != "postgresql":
        pytest.skip("a file's lock goes with the process by itself")
    dying = ExitStack()

    def begin() -> int:
        dying.enter_context(repeating.turn(1))
        with connection.cursor() as cursor:
            cursor.execute("SELECT pg_backend_pid()")
            return int(cursor.fetchone()[0])

    def die() -> None:
        with pytest.raises(OperationalError):
            dying.close()
        connection.close()

    with ThreadPoolExecutor(1) as pool:
        process = pool.submit(begin).result()
        assert refused(1).startswith(MINE)
        with connection.cursor() as cursor:
            cursor.execute("SELECT pg_terminate_backend(%s, 60000)", [process])
        assert refused(1) == ""
        pool.submit(die).result()
