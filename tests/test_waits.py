"""What bound a job's waits is kept when the outlook of the moment is gone, and told."""

from copy import deepcopy
from datetime import datetime, timedelta
from typing import Any

import pytest
from rest_framework.test import APIClient

from allocator import waits
from allocator.models import Cycle, Outlook, Wait
from allocator.pages import job as pages
from tests.factories import HOUR, T0, make_job
from tests.helpers import Institute, make_institute
from tests.pages_day import NOW, Day, go_on, stand_at
from tests.pages_world import client_of, text_of
from workloads.models import Job, Run

pytestmark = pytest.mark.django_db
MINUTE = timedelta(minutes=1)
BEHIND: dict[str, Any] = {"behind": [{"job": 7, "name": "fold", "budget": "orlo/vision/tern"}]}


@pytest.fixture
def day(played: Day, db: None, monkeypatch: pytest.MonkeyPatch) -> Day:
    stand_at(monkeypatch, NOW)
    return deepcopy(played)


@pytest.fixture
def tree(day: Day) -> Any:
    return day.place.tree


@pytest.fixture
def place() -> Institute:
    return make_institute(nodes=1)


def pass_cycle(at: datetime, told: dict[Job, tuple[str, dict[str, Any]]]) -> None:
    """Replace all outlooks as a cycle does."""
    cycle = Cycle.objects.create(kind="tick", at=at, timestep=at, snapshot=b"", plan=b"")
    rows = [Outlook(job=job, cycle=cycle, rule=r, data=data) for job, (r, data) in told.items()]
    waits.note(rows, at=at)
    Outlook.objects.all().delete()
    Outlook.objects.bulk_create(rows)


def kept(job: Job) -> dict[tuple[int, str], tuple[int, datetime | None]]:
    rows = Wait.objects.filter(job=job)
    return {(row.attempt, row.rule): (row.seconds, row.since) for row in rows}


def test_each_rule_is_kept_for_as_long_as_it_bound(place: Institute) -> None:
    job = make_job(place.petrel, at=T0)
    pass_cycle(T0, {job: ("not_funded", {})})
    pass_cycle(T0 + 10 * MINUTE, {job: ("not_funded", {"needed_mgpus": 5})})
    pass_cycle(T0 + 30 * MINUTE, {job: ("behind", BEHIND)})
    assert kept(job) == {
        (1, "not_funded"): (1800, None),
        (1, "behind"): (0, T0 + 30 * MINUTE),
    }
    assert Wait.objects.get(rule="not_funded").data == {"needed_mgpus": 5}  # as it was at last
    pass_cycle(T0 + HOUR, {})  # it has started
    assert kept(job)[1, "behind"] == (1800, None)
    assert Wait.objects.get(rule="behind").data == BEHIND


def test_a_rule_that_comes_back_goes_on_in_its_row(place: Institute) -> None:
    job = make_job(place.petrel, at=T0)
    for n, rule in enumerate(("behind", "no_block", "behind", "no_block", "behind")):
        pass_cycle(T0 + n * 10 * MINUTE, {job: (rule, {})})
    assert kept(job) == {
        (1, "behind"): (1200, T0 + 40 * MINUTE),
        (1, "no_block"): (1200, None),
    }
    assert Wait.objects.get(rule="behind").first_at == T0
    Job.objects.filter(pk=job.pk).update(attempt=2)
    job.refresh_from_db()
    pass_cycle(T0 + HOUR, {job: ("behind", {})})
    assert kept(job)[1, "behind"] == (2400, None)
    assert kept(job)[2, "behind"] == (0, T0 + HOUR)


def test_twice_the_jobs_take_as_many_queries(
    place: Institute, django_assert_num_queries: Any
) -> None:
    jobs = [make_job(place.petrel, at=T0) for _ in range(8)]
    some: dict[Job, tuple[str, dict[str, Any]]] = {job: ("behind", {}) for job in jobs[:4]}
    with django_assert_num_queries(1):
        waits.note([], at=T0)
    pass_cycle(T0, some)
    rows = [Outlook(job=job, rule="behind", data={}) for job in jobs[:4]]
    with django_assert_num_queries(1):  # nothing has changed
        waits.note(rows, at=T0 + MINUTE)
    pass_cycle(T0, {job: ("behind", {}) for job in jobs})
    rows = [Outlook(job=job, rule="no_block", data={}) for job in jobs]
    with django_assert_num_queries(4):
        waits.note(rows, at=T0 + MINUTE)


class TestTold:
    def test_a_wait_tells_what_bound_it_once_it_is_over(
        self, cast: Any, day: Day, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        later = T0 + 6 * HOUR
        go_on(NOW, later)
        stand_at(monkeypatch, later)
        flood = day.job("flood")
        begun = Run.objects.get(job=flood, number=1).started_at
        assert begun is not None
        rows = Wait.objects.filter(job=flood, attempt=1)
        assert [(row.rule, row.since) for row in rows] == [("no_block", None)]
        assert timedelta(seconds=rows[0].seconds) == begun - flood.submitted_at
        text = text_of(client_of(cast["admin"]).get(f"/jobs/{flood.pk}"))
        hours = f"{rows[0].seconds // 3600} h {rows[0].seconds % 3600 // 60:02}"
        assert f"Waited {hours} No free block of 16 {hours}" in text

    def test_what_is_over_is_told_to_those_who_may_know(self, cast: Any, day: Day) -> None:
        storm = day.jobs["storm"]
        second = Run.objects.get(job=storm, number=2)
        Wait.objects.filter(job=storm).delete()
        for rule, data, after in (
            ("not_funded", {"binding": "orlo/science", "needed_mgpus": 0, "spendable_mgpus": 0}, 0),
            ("behind", BEHIND, 20),
            ("draining", {"node": "h100-n1"}, 1),
        ):
            Wait.objects.create(
                job=storm,
                attempt=2,
                rule=rule,
                first_at=T0 + HOUR + after * MINUTE,
                seconds=600 if rule != "draining" else 59,
                data=data,
            )
        assert second.started_at == T0 + HOUR + 30 * MINUTE
        text = text_of(client_of(cast["admin"]).get(f"/jobs/{storm.pk}"))
        assert "Not funded: Science 10 min" in text
        assert "Behind Tern 10 min One job was ahead of it at last." in text
        assert "Draining h100-n1" not in text  # under a minute
        text = text_of(client_of(cast["member"]).get(f"/jobs/{storm.pk}"))
        assert "Behind a better entitled budget 10 min" in text
        assert "Tern" not in text

    def test_the_present_wait_tells_what_bound_it_before(self, cast: Any, day: Day) -> None:
        flood = day.jobs["flood"]
        Wait.objects.filter(job=flood).delete()
        now = flood.submitted_at + timedelta(minutes=12)
        given = {"job": flood, "attempt": 1}
        Wait.objects.create(**given, rule="not_funded", first_at=flood.submitted_at, seconds=300)
        Wait.objects.create(
            **given,
            rule="no_block",
            first_at=flood.submitted_at + 5 * MINUTE,
            since=flood.submitted_at + 5 * MINUTE,
        )
        page = pages.page(cast["admin"], flood.pk, now=now)
        (entry,) = [e for day in page.story.days for e in day.entries if e.kind == "waiting"]
        assert [(one.why.rule, one.seconds) for one in entry.bound] == [("not_funded", 300)]
        text = text_of(client_of(cast["admin"]).get(f"/jobs/{flood.pk}"))
        assert "Before that: Not funded 5 min" in text

    def test_the_api_tells_the_same(self, cast: Any, day: Day) -> None:
        storm = day.jobs["storm"]
        Wait.objects.filter(job=storm).delete()
        Wait.objects.create(
            **{"job": storm, "attempt": 2, "rule": "behind", "first_at": T0 + HOUR},
            **{"seconds": 600, "data": BEHIND},
        )
        for name, text, budget in (
            ("admin", "Behind Tern", "orlo/vision/tern"),
            ("member", "Behind a better entitled budget", None),
        ):
            client = APIClient()
            client.force_authenticate(cast[name])
            (told,) = client.get(f"/api/v1/jobs/{storm.pk}/").json()["waited"]
            assert told["text"] == text
            assert (told["rule"], told["attempt"], told["seconds"]) == ("behind", 2, 600)
            assert (told["binds"], told["first_at"]) == (False, "2026-10-01T01:00:00Z")
            assert told["data"]["behind"][0].get("budget") == budget
