"""Borders of periods: local dates of an accounting zone, also on the days when clocks change."""

from datetime import UTC, date, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from allocator import turning
from budgets import calendars, periods
from budgets.models import Period
from budgets.redrafting import redraft_period
from budgets.refusals import Refused
from ledger import reports
from ledger.models import Entry
from tests.factories import (
    HOUR,
    LONG_AGO,
    TIMESTEP,
    make_job,
    make_nodes,
    make_period,
    make_pool,
    make_run,
    someone,
)
from tests.ledger_world import close

NEW_YORK = "America/New_York"
DAY = timedelta(days=1)
CLOCKS_CHANGE = [(date(2026, 3, 8), 23), (date(2026, 11, 1), 25)]


def utc(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


# --- Local dates ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "instant"),
    [
        ("2026-11-01 America/New_York", "2026-11-01T04:00"),
        ("2026-11-02 America/New_York", "2026-11-02T05:00"),
        ("2026-03-08 America/New_York", "2026-03-08T05:00"),
        ("2026-03-09 America/New_York", "2026-03-09T04:00"),
        ("2026-10-01 UTC", "2026-10-01T00:00"),
        ("2026-10-01 Asia/Kolkata", "2026-09-30T18:30"),
        ("2026-04-24 Africa/Cairo", "2026-04-23T22:00"),  # there is no midnight: 00:00 is 01:00
        ("2026-11-01 America/Havana", "2026-11-01T04:00"),  # midnight comes twice: the first
    ],
)
def test_a_local_date_is_an_instant(text: str, instant: str) -> None:
    assert calendars.border(text) == utc(instant)


@pytest.mark.parametrize(
    ("text", "hours"),
    [
        ("2026-11", 30 * 24 + 1),
        ("2026-03", 31 * 24 - 1),
        ("2026-02", 28 * 24),
        ("2028-02", 29 * 24),
        ("2026-12", 31 * 24),
        ("2026-Q1", (31 + 28 + 31) * 24 - 1),
        ("2026-Q2", (30 + 31 + 30) * 24),
        ("2026-Q4", (31 + 30 + 31) * 24 + 1),
    ],
)
def test_months_and_quarters_have_the_hours_that_clocks_give_them(text: str, hours: int) -> None:
    zone = ZoneInfo(NEW_YORK)
    start, end = calendars.calendar(text, zone)
    assert end - start == timedelta(hours=hours)
    assert (start.astimezone(zone).day, start.astimezone(zone).hour) == (1, 0)
    assert (end.astimezone(zone).day, end.astimezone(zone).hour) == (1, 0)
    assert start.tzinfo is end.tzinfo is UTC


def test_months_and_quarters_follow_each_other_without_gap_or_overlap() -> None:
    zone = ZoneInfo(NEW_YORK)
    months = [calendars.calendar(f"2026-{month:02d}", zone) for month in range(1, 13)]
    quarters = [calendars.calendar(f"2026-Q{number}", zone) for number in range(1, 5)]
    for spans in (months, quarters):
        assert [end for _, end in spans[:-1]] == [start for start, _ in spans[1:]]
    assert months[0][0] == quarters[0][0]
    assert months[-1][1] == quarters[-1][1] == utc("2027-01-01T05:00")


@pytest.mark.parametrize(("day", "hours"), CLOCKS_CHANGE)
def test_a_day_on_which_clocks_change_has_its_own_length(day: date, hours: int) -> None:
    zone = ZoneInfo(NEW_YORK)
    start, end = calendars.days(day, day + DAY, zone)
    assert (end - start, calendars.length_days(start, end, zone)) == (timedelta(hours=hours), 1)


@pytest.mark.parametrize("text", ["2026-13", "2026-00", "2026-Q5", "1969-12", "2026", "26-11", ""])
def test_what_is_no_month_or_quarter_is_refused(text: str) -> None:
    with pytest.raises(Refused, match="is no month or quarter: give 2026-11, or 2026-Q4"):
        calendars.calendar(text, UTC)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("2026-02-30 UTC", "'2026-02-30' is no date of a border"),
        ("1960-01-01 UTC", "is no date of a border: give one like 2026-11-01 America/New_York"),
        ("2026-11-01 Mars/Base", "'Mars/Base' is no time zone"),
        ("2026-11-01", "'' is no time zone"),
    ],
)
def test_what_is_no_border_is_refused(text: str, words: str) -> None:
    with pytest.raises(Refused, match=words):
        calendars.border(text)


# --- Row 27 ---------------------------------------------------------------------------------------


@pytest.mark.django_db
@pytest.mark.parametrize(("day", "hours"), CLOCKS_CHANGE)
def test_half_open_utc_periods_from_a_named_accounting_zone_exactly_one_reset_each(
    tree: Any, day: date, hours: int
) -> None:
    """Row 27: the day has 25 / 23 hours, one reset, and a job over the borders is split there."""
    zone = ZoneInfo(NEW_YORK)
    pool = make_pool()
    (node,) = make_nodes(pool)
    spans = [calendars.days(day + n * DAY, day + (n + 1) * DAY, zone) for n in (-1, 0, 1)]
    for number, (start, end) in enumerate(spans):
        one = periods.draft_period(
            name=f"day {number}", starts_at=start, ends_at=end, time_zone=NEW_YORK, now=LONG_AGO
        )
        assert periods.concerns(one) == []
        periods.approve_period(period=one)
    (first, _), (_, last) = spans[0], spans[-1]
    begun, over = spans[1][0] - timedelta(minutes=7, seconds=11), spans[1][1] + timedelta(seconds=3)
    make_run(make_job(tree["orlo/vision/tern"]), {node: 0xFF}, started_at=begun, ended_at=over)
    resets, at = [], first
    while at <= last:
        before = set(Period.objects.filter(status="active").values_list("name", flat=True))
        if begun < at < over + TIMESTEP:
            close(since=at - TIMESTEP)
        turning.start_due(at=at)
        turning.close_over(at=at)
        after = set(Period.objects.filter(status="active").values_list("name", flat=True))
        resets += [(name, at) for name in after - before]
        at += TIMESTEP
    assert resets == [(f"day {number}", start) for number, (start, _) in enumerate(spans)]
    assert set(Period.objects.values_list("status", flat=True)) == {"closed"}
    held = {
        one.name: reports.figures(period=one, now=last)[tree["orlo"].pk].charged_gpu_seconds
        for one in Period.objects.all()
    }
    assert held == {"day 0": 8 * 431, "day 1": 8 * hours * 3600, "day 2": 8 * 3}
    grants = Entry.objects.filter(kind="grant", budget=tree["orlo"]).order_by("period__starts_at")
    assert [entry.amount_mgpus for entry in grants] == [
        8 * 1000 * length * 3600 for length in (24, hours, 24)
    ]


@pytest.mark.django_db
def test_a_job_over_a_border_inside_a_timestep_is_split_to_the_second(tree: Any) -> None:
    border = LONG_AGO + timedelta(minutes=10, seconds=7)
    for name, start, end in (("a", LONG_AGO, border), ("b", border, border + DAY)):
        make_period(name, starts_at=start, ends_at=end)
    (node,) = make_nodes(make_pool())
    make_run(
        make_job(tree["orlo/vision/tern"]), {node: 1}, started_at=LONG_AGO, ended_at=border + HOUR
    )
    close(3, since=LONG_AGO)
    charges = Entry.objects.filter(kind="charge").order_by("at")
    assert list(charges.values_list("period__name", "gpu_seconds")) == [
        ("a", 607),
        ("b", 1800 - 607),
        ("b", 1800),
        ("b", 607),
    ]


# --- What whoever approves should know ------------------------------------------------------------


def draft(name: str, start: str, end: str, **more: Any) -> Period:
    return periods.draft_period(
        name=name, starts_at=utc(start), ends_at=utc(end), now=LONG_AGO, **more
    )


@pytest.mark.django_db
def test_gaps_and_overlaps_of_periods_that_follow_each_other_are_said() -> None:
    make_nodes(make_pool())
    periods.approve_period(period=draft("Q3", "2026-07-01", "2026-10-01"))
    periods.approve_period(period=draft("Q1", "2027-01-02", "2027-04-01"))
    exact = draft("fits", "2026-10-01", "2027-01-02")
    assert periods.concerns(exact) == []
    loose = draft("loose", "2026-10-03", "2027-01-01")
    assert periods.concerns(loose) == [
        "No period covers 2026-10-01T00:00:00Z to 2026-10-03T00:00:00Z, between Q3 and loose: what "
        "runs then can't be charged, nor anything granted.",
        "No period covers 2027-01-01T00:00:00Z to 2027-01-02T00:00:00Z, between loose and Q1: what "
        "runs then can't be charged, nor anything granted.",
    ]
    late = draft("late", "2026-09-30T23:59:59", "2027-01-02")
    assert periods.concerns(late) == [
        "late overlaps Q3: change its dates.",
        "late starts at 2026-09-30 23:59:59 in UTC, not at midnight.",
    ]
    with pytest.raises(Refused, match="late overlaps Q3: change its dates"):
        periods.approve_period(period=late)
    late = redraft_period(author=someone(), period=late, starts_at=utc("2026-10-01"), now=LONG_AGO)
    assert periods.concerns(late) == []
    periods.approve_period(period=late)


@pytest.mark.django_db
def test_borders_away_from_the_zone_s_midnight_and_empty_plans_are_said() -> None:
    one = draft("Q4", "2026-10-01", "2027-01-01T05:00", time_zone=NEW_YORK)
    assert periods.concerns(one) == [
        "Q4 starts at 2026-09-30 20:00:00 in America/New_York, not at midnight.",
        "Q4 has no planned capacity, so nothing to grant: plan GPU-seconds of a pool in its draft.",
    ]


@pytest.mark.django_db
def test_only_a_draft_is_changed_and_what_it_needs_is_said_again() -> None:
    pool = make_pool()
    make_nodes(pool, gpus=2)
    one = draft("Q4", "2026-10-01", "2027-01-01")
    draft("other", "2027-01-01", "2027-04-01")
    with pytest.raises(Refused, match="no other has"):
        redraft_period(author=someone(), period=one, name=" other ", now=LONG_AGO)
    with pytest.raises(Refused, match="must end after its start"):
        redraft_period(author=someone(), period=one, ends_at=utc("2026-10-01"), now=LONG_AGO)
    changed = redraft_period(author=someone(), period=one, ends_at=utc("2026-10-02"), now=LONG_AGO)
    assert changed.capacities.get().gpu_seconds == 2 * 86_400
    periods.propose_period(period=changed)
    with pytest.raises(Refused, match="Q4 is proposed: only a draft is changed"):
        redraft_period(author=someone(), period=one, name="late", now=LONG_AGO)
