"""Gaps in front of a large job's start, through the whole cycle."""

from datetime import timedelta

import pytest

from tests.factories import HOUR, T0, TIMESTEP
from tests.helpers import Institute, make_institute
from workloads.models import Job

pytestmark = [pytest.mark.django_db, pytest.mark.once]
SOON = T0 + timedelta(minutes=1)


def half_held() -> Institute:
    """One of two nodes is Petrel's, protected for two hours."""
    place = make_institute()
    place.submit(place.petrel, name="held", minimum_runtime_s=7200)
    place.cycle(T0)
    return place


def test_a_large_job_starts_when_it_was_due_and_the_gap_before_it_was_not_idle():
    """Petrel holds one of two nodes for 2 h; Tern waits for both; Auk fills the other one."""
    place = half_held()
    large = place.submit(place.tern, SOON, name="large", gpus=16, minimum_runtime_s=7200)
    filler = place.submit(place.auk, SOON, name="filler", expected_duration_s=5 * 3600)
    place.play(SOON, T0 + 5 * HOUR)
    first, second = filler.runs.order_by("number")
    assert (first.started_at, first.end_reason) == (SOON, "preempted")
    assert first.ended_at == T0 + 2 * HOUR
    assert large.runs.get().started_at == T0 + 2 * HOUR
    assert Job.objects.get(pk=filler.pk).progress_s == 2 * 3600 - 60  # and goes on from there
    assert second.started_at == T0 + 4 * HOUR


def test_the_waiting_job_is_told_when_it_is_due_and_not_when_the_filler_would_end():
    place = half_held()
    large = place.submit(place.tern, SOON, gpus=16)
    place.submit(place.auk, SOON, expected_duration_s=5 * 3600)
    place.cycle(SOON)
    assert large.outlook.start_likely == T0 + 2 * HOUR


@pytest.mark.parametrize("asked", [{"resumable": False}, {"minimum_runtime_s": 3 * 3600}])
def test_what_would_lose_its_work_or_is_protected_for_longer_does_not_fill(asked):
    place = half_held()
    large = place.submit(place.tern, SOON, gpus=16)
    other = place.submit(place.auk, SOON, **({"expected_duration_s": 5 * 3600} | asked))
    place.play(SOON, T0 + 2 * HOUR + TIMESTEP)
    assert large.runs.get().started_at == T0 + 2 * HOUR
    assert not other.runs.exists()
