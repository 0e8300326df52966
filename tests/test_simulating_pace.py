"""How long a simulation still takes: foretold, told, and ended early where it is far too long."""

from copy import deepcopy
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from django.utils import timezone
from rest_framework.test import APIClient

from allocator.models import Simulation
from allocator.pages import simulator_picture
from allocator.simulating import asking, running
from allocator.simulating.pace import Pace
from tests import factories as make
from tests.factories import HOUR, T0
from tests.pages_day import NOW
from tests.pages_world import client_of, text_of

MINUTE = timedelta(minutes=1)


# --- Foretold ------------------------------------------------------------------------------------


def test_what_is_left_of_a_play_is_as_slow_as_it_was_so_far():
    pace = Pace(["fairshare"])
    pace.begin(0, 1000)
    assert pace.left_s(1000, 0, 400) is None
    assert pace.left_s(1009, 100, 400) is None, "too early"
    assert pace.left_s(1020, 100, 400) == 60
    assert pace.left_s(1080, 400, 400) == 0


def test_a_second_tree_takes_as_long_as_the_first_and_other_policies_nothing_beside_plans():
    pace = Pace(["fairshare", "fifo", "fairshare", "fifo"])
    pace.begin(0, 0)
    assert pace.left_s(100, 1, 4) == 300 + 400
    pace.begin(1, 400)
    assert pace.left_s(410, 1, 2) == 10 + 400 + 20
    pace.begin(2, 420)
    assert pace.left_s(520, 1, 4) == 300 + 20


def test_plays_without_plans_are_all_alike():
    pace = Pace(["fifo", "backfill", "priority"])
    pace.begin(0, 0)
    assert pace.left_s(10, 1, 2) == 10 + 20 + 20


# --- Told and ended ------------------------------------------------------------------------------


@pytest.fixture
def day(played, db):
    return deepcopy(played)


@pytest.fixture
def root(day):
    return make.make_user("root", is_superuser=True)


def slow(root, monkeypatch, *, took, of=10, policies=("fairshare",)):
    """Ask for one whose first play has done a tenth after ``took``; return it as it stands."""
    monkeypatch.setattr(running, "EVERY_S", 0)
    row = asking.ask(by=root, now=NOW, window=(T0, NOW), policies=policies)
    row = running._take(NOW)
    instants = iter([NOW, NOW + took])
    told = running._Progress(row, lambda: next(instants), Pace(row.policies), 0, of)
    told.show(0)
    told.show(1)
    row.refresh_from_db()
    return row


def test_the_page_and_the_api_tell_what_is_left(root, monkeypatch):
    row = slow(root, monkeypatch, took=100 * MINUTE / 60)
    assert row.left_s == 900
    assert "about 15 min left" in text_of(client_of(root).get(f"/simulator/{row.pk}"))
    api = APIClient()
    api.force_authenticate(root)
    assert api.get(f"/api/v1/simulations/{row.pk}/").json()["left_s"] == 900
    Simulation.objects.update(left_s=None)
    assert "min left" not in text_of(client_of(root).get(f"/simulator/{row.pk}"))


def test_one_that_begins_anew_has_nothing_foretold(root, monkeypatch):
    row = slow(root, monkeypatch, took=2 * MINUTE)
    running.keep(now=NOW + HOUR)
    row.refresh_from_db()
    assert (row.state, row.left_s) == ("queued", None)


def test_one_that_would_take_over_twice_its_time_is_ended_with_a_sentence(root, monkeypatch):
    with pytest.raises(running.TooLong) as ended:
        slow(root, monkeypatch, took=9 * MINUTE + timedelta(seconds=1))
    assert str(ended.value) == (
        "It would take about 90 minutes, and at most 45 go: choose fewer days or policies."
    )


@pytest.mark.parametrize(
    ("took", "of"),
    [
        (9 * MINUTE, 10),  # 90 minutes in all: twice, not more
        (5 * MINUTE - timedelta(seconds=1), 100),  # it may still gather speed
    ],
)
def test_one_that_may_still_be_done_goes_on(root, monkeypatch, took, of):
    assert slow(root, monkeypatch, took=took, of=of).state == "running"


# --- Days that clocks change in ------------------------------------------------------------------


def kept(start, hours):
    seconds = hours * 3600
    return Simulation(starts_at=start, result={"seconds": seconds}, picture=b"x")


@pytest.mark.parametrize(
    ("start", "hours", "begins"),
    [
        # Midnight of Saturday in Berlin; Sunday the 25th has 25 hours.
        (datetime(2026, 10, 23, 22, tzinfo=UTC), 73, [0, 24, 49]),
        (datetime(2026, 10, 23, 22, tzinfo=UTC), 74, [0, 24, 49, 73]),
        # Sunday, the 28th of March 2027, has 23.
        (datetime(2027, 3, 26, 23, tzinfo=UTC), 71, [0, 24, 47]),
        # At noon, too.
        (datetime(2026, 10, 24, 10, tzinfo=UTC), 49, [0, 25]),
    ],
)
def test_days_begin_at_the_reader_s_time_of_day_as_clocks_change(start, hours, begins):
    with timezone.override(ZoneInfo("Europe/Berlin")):
        row = kept(start, hours)
        assert simulator_picture.begins_of(row) == [3600 * hour for hour in begins]
        shown = simulator_picture.days(row, 0)
        local = [timezone.localtime(at) for _number, at, _shown in shown.all]
        assert len({at.date() for at in local}) == len(local)
        assert len({at.time() for at in local}) == 1
        assert shown.end - shown.start == timedelta(hours=begins[2] if len(begins) > 2 else hours)


def test_a_reader_elsewhere_has_days_of_their_own():
    row = kept(datetime(2026, 10, 23, 22, tzinfo=UTC), 73)
    with timezone.override(UTC):
        assert simulator_picture.begins_of(row) == [0, 24 * 3600, 48 * 3600, 72 * 3600]


def test_a_trace_s_days_are_all_as_long():
    row = Simulation(trace="x", result={"seconds": 73 * 3600})
    with timezone.override(ZoneInfo("Europe/Berlin")):
        assert simulator_picture.begins_of(row) == [n * 24 * 3600 for n in range(4)]
