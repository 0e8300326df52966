"""Rows 31 to 33, 36 and 37 of the acceptance tests: preemption without loops, due work that gets
its place back, unfunded work that fills what is free, why a job waits, and what if.

Each class is a row: what goes wrong elsewhere, and what must hold here.
"""

from collections import Counter
from datetime import datetime, timedelta
from itertools import pairwise
from typing import Any

import pytest

from allocator.models import Cycle, Outlook, Simulation
from allocator.simulating import running
from budgets.models import ChangeSet
from ledger.models import Entry
from tests.acceptance_world import API, MINUTE, root_api
from tests.factories import HOUR, T0, TIMESTEP
from tests.helpers import CREDIT, Institute, make_institute
from workloads.models import Job, JobEvent, Run

pytestmark = pytest.mark.django_db
DAY = timedelta(days=1)


def stops() -> list[tuple[datetime, int, int]]:
    """When which job was stopped for which, in order."""
    events = JobEvent.objects.filter(kind="preempted_decided").order_by("at", "pk")
    return [(one.at, one.job_id, one.data["by_job"]) for one in events]


def wanting(place: Institute, number: int = 3) -> None:
    """Everybody always has more to do than there is room, for days."""
    for budget in (place.petrel, place.auk, place.tern):
        for _ in range(number):
            place.submit(budget, expected_duration_s=60 * 3600, minimum_runtime_s=1800)


class TestRow31NoLoopsAndNoStorms:
    """Elsewhere the victim is admitted again at once, since its share is now the lowest."""

    @pytest.mark.once
    def test_a_day_of_it(self) -> None:
        place = make_institute(nodes=2)
        wanting(place)
        for number in range(36):
            before = set(Run.objects.values_list("pk", flat=True))
            made = place.cycle(T0 + number * 40 * MINUTE)
            begun = Run.objects.exclude(pk__in=before).values_list("job_id", flat=True)
            lost = {victim for at, victim, _ in stops() if at == made.at}
            assert not lost & set(begun), "within one cycle no victim comes back"
            assert len(lost) * 8 <= 8, "a pool of 16 GPUs loses one block in a cycle at most"
        assert Cycle.objects.filter(preemptions__gt=0).exists()
        found = stops()
        for first, then in pairwise(found):
            assert (then[1], then[2]) != (first[2], first[1]) or then[0] > first[0] + HOUR / 2
        both = Counter(frozenset(one[1:]) for one in found if one[0] < T0 + DAY)
        again = Counter(one[1:] for one in found if one[0] < T0 + DAY)
        assert max(both.values()) <= 2, "a pair changes places once a day at most"
        assert max(again.values()) == 1


class TestRow32WhatIsDueComesBack:
    """Elsewhere what others took while one was away stays with them."""

    @pytest.mark.parametrize("minimum_s", [1800, 2 * 3600])
    def test_once_the_minimum_runtime_of_who_has_it_is_over(self, minimum_s: int) -> None:
        """Both nodes are tern's. Petrel, with 30 % and nothing used, has its 8 GPUs right then."""
        place = make_institute(nodes=2)
        for _ in range(2):
            place.submit(place.tern, expected_duration_s=90 * 3600, minimum_runtime_s=minimum_s)
        place.cycle(T0)
        mine = place.submit(place.petrel, T0 + 5 * MINUTE, expected_duration_s=6 * 3600)
        place.cycle(T0 + 5 * MINUTE)
        free_from = T0 + timedelta(seconds=minimum_s)
        assert Outlook.objects.get(job=mine).start_likely == free_from
        place.play(T0 + 5 * MINUTE, free_from)
        assert mine.runs.get().started_at == free_from

    def test_though_it_takes_many_small_runs_to_make_room(self) -> None:
        place = make_institute(nodes=2)
        for _ in range(16):
            place.submit(place.tern, gpus=1, expected_duration_s=90 * 3600, minimum_runtime_s=1800)
        place.cycle(T0)
        mine = place.submit(place.petrel, T0 + 5 * MINUTE, expected_duration_s=6 * 3600)
        place.play(T0 + 5 * MINUTE, T0 + HOUR)
        assert mine.runs.get().started_at == T0 + TIMESTEP


class TestRow33NothingIsLeftIdleForTheSakeOfShares:
    """Unfunded work may fill everything while nobody else wants it, and costs nobody anything."""

    def test_unfunded_work_fills_every_gpu_and_leaves_when_it_is_asked_to(self) -> None:
        place = make_institute(nodes=2, credits={"orlo/vision/tern": 1000})
        for _ in range(4):
            place.submit(place.petrel, gpus=4, minimum_runtime_s=0, expected_duration_s=20 * 3600)
        place.play(T0, T0 + HOUR)
        live = Run.objects.filter(state=Run.State.RUNNING)
        assert sum(run.job.gpus for run in live.select_related("job")) == 16
        assert {run.job.funded for run in live.select_related("job")} == {False}
        charges = Entry.objects.filter(kind="charge")
        assert charges.exists()
        assert {one.amount_mgpus for one in charges} == {0}
        due = place.submit(place.tern, T0 + HOUR, gpus=8)
        place.cycle(T0 + HOUR)
        assert due.runs.get().started_at == T0 + HOUR


class TestRow36WhyItWaitsAndWhen:
    """A chain that a machine can read, what would release it, and a range that says it is one."""

    @pytest.fixture(autouse=True)
    def _noon(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("config.clock.now", lambda: T0 + MINUTE)

    def told(self, job: Job) -> dict[str, Any]:
        found: dict[str, Any] = root_api().get(f"/api/v1/jobs/{job.pk}/").json()["outlook"]
        return found

    def test_no_block_is_free_and_the_pass_that_decided_says_from_when(self) -> None:
        place = make_institute(nodes=1)
        first = place.submit(place.petrel, minimum_runtime_s=2 * 3600)
        place.cycle(T0)
        job = place.submit(place.tern, T0 + MINUTE)
        made = place.cycle(T0 + MINUTE)
        outlook = Outlook.objects.get(job=job)
        assert outlook.cycle_id == made.pk
        assert first.runs.exists()
        told = self.told(job)
        assert told["rule"] == "no_block"
        assert told["data"]["gpus"] == 8
        assert told["released_by"]
        assert told["start_low"] <= told["start_likely"] <= told["start_high"]
        assert told["start_likely"] == "2026-10-01T02:00:00Z"

    def test_the_ancestor_that_has_too_little_is_named_with_what_it_lacks(self) -> None:
        place = make_institute(credits={"orlo/science/petrel": 3})
        job = place.submit(place.petrel)
        place.cycle(T0)
        told = self.told(job)
        assert (told["rule"], told["data"]["binding"]) == ("not_funded", "orlo/science/petrel")
        assert told["data"]["needed_mgpus"] - told["data"]["spendable_mgpus"] == 5 * CREDIT
        assert "5.0 cr" in told["released_by"]


class TestRow37WhatIf:
    """Other shares are tried on credits and on the past, and nothing changes by it."""

    def test_before_anybody_proposes_them(self, monkeypatch: pytest.MonkeyPatch) -> None:
        place = make_institute(capacity=None)
        for budget in (place.petrel, place.tern):
            place.submit(budget)
        place.play(T0, T0 + 3 * HOUR)
        now = T0 + 3 * HOUR
        monkeypatch.setattr("config.clock.now", lambda: now)
        before = (ChangeSet.objects.count(), Entry.objects.count(), Job.objects.count())
        api = root_api()
        shares = {"science": 90_000, "vision": 10_000}
        shown = api.post(f"{API}orlo/change-sets/preview/", {"shares": shares})
        assert shown.status_code == 200
        draft = {"parent": "orlo", "shares": shares}
        body = {"history": {"days": 1}, "draft": draft}
        asked = api.post("/api/v1/simulations/", body)
        assert asked.status_code == 201
        done = running.run_next(clock=lambda: now)
        assert done is not None
        assert (done.state, done.error) == (Simulation.State.DONE, "")
        courses = api.get(f"/api/v1/simulations/{done.pk}/").json()["result"]["courses"]
        owed = {
            one["shares"]: {row["path"]: row["entitled_gpu_seconds"] for row in one["budgets"]}
            for one in courses
        }
        assert set(owed) == {"now", "draft"}
        assert owed["now"]["orlo/vision"] == 4 * owed["draft"]["orlo/vision"]
        after = (ChangeSet.objects.count(), Entry.objects.count(), Job.objects.count())
        assert before == after
