"""A cluster that tells late of ends: what was charged meanwhile is given back, all stays exact."""

from datetime import timedelta

import pytest

from allocator import admission, cycle
from allocator.models import Alarm
from budgets.models import Period
from clusters.connectors import KINDS
from clusters.models import PoolRate, SimulatedTask
from ledger import reports
from ledger import services as ledger
from ledger.models import ClosedTimestep, Entry
from tests.factories import HOUR, LONG_AGO, T0, TIMESTEP, make_period
from tests.helpers import Institute, assert_reconciled, make_institute
from tests.lagging import Lagging
from workloads.models import Job, Run

pytestmark = pytest.mark.django_db
MINUTE = timedelta(minutes=1)
KNOWN = T0 + 66 * MINUTE  # a run that ended at 00:20 is heard of at 01:05


@pytest.fixture
def place(monkeypatch) -> Institute:
    monkeypatch.setitem(KINDS, "simulated", Lagging)
    Lagging.heard.clear()
    return make_institute()


def cycles(*instants) -> None:
    for at in instants:
        cycle.run(at=at, trigger="test")
        assert_reconciled()


def total(kind: str) -> int:
    return sum(Entry.objects.filter(kind=kind).values_list("amount_mgpus", flat=True))


@pytest.mark.parametrize("rate", [1000, 2500])
def test_an_end_that_is_told_after_two_timesteps_are_closed(place, rate):
    PoolRate.objects.filter(pool=place.pool, effective_at=LONG_AGO).update(rate_per_mille=rate)
    job = place.submit(place.petrel, lasts=1200, minimum_runtime_s=600)
    cycles(T0, T0 + TIMESTEP, T0 + HOUR)
    assert job.runs.get().state == Run.State.RUNNING
    assert total("charge") == 8 * 3600 * rate
    cycles(KNOWN)
    job.refresh_from_db()
    assert (job.state, job.ended_at) == (Job.State.COMPLETED, T0 + 20 * MINUTE)
    assert ClosedTimestep.objects.count() == 2
    assert total("adjust") == -8 * 2400 * rate
    assert total("hold") == total("release")
    figures = reports.figures(period=place.period, now=KNOWN)[place.petrel.pk]
    assert figures.settled_mgpus == 8 * 1200 * rate
    assert (figures.in_flight_mgpus, figures.held_mgpus) == (0, 0)
    before = list(Entry.objects.order_by("pk").values())
    cycles(KNOWN + MINUTE, KNOWN + HOUR)
    assert list(Entry.objects.order_by("pk").values())[: len(before)] == before
    assert total("adjust") == -8 * 2400 * rate


def test_an_unfunded_run_that_is_told_late_costs_nothing_and_time_is_conserved(place):
    place.submit(place.petrel, lasts=1200, minimum_runtime_s=0)
    cycles(T0, T0 + TIMESTEP, T0 + HOUR, KNOWN, T0 + 2 * HOUR)
    assert total("charge") == 0
    assert not Entry.objects.filter(kind="adjust").exists()


def test_a_stop_that_finds_it_ended_long_ago_gives_back_as_well(place):
    job = place.submit(place.petrel, lasts=1200)
    cycles(T0, T0 + TIMESTEP, T0 + HOUR)
    admission.cancel(job=job, by=place.user, now=T0 + HOUR + MINUTE)
    cycles(T0 + HOUR + MINUTE)
    assert job.runs.get().ended_at == T0 + 20 * MINUTE
    assert total("adjust") == -8 * 2400 * 1000
    cycles(T0 + 2 * HOUR)


@pytest.mark.parametrize("policy", ["all", "none"])
def test_a_node_s_failure_that_is_told_late_refunds_what_lies_before_it(place, settings, policy):
    settings.NODE_FAILURE_REFUND = policy
    job = place.submit(place.petrel, lasts=1200)
    cycles(T0, T0 + TIMESTEP)
    SimulatedTask.objects.update(outcome="node_failure")  # in truth that was it
    cycles(T0 + HOUR)
    cycle.run(at=KNOWN, trigger="test")
    first = job.runs.get(number=1)
    assert (first.end_reason, first.ended_at) == (Run.EndReason.NODE_FAILURE, T0 + 20 * MINUTE)
    assert total("adjust") == -8 * 2400 * 1000
    assert total("refund") == (8 * 1200 * 1000 if policy == "all" else 0)
    assert total("charge") == 8 * 3600 * 1000
    cycles(KNOWN + MINUTE, T0 + 4 * HOUR)
    mine = Entry.objects.filter(run=first)
    assert mine.filter(kind="adjust").count() == 2
    assert mine.filter(kind="refund").count() == (1 if policy == "all" else 0)


def test_without_an_open_period_an_alarm_stands_until_it_is_given_back(place):
    place.submit(place.petrel, lasts=1200)
    cycles(T0, T0 + TIMESTEP, T0 + HOUR)
    border = T0 + HOUR
    Period.objects.update(ends_at=border)
    ledger.close_period(period=Period.objects.get(), at=border)
    cycle.run(at=KNOWN, trigger="test")
    (alarm,) = Alarm.objects.filter(kind="late-end", cleared_at=None)
    assert "No period is active" in alarm.text
    assert total("adjust") == 0
    cycle.run(at=KNOWN + MINUTE, trigger="test")
    assert Alarm.objects.filter(kind="late-end").count() == 1
    make_period("following", starts_at=border)
    cycles(KNOWN + 2 * MINUTE)
    assert not Alarm.objects.filter(kind="late-end", cleared_at=None).exists()
    assert total("adjust") == -8 * 2400 * 1000
