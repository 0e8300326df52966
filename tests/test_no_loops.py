"""Nobody is preempted in circles: the contract's limits over many cycles, and over random days."""

from collections import Counter
from datetime import timedelta

import pytest

from tests.factories import HOUR, T0
from tests.helpers import make_institute
from workloads.models import Job, JobEvent, Run

pytestmark = [pytest.mark.django_db, pytest.mark.once]
MINUTE = timedelta(minutes=1)
DAY = 24 * HOUR


def stops() -> list[tuple[timedelta, str, str]]:
    """(since the start, victim, who it was stopped for), in order."""
    events = JobEvent.objects.filter(kind="preempted_decided").order_by("at", "id")
    return [
        (one.at - T0, one.job.name, one.data["by_name"]) for one in events.select_related("job")
    ]


# --- Two jobs and one block ----------------------------------------------------------------------


def test_two_long_jobs_of_equal_budgets_change_places_once_a_day():
    """Each would be the better entitled one after a few half-hours of the other."""
    place = make_institute(nodes=1)
    for name, budget in (("p", place.petrel), ("a", place.auk)):
        place.submit(budget, name=name, expected_duration_s=60 * 3600, minimum_runtime_s=1800)
    for at in (0, 30, 60, 90, 150, 210, 330, 600, 1200):
        place.cycle(T0 + at * MINUTE)
    by = [(victim, winner) for _, victim, winner in stops()]
    assert Counter(by) == {("a", "p"): 1, ("p", "a"): 1}
    runs = Run.objects.filter(end_reason="")
    assert [run.job.name for run in runs] == ["a"], "it goes on, though the other has used less"
    waits = Job.objects.get(name="p")
    assert waits.outlook.rule == "no_block"
    place.cycle(T0 + DAY + 35 * MINUTE)
    assert stops()[-1][1:] == ("a", "p"), "a day after the first time"
