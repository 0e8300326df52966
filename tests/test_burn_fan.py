"""The burn-down's forecast: the burn report's, day by day, and when a grant runs out."""

from dataclasses import replace
from datetime import datetime, timedelta

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from allocator.pages import budget_chart, burn_fan, burning
from budgets.models import Budget
from ledger import reports
from ledger.membership import Membership
from ledger.models import ClosedTimestep
from tests import factories as make
from tests.factories import HOUR, T0
from tests.ledger_world import CREDIT, give, write_entry

pytestmark = pytest.mark.django_db
DAY = timedelta(days=1)
NOW = T0 + 30 * DAY


def burnt(budget: Budget, period, day: int, credits: int) -> None:
    at = T0 + day * DAY
    write_entry(
        kind="charge", budget=budget, period=period, at=at, until=at + HOUR / 2, timestep=at,
        amount_mgpus=credits * CREDIT, gpu_seconds=credits * 3600, created_at=at,
        key=f"day:{budget.pk}:{day}",
    )  # fmt: skip


@pytest.fixture
def period(tree):
    made = make.make_period(ends_at=T0 + 90 * DAY)
    for end in (T0 + HOUR / 2, NOW):
        ClosedTimestep.objects.create(start=end - HOUR / 2, end=end, closed_at=end)
    return made


def fan_of(budget: Budget, period, now: datetime = NOW) -> burn_fan.Fan | None:
    tree = Membership.load()
    figures = reports.figures(period=period, now=now, only={budget.pk}, tree=tree)[budget.pk]
    return burn_fan.fan(budget=budget, period=period, figures=figures, now=now, tree=tree)


def test_equal_days_run_out_on_the_exact_day(tree, period):
    tern = tree["orlo/vision/tern"]
    give(tern, 400, period)
    for day in range(30):
        burnt(tern, period, day, 10)
    found = fan_of(tern, period)
    assert found is not None
    assert found.earliest == found.likely == found.latest == NOW + 10 * DAY
    assert found.points[0] == burn_fan.Left(NOW, *[100 * CREDIT] * 3)
    assert found.points[4].likely_mgpus == 60 * CREDIT
    assert found.points[-1].at == period.ends_at
    assert len(found.points) == 61


def test_between_two_days_it_runs_out_in_proportion(tree, period):
    tern = tree["orlo/vision/tern"]
    give(tern, 405, period)
    for day in range(30):
        burnt(tern, period, day, 10)
    found = fan_of(tern, period)
    assert found is not None
    assert found.likely == NOW + 10 * DAY + 12 * HOUR


def test_it_ends_at_the_burn_reports_forecast(tree, period):
    tern, petrel = tree["orlo/vision/tern"], tree["orlo/science/petrel"]
    give(tern, 1000, period)
    give(petrel, 1000, period)
    for day in range(30):
        burnt(tern, period, day, 10 + day % 7)
        burnt(petrel, period, day, 5 + day % 3)
    report = reports.burn_report(budget=tree["orlo"], start=T0, end=NOW, now=NOW)
    found = fan_of(tree["orlo"], period)
    assert found is not None
    granted, total, last = report.total.granted_mgpus, report.total, found.points[-1]
    assert last.low_mgpus == granted - total.forecast_high_mgpus
    assert last.likely_mgpus == granted - total.forecast_mgpus
    assert last.high_mgpus == granted - total.forecast_low_mgpus
    own = fan_of(tree["orlo/vision"], period)
    row = next(one for one in report.rows if one.path == "orlo/vision")
    assert own is not None
    assert own.points[-1].likely_mgpus == row.granted_mgpus - row.forecast_mgpus


def test_what_is_held_is_known_of_whom_it_is_held_for(tree, period):
    science, petrel = tree["orlo/science"], tree["orlo/science/petrel"]
    for day in range(30):
        burnt(science, period, day, 1)  # before it had children, say
        burnt(petrel, period, day, 1)
    write_entry(
        kind="hold", budget=petrel, period=period, at=NOW, amount_mgpus=5000 * CREDIT,
        job=make.make_job(petrel), created_at=NOW, key="hold:x",
    )  # fmt: skip
    report = reports.burn_report(budget=science, start=T0, end=NOW, now=NOW)
    rows = {one.name if not one.is_reserve else "reserve": one for one in report.rows}
    assert rows["Petrel"].held_mgpus == 5000 * CREDIT
    assert rows["Petrel"].forecast_mgpus == rows["Petrel"].settled_mgpus + 5000 * CREDIT
    assert rows["reserve"].forecast_mgpus == 90 * CREDIT
    assert report.total.forecast_mgpus == report.total.settled_mgpus + 5000 * CREDIT


def test_what_lasts_does_not_run_out_and_what_is_gone_has(tree, period):
    tern, petrel = tree["orlo/vision/tern"], tree["orlo/science/petrel"]
    give(tern, 10_000, period)
    for day in range(30):
        burnt(tern, period, day, 10 + 9 * (day % 2))
        burnt(petrel, period, day, 10)
    lasts, gone = fan_of(tern, period), fan_of(petrel, period)
    assert lasts is not None
    assert gone is not None
    assert (lasts.earliest, lasts.likely, lasts.latest) == (None, None, None)
    assert gone.likely == NOW
    assert fan_of(tree["orlo/science/auk"], period) is None  # nothing was spent yet


def test_the_chart_has_it_in_a_constant_number_of_queries(tree, period):
    tern = tree["orlo/vision/tern"]
    reader = make.make_user(is_superuser=True)
    give(tern, 500, period)
    counts = []
    for days in (range(15), range(15, 30)):
        for day in days:
            burnt(tern, period, day, 10 + 9 * (day % 2))
        with CaptureQueriesContext(connection) as caught:
            chart = budget_chart.burndown(reader, path=tern.path, now=NOW)
        counts.append(len(caught))
    assert counts[0] == counts[1]
    assert chart is not None
    first, *_, last = chart["forecast_mgpus"]
    assert first[0] == "2026-10-31T00:00:00Z"
    assert first[1] == first[3]
    assert 0 <= last[1] <= last[2] <= last[3]
    likely = chart["runs_out"]["label"]
    assert likely[0].startswith("runs out ")
    assert likely[1].startswith("likely ")
    gone = [row for row in chart["forecast_mgpus"] if row[3] == 0]
    assert len(gone) <= 1  # no line along nothing


def test_before_there_is_one_the_rate_of_the_week_says_when(tree, period):
    tern = tree["orlo/vision/tern"]
    give(tern, 50, period)
    burnt(tern, period, 29, 10)
    reader = make.make_user(is_superuser=True)
    chart = budget_chart.burndown(reader, path=tern.path, now=NOW)
    assert chart is not None
    assert "forecast_mgpus" not in chart
    assert chart["runs_out"]["label"][0] == "runs out"


def test_a_runway_longer_than_the_calendar_is_no_shortage(tree, period):
    tern = tree["orlo/vision/tern"]
    give(tern, 10**10, period)
    for day in range(30):
        burnt(tern, period, day, 1)
    burn = burning.burns(period=period, now=NOW)[tern.pk]
    assert burn.judged
    assert burn.runway_s is not None
    assert burn.runway_s > timedelta.max.total_seconds()
    assert not burn.is_short


def test_a_grant_is_short_when_it_lasts_until_a_week_before_the_end(tree, period):
    tern = tree["orlo/vision/tern"]
    give(tern, 400, period)
    for day in range(30):
        burnt(tern, period, day, 2)
    burn = burning.burns(period=period, now=NOW)[tern.pk]
    least = int((period.ends_at - burning.SHORT - NOW).total_seconds())
    assert [replace(burn, runway_s=least + one).is_short for one in (0, 1)] == [True, False]
