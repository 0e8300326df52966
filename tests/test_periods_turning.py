"""Periods start and close by themselves: in order, once, after an outage too."""

from datetime import timedelta
from typing import Any

import pytest
from django.db import connection

from allocator import cycle, turning
from allocator.models import Alarm
from budgets.models import Period
from clusters.models import Cluster
from ledger import reports, services
from ledger.models import Entry
from tests.factories import (
    HOUR,
    T0,
    T1,
    TIMESTEP,
    make_job,
    make_nodes,
    make_period,
    make_pool,
    make_run,
    make_shares,
    make_tree,
)
from tests.ledger_world import CREDIT, close, give
from tests.test_ledger_races import all_at_once

pytestmark = pytest.mark.django_db
BORDER = T0 + 2 * HOUR


def turn(at: Any) -> None:
    turning.start_due(at=at)
    turning.close_over(at=at)


def statuses() -> dict[str, str]:
    return dict(Period.objects.values_list("name", "status"))


def alarms() -> list[str]:
    return list(Alarm.objects.filter(cleared_at=None).values_list("text", flat=True))


def three_periods(*, cap: int = 0, hours: int = 1000) -> None:
    """An active one to 02:00, one of an hour, and one up to the year's end, both approved."""
    pool = make_pool()
    make_period("one", ends_at=BORDER)
    for name, start, end in (("two", BORDER, BORDER + HOUR), ("three", BORDER + HOUR, T1)):
        make_period(
            name, starts_at=start, ends_at=end, status="approved", carry_over_cap=cap,
            capacity={pool: 3600 * hours},
        )  # fmt: skip


def test_a_period_starts_at_its_instant_and_the_one_before_closes(tree: Any) -> None:
    three_periods()
    turn(BORDER - timedelta(seconds=1))
    assert statuses() == {"one": "active", "two": "approved", "three": "approved"}
    turn(BORDER)
    assert statuses() == {"one": "closed", "two": "active", "three": "approved"}


def test_a_period_that_went_by_in_an_outage_is_started_and_closed_and_handed_on(tree: Any) -> None:
    """Nothing ran, so there was no timestep to close on the way either."""
    three_periods(cap=50_000)
    turn(BORDER + 5 * HOUR)
    assert statuses() == {"one": "closed", "two": "closed", "three": "active"}
    granted = Entry.objects.filter(budget=tree["orlo"], kind="grant").order_by("pk")
    assert list(granted.values_list("period__name", "amount_mgpus")) == [
        ("two", 1000 * CREDIT),
        ("three", 1000 * CREDIT),
    ]
    carried = Entry.objects.get(budget=tree["orlo"], kind="carry")
    assert (carried.period.name, carried.amount_mgpus) == ("three", 500 * CREDIT)
    assert alarms() == []


def test_after_an_outage_runs_are_charged_to_the_period_of_each_second(tree: Any) -> None:
    three_periods()
    (node,) = make_nodes(make_pool())
    give(tree["orlo/vision/tern"], 100, Period.objects.get(name="one"))
    make_run(make_job(tree["orlo/vision/tern"]), {node: 0xFF}, ended_at=T0 + 5 * HOUR)
    for number in range(10):
        close(since=T0 + number * TIMESTEP)
        turn(T0 + (number + 1) * TIMESTEP)
    charged = reports.figures(period=Period.objects.get(name="two"), now=T0 + 5 * HOUR)
    assert charged[tree["orlo"].pk].charged_gpu_seconds == 8 * 3600
    assert statuses() == {"one": "closed", "two": "closed", "three": "active"}


def test_a_start_that_is_too_late_is_an_alarm_and_no_error(tree: Any) -> None:
    """Its grants would come out of what a later period has taken over."""
    pool = make_pool()
    make_period("third", starts_at=BORDER, ends_at=T1, capacity={pool: 3600})
    make_period("second", starts_at=T0, ends_at=BORDER, status="approved", capacity={pool: 3600})
    turn(BORDER)
    assert statuses() == {"third": "active", "second": "approved"}
    assert alarms() == [
        "second can't start any more, since third has started after it: withdraw it."
    ]
    assert not Entry.objects.exists()
    services.withdraw_period(period=Period.objects.get(name="second"))
    turn(BORDER)
    assert alarms() == []


def test_every_period_that_can_not_start_is_named(tree: Any) -> None:
    for number in range(2):
        start = T0 + number * HOUR
        make_period(f"p{number}", starts_at=start, ends_at=start + HOUR, status="approved")
    turn(T0 + 3 * HOUR)
    assert alarms() == [
        "p0 has no planned capacity: plan it before it is started. "
        "p1 has no planned capacity: plan it before it is started."
    ]


def test_a_period_that_fails_in_an_unforeseen_way_stops_no_other(tree: Any, caplog: Any) -> None:
    """The grants of the first don't fit the database's integer; no such capacity is planned now."""
    pool = make_pool()
    make_period("huge", starts_at=T0, ends_at=BORDER, status="approved", capacity={pool: 2**63 - 1})
    make_period("next", starts_at=BORDER, status="approved", capacity={pool: 3600})
    turning.start_due(at=BORDER)
    assert statuses() == {"huge": "approved", "next": "active"}
    assert set(Entry.objects.values_list("period__name", flat=True)) == {"next"}
    (alarm,) = alarms()
    assert alarm.startswith("huge can't be started (")
    assert "Error): the log says why." in alarm
    # Where it failed, and then the alarm's own line.
    assert [record.exc_info is not None for record in caplog.records] == [True, False]


def test_a_period_that_fails_to_close_in_an_unforeseen_way_is_an_alarm(
    tree: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_period("one", ends_at=BORDER)
    with monkeypatch.context() as broken:
        broken.setattr(services, "close_period", lambda **_: 1 // 0)
        turn(BORDER)
    assert statuses() == {"one": "active"}
    assert alarms() == ["one can't be closed (ZeroDivisionError): the log says why."]
    turn(BORDER)
    assert (statuses(), alarms()) == ({"one": "closed"}, [])


def test_what_is_not_charged_yet_is_an_alarm_only_once_its_timestep_is_over(tree: Any) -> None:
    """A period may end inside a timestep, and a cluster be away for a minute."""
    border = T0 + timedelta(minutes=10)
    pool = make_pool()
    make_period("one", ends_at=border)
    make_period(
        "two", starts_at=border, status="approved", carry_over_cap=10_000, capacity={pool: 3600}
    )
    (node,) = make_nodes(pool)
    make_run(make_job(tree["orlo/vision/tern"]), {node: 0xFF})
    Cluster.objects.update(observed_until=T0 + TIMESTEP)
    turn(border + timedelta(minutes=5))
    assert (statuses(), alarms()) == ({"one": "active", "two": "approved"}, [])
    turn(T0 + TIMESTEP)
    assert (
        alarms()
        == ["one isn't charged to its end: close its timesteps up to 2026-10-01T00:10:00Z first."]
        * 2
    )
    close()
    turn(T0 + TIMESTEP)
    assert (statuses(), alarms()) == ({"one": "closed", "two": "active"}, [])


def test_a_period_stays_open_until_every_cluster_has_told_what_ran_in_it(tree: Any) -> None:
    """A run whose start is not confirmed may turn out to have started before the end."""
    make_period("one", ends_at=BORDER)
    (node,) = make_nodes(make_pool())
    cluster = node.pool.cluster
    run = make_run(make_job(tree["orlo/vision/tern"]), {node: 0xFF}, started_at=None)
    Cluster.objects.filter(pk=cluster.pk).update(observed_until=BORDER - TIMESTEP)
    turn(BORDER + HOUR)
    assert (statuses(), alarms()) == ({"one": "active"}, [])
    assert not turning.is_due(at=BORDER + HOUR)
    Cluster.objects.filter(pk=cluster.pk).update(observed_until=BORDER + HOUR)
    run.holdings.update(started_at=BORDER - TIMESTEP)
    turn(BORDER + HOUR)
    assert statuses() == {"one": "active"}
    assert len(alarms()) == 1
    close(since=BORDER - TIMESTEP)
    turn(BORDER + HOUR)
    assert (statuses(), alarms()) == ({"one": "closed"}, [])


def test_shares_that_changed_while_nobody_ticked_move_the_period_they_fell_in(tree: Any) -> None:
    pool = make_pool()
    one = make_period("one", ends_at=BORDER, status="approved", capacity={pool: 3600 * 100})
    services.start_period(period=one, at=T0)
    shares = {tree["orlo/science"]: 20_000, tree["orlo/vision"]: 80_000}
    make_shares(tree["orlo"], shares, at=T0 + HOUR)
    services.apply_due_change_sets(now=BORDER + HOUR)
    found = reports.figures(period=one, now=BORDER)
    assert found[tree["orlo/science"].pk].granted_mgpus == (60 - 20) * CREDIT


def test_a_border_is_a_reason_for_a_cycle_until_it_is_an_alarm(tree: Any) -> None:
    make_nodes(make_pool())
    make_period("one", ends_at=BORDER)
    assert cycle.reason_to_run(at=BORDER - timedelta(seconds=1)) is None
    assert cycle.reason_to_run(at=BORDER) == "period"
    cycle.run(at=BORDER, trigger="period")
    assert statuses() == {"one": "closed"}
    make_period("two", starts_at=BORDER, status="approved")  # without planned capacity
    assert cycle.reason_to_run(at=BORDER) == "period"
    cycle.run(at=BORDER, trigger="period")
    assert len(alarms()) == 1
    assert cycle.reason_to_run(at=BORDER) is None


@pytest.mark.django_db(transaction=True)
@pytest.mark.skipif(
    connection.vendor != "postgresql", reason="a transaction excludes all others on SQLite"
)
def test_two_workers_at_once_turn_a_period_once() -> None:
    tree = make_tree()
    three_periods(cap=50_000)
    petrel = tree["orlo/science/petrel"]
    give(petrel, 100, Period.objects.get(name="one"))
    services.place_hold(job=make_job(petrel), amount_mgpus=5 * CREDIT, now=T0)
    results = all_at_once(lambda _: turn(BORDER + 2 * HOUR), 4)
    assert results == [None] * 4
    assert statuses() == {"one": "closed", "two": "closed", "three": "active"}
    keys = Entry.objects.filter(budget=tree["orlo"], kind__in=("grant", "carry"))
    assert keys.exclude(key__startswith="test:").count() == 2 + 2
    holds = Entry.objects.filter(kind="hold", key__contains=":into:")
    assert sorted(holds.values_list("period__name", flat=True)) == ["three", "two"]
    assert alarms() == []
    assert reports.entry_problems(start=T0, end=T1) == []
