"""Warnings before a session ends: 30, 10 and 2 minutes before, each once, whatever happened."""

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta

import pytest
from django.conf import settings
from django.core import mail
from django.db import connection

from allocator import session_warnings, tasks
from allocator.session_warnings import stage, warn
from budgets import notices
from budgets.models import Notice, Role
from tests import factories as make
from tests.factories import HOUR, T0
from tests.helpers import Institute, make_institute
from tests.test_sessions import HOUR_S, MINUTE, extend, run_of, started
from tests.test_sessions_races import together
from workloads import services as workloads
from workloads.models import Job, Run

pytestmark = pytest.mark.django_db
SECOND = timedelta(seconds=1)


@pytest.fixture
def place() -> Institute:
    made = make_institute()
    make.make_role(made.user, made.petrel, "member")
    return made


def warned(instants: Iterable[datetime]) -> list[datetime]:
    """Look at each of some instants; return those at which something was told."""
    return [at for at in instants if warn(now=at)]


def every(step: timedelta, start: datetime, end: datetime) -> list[datetime]:
    return [start + step * n for n in range((end - start) // step + 1)]


def texts() -> list[str]:
    return list(Notice.objects.order_by("pk").values_list("text", flat=True))


def test_it_warns_30_10_and_2_minutes_before_the_end_each_once(place):
    started(place, time_limit_s=2 * HOUR_S)
    end = T0 + 2 * HOUR
    found = warned(every(20 * SECOND, T0 + 80 * MINUTE, end + MINUTE))
    assert found == [end - 30 * MINUTE, end - 10 * MINUTE, end - 2 * MINUTE]
    assert [n.created_at for n in Notice.objects.order_by("pk")] == found


def test_a_warning_says_when_what_then_and_how_to_go_on(place):
    job = started(place, time_limit_s=2 * HOUR_S)
    warn(now=T0 + 90 * MINUTE)
    notice = Notice.objects.get()
    assert (notice.user, notice.kind, notice.link) == (place.user, "session", f"/jobs/{job.pk}")
    assert notice.text == (
        f"Session notebook (job {job.pk}) ends at 02:00 UTC, in 30 minutes: it is stopped, and "
        "what it holds in memory is lost. To go on, extend it on its page, or with: "
        f"python3 -m client extend {job.pk} 30m"
    )


def test_it_goes_out_by_e_mail_with_a_link(place, settings):
    settings.EMAIL_BACKEND = "django.core.mail.backends.locmem.EmailBackend"
    job = started(place, time_limit_s=2 * HOUR_S)
    warn(now=T0 + 90 * MINUTE)
    assert notices.send_due(now=T0 + 90 * MINUTE) == 1
    message = mail.outbox[0]
    assert message.subject == "[Allotment] orlo/science/petrel: session ends"
    assert f"{settings.SITE_URL}/jobs/{job.pk}" in message.body


def test_after_a_gap_only_the_nearest_that_is_still_true_is_told(place):
    started(place, time_limit_s=2 * HOUR_S)
    end = T0 + 2 * HOUR
    assert warned([T0, end - 5 * MINUTE, end - 4 * MINUTE]) == [end - 5 * MINUTE]
    assert "in 5 minutes" in texts()[0]
    assert warned([end - MINUTE, end - 30 * SECOND]) == [end - MINUTE]
    assert "in a minute" in texts()[1]


def test_after_a_gap_past_the_end_nothing_is_told(place):
    started(place, time_limit_s=2 * HOUR_S)
    assert warned([T0 + 2 * HOUR, T0 + 3 * HOUR]) == []


def test_what_had_passed_when_it_started_isn_t_told(place):
    started(place, time_limit_s=10 * 60)
    assert warned(every(15 * SECOND, T0, T0 + 10 * MINUTE)) == [T0 + 8 * MINUTE]


def test_an_extension_arms_them_anew(place):
    job = started(place)
    assert warned(every(MINUTE, T0, T0 + 52 * MINUTE)) == [T0 + 30 * MINUTE, T0 + 50 * MINUTE]
    assert extend(job, 60, T0 + 52 * MINUTE).is_granted
    end = T0 + 2 * HOUR
    found = warned(every(MINUTE, T0 + 52 * MINUTE, end))
    assert found == [end - 30 * MINUTE, end - 10 * MINUTE, end - 2 * MINUTE]


def test_a_short_extension_isn_t_warned_of_at_once(place):
    """Whoever asked for 5 minutes more knows that it ends in 7."""
    job = started(place)
    warn(now=T0 + 50 * MINUTE)
    warn(now=T0 + 58 * MINUTE)
    extend(job, 5, T0 + 58 * MINUTE)
    assert warned(every(MINUTE, T0 + 58 * MINUTE, T0 + 65 * MINUTE)) == [T0 + 63 * MINUTE]


def test_a_refused_extension_arms_nothing(place):
    job = started(place, time_limit_s=12 * HOUR_S)
    Run.objects.update(protected_until=T0 + 12 * HOUR)
    assert not extend(job, 60, T0 + 12 * HOUR - 20 * MINUTE).is_granted
    assert warned([T0 + 12 * HOUR - 19 * MINUTE]) == [T0 + 12 * HOUR - 19 * MINUTE]


def test_a_long_box_is_warned_of_the_end_of_its_protection_too(place):
    started(place, time_limit_s=9 * HOUR_S)
    found = warned(every(MINUTE, T0 + 7 * HOUR, T0 + 9 * HOUR))
    borders = (T0 + 8 * HOUR, T0 + 9 * HOUR)
    assert found == [at - minutes * MINUTE for at in borders for minutes in (30, 10, 2)]
    assert "Protection of session notebook" in texts()[0]
    assert "may be preempted from then on" in texts()[0]
    assert texts()[3].startswith("Session notebook")


def test_an_unfunded_one_is_warned_that_it_can_t_be_extended():
    place = make_institute(credits=0)
    make.make_role(place.user, place.petrel, "member")
    started(place, when_unfunded="run")
    warn(now=T0 + 30 * MINUTE)
    assert texts()[0].endswith("It runs unfunded, so it can't be extended.")


def test_no_other_job_is_warned_of_nor_one_that_is_being_cancelled(place):
    place.submit(place.auk, time_limit_s=HOUR_S, expected_duration_s=HOUR_S)
    job = started(place)
    workloads.request_cancel(job=job, by=None, at=T0 + MINUTE)
    assert warned(every(MINUTE, T0, T0 + HOUR)) == []
    Job.objects.update(cancel_requested_at=None)
    workloads.decide_stop(run=run_of(job), reason="cancelled", at=T0 + MINUTE)
    assert warned(every(MINUTE, T0, T0 + HOUR)) == []


def test_who_may_no_longer_see_it_is_told_nothing(place):
    started(place)
    Role.objects.all().delete()
    assert warned(every(MINUTE, T0, T0 + HOUR)) == []


@pytest.mark.parametrize(
    ("start", "hour"),
    [
        # The hour that is skipped in spring, and the one that comes twice in autumn.
        (datetime(2026, 11, 1, 4, 30, tzinfo=UTC), "01:30 EST"),
        (datetime(2026, 11, 1, 3, 30, tzinfo=UTC), "01:30 EDT"),
        (datetime(2027, 3, 14, 5, 30, tzinfo=UTC), "03:30 EDT"),
    ],
)
def test_days_with_a_clock_change_are_as_long_as_others(start, hour):
    place = make_institute(time_zone="America/New_York", ends_at=datetime(2027, 6, 1, tzinfo=UTC))
    make.make_role(place.user, place.petrel, "member")
    started(place, start, time_limit_s=2 * HOUR_S)
    end = start + 2 * HOUR
    found = warned(every(MINUTE, start, end))
    assert found == [end - minutes * MINUTE for minutes in (30, 10, 2)]
    assert f"ends at {hour}, in" in texts()[0]


@pytest.mark.parametrize(
    ("left", "expected"),
    [(31, None), (30, 30), (11, 30), (10, 10), (3, 10), (2, 2), (1, 2), (0, None), (-1, None)],
)
def test_the_nearest_that_is_still_true(left, expected):
    assert stage(T0 + HOUR, since=T0, now=T0 + HOUR - left * MINUTE) == expected


def test_it_is_asked_for_by_beat_beside_the_cycles(place, monkeypatch):
    scheduled = settings.CELERY_BEAT_SCHEDULE["warn_sessions"]
    assert scheduled["task"] == tasks.warn_sessions.name
    assert scheduled["schedule"] <= 60, "the last warning is two minutes before the end"
    assert settings.CELERY_TASK_ROUTES[tasks.warn_sessions.name] == {"queue": "cycle"}
    started(place)
    monkeypatch.setattr(tasks, "now", lambda: T0 + 30 * MINUTE)
    assert (tasks.warn_sessions(), tasks.warn_sessions()) == (1, 0)


@pytest.mark.skipif(connection.vendor != "postgresql", reason="needs two writers at once")
@pytest.mark.django_db(transaction=True)
def test_two_workers_at_once_tell_each_once(monkeypatch):
    place = make_institute()
    make.make_role(place.user, place.petrel, "member")
    started(place)
    # Both find it untold, whichever is first.
    monkeypatch.setattr(
        session_warnings.Notice.objects, "filter", lambda **_: Notice.objects.none()
    )
    together(*[lambda: warn(now=T0 + 30 * MINUTE)] * 4)
    assert Notice.objects.count() == 1


# --- Its start ------------------------------------------------------------------------------------


def waited(place: Institute, minutes: int) -> Job:
    """A session of two hours that started at T0, so many minutes after it was submitted."""
    job = started(place, time_limit_s=2 * HOUR_S)
    Job.objects.filter(pk=job.pk).update(submitted_at=T0 - minutes * MINUTE)
    return job


def test_who_waited_for_it_is_told_once_that_it_has_started(place):
    job = waited(place, 130)
    assert warned(every(15 * SECOND, T0, T0 + 20 * MINUTE)) == [T0]
    assert texts() == [
        f"Session notebook (job {job.pk}) started at 00:00 UTC, after 130 minutes in the queue: "
        "its GPUs are charged from then on, whether they are used or not. It ends at 02:00 UTC."
    ]
    assert Notice.objects.get().link == f"/jobs/{job.pk}"


@pytest.mark.parametrize(("minutes", "told"), [(4, 0), (5, 1)])
def test_who_waited_for_less_than_five_minutes_is_still_there(place, minutes, told):
    waited(place, minutes)
    assert warn(now=T0 + MINUTE) == told


def test_after_a_quarter_of_an_hour_it_is_no_news(place):
    waited(place, 60)
    assert warn(now=T0 + 15 * MINUTE) == 0
    assert warn(now=T0 + 15 * MINUTE - SECOND) == 1


def test_nobody_is_told_of_what_they_don_t_see_any_more(place):
    waited(place, 60)
    Role.objects.all().delete()
    assert warn(now=T0 + MINUTE) == 0
