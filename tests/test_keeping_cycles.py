"""What old cycles saw and planned is let go of by night; what happened in them stays."""

from datetime import timedelta

import pytest
from django.conf import settings
from django.db import connection
from django.test.utils import CaptureQueriesContext
from rest_framework.test import APIClient

from allocator import keeping, reading, tasks
from allocator.models import Cycle
from tests.factories import HOUR, T0, make_user
from tests.helpers import Institute, make_institute

pytestmark = pytest.mark.django_db
DAY = timedelta(days=1)
KEPT = timedelta(days=settings.CYCLES_KEPT_DAYS)


@pytest.fixture
def place() -> Institute:
    """Three cycles: the first two are of the same instant, the newest an hour later."""
    made = make_institute(nodes=1)
    made.submit(made.petrel, name="one")
    made.cycle(T0)
    made.cycle(T0)
    made.cycle(T0 + HOUR)
    return made


def kept() -> list[bool]:
    rows = Cycle.objects.order_by("pk")
    assert all(bool(row.snapshot) == bool(row.plan) for row in rows)
    return [bool(row.snapshot) for row in rows]


def test_after_so_many_days_and_not_a_second_before(place):
    assert keeping.keep_cycles(at=T0 + KEPT) == 0
    assert kept() == [True, True, True]
    assert keeping.keep_cycles(at=T0 + KEPT + timedelta(seconds=1)) == 2
    assert kept() == [False, False, True]
    assert keeping.keep_cycles(at=T0 + KEPT + timedelta(seconds=1)) == 0


def test_the_plan_in_force_stays_however_old_it_is(place):
    keeping.keep_cycles(at=T0 + 10 * KEPT)
    assert kept() == [False, False, True]
    newest = reading.newest()
    assert newest is not None
    assert [bar.first_gpu for bar in reading.plan_view(newest).bars] == [0]


def test_why_a_plan_was_illegal_stays_to_be_seen(place):
    Cycle.objects.filter(pk=Cycle.objects.earliest("pk").pk).update(status="illegal")
    assert keeping.keep_cycles(at=T0 + 10 * KEPT) == 1
    assert kept() == [True, False, True]


def test_many_go_a_few_at_a_time(place, monkeypatch, django_assert_num_queries):
    monkeypatch.setattr(keeping, "CYCLES_AT_ONCE", 1)
    with django_assert_num_queries(1 + 2 + 2 + 1):
        assert keeping.keep_cycles(at=T0 + 10 * KEPT) == 2


def test_what_was_let_go_before_is_looked_at_once(place, monkeypatch):
    """A year has a million of them, in front of all that are still to be let go."""
    monkeypatch.setattr(keeping, "CYCLES_AT_ONCE", 1)
    with CaptureQueriesContext(connection) as asked:
        assert keeping.keep_cycles(at=T0 + 10 * KEPT) == 2
    looks = [q["sql"] for q in asked if "SELECT" in q["sql"] and '"id" >' in q["sql"]]
    first = Cycle.objects.earliest("pk").pk
    assert len(looks) == 3
    assert f'"id" > {first}' in looks[1]


def test_for_ever_where_that_is_set(place, settings):
    settings.CYCLES_KEPT_DAYS = 0
    assert keeping.keep_cycles(at=T0 + 100 * KEPT) == 0
    assert kept() == [True, True, True]


def test_its_figures_stay_and_the_rest_is_said_to_be_gone(place):
    before = Cycle.objects.order_by("pk").values("pk", "starts", "status", "waiting", "at")
    was = list(before)
    keeping.keep_cycles(at=T0 + 10 * KEPT)
    assert list(before) == was
    api = APIClient()
    api.force_authenticate(make_user("root", is_superuser=True))
    first, newest = was[0]["pk"], was[-1]["pk"]
    assert api.get(f"/api/v1/cycles/{first}/").json()["starts"] == was[0]["starts"] == 1
    for part in ("snapshot", "plan"):
        answer = api.get(f"/api/v1/cycles/{first}/{part}/")
        assert answer.status_code == 404
        assert "kept for 90 days" in answer.json()["detail"]
        assert api.get(f"/api/v1/cycles/{newest}/{part}/").status_code == 200


def test_beat_does_it_each_night():
    scheduled = settings.CELERY_BEAT_SCHEDULE["keep_cycles"]
    assert scheduled["task"] == tasks.keep_cycles.name
    assert {len(scheduled["schedule"].hour), len(scheduled["schedule"].minute)} == {1}
    assert tasks.keep_cycles.name not in settings.CELERY_TASK_ROUTES
    assert tasks.keep_cycles() == 0
