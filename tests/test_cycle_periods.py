"""Periods turn by themselves at a tick: grants, holds and charges go over the border."""

from datetime import datetime, timedelta

import pytest

from allocator import admission
from allocator.models import Alarm
from budgets.models import Period
from ledger import reports
from ledger.models import Entry
from tests.factories import HOUR, T0, TIMESTEP, make_period
from tests.helpers import CREDIT, Institute, make_institute

pytestmark = pytest.mark.django_db
BORDER = T0 + 2 * HOUR


def two_periods(*, credits: int) -> tuple[Institute, Period]:
    """The first ends at 02:00; the next plans so many credits, of which Petrel has 30 %."""
    place = make_institute(ends_at=BORDER)
    capacity = {place.pool: credits * 3600}
    return place, make_period("next", starts_at=BORDER, status="approved", capacity=capacity)


def status(period: Period) -> str:
    return Period.objects.get(pk=period.pk).status


def test_the_next_period_starts_and_the_old_one_closes_at_the_tick_of_the_border():
    place, following = two_periods(credits=1000)
    job = place.submit(place.petrel, expected_duration_s=4 * 3600)
    place.play(T0, BORDER - TIMESTEP)
    assert (status(place.period), status(following)) == ("active", "approved")
    place.play(BORDER, T0 + 5 * HOUR)
    assert (status(place.period), status(following)) == ("closed", "active")
    charged = {
        period: sum(
            e.amount_mgpus for e in Entry.objects.filter(kind="charge", job=job, period=period)
        )
        for period in (place.period, following)
    }
    assert charged == {place.period: 16 * CREDIT, following: 16 * CREDIT}
    figures = reports.figures(period=following, now=T0 + 5 * HOUR)[place.petrel.pk]
    assert (figures.granted_mgpus, figures.settled_mgpus) == (300 * CREDIT, 16 * CREDIT)


def test_a_period_that_a_late_cycle_closes_reconciles():
    """It is closed as of its end, and its last charges are written some seconds later."""
    place, _ = two_periods(credits=1000)
    place.submit(place.petrel, expected_duration_s=4 * 3600)
    place.play(T0, BORDER - TIMESTEP)
    place.cycle(BORDER + timedelta(seconds=47))
    assert status(place.period) == "closed"
    late = Entry.objects.filter(period=place.period, created_at__gt=BORDER)
    assert late.filter(kind="charge").exists()
    assert reports.entry_problems(start=T0, end=BORDER) == []


def test_what_is_written_while_a_cycle_closes_a_period_reconciles():
    """Others write by clocks of their own between a cycle's start and its closing."""
    place, _ = two_periods(credits=1000)
    long = {"gpus": 16, "expected_duration_s": 4 * 3600, "minimum_runtime_s": 4 * 3600}
    place.submit(place.petrel, **long)
    waits = place.submit(place.petrel, gpus=16)
    place.play(T0, BORDER - TIMESTEP)
    admission.cancel(job=waits, by=place.user, now=BORDER + timedelta(seconds=50))
    place.cycle(BORDER + timedelta(seconds=47))
    assert status(place.period) == "closed"
    (release,) = Entry.objects.filter(kind="release", job=waits)
    assert release.created_at == BORDER + timedelta(seconds=50)
    assert reports.entry_problems(start=T0, end=BORDER) == []


def test_missed_ticks_turn_the_period_on_the_way():
    place, following = two_periods(credits=1000)
    place.submit(place.petrel, expected_duration_s=4 * 3600)
    place.cycle(T0)
    place.cycle(T0 + 5 * HOUR)
    assert (status(place.period), status(following)) == ("closed", "active")
    assert not Entry.objects.filter(kind="charge", funded=False).exists()


def test_what_the_next_period_has_no_credits_for_loses_its_hold():
    place, _ = two_periods(credits=10)  # Petrel has 3 of them
    running = place.submit(place.petrel, minimum_runtime_s=3 * 3600, expected_duration_s=4 * 3600)
    place.submit(place.auk, minimum_runtime_s=3 * 3600, expected_duration_s=4 * 3600)
    place.cycle(T0)
    waiting = place.submit(place.petrel, gpus=16)
    place.play(T0 + TIMESTEP, BORDER + HOUR)
    run = running.runs.get()
    assert list(run.holdings.order_by("started_at").values_list("funded", "started_at")) == [
        (True, T0),
        (False, BORDER),
    ]
    waiting.refresh_from_db()
    assert (waiting.state, waiting.funded) == ("queued", False)
    assert waiting.outlook.rule == "not_funded"


def test_a_period_without_planned_capacity_is_an_alarm_and_stops_nothing():
    place = make_institute(ends_at=BORDER)
    make_period("next", starts_at=BORDER, status="approved")
    place.submit(place.petrel, minimum_runtime_s=0)
    place.cycle(T0)
    place.cycle(BORDER)
    assert Alarm.objects.get(cleared_at=None).text == (
        "next has no planned capacity: plan it before it is started."
    )


def test_a_period_starts_on_an_idle_cluster_too():
    place = make_institute(ends_at=BORDER)
    following = make_period(
        "next", starts_at=BORDER, status="approved", capacity={place.pool: 3600}
    )
    place.cycle(T0)
    place.cycle(BORDER)
    assert status(following) == "active"


def test_a_period_may_begin_inside_a_timestep_and_does_so_to_the_second():
    border = BORDER + timedelta(minutes=10, seconds=7)
    place = make_institute(ends_at=border)
    following = make_period(
        "next", starts_at=border, status="approved", capacity={place.pool: 1000 * 3600}
    )
    job = place.submit(place.petrel, expected_duration_s=4 * 3600)
    place.play(T0, border - timedelta(seconds=1))
    assert status(following) == "approved"
    made = place.play(border, BORDER + HOUR)
    assert made[0].at == border
    assert (status(place.period), status(following)) == ("closed", "active")
    charges = Entry.objects.filter(kind="charge", job=job, at__gte=BORDER).order_by("at")
    assert list(charges.values_list("period__name", "gpu_seconds"))[:2] == [
        (place.period.name, 8 * 607),
        ("next", 8 * (1800 - 607)),
    ]


# --- No period follows ---------------------------------------------------------------------------


def ticks(place: Institute, start: datetime, end: datetime) -> None:
    """Run a cycle at each end of a timestep; in a gap between periods an alarm stands."""
    while start <= end:
        place.cycle(start)
        start += TIMESTEP


def test_a_run_over_a_gap_is_paid_up_to_the_border_and_free_from_there():
    place = make_institute(ends_at=BORDER)
    job = place.submit(place.petrel, minimum_runtime_s=6 * 3600, expected_duration_s=6 * 3600)
    ticks(place, T0, BORDER + HOUR)
    assert status(place.period) == "closed"
    run = job.runs.get()
    held = run.holdings.order_by("started_at").values_list("funded", "started_at")
    assert list(held)[:2] == [(True, T0), (False, BORDER)]
    assert run.protected_until == BORDER
    late = make_period(
        "late", starts_at=BORDER, status="approved", capacity={place.pool: 12 * 3600}
    )
    place.play(BORDER + HOUR, BORDER + 3 * HOUR)
    assert status(late) == "active"
    figures = reports.figures(period=late, now=BORDER + 3 * HOUR)[place.petrel.pk]
    assert figures.settled_mgpus == 0
    assert figures.spendable_mgpus == figures.granted_mgpus > 0


def test_a_job_that_waits_over_a_gap_needs_funds_of_the_period_that_comes():
    place = make_institute(ends_at=BORDER)
    first = place.submit(place.auk, minimum_runtime_s=3 * 3600, expected_duration_s=3 * 3600)
    job = place.submit(place.petrel, minimum_runtime_s=2 * 3600, dependencies=(first.pk,))
    place.cycle(T0)
    job.refresh_from_db()
    assert job.funded
    ticks(place, T0 + TIMESTEP, BORDER + HOUR)
    job.refresh_from_db()
    assert (job.state, job.funded) == ("queued", False)
    make_period("late", starts_at=BORDER, status="approved", capacity={place.pool: 12 * 3600})
    place.play(BORDER + HOUR, BORDER + 4 * HOUR)
    spent = Entry.objects.filter(kind="charge", job=job, funded=True)
    assert not spent.exists()  # 16 credits were asked, Petrel has less than 4
