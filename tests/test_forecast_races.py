"""Of many who switch estimators at once one does; who reads meanwhile always finds one."""

from datetime import timedelta
from threading import Event, Thread

import pytest
from django.db import connection

from forecasting import estimators, retraining
from forecasting.core.correction import Correction
from forecasting.core.kinds import KINDS
from forecasting.core.storing import pack
from forecasting.models import Estimator
from tests.factories import T0
from tests.test_budgets_races import THREADS, at_once

pytestmark = pytest.mark.django_db(transaction=True)
DATA = pack(Correction(0, None, {}, ()))


def made(number):
    return Estimator(
        kind="training",
        method=KINDS["training"].version,
        state="active",
        trained_at=T0,
        newest_at=T0 + timedelta(hours=number),
        rows=number,
        seconds=0,
        why="so",
        parameters=DATA,
        digest=retraining.hashlib.sha256(DATA).hexdigest(),
    )


def keep(number, old):
    row = made(number)
    retraining._keep(row, old)
    return row.state


@pytest.mark.parametrize("there_is_one", [False, True])
def test_of_many_that_were_compared_with_the_same_one_is_switched_to(there_is_one):
    if there_is_one:
        keep(0, None)
    old = Estimator.objects.filter(state="active").first()
    states = at_once(lambda number: keep(number + 1, old))
    assert sorted(states) == ["active", *["candidate"] * (THREADS - 1)]
    active = Estimator.objects.get(state="active")
    assert active != old
    assert Estimator.objects.filter(state="retired").count() == int(there_is_one)


def test_a_reader_always_finds_one():
    """On PostgreSQL a statement may find the old one replaced while it reads, never none."""
    keep(0, None)
    stop, seen = Event(), []

    def read():
        while not stop.is_set():
            seen.append(estimators.in_force("training").version)
        connection.close()

    reader = Thread(target=read)
    reader.start()
    try:
        for number in range(1, 20):
            assert keep(number, Estimator.objects.get(state="active")) == "active"
    finally:
        stop.set()
        reader.join()
    method = KINDS["training"].version
    assert set(seen) <= {f"{method}/{number}" for number in range(1, 21)}
