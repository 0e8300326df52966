"""What a page asks more than once is asked once, and nothing of it outlives the page."""

from collections.abc import Callable
from datetime import timedelta

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from clusters.reading import once, reading
from ledger.models import ClosedTimestep
from ledger.running import closed_until
from tests.factories import T0, TIMESTEP
from tests.ledger_world import close


@pytest.fixture
def asked() -> list[tuple[int, int]]:
    return []


@pytest.fixture
def add(asked: list[tuple[int, int]]) -> Callable[..., int]:
    @once
    def add(one: int, *, other: int = 0) -> int:
        """Add."""
        asked.append((one, other))
        return one + other

    return add


def test_each_question_is_asked_once(add: Callable[..., int], asked: list) -> None:
    with reading():
        assert [add(1), add(1), add(1, other=1), add(2), add(1, other=1)] == [1, 1, 2, 2, 2]
    assert asked == [(1, 0), (1, 1), (2, 0)]


def test_outside_it_is_asked_anew(add: Callable[..., int], asked: list) -> None:
    add(1)
    for _ in range(2):
        with reading():
            add(1)
    add(1)
    assert asked == [(1, 0)] * 4


def test_one_inside_another_ends_with_it(add: Callable[..., int], asked: list) -> None:
    with reading():
        with reading():
            add(1)
        add(1)
    assert asked == [(1, 0)]


def test_nothing_is_kept_after_a_fault(add: Callable[..., int], asked: list) -> None:
    with pytest.raises(TypeError), reading():
        add(1 + 2 * add(1), other=None)
    add(1)
    assert asked == [(1, 0), (3, None), (1, 0)]


@pytest.mark.django_db
def test_the_last_close_is_the_pages_own_and_the_next_page_has_the_next() -> None:
    close()
    with CaptureQueriesContext(connection) as caught, reading():
        assert [closed_until() for _ in range(3)] == [T0 + TIMESTEP] * 3
        ClosedTimestep.objects.create(
            start=T0 + TIMESTEP, end=T0 + 2 * TIMESTEP, closed_at=T0 + timedelta(hours=1)
        )
        assert closed_until() == T0 + TIMESTEP
    assert len([one for one in caught if one["sql"].startswith("SELECT")]) == 1
    assert closed_until() == T0 + 2 * TIMESTEP
