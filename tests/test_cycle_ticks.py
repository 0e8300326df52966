"""Ticks that come twice, at once, late, or with a clock that is wrong: the ledger is the same."""

import threading
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any

import pytest
from django.db import connection, transaction

from allocator import cycle
from allocator.models import Alarm, Cycle
from budgets.models import Period
from clusters.models import PoolRate, SimulatedFault
from ledger.models import ClosedTimestep, Entry
from tests.factories import HOUR, T0, TIMESTEP, make_period
from tests.helpers import CREDIT, Institute, assert_reconciled, grant, make_institute
from workloads.models import Holding, Job

MINUTE = timedelta(minutes=1)
Charges = dict[tuple[str, datetime, bool], tuple[int, int, int]]


@pytest.fixture
def place(db: Any) -> Institute:
    return make_institute()


def everything() -> dict[str, Any]:
    """What a tick may write, as rows."""
    return {
        model.__name__: sorted(model.objects.values_list())
        for model in (Entry, ClosedTimestep, Holding)
    }


def test_a_tick_repeated_at_the_same_instant_changes_nothing(place):
    place.submit(place.petrel)
    place.serve(place.tern)
    place.play(T0, T0 + HOUR)
    before = everything()
    place.cycle(T0 + HOUR)
    place.cycle(T0 + HOUR)
    assert everything() == before
    assert before["Entry"]


def test_a_clock_that_went_backwards_is_held_at_what_was_observed(place):
    place.submit(place.petrel)
    place.play(T0, T0 + HOUR)
    before = everything()
    made = place.cycle(T0 - 3 * HOUR)
    assert made.at == T0 + HOUR
    assert everything() == before
    alarm = Alarm.objects.get(cleared_at=None)
    assert (alarm.kind, "30 Sep 2026 21:00" in alarm.said) == ("clock", True), alarm.said
    place.play(T0 + 61 * MINUTE, T0 + 3 * HOUR)  # with no alarm open at its end
    assert Job.objects.get().state == Job.State.COMPLETED


# --- Missed ticks: compared with a day in which none was missed ----------------------------------


def charges() -> Charges:
    """Every charge by job, segment and funding: amount, GPU-seconds and parked ones."""
    return {
        (e.job.name, e.at, e.funded): (e.amount_mgpus, e.gpu_seconds, e.parked_gpu_seconds)
        for e in Entry.objects.filter(kind="charge").select_related("job")
        if e.job is not None
    }


def sums() -> dict[str, int]:
    """What charges, refunds and open holds come to."""
    total = {"open": 0}
    for entry in Entry.objects.exclude(kind="grant"):
        if entry.kind in ("hold", "release"):
            total["open"] += entry.amount_mgpus * (1 if entry.kind == "hold" else -1)
        else:
            total[entry.kind] = total.get(entry.kind, 0) + entry.amount_mgpus
    return total


def played(
    set_the_scene: Callable[[], Institute], instants: list[datetime]
) -> tuple[Charges, dict[str, int], list[tuple[str, str, datetime | None]]]:
    """Run cycles at the instants on a fresh institute, which is gone afterwards."""
    with transaction.atomic():
        place = set_the_scene()
        for at in instants:
            made = cycle.run(at=at, trigger="test")
            assert made is not None
            assert made.status == Cycle.Status.COMMITTED
        place.check(at=instants[-1])
        assert_reconciled()
        ends = sorted(Job.objects.values_list("name", "state", "ended_at"))
        result = charges(), sums(), ends
        transaction.set_rollback(True)
    return result


def each_timestep(until: datetime) -> list[datetime]:
    return [T0 + TIMESTEP * n for n in range((until - T0) // TIMESTEP + 1)]


def a_quiet_day() -> Institute:
    """Work that fits side by side, so that no plan depends on when it is made."""
    place = make_institute(
        nodes=4,
        credits={
            "orlo/science/petrel": 1000,
            "orlo/science/auk": 7,
            "orlo/vision/tern": 1000,
        },
    )
    place.submit(place.petrel, name="long", expected_duration_s=80 * 3600)
    parked = {"simulate": {"duration_s": 9000, "idle": [[600, 4000]]}}
    place.submit(place.petrel, name="parked", gpus=4, spec=parked)
    place.submit(place.petrel, name="fails", gpus=2, fails_after=12_345)
    place.submit(place.petrel, name="free", gpus=2, minimum_runtime_s=0, lasts=10_000)
    # 7 credits pay 4 GPUs for an hour and a half and a bit; the run ends after four hours.
    place.submit(place.auk, name="poor", gpus=4, expected_duration_s=4 * 3600)
    place.serve(place.tern, name="chat", profile=(3,) * 24)
    return place


@pytest.mark.parametrize("hours", [5, pytest.param(26, marks=(pytest.mark.once, pytest.mark.slow))])
@pytest.mark.django_db
def test_missed_ticks_give_the_ledger_that_every_tick_would_have_given(hours):
    end = T0 + hours * HOUR
    every = played(a_quiet_day, each_timestep(end))
    late = played(a_quiet_day, [T0, end])
    assert late[0] == every[0]
    assert late[1] == every[1]
    assert late[2] == every[2]
    assert len(every[0]) > 40


@pytest.mark.once
@pytest.mark.django_db
def test_ticks_that_are_late_by_seconds_or_missing_now_and_then_change_nothing():
    end = T0 + 6 * HOUR
    ragged = [T0, T0 + 31 * MINUTE, T0 + 95 * MINUTE, T0 + 4 * HOUR + timedelta(seconds=7), end]
    assert played(a_quiet_day, ragged)[:2] == played(a_quiet_day, each_timestep(end))[:2]


def a_day_with_a_fault() -> Institute:
    place = make_institute()
    place.submit(place.petrel, name="hit", lasts=20_000)
    fault = T0 + 100 * MINUTE
    for node in place.nodes:
        SimulatedFault.objects.create(node=node, starts_at=fault, ends_at=fault + 300 * HOUR)
    return place


@pytest.mark.once
@pytest.mark.django_db
def test_a_fault_in_missed_ticks_is_refunded_all_the_same():
    every = played(a_day_with_a_fault, each_timestep(T0 + 6 * HOUR))
    late = played(a_day_with_a_fault, [T0, T0 + 6 * HOUR])
    assert late[:2] == every[:2]
    assert late[1]["refund"] == 8 * 6000 * 1000


@pytest.mark.django_db
def test_a_service_without_credits_is_not_charged_for_ticks_that_were_missed():
    place = make_institute(credits={"orlo/vision/tern": 5})
    place.serve(place.tern)
    place.cycle(T0)
    place.cycle(T0 + 6 * HOUR)
    assert sums()["charge"] <= 5 * CREDIT


def test_a_late_tick_leaves_no_hold_of_a_run_that_has_ended_since(place):
    place.submit(place.petrel, lasts=2400)
    place.cycle(T0)
    place.cycle(T0 + 47 * MINUTE)
    assert Job.objects.get().state == Job.State.COMPLETED
    assert sums()["open"] == 0


def a_promise() -> Institute:
    """The first run would take what the second was promised, and has held, until 01:15."""
    place = make_institute(credits={"orlo/science/petrel": 17})
    place.submit(place.petrel, name="first", minimum_runtime_s=600, lasts=9 * 3600)
    place.submit(place.petrel, name="promised", minimum_runtime_s=4500, lasts=5000)
    return place


@pytest.mark.django_db
def test_what_a_run_was_promised_is_kept_for_it_in_missed_ticks():
    every = played(a_promise, each_timestep(T0 + 3 * HOUR))
    late = played(a_promise, [T0, T0 + 3 * HOUR])
    assert late[0] == every[0]
    assert late[1] == every[1]
    assert every[1]["charge"] <= 17 * CREDIT


# --- Borders inside a run ------------------------------------------------------------------------


@pytest.mark.django_db
def test_a_run_over_a_period_s_border_is_split_there():
    place = make_institute(ends_at=T0 + 70 * MINUTE)
    following = make_period("next", starts_at=T0 + 70 * MINUTE, status="approved")
    grant(place.petrel, 100, period=following, at=T0 + 70 * MINUTE)
    job = place.submit(place.petrel, lasts=2 * 3600)
    place.play(T0, T0 + 69 * MINUTE)
    Period.objects.filter(pk=following.pk).update(status=Period.Status.ACTIVE)
    place.play(T0 + 70 * MINUTE, T0 + 3 * HOUR)
    split = Entry.objects.filter(kind="charge", job=job, timestep=T0 + HOUR).order_by("at")
    assert [(e.period_id, e.gpu_seconds) for e in split] == [
        (place.period.pk, 8 * 600),
        (following.pk, 8 * 1200),
    ]
    per_period = {
        period: sum(e.gpu_seconds for e in Entry.objects.filter(kind="charge", period=period))
        for period in (place.period, following)
    }
    assert per_period == {place.period: 8 * 4200, following: 8 * 3000}


def test_a_change_of_rate_inside_a_run_cuts_its_charge(place):
    job = place.submit(place.petrel, lasts=2 * 3600)
    change = T0 + 45 * MINUTE
    PoolRate.objects.create(pool=place.pool, effective_at=change, rate_per_mille=1500)
    place.play(T0, T0 + 3 * HOUR)
    cut = Entry.objects.filter(kind="charge", job=job, timestep=T0 + TIMESTEP).order_by("at")
    assert [(e.gpu_seconds, e.amount_mgpus) for e in cut] == [
        (8 * 900, 8 * 900 * 1000),
        (8 * 900, 8 * 900 * 1500),
    ]


@pytest.mark.django_db
def test_without_a_period_the_cycle_goes_on_and_says_so():
    place = make_institute(ends_at=T0 + HOUR)
    place.submit(place.petrel, lasts=2 * 3600)
    place.play(T0, T0 + 59 * MINUTE)
    place.submit(place.tern, at=T0 + 90 * MINUTE, name="free", minimum_runtime_s=0)
    made = [cycle.run(at=T0 + HOUR * n / 2, trigger="test") for n in range(2, 6)]
    assert all(one is not None and one.status == Cycle.Status.COMMITTED for one in made)
    assert Alarm.objects.filter(cleared_at=None, kind="not-closed").exists()
    assert Job.objects.get(name="free").state == Job.State.RUNNING
    late = make_period("next", starts_at=T0 + HOUR, status="active")
    grant(place.petrel, 100, period=late, at=T0 + HOUR)
    place.cycle(T0 + 4 * HOUR)
    assert not Alarm.objects.filter(cleared_at=None).exists()
    assert ClosedTimestep.objects.count() == 8


# --- Two at once ---------------------------------------------------------------------------------


@pytest.mark.django_db(transaction=True)
def test_two_ticks_at_once_in_threads_are_one():
    place = make_institute()
    place.submit(place.petrel)
    place.serve(place.tern)
    place.cycle(T0)
    made: list[Cycle | None] = []
    errors: list[Exception] = []

    def tick() -> None:
        try:
            for n in range(1, 5):
                made.append(cycle.run(at=T0 + n * TIMESTEP, trigger="test"))
        except Exception as error:
            errors.append(error)
        finally:
            connection.close()

    threads = [threading.Thread(target=tick) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors
    assert None in made, "they did meet"
    place.cycle(T0 + 4 * TIMESTEP)
    assert ClosedTimestep.objects.count() == 4
    assert sum(e.gpu_seconds for e in Entry.objects.filter(kind="charge")) == 12 * 2 * 3600
