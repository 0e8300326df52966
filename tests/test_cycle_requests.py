"""Who asks for a cycle, and who answers: requests are counted, coalesced and never lost."""

from datetime import timedelta

import pytest
from django.db import connection, transaction

from allocator import admission, cycle, requests, tasks
from allocator.models import AllocatorState, Cycle
from clusters.connectors import KINDS
from clusters.connectors.base import ConnectorError
from clusters.connectors.simulated import SimulatedConnector
from config import clock
from ledger.models import ClosedTimestep
from tests.factories import HOUR, T0, TIMESTEP
from tests.helpers import Institute, make_institute
from workloads.models import Job, Run

pytestmark = pytest.mark.django_db
MINUTE = timedelta(minutes=1)


@pytest.fixture
def place() -> Institute:
    return make_institute()


@pytest.fixture
def at(monkeypatch):
    """Set the clock of the tasks."""

    def set_to(instant):
        monkeypatch.setattr(clock, "now", lambda: instant)
        monkeypatch.setattr(tasks, "now", lambda: instant, raising=False)

    set_to(T0)
    return set_to


def counts() -> tuple[int, int]:
    return AllocatorState.objects.values_list("requested", "handled").get()


def test_one_cycle_answers_all_requests_before_it(place, at):
    for _ in range(3):
        place.submit(place.petrel, gpus=4)
    assert counts() == (3, 0)
    assert tasks.replan("submission") is not None
    assert counts() == (3, 3)
    assert tasks.replan("submission") is None, "they are answered"
    assert Cycle.objects.count() == 1
    assert Run.objects.count() == 3


def test_a_request_that_comes_while_a_cycle_plans_is_left_for_the_next(place, at, monkeypatch):
    place.submit(place.petrel)
    solve = cycle.solve

    def slow(*args, **kwargs):
        requests.replan("meanwhile")
        return solve(*args, **kwargs)

    monkeypatch.setattr(cycle, "solve", slow)
    tasks.replan("submission")
    assert counts() == (2, 1)
    monkeypatch.undo()
    assert cycle.reason_to_run(at=T0) == "request"


def test_a_request_that_is_rolled_back_was_never_made(place):
    requests.state()
    before = counts()
    with transaction.atomic():
        place.submit(place.petrel)
        transaction.set_rollback(True)
    assert counts() == before


def test_a_lost_message_costs_only_until_the_watch_looks(place, at):
    place.submit(place.petrel)  # and nobody wakes a worker
    assert tasks.watch() is not None
    assert Run.objects.get().state == Run.State.RUNNING
    assert tasks.watch() is None, "nothing is left to do"


def test_the_watch_sees_that_something_ended(place, at):
    job = place.submit(place.petrel, lasts=600)
    tasks.watch()
    at(T0 + 5 * MINUTE)
    assert tasks.watch() is None
    at(T0 + 11 * MINUTE)
    assert tasks.watch() is not None
    assert Cycle.objects.latest("pk").trigger == "completion"
    job.refresh_from_db()
    assert job.ended_at == T0 + 10 * MINUTE


def test_the_watch_makes_up_for_a_tick_that_never_came(place, at):
    place.submit(place.petrel)
    tasks.watch()
    at(T0 + 3 * HOUR)
    assert tasks.watch() is not None
    assert ClosedTimestep.objects.count() == 6


def test_a_decision_left_over_is_a_reason_to_run(place, monkeypatch):
    class Deaf(SimulatedConnector):
        def start(self, *args, **kwargs):
            raise ConnectorError("No answer.")

    monkeypatch.setitem(KINDS, "simulated", Deaf)
    place.submit(place.petrel)
    cycle.run(at=T0, trigger="test")
    assert cycle.reason_to_run(at=T0 + MINUTE) == "unfinished"
    monkeypatch.setitem(KINDS, "simulated", SimulatedConnector)
    place.cycle(T0 + MINUTE)
    assert cycle.reason_to_run(at=T0 + MINUTE) is None


def test_while_another_process_runs_a_cycle_nobody_else_does(place):
    place.submit(place.petrel)
    with requests.single_flight() as alone:
        assert alone
        if connection.vendor == "sqlite":  # on PostgreSQL the lock is a session's: see the threads
            assert cycle.run(at=T0, trigger="test") is None
            assert not Run.objects.exists()
    place.cycle(T0)
    assert Run.objects.count() == 1


def test_a_cycle_that_fails_frees_its_lock_and_loses_nothing(place, monkeypatch):
    job = place.submit(place.petrel)
    monkeypatch.setattr(cycle.committing, "commit", lambda **given: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        cycle.run(at=T0, trigger="test")
    monkeypatch.undo()
    assert counts() == (1, 0), "the request still stands"
    place.cycle(T0 + TIMESTEP)
    job.refresh_from_db()
    assert job.state == Job.State.RUNNING


def test_a_cancellation_asks_for_a_replan_once(place):
    job = place.submit(place.petrel)
    place.cycle(T0)
    for _ in range(3):
        admission.cancel(job=job, by=place.user, now=T0)
    assert counts() == (2, 1)
