"""At once, on a real database: one of two workers plays a simulation; one person asks for four."""

from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

import pytest
from django.contrib.auth.models import User
from django.db import connection

from allocator.models import Simulation
from allocator.simulating import asking, running
from budgets.refusals import Refused
from tests import factories as make
from tests.factories import T0

TRACE = "job_id,submit_time_s,gpus,duration_s,group\n1,0,4,600,nlp\n"
pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def asked():
    if connection.vendor != "postgresql":
        pytest.skip("SQLite lets one write at a time")
    make.make_tree()
    user = make.make_user("root", is_superuser=True)
    for _ in range(3):
        asking.ask(by=user, now=T0, trace=TRACE, equal=True, nodes="2x8")


def test_of_many_workers_one_takes_one(asked):
    start = Barrier(4)

    def take(_):
        try:
            start.wait()
            row = running._take(T0)
            return None if row is None else row.pk
        finally:
            connection.close()

    with ThreadPoolExecutor(4) as pool:
        taken = [pk for pk in pool.map(take, range(4)) if pk is not None]
    assert len(taken) == 1
    running_now = Simulation.objects.filter(state="running")
    assert [row.pk for row in running_now] == taken
    assert running_now[0].attempts == 1


def test_who_asks_many_times_at_once_has_three(asked):
    """Each looks at how many there are before any other has written."""
    Simulation.objects.all().delete()
    user, start = User.objects.get(username="root"), Barrier(6)

    def ask(_):
        try:
            start.wait()
            return asking.ask(by=user, now=T0, trace=TRACE, equal=True, nodes="2x8").pk
        except Refused as refused:
            return refused.sentence
        finally:
            connection.close()

    with ThreadPoolExecutor(6) as pool:
        answers = list(pool.map(ask, range(6)))
    refused = [one for one in answers if isinstance(one, str)]
    assert len(refused) == 3
    assert all("You have 3 simulations" in one for one in refused)
    assert Simulation.objects.count() == asking.MOST_OPEN
