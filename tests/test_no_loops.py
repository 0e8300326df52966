"""Nobody is preempted in circles: the contract's limits over many cycles, and over random days."""

from collections import Counter
from datetime import timedelta
from random import Random

import pytest

from allocator import playing
from allocator.models import Cycle
from budgets import structure
from tests.factories import HOUR, T0
from tests.helpers import arrival, assert_invariants, assert_reconciled, make_institute
from workloads import services as workloads
from workloads.models import Job, JobEvent, Run
from workloads.preemptions import changed_places, stopped_lately

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
    for at in (0, 30, 90, 150, 210, 600):
        place.cycle(T0 + at * MINUTE)
    by = [(victim, winner) for _, victim, winner in stops()]
    assert Counter(by) == {("a", "p"): 1, ("p", "a"): 1}
    runs = Run.objects.filter(end_reason="")
    assert [run.job.name for run in runs] == ["a"], "it goes on, though the other has used less"
    waits = Job.objects.get(name="p")
    assert waits.outlook.rule == "no_block"
    place.cycle(T0 + DAY + 35 * MINUTE)
    assert stops()[-1][1:] == ("a", "p"), "a day after the first time"


def decided(victim: Job, winner: Job, at) -> None:
    workloads.log(victim, "preempted_decided", at=at, by_job=winner.pk)


def test_only_what_both_did_within_a_day_is_changing_places():
    place = make_institute()
    one, two, three = (place.submit(place.petrel, name=f"job{n}") for n in range(3))
    decided(one, two, T0)
    decided(one, three, T0 + HOUR)
    assert changed_places(jobs=[one.pk, two.pk], since=T0 - DAY, at=T0 + HOUR) == {}
    decided(two, one, T0 + 2 * HOUR)
    assert changed_places(jobs=[one.pk], since=T0 - HOUR, at=T0 + 2 * HOUR) == {one.pk: {two.pk}}
    assert changed_places(jobs=[two.pk], since=T0 - HOUR, at=T0 + 2 * HOUR) == {two.pk: {one.pk}}
    assert changed_places(jobs=[three.pk], since=T0 - HOUR, at=T0 + 2 * HOUR) == {}
    assert changed_places(jobs=[one.pk], since=T0, at=T0 + 2 * HOUR) == {}, "the first is too old"
    assert changed_places(jobs=[one.pk], since=T0 - HOUR, at=T0 + HOUR) == {}, "yet to come"
    assert changed_places(jobs=[], since=T0 - HOUR, at=T0 + DAY) == {}


def test_who_stopped_a_job_lately_is_known_by_what_it_is_called_now():
    place = make_institute()
    job, winner = place.submit(place.petrel), place.submit(place.tern)
    decided(job, winner, T0)
    structure.rename_budget(budget=place.tern, slug="gull", author=place.user, now=T0 + MINUTE)
    found = stopped_lately(jobs=[job.pk], since=T0 - HOUR, at=T0 + HOUR)
    assert found == {job.pk: {"orlo/vision/gull"}}


# --- It stays where little would be gained -------------------------------------------------------


def test_a_budget_that_is_better_entitled_by_less_than_a_tenth_displaces_nobody():
    """Auk has used 3 h of the node, Petrel since then as much and a little more."""
    place = make_institute(nodes=1)
    place.submit(place.auk, name="before", expected_duration_s=3 * 3600)
    place.cycle(T0)
    place.submit(place.petrel, T0 + MINUTE, name="stays", expected_duration_s=9 * 3600)
    even = T0 + 6 * HOUR
    place.cycle(T0 + 3 * HOUR)
    assert Job.objects.get(name="stays").state == Job.State.RUNNING
    place.submit(place.auk, T0 + 4 * HOUR, name="asks")
    for minutes in (-60, -1, 1, 17):  # 18 are a tenth
        place.cycle(even + minutes * MINUTE)
        assert stops() == [], minutes
    place.cycle(even + 19 * MINUTE)
    assert [(victim, winner) for _, victim, winner in stops()] == [("stays", "asks")]


# --- A random day through the database -----------------------------------------------------------


def test_a_random_day_through_the_database_keeps_every_limit(settings):
    """More is asked for than three nodes have, by budgets of every share; nothing is told late."""
    settings.TIMESTEP_MINUTES = 60
    settings.HORIZON_TIMESTEPS = 24
    draw = Random(1)
    place = make_institute(nodes=3)
    leaves = [place.petrel, place.auk, place.tern]
    asks = [
        arrival(
            T0 + draw.randrange(10 * 60) * MINUTE,
            place.submit,
            draw.choice(leaves),
            name=f"job{n}",
            gpus=draw.choice((1, 4, 8, 8, 16)),
            expected_duration_s=(lasts := draw.randrange(2, 12) * 3600),
            lasts=lasts,
            minimum_runtime_s=draw.choice((0, 1800, 3600)),
        )
        for n in range(16)
    ]
    with playing.quietly():
        made = list(playing.play(start=T0, end=T0 + 16 * HOUR, arrivals=asks))
    assert {one.status for one in made} == {Cycle.Status.COMMITTED}
    assert_invariants(at=T0 + 16 * HOUR)
    assert_reconciled()
    found = stops()
    assert len(found) > 2
    _few_at_once(found, gpus=24)
    _no_victim_comes_back_before_its_winner(found)
    _no_pair_twice(found)
    _no_budget_twice_within_two_hours(found)


Stops = list[tuple[timedelta, str, str]]


def _few_at_once(found: Stops, gpus: int) -> None:
    """In one cycle at most 5 % of the GPUs, but one block always."""
    by_instant: dict[timedelta, list[tuple[str, str]]] = {}
    for at, victim, winner in found:
        by_instant.setdefault(at, []).append((victim, winner))
    for pairs in by_instant.values():
        lost = sum(Job.objects.get(name=victim).gpus for victim, _ in pairs)
        assert lost * 100 <= 5 * gpus or len({winner for _, winner in pairs}) == 1


def _no_victim_comes_back_before_its_winner(found: Stops) -> None:
    for at, victim, winner in found:
        instant = T0 + at
        assert Run.objects.filter(job__name=winner, started_at=instant).exists()
        assert not Run.objects.filter(job__name=victim, decided_at=instant).exists()


def _no_pair_twice(found: Stops) -> None:
    times = Counter((victim, winner) for _, victim, winner in found)
    for (victim, winner), number in times.items():
        assert number < 2 or times[winner, victim] < 2


def _no_budget_twice_within_two_hours(found: Stops) -> None:
    budgets = dict(Job.objects.values_list("name", "budget_id"))
    last: dict[tuple[str, int], timedelta] = {}
    for at, victim, winner in found:
        before = last.get((victim, budgets[winner]))
        assert before is None or at - before >= 2 * HOUR
        last[victim, budgets[winner]] = at
