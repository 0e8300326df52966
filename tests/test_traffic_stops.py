"""The alarm of a service whose traffic stops coming."""

from datetime import timedelta
from decimal import Decimal

import pytest
from django.template.loader import render_to_string
from django.utils import translation

from allocator import tasks, traffic_stops
from allocator.models import Alarm
from allocator.pages import overview_alarms
from allocator.pages.names import Names
from budgets.models import Notice
from forecasting import calibrating, traffic
from tests import factories as make
from tests.factories import HOUR, T0
from workloads.models import Job, Service

pytestmark = pytest.mark.django_db
PETREL = "orlo/science/petrel"
ALARMS = "allocator/_overview_alarms.html"
MINUTE = timedelta(minutes=1)


@pytest.fixture
def job(tree) -> Job:
    """A service that runs and follows its traffic, which came each hour of the last five."""
    job = make.make_service(tree[PETREL], state="running", state_since=T0 - 9 * HOUR)
    calibrating.configure(service=job.service, calibrated=True)
    for n in range(5):
        comes(job, T0 + n * HOUR)
    return job


def comes(job, at, *, step_minutes=60, late=timedelta()):
    """The step that has just ended is sent."""
    step = timedelta(minutes=step_minutes)
    rows = [(at - step, Decimal(7))]
    traffic.store(job=job, rows=rows, now=at + late, step_minutes=step_minutes)


def look(at):
    return traffic_stops.look(now=at)


LAST = T0 + 4 * HOUR


def test_it_begins_when_traffic_is_overdue_is_told_once_and_ends_with_the_next(job, cast):
    assert look(LAST + 3 * HOUR) == 0
    assert look(LAST + 3 * HOUR + MINUTE) == 1
    alarm = Alarm.objects.get()
    assert (alarm.kind, alarm.raised_at) == (f"no-traffic:{job.pk}", LAST + 3 * HOUR + MINUTE)
    assert "no traffic has come since 01 Oct 2026 04:00 UTC, though it came every 1 h 00" in (
        alarm.text
    )
    assert "See whether what sends it still runs" in alarm.text
    told = set(Notice.objects.values_list("user_id", flat=True))
    assert job.submitted_by_id in told
    assert look(LAST + 5 * HOUR) == 1
    assert Notice.objects.count() == len(told)
    assert Notice.objects.filter(kind="traffic", link=f"/jobs/{job.pk}").count() == len(told)
    comes(job, LAST + 6 * HOUR)
    assert look(LAST + 6 * HOUR) == 0
    assert Alarm.objects.get().cleared_at == LAST + 6 * HOUR


def test_traffic_that_was_known_before_is_no_traffic_that_comes(job):
    comes(job, LAST, late=2 * HOUR)
    comes(job, LAST - 2 * HOUR, late=4 * HOUR)
    assert look(LAST + 3 * HOUR + MINUTE) == 1


def test_how_often_it_comes_decides_how_long_it_may_stay_away(job):
    comes(job, LAST + 4 * HOUR)
    assert look(LAST + 12 * HOUR) == 0
    assert look(LAST + 12 * HOUR + MINUTE) == 1


def test_a_list_that_came_once_says_nothing_of_the_next_for_a_day(tree):
    job = make.make_service(tree[PETREL], state="running", state_since=T0)
    calibrating.configure(service=job.service, calibrated=True)
    comes(job, T0)
    assert [look(T0 + 24 * HOUR), look(T0 + 24 * HOUR + MINUTE)] == [0, 1]
    assert "though" not in Alarm.objects.get().text


def test_what_came_before_arrivals_were_kept_counts_from_its_last_step(job):
    Service.objects.update(traffic_came_at=None, traffic_every_s=None)
    assert [look(LAST + 24 * HOUR), look(LAST + 24 * HOUR + MINUTE)] == [0, 1]


def test_a_service_that_waits_has_ended_or_follows_its_profile_misses_none(job):
    late = LAST + 9 * HOUR
    assert look(late) == 1
    Job.objects.update(state="queued", state_since=late)
    assert look(late) == 0
    Job.objects.update(state="running")
    assert look(late) == 0, "it has only begun again"
    assert look(late + 4 * HOUR) == 1
    calibrating.configure(service=job.service, calibrated=False)
    assert look(late + 4 * HOUR) == 0
    assert not Alarm.objects.filter(cleared_at=None).exists()


def test_the_overview_shows_it_and_its_sentence_to_who_sees_everything(job, cast):
    look(LAST + 9 * HOUR)
    for name, sees in (("admin", True), ("member", False)):
        (notice,) = overview_alarms.notices(Names.load(cast[name]), [], now=LAST + 9 * HOUR)
        assert (notice.kind, notice.is_act) == ("no-traffic", True)
        context = {"page": {"notices": [notice], "now": T0}, "now": T0}
        shown = render_to_string(ALARMS, context)
        assert (f"Service {job.pk} gets no traffic" if sees else "A service gets") in shown
        assert ("See whether" in shown) == (f'href="/jobs/{job.pk}"' in shown) == sees


def test_it_is_read_in_the_readers_language_whoever_raised_it(job, cast):
    with translation.override("pt-br"):
        look(LAST + 9 * HOUR)
    assert "no traffic has come since" in Alarm.objects.get().text
    for language, said in (("en", "no traffic has come"), ("pt-br", "nenhum tráfego chegou desde")):
        with translation.override(language):
            names = Names.load(cast["admin"])
            (line,) = overview_alarms.notices(names, [], now=LAST + 9 * HOUR)
            assert said in line.text
            assert {said in notice.said for notice in Notice.objects.all()} == {True}


def test_beat_looks_for_it(job, monkeypatch):
    monkeypatch.setattr(tasks, "now", lambda: LAST + 9 * HOUR)
    assert tasks.keep_forecasts() == 1
