"""Old simulations' pictures and traces are let go of by night; what they were of stays."""

from datetime import timedelta

import pytest
from django.conf import settings

from allocator import keeping, tasks
from allocator.models import Simulation
from allocator.pages import simulator_picture
from allocator.simulating import asking, running
from tests import factories as make
from tests.factories import HOUR, T0
from tests.pages_world import client_of

pytestmark = pytest.mark.django_db
KEPT = timedelta(days=settings.SIMULATIONS_KEPT_DAYS)
SECOND = timedelta(seconds=1)
TRACE = "job_id,submit_time_s,gpus,duration_s,group\n1,0,4,600,nlp\n"


@pytest.fixture
def root():
    make.make_tree()
    return make.make_user("root", is_superuser=True)


@pytest.fixture
def rows(root):
    """One that was played, one that was cancelled, and one that waits."""
    made = [
        asking.ask(by=root, now=T0, trace=TRACE, equal=True, nodes="2x8", name=f"no. {n}")
        for n in range(3)
    ]
    running.run_next(clock=lambda: T0)
    asking.cancel(simulation=made[1], now=T0 + HOUR)
    return made


def kept():
    found = Simulation.objects.order_by("pk")
    return [(row.trace != "", row.picture is not None) for row in found]


def test_after_so_many_days_and_not_a_second_before(rows):
    assert keeping.keep_pictures(at=T0 + KEPT) == 0
    assert kept() == [(True, True), (True, False), (True, False)]
    assert keeping.keep_pictures(at=T0 + KEPT + SECOND) == 1
    assert kept() == [(False, False), (True, False), (True, False)]
    assert keeping.keep_pictures(at=T0 + HOUR + KEPT + SECOND) == 1
    assert kept() == [(False, False), (False, False), (True, False)]
    assert keeping.keep_pictures(at=T0 + 10 * KEPT) == 0


def test_for_ever_where_that_is_set(rows, settings):
    settings.SIMULATIONS_KEPT_DAYS = 0
    assert keeping.keep_pictures(at=T0 + 100 * KEPT) == 0
    assert kept()[0] == (True, True)


def test_many_go_a_few_at_a_time(rows, monkeypatch, django_assert_num_queries):
    monkeypatch.setattr(keeping, "SIMULATIONS_AT_ONCE", 1)
    with django_assert_num_queries(2 + 2 + 1):
        assert keeping.keep_pictures(at=T0 + 10 * KEPT) == 2


def test_its_figures_stay_and_the_rest_is_said_to_be_gone(root, rows):
    client, address = client_of(root), f"/simulator/{rows[0].pk}"
    before = client.get(f"/api/v1/simulations/{rows[0].pk}/").json()
    assert "data-src" in client.get(address).content.decode()
    keeping.keep_pictures(at=T0 + 10 * KEPT)
    assert client.get(f"/api/v1/simulations/{rows[0].pk}/").json() == before
    assert before["result"]["courses"][0]["budgets"]
    page = client.get(address)
    assert page.status_code == 200
    said = "Pictures were kept for 90 days (SIMULATIONS_KEPT_DAYS), and are gone."
    assert said in page.content.decode()
    assert said == simulator_picture.gone()
    assert "data-src" not in page.content.decode()
    for part in ("picture.json", "runs"):
        assert client.get(f"{address}/{part}?course=0").status_code == 404


def test_beat_does_it_each_night():
    scheduled = settings.CELERY_BEAT_SCHEDULE["keep_pictures"]
    assert scheduled["task"] == tasks.keep_pictures.name
    assert {len(scheduled["schedule"].hour), len(scheduled["schedule"].minute)} == {1}
    assert tasks.keep_pictures() == 0
