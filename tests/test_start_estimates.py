"""First estimates of starts are kept, held against the truth, and told where the next one is."""

from datetime import datetime, timedelta
from typing import Any

import pytest
from rest_framework.test import APIClient

from allocator import cycle
from allocator.models import Outlook, StartEstimate
from allocator.pages.queue import told_record
from allocator.start_estimates import BANDS, LOOKS_BACK, Record, record, record_for, records
from budgets.models import Budget
from client import tables
from clusters.models import Pool
from tests.factories import HOUR, T0, TIMESTEP, make_job
from tests.helpers import Institute, make_institute
from tests.pages_day import stand_at
from workloads.models import Job, Run

pytestmark = pytest.mark.django_db
SECOND = timedelta(seconds=1)
MINUTE = timedelta(minutes=1)


@pytest.fixture
def place() -> Institute:
    return make_institute(nodes=1)


def estimate(
    budget: Budget,
    *,
    made: datetime = T0,
    ahead: timedelta = 2 * HOUR,
    spread: timedelta = HOUR,
    started: datetime | None = None,
    **job: Any,
) -> StartEstimate:
    """An estimate around made + ahead, and its run if it has started."""
    asking = make_job(budget, at=made, **job)
    likely = made + ahead
    if started is not None:
        Run.objects.create(
            job=asking, number=1, pool=Pool.objects.get(), decided_at=started, started_at=started
        )
    return StartEstimate.objects.create(
        job=asking,
        attempt=1,
        made_at=made,
        ahead_s=int(ahead.total_seconds()),
        low=likely - spread,
        likely=likely,
        high=likely + spread,
    )


class TestKept:
    def test_the_first_of_each_attempt_and_no_later_one(self, place):
        place.submit(place.petrel, name="first", lasts=4 * 3600, resumable=False)
        waits = place.submit(place.petrel, name="waits", lasts=3600, resumable=False)
        place.cycle(T0)
        kept = StartEstimate.objects.get()
        outlook = Outlook.objects.get(job=waits)
        assert (kept.job, kept.attempt, kept.made_at) == (waits, 1, T0)
        assert (kept.low, kept.likely, kept.high) == (
            *(outlook.start_low, outlook.start_likely, outlook.start_high),
        )
        assert kept.ahead_s == (kept.likely - T0).total_seconds() > 0
        place.cycle(T0 + 10 * MINUTE)
        assert Outlook.objects.get(job=waits).cycle_id > outlook.cycle_id
        assert StartEstimate.objects.get() == kept
        assert StartEstimate.objects.get().likely == kept.likely

    def test_another_attempt_is_given_its_own(self, place):
        place.submit(place.petrel, name="first", lasts=4 * 3600, resumable=False)
        waits = place.submit(place.petrel, name="waits", lasts=3600, resumable=False)
        place.cycle(T0)
        Job.objects.filter(pk=waits.pk).update(attempt=2)
        cycle.run(at=T0 + 10 * MINUTE, trigger="test")
        assert [(one.attempt, one.made_at) for one in StartEstimate.objects.all()] == [
            (1, T0),
            (2, T0 + 10 * MINUTE),
        ]

    def test_what_starts_at_once_was_given_none(self, place):
        place.submit(place.petrel, name="first", lasts=4 * 3600, resumable=False)
        place.cycle(T0)
        assert not StartEstimate.objects.exists()

    def test_where_no_start_is_in_sight_there_is_none(self, place):
        day = {"lasts": 30 * 3600, "expected_duration_s": 30 * 3600}
        place.submit(place.petrel, name="first", resumable=False, **day)
        place.submit(place.petrel, name="waits", lasts=3600, resumable=False)
        place.cycle(T0)
        assert Outlook.objects.get().start_likely is None
        assert not StartEstimate.objects.exists()


class TestJudged:
    def test_inside_sooner_later_and_how_far_off(self, place):
        """Ranges from 1 h to 3 h after T0, the last timestep counting whole."""
        starts = [HOUR - SECOND, HOUR, 2 * HOUR, 3 * HOUR + TIMESTEP - SECOND, 3 * HOUR + TIMESTEP]
        for start in starts:
            estimate(place.petrel, started=T0 + start)
        found = record(ahead_s=2 * 3600, now=T0 + 5 * HOUR)
        assert (found.sooner, found.inside, found.later) == (1, 3, 1)
        assert (found.judged, found.inside_percent) == (5, 60)
        # Off by 3,601 s, 3,600, 0, 5,399 and 5,400: the middle one, and nine tenths of the way.
        assert found.half_within_s == 3601
        assert found.most_within_s == 5400

    def test_one_that_still_waits_after_its_range_was_missed(self, place):
        estimate(place.petrel)
        until = T0 + 3 * HOUR + TIMESTEP
        assert record(ahead_s=7200, now=until - SECOND).judged == 0
        assert record(ahead_s=7200, now=until).later == 1

    def test_one_that_was_cancelled_says_nothing_before_its_range_is_over(self, place):
        estimate(place.petrel, state=Job.State.CANCELLED, ended_at=T0 + HOUR)
        estimate(place.petrel, state=Job.State.CANCELLED, ended_at=T0 + 4 * HOUR)
        found = record(ahead_s=7200, now=T0 + 9 * HOUR)
        assert (found.inside, found.sooner, found.later) == (0, 0, 1)

    def test_an_attempt_that_lost_its_hold_says_nothing(self, place):
        estimate(place.petrel, attempt=2)
        assert record(ahead_s=7200, now=T0 + 9 * HOUR).judged == 0

    def test_the_run_of_another_attempt_is_not_its_start(self, place):
        one = estimate(place.petrel, started=T0 + 2 * HOUR, attempt=2)
        StartEstimate.objects.filter(pk=one.pk).update(attempt=2)
        Run.objects.create(
            job=one.job,
            number=2,
            pool=Pool.objects.get(),
            decided_at=T0,
            started_at=T0 + 9 * HOUR,
            state="ended",
        )
        found = record(ahead_s=7200, now=T0 + 10 * HOUR)
        assert (found.inside, found.later) == (0, 1)

    def test_each_by_how_far_it_looked_ahead(self, place):
        for ahead in (1, 3599, 3600, 6 * 3600 - 1, 6 * 3600, 30 * 3600):
            made = timedelta(seconds=ahead)
            estimate(place.petrel, ahead=made, started=T0 + made)
        assert [one.judged for one in records(now=T0 + 40 * HOUR)] == [2, 2, 2]
        assert [(one.ahead_from_s, one.ahead_to_s) for one in records(now=T0)] == list(BANDS)

    def test_old_ones_are_forgotten(self, place):
        estimate(place.petrel, started=T0 + 2 * HOUR)
        assert record(ahead_s=7200, now=T0 + LOOKS_BACK - SECOND).judged == 1
        assert record(ahead_s=7200, now=T0 + LOOKS_BACK).judged == 0

    def test_of_nothing_nothing_is_said(self, place):
        found = record(ahead_s=0, now=T0)
        assert (found.judged, found.inside_percent, found.half_within_s) == (0, 0, None)
        assert record_for(None, now=T0) is None

    @pytest.mark.parametrize("number", [1, 4, 5])
    def test_a_handful_says_something(self, place, number):
        for _ in range(number):
            estimate(place.petrel, started=T0 + 2 * HOUR)
        found = record(ahead_s=7200, now=T0 + 9 * HOUR)
        assert found.says_something == (number == 5)
        assert (found.half_within_s is None) == (number < 5)


class TestTold:
    def words(self, **counts: int) -> str:
        return told_record(
            Record(
                ahead_from_s=3600,
                ahead_to_s=6 * 3600,
                half_within_s=19 * 60,
                most_within_s=105 * 60,
                **counts,
            )
        )

    def test_in_a_sentence(self):
        assert self.words(inside=171, sooner=30, later=13) == (
            "Of 214 first estimates of the last 28 days that looked 1 to 6 h ahead, 80 % held: "
            "14 % of the starts came sooner than the range, 6 % later. Half came within 19 min of "
            "the likely start, nine in ten within 1 h 45."
        )
        assert self.words(inside=2, sooner=1, later=1) == (
            "Too few estimates that looked 1 to 6 h ahead have come true yet to say how good "
            "they are."
        )

    def test_page_api_and_client_say_the_same(self, place, client, monkeypatch):
        stand_at(monkeypatch, T0)
        monkeypatch.setattr("config.clock.now", lambda: T0)
        for _ in range(6):
            estimate(place.petrel, made=T0 - 5 * HOUR, started=T0 - 3 * HOUR)
        Run.objects.update(state="ended", ended_at=T0 - 2 * HOUR)
        Job.objects.update(state="completed", ended_at=T0 - 2 * HOUR)
        place.submit(place.petrel, name="first", lasts=4 * 3600, resumable=False)
        waits = place.submit(place.petrel, name="waits", lasts=3600, resumable=False)
        place.cycle(T0)
        admin = place.user
        admin.is_superuser = True
        admin.save()
        api = APIClient()
        api.force_authenticate(admin)
        shown = api.get(f"/api/v1/jobs/{waits.pk}/").json()
        record = shown["outlook"]["track_record"]
        assert (record["judged"], record["inside"], record["half_within_s"]) == (6, 6, 0)
        assert record["text"].startswith("Of 6 first estimates of the last 28 days that looked")
        client.force_login(admin)
        page = " ".join(client.get(f"/jobs/{waits.pk}").content.decode().split())
        assert record["text"] in page
        assert ("so far", record["text"]) in tables._waits(shown)
