"""Delivered of owed: each budget at its own level, per pool and timestep."""

from datetime import datetime, timedelta

import pytest

from allocator import delivery
from allocator.models import Delivery, DeliveryDay
from tests.factories import HOUR, T0, TIMESTEP
from tests.helpers import Institute, make_institute

pytestmark = pytest.mark.django_db
STEP = 1800  # seconds of a timestep


@pytest.fixture
def place() -> Institute:
    """16 GPUs; Science has 60 % (Petrel and Auk half each), Vision 40 % (all of it Tern's)."""
    return make_institute()


def owed_and_got(place: Institute, path: str) -> tuple[int, int]:
    found = delivery.summary(start=T0, end=T0 + TIMESTEP)[place.tree[path].pk]
    return found.owed_gpu_seconds, found.delivered_gpu_seconds


def test_what_one_project_has_beyond_its_due_counts_for_its_program(place):
    for name in ("one", "two"):
        place.submit(place.petrel, name=name)
    place.play(T0, T0 + TIMESTEP)
    # Petrel held all 16 GPUs, was owed 30 % of them; Science 60 %, and so the whole.
    assert owed_and_got(place, "orlo/science/petrel") == (16 * STEP * 3 // 10,) * 2
    assert owed_and_got(place, "orlo/science") == (16 * STEP * 6 // 10,) * 2
    assert owed_and_got(place, "orlo") == (16 * STEP * 6 // 10,) * 2


def test_a_program_that_waits_behind_protected_runs_is_owed_and_gets_nothing(place):
    for name in ("one", "two"):
        place.submit(place.petrel, name=name)
    place.cycle(T0)
    place.submit(place.tern)
    place.play(T0, T0 + TIMESTEP)
    assert owed_and_got(place, "orlo/vision") == (16 * STEP * 4 // 10, 0)
    rows = delivery.of_programs(Delivery.objects.filter(timestep=T0))
    assert {row.budget.path for row in rows} == {"orlo/science", "orlo/vision"}


def test_owed_is_no_more_than_what_was_asked_for(place):
    place.submit(place.tern, gpus=1)
    place.play(T0, T0 + TIMESTEP)
    assert owed_and_got(place, "orlo/vision") == (STEP, STEP)


def test_unfunded_work_is_not_owed_anything(place):
    place.submit(place.tern, gpus=4, minimum_runtime_s=0)
    place.play(T0, T0 + TIMESTEP)
    assert not Delivery.objects.exists()


def test_a_job_asks_from_its_submission_to_its_start_only(place):
    place.submit(place.tern, T0 + TIMESTEP / 3, gpus=2)
    place.play(T0 + TIMESTEP / 2, T0 + TIMESTEP)
    asked = Delivery.objects.get(budget=place.tern)
    assert asked.funded_gpu_seconds == 2 * STEP // 2
    assert asked.demand_gpu_seconds == 2 * STEP * 2 // 3


# --- Days ----------------------------------------------------------------------------------------

DAY = timedelta(days=1)


def of_a_day(place: Institute, day: datetime, *, rows: int = 48) -> list[Delivery]:
    """Rows of every budget and timestep, all figures different."""
    return Delivery.objects.bulk_create(
        Delivery(
            timestep=day + n * TIMESTEP,
            budget=budget,
            pool=place.pool,
            entitled_gpu_seconds=1000 + n,
            demand_gpu_seconds=990 + 7 * n % 40 + budget.pk,
            funded_gpu_seconds=900 + 11 * n % 130,
        )
        for n in range(rows)
        for budget in place.tree.values()
    )


def test_any_interval_over_summed_days_comes_to_the_same(place):
    for number in (0, 1, 2, 5):  # nothing was owed on days 3 and 4
        of_a_day(place, T0 + number * DAY)
    edges = [T0 + hours * HOUR for hours in (-5, 0, 3, 24, 30, 48, 72, 75, 100, 130, 144, 200)]
    spans = [(a, b) for a in edges for b in edges if a <= b]
    unsummed = [delivery.summary(start=a, end=b) for a, b in spans]
    delivery.sum_days(before=T0 + 5 * DAY + HOUR)
    assert sorted({row.day for row in DeliveryDay.objects.all()}) == [T0, T0 + DAY, T0 + 2 * DAY]
    assert [delivery.summary(start=a, end=b) for a, b in spans] == unsummed
    delivery.sum_days(before=T0 + 9 * DAY)
    assert DeliveryDay.objects.count() == 4 * len(place.tree)
    assert [delivery.summary(start=a, end=b) for a, b in spans] == unsummed


def test_days_are_read_from_their_sums(place):
    of_a_day(place, T0)
    delivery.sum_days(before=T0 + DAY)
    right = delivery.summary(start=T0, end=T0 + DAY)
    Delivery.objects.all().delete()
    assert delivery.summary(start=T0, end=T0 + DAY) == right != {}
    assert delivery.summary(start=T0, end=T0 + DAY - TIMESTEP) == {}


def test_a_day_is_summed_with_the_first_timestep_of_the_next(place):
    place.submit(place.tern, T0 + 23 * HOUR, gpus=1, lasts=2 * 3600)
    place.play(T0 + 23 * HOUR, T0 + DAY)
    assert not DeliveryDay.objects.exists()
    place.play(T0 + DAY, T0 + DAY + TIMESTEP)
    assert {row.day for row in DeliveryDay.objects.all()} == {T0}


def test_a_long_past_is_summed_a_month_at_a_time(place):
    for number in range(40):
        of_a_day(place, T0 + number * DAY, rows=1)
    right = delivery.summary(start=T0, end=T0 + 40 * DAY)
    for days in (31, 40, 40):
        delivery.sum_days(before=T0 + 40 * DAY)
        assert DeliveryDay.objects.values("day").distinct().order_by().count() == days
        assert delivery.summary(start=T0, end=T0 + 40 * DAY) == right
