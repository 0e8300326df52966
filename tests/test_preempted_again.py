"""No job is preempted twice by the same budget within a set time."""

from datetime import timedelta

import pytest

from tests.factories import HOUR, T0
from tests.helpers import arrival, assert_invariants, assert_reconciled, make_institute
from workloads.models import Job, Run
from workloads.preemptions import stopped_lately

pytestmark = [pytest.mark.django_db, pytest.mark.once]
MINUTE = timedelta(minutes=1)


@pytest.fixture
def place():
    """Two nodes of 8, both taken by unfunded work that gives way at once."""
    place = make_institute()
    for name in ("x", "y"):
        place.submit(
            place.petrel,
            name=name,
            expected_duration_s=9 * 3600,
            minimum_runtime_s=0,
            lasts=9 * 3600,
        )
    return place


def stops(place) -> list[tuple[str, str, int]]:
    """(victim, budget that stopped it, minutes from the start), in order."""
    found = []
    for run in Run.objects.filter(end_reason=Run.EndReason.PREEMPTED).order_by("ended_at", "pk"):
        event = run.events.get(kind="preempted_decided")
        minutes = int((event.at - T0) / MINUTE)
        found.append((run.job.name, event.data["by_budget"].rsplit("/", 1)[-1], minutes))
    return found


def brief(place, minutes, budget, name):
    """A job that takes one node for 20 minutes."""
    return arrival(
        T0 + minutes * MINUTE, place.submit, budget,
        name=name, lasts=1200, expected_duration_s=1200, minimum_runtime_s=1200,
    )  # fmt: skip


def test_a_budget_stops_each_job_once_and_then_waits(place):
    asks = [brief(place, m, place.tern, f"t{m}") for m in (30, 60, 90)]
    place.play(T0, T0 + 4 * HOUR, asks)
    victims = [(name, budget) for name, budget, _ in stops(place)]
    assert sorted(victims[:2]) == [("x", "tern"), ("y", "tern")]
    third = Job.objects.get(name="t90").runs.get()
    assert third.started_at >= T0 + 150 * MINUTE, "two hours after the first was stopped"
    assert_invariants(at=T0 + 4 * HOUR)
    assert_reconciled()


def test_another_budget_may(place):
    asks = [brief(place, m, place.tern, f"t{m}") for m in (30, 60)]
    place.play(T0, T0 + 3 * HOUR, [*asks, brief(place, 90, place.auk, "a90")])
    assert [budget for _, budget, _ in stops(place)] == ["tern", "tern", "auk"]
    assert Job.objects.get(name="a90").runs.get().started_at == T0 + 90 * MINUTE


def test_how_long_is_a_setting(place, settings):
    settings.PREEMPTED_AGAIN_MINUTES = 0
    asks = [brief(place, m, place.tern, f"t{m}") for m in (30, 60, 90)]
    place.play(T0, T0 + 3 * HOUR, asks)
    assert [minutes for *_, minutes in stops(place)] == [30, 60, 90]


def test_only_what_was_decided_since_counts(place):
    place.play(T0, T0 + 2 * HOUR, [brief(place, 30, place.tern, "t30")])
    [(victim, _, _)] = stops(place)
    job = Job.objects.get(name=victim)
    decided = T0 + 30 * MINUTE
    ids = [job.pk]
    assert stopped_lately(jobs=ids, since=T0, at=decided) == {job.pk: {"orlo/vision/tern"}}
    assert stopped_lately(jobs=ids, since=decided, at=T0 + HOUR) == {}
    assert stopped_lately(jobs=ids, since=T0, at=decided - MINUTE) == {}
    assert stopped_lately(jobs=[], since=T0, at=decided) == {}
