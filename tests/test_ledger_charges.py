"""Charges: every second that a run held, once, whatever happens meanwhile."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import pytest
from django.db import DatabaseError, connection, transaction

from budgets.models import Budget, Period
from ledger import reports, services
from ledger.entries import Attempt, hold_entry, write
from ledger.models import ClosedTimestep, Entry
from tests.factories import (
    HOUR,
    T0,
    T1,
    TIMESTEP,
    make_holding,
    make_job,
    make_nodes,
    make_period,
    make_pool,
    make_run,
)
from tests.ledger_world import CREDIT, close, give, ledger
from workloads import services as workloads
from workloads.models import Job, Run

pytestmark = pytest.mark.django_db
MINUTE = timedelta(minutes=1)


@pytest.fixture
def period() -> Period:
    return make_period()


@pytest.fixture
def petrel(tree: dict[str, Budget], period: Period) -> Budget:
    give(tree["orlo/science/petrel"], 1000, period)
    return tree["orlo/science/petrel"]


def charges(run: Run) -> list[tuple[int, int, int]]:
    rows = Entry.objects.filter(run=run, kind="charge").order_by("at", "pk")
    return list(rows.values_list("gpu_seconds", "parked_gpu_seconds", "amount_mgpus"))


def test_a_run_is_charged_for_what_it_held_inside_each_timestep(petrel: Budget) -> None:
    (node,) = make_nodes(make_pool(rate=1500))
    start, end = T0 + 20 * MINUTE, T0 + 65 * MINUTE
    run = make_run(make_job(petrel), {node: 0b1111}, started_at=start, ended_at=end)
    close(3)
    assert charges(run) == [
        (4 * 600, 0, 4 * 600 * 1500),
        (4 * 1800, 0, 4 * 1800 * 1500),
        (4 * 300, 0, 4 * 300 * 1500),
    ]
    run.refresh_from_db()
    assert run.charged_until == end
    charge = Entry.objects.filter(run=run).earliest("at")
    assert (charge.at, charge.until, charge.timestep) == (start, T0 + TIMESTEP, T0)
    assert (charge.budget, charge.pool, charge.job) == (petrel, node.pool, run.job)


def test_a_closed_timestep_stays_as_it_is(petrel: Budget) -> None:
    (node,) = make_nodes(make_pool())
    make_run(make_job(petrel), {node: 1})
    close()
    before = ledger()
    assert not services.close_timestep(
        start=T0, end=T0 + TIMESTEP, parked={}, now=T0 + 5 * TIMESTEP
    )
    assert ledger() == before
    assert ClosedTimestep.objects.count() == 1


def test_timesteps_are_closed_in_order_without_a_gap_and_not_before_they_end() -> None:
    make_period()
    with pytest.raises(services.LedgerError, match="ends at 2026-10-01T00:30:00Z"):
        services.close_timestep(start=T0, end=T0 + TIMESTEP, parked={}, now=T0 + 29 * MINUTE)
    later = close()
    with pytest.raises(services.LedgerError, match="close 2026-10-01T00:30:00Z first"):
        services.close_timestep(
            start=later + TIMESTEP, end=later + 2 * TIMESTEP, parked={}, now=later + HOUR
        )
    with pytest.raises(services.LedgerError, match="closed up to 2026-10-01T00:30:00Z"):
        services.close_timestep(start=T0 - TIMESTEP, end=T0, parked={}, now=later)
    assert ClosedTimestep.objects.count() == 1


def test_a_timestep_that_no_period_covers_is_refused_whole(tree: dict[str, Budget]) -> None:
    (node,) = make_nodes(make_pool())
    make_run(make_job(tree["orlo/vision/tern"]), {node: 1})
    make_period(starts_at=T0 + 10 * MINUTE)
    with pytest.raises(services.LedgerError, match="No open period covers 2026-10-01T00:00:00Z"):
        close()
    assert not Entry.objects.exists()
    assert not ClosedTimestep.objects.exists()


def test_parked_time_is_charged_alike_shown_apart_and_never_more_than_was_held(
    petrel: Budget, period: Period
) -> None:
    nodes = make_nodes(make_pool(), 4)
    runs = [make_run(make_job(petrel), {node: 0b11}) for node in nodes[:3]]
    mixed = make_run(make_job(petrel), {nodes[3]: 0b1})
    make_holding(mixed, nodes[3], 0b10, funded=False)
    parked = {
        (runs[0].pk, T0): 700,
        (runs[1].pk, T0): 10**9,
        (runs[2].pk, T0): -5,
        (mixed.pk, T0): 2000,
    }
    close(parked=parked)
    assert [charges(run)[0][:2] for run in runs] == [(3600, 700), (3600, 3600), (3600, 0)]
    # Idle time counts against the funded GPUs first.
    assert charges(mixed) == [(1800, 1800, 1_800_000), (1800, 200, 0)]
    found = reports.figures(period=period, now=T0 + TIMESTEP)[petrel.pk]
    assert found.charged_gpu_seconds == 3 * 3600 + 1800
    assert found.parked_gpu_seconds == 700 + 3600 + 1800
    assert found.parked_mgpus == (700 + 3600 + 1800) * 1000
    assert found.unfunded_gpu_seconds == 1800


def test_unfunded_time_is_recorded_at_zero(petrel: Budget, period: Period) -> None:
    (node,) = make_nodes(make_pool())
    run = make_run(make_job(petrel), {node: 0xFF}, funded=False)
    close()
    assert charges(run) == [(14_400, 0, 0)]
    assert Entry.objects.get(run=run).key.endswith(":unfunded")
    assert reports.figures(period=period, now=T0 + TIMESTEP)[petrel.pk].settled_mgpus == 0


def test_a_run_that_turns_unfunded_is_charged_up_to_that_second(
    petrel: Budget, period: Period
) -> None:
    (node,) = make_nodes(make_pool())
    job = make_job(petrel, state=Job.State.RUNNING)
    run = make_run(job, {node: 0b1}, protected_until=T1)
    workloads.unfund(run=run, at=T0 + 10 * MINUTE + timedelta(seconds=1))
    close()
    assert charges(run) == [(601, 0, 601_000), (1199, 0, 0)]


def test_a_charge_uses_up_its_hold_and_never_more(petrel: Budget, period: Period) -> None:
    (node,) = make_nodes(make_pool())
    job = make_job(petrel)
    services.place_hold(job=job, amount_mgpus=3 * CREDIT, now=T0)
    run = make_run(job, {node: 0xFF})
    close(2)
    releases = Entry.objects.filter(kind="release").order_by("pk")
    assert [(r.key, r.amount_mgpus) for r in releases] == [
        (f"release:{run.pk}:2026-10-01T00:00:00Z", 3 * CREDIT)
    ]
    assert reports.figures(period=period, now=T0 + HOUR)[petrel.pk].held_mgpus == 0


def test_a_charge_uses_up_the_hold_of_its_own_period_first(petrel: Budget, period: Period) -> None:
    """A run that began before the border may have holds on both sides of it."""
    border = T0 + 20 * MINUTE
    Period.objects.filter(pk=period.pk).update(ends_at=border)
    following = make_period("next", starts_at=border, ends_at=T1, status="approved")
    job = make_job(petrel)
    for one in (period, following):
        hold = hold_entry(
            *(Entry.Kind.HOLD, Attempt(job.pk, 1), petrel.pk, one.pk, 2 * CREDIT, f"hold:{one.pk}"),
            at=T0,
            now=T0,
        )
        with transaction.atomic():
            write([hold])
    (node,) = make_nodes(make_pool())
    run = make_run(job, {node: 0b111})
    close()
    releases = Entry.objects.filter(kind="release").order_by("key")
    assert [(r.key, r.period_id, r.amount_mgpus) for r in releases] == [
        (f"release:{run.pk}:2026-10-01T00:00:00Z", period.pk, 3 * 1_200_000),
        (f"release:{run.pk}:2026-10-01T00:20:00Z", following.pk, 3 * 600_000),
    ]


def test_a_run_over_a_period_border_is_split_there(petrel: Budget, period: Period) -> None:
    border = T0 + 20 * MINUTE
    Period.objects.filter(pk=period.pk).update(ends_at=border)
    following = make_period("next", starts_at=border, ends_at=T1, status="approved")
    (node,) = make_nodes(make_pool())
    make_run(make_job(petrel), {node: 1})
    close()
    rows = Entry.objects.filter(kind="charge").order_by("at")
    assert [(e.period_id, e.gpu_seconds) for e in rows] == [(period.pk, 1200), (following.pk, 600)]


def test_a_run_that_is_over_keeps_no_hold(petrel: Budget, period: Period) -> None:
    (node,) = make_nodes(make_pool())
    job = make_job(petrel, state=Job.State.RUNNING)
    services.place_hold(job=job, amount_mgpus=8 * CREDIT, now=T0)
    run = make_run(job, {node: 0xFF})
    # Its end was recorded, but whoever did it forgot the hold.
    workloads.end_run(run=run, reason=Run.EndReason.COMPLETED, at=T0 + 15 * MINUTE)
    close()
    found = reports.figures(period=period, now=T0 + TIMESTEP)[petrel.pk]
    assert (found.settled_mgpus, found.held_mgpus) == (2 * CREDIT, 0)


# --- Exactly once ---------------------------------------------------------------------------------


class Killed(BaseException):
    """The worker is gone: nothing of the program's own handles it."""


@contextmanager
def killed_at(statement: int) -> Iterator[None]:
    """Die before the n-th statement that is sent to the database."""
    count = 0

    def die(execute: Callable[..., Any], *args: Any) -> Any:
        nonlocal count
        count += 1
        if count == statement:
            raise Killed
        return execute(*args)

    with connection.execute_wrapper(die):
        yield


def world(petrel: Budget) -> Run:
    """Three runs: one goes on, one ended, one whose node failed; all with holds."""
    nodes = make_nodes(make_pool(), 3)
    runs = []
    for node in nodes:
        job = make_job(petrel, state=Job.State.RUNNING)
        services.place_hold(job=job, amount_mgpus=8 * CREDIT, now=T0)
        runs.append(make_run(job, {node: 0xFF}))
    at = T0 + 11 * MINUTE
    workloads.end_run(run=runs[1], reason=Run.EndReason.COMPLETED, at=at)
    services.release_rest(job=runs[1].job, attempt=1, at=at, now=at)
    workloads.end_run(run=runs[2], reason=Run.EndReason.NODE_FAILURE, at=at)
    return runs[0]


@pytest.mark.django_db(transaction=True)
def test_a_worker_killed_between_any_two_statements_leaves_nothing_half_done(
    petrel: Budget,
) -> None:
    run = world(petrel)
    before, statement, kills = ledger(), 0, 0
    end = T0 + TIMESTEP
    while True:
        statement += 1
        try:
            with killed_at(statement):
                services.close_timestep(start=T0, end=end, parked={(run.pk, T0): 60}, now=end)
        except Killed:
            kills += 1
            assert ledger() == before
            assert not ClosedTimestep.objects.exists()
            continue
        break
    assert kills >= 10
    after = ledger()
    assert not services.close_timestep(start=T0, end=end, parked={}, now=end)
    assert ledger() == after
    assert {row[1] for row in after} == {"grant", "hold", "charge", "release", "refund"}
    assert reports.entry_problems(start=T0, end=end) == []


def test_replaying_a_day_and_requeues_leave_the_ledger_equal(petrel: Budget) -> None:
    (node,) = make_nodes(make_pool())
    job = make_job(petrel, state=Job.State.RUNNING, resumable=True)
    for number in range(3):  # one job, three runs inside one timestep
        start = T0 + number * 10 * MINUTE
        run = make_run(job, {node: 1}, started_at=start, number=number + 1)
        workloads.end_run(run=run, reason=Run.EndReason.PREEMPTED, at=start + 9 * MINUTE)
        Job.objects.filter(pk=job.pk).update(state=Job.State.RUNNING)
    close(4)
    first = ledger()
    for number in range(4):
        start = T0 + number * TIMESTEP
        assert not services.close_timestep(
            start=start, end=start + TIMESTEP, parked={}, now=T0 + 9 * HOUR
        )
    assert ledger() == first
    assert Entry.objects.filter(kind="charge").count() == 3
    assert sum(row[3] for row in first) == 3 * 9 * 60


def test_a_second_charge_of_the_same_segment_is_refused_by_the_database(petrel: Budget) -> None:
    (node,) = make_nodes(make_pool())
    make_run(make_job(petrel), {node: 1})
    close()
    charge = Entry.objects.get(kind="charge")
    charge.pk = None
    with pytest.raises(DatabaseError), transaction.atomic():
        charge.save(force_insert=True)


@pytest.mark.parametrize("table", ["ledger_entry", "ledger_closedtimestep"])
@pytest.mark.parametrize("statement", ["UPDATE {} SET id = id + 1000000", "DELETE FROM {}"])
def test_the_database_refuses_to_change_or_delete(
    petrel: Budget, table: str, statement: str
) -> None:
    close()
    before = ledger()
    with (
        pytest.raises(DatabaseError, match="append-only"),
        transaction.atomic(),
        connection.cursor() as cursor,
    ):
        cursor.execute(statement.format(table))
    assert ledger() == before
    assert ClosedTimestep.objects.count() == 1


def test_a_row_can_not_be_replaced_past_the_triggers(petrel: Budget) -> None:
    if connection.vendor == "postgresql":
        pytest.skip("REPLACE is SQLite's")
    close()
    entry = Entry.objects.values().order_by("-pk").first()
    assert entry is not None
    values: list[Any] = list((entry | {"amount_mgpus": 999}).values())
    places = ", ".join(["%s"] * len(values))
    with (
        pytest.raises(DatabaseError, match="append-only"),
        transaction.atomic(),
        connection.cursor() as cursor,
    ):
        cursor.execute(
            f"INSERT OR REPLACE INTO ledger_entry ({', '.join(entry)}) VALUES ({places})", values
        )
    assert Entry.objects.values().get(pk=entry["id"]) == entry
