"""Delivered of owed: each budget at its own level, per pool and timestep."""

import pytest

from allocator import delivery
from allocator.models import Delivery
from tests.factories import T0, TIMESTEP
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
