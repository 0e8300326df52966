"""What further days come to: exact where days are equal, held against a made year and real days."""

import csv
import math
import random
import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import median
from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ledger import ahead

pytestmark = pytest.mark.once
PAGE = (Path(__file__).resolve().parent.parent / "docs" / "reports.md").read_text(encoding="utf-8")
WEEKDAYS = (1.15, 1.2, 1.2, 1.15, 1.0, 0.5, 0.45)
QUARTER = 92


def sums(daily: Sequence[int], days: float) -> tuple[int, int, int]:
    found = ahead.pace(daily)
    assert found is not None
    return found.sums(days)


def test_equal_days_have_no_width_and_too_few_no_pace():
    assert sums([7] * 30, 62) == (434, 434, 434)
    assert sums([24] * 3, 0.5) == (12, 12, 12)
    assert ahead.pace([5, 5]) is None


def test_days_of_the_week_are_told_apart():
    weeks = [round(1000 * one) for one in WEEKDAYS] * 6
    _, friday, _ = sums(weeks[:-3], 1)
    _, weekend, _ = sums(weeks[:-2], 2)
    assert friday == pytest.approx(1000, rel=0.08)
    assert 950 <= weekend < 1300  # drawn towards 2,000
    _, week, _ = sums(weeks, 7)
    assert week == pytest.approx(sum(weeks[:7]), rel=0.05)


def test_the_level_follows_a_change_and_one_wild_day_hardly_moves_it():
    _, after, _ = sums([100] * 28 + [200] * 14, 10)
    assert after > 1800
    usual = [100, 110, 90, 105, 95] * 6
    calm, wild = sums(usual, 10), sums([*usual[:-1], 3000], 10)
    assert wild[1] < 1.6 * calm[1]
    assert wild[2] - wild[0] > calm[2] - calm[0]


def test_refunds_beyond_what_was_charged_tell_nothing_of_weekdays():
    days = [5, 0, -30, 190, -300, -10, 6, 205, -200, 170]
    days += [-210, -300, -10, 5, 6, -1, 170, -10, -100, -210]
    found = ahead.pace(days)
    assert found is not None
    assert found.factors == (1.0,) * 7
    low, likely, high = found.sums(30.5)
    assert 0 <= low <= likely <= high


def test_the_newest_six_weeks_count():
    old = [random.Random(0).randrange(10**6) for _ in range(30)]
    recent = [random.Random(1).randrange(1000) for _ in range(ahead.MOST_DAYS)]
    assert sums(old + recent, 20) == sums(recent, 20)


@given(st.lists(st.integers(-(10**12), 10**15), min_size=3, max_size=60), st.floats(0, 400))
def test_ranges_rise_never_fall_below_nothing_and_widen(daily, days):
    low, likely, high = sums(daily, days)
    assert 0 <= low <= likely <= high
    longer = sums(daily, days + 1)
    assert longer[2] >= high
    assert longer[1] >= likely


# --- Backtest: docs/reports.md tells the figures --------------------------------------------------


class Scores(NamedTuple):
    number: int
    inside: float
    error: float
    pace_error: float


def backtest(series: Sequence[Sequence[float]], days: int, *, first: int, step: int) -> Scores:
    """Play each series: forecast the next days from every `step`th on; beside it the plain pace."""
    inside, errors, paces = [], [], []
    for daily in series:
        whole = [round(1000 * day) for day in daily]
        for now in range(first, len(whole) - days, step):
            truth = sum(whole[now : now + days])
            if truth <= 0:
                continue
            low, likely, high = sums(whole[:now], days)
            inside.append(low <= truth <= high)
            errors.append(abs(likely - truth) / truth)
            past = whole[max(0, now - QUARTER) : now]
            paces.append(abs(sum(past) * days / len(past) - truth) / truth)
    number = len(inside)
    return Scores(number, sum(inside) / number, median(errors), median(paces))


def made_year(seed: int) -> list[float]:
    """A level that wanders 3 % a day, weeks, and days that take after the one before."""
    chance = random.Random(seed)
    level, after, days = 1000 * math.exp(chance.gauss(0, 0.5)), 0.0, []
    for day in range(365):
        level *= math.exp(chance.gauss(0, 0.03) + 0.001)
        after = 0.4 * after + chance.gauss(0, 0.25)
        days.append(level * WEEKDAYS[day % 7] * math.exp(after))
    return days


def helios(shared: Path) -> list[list[float]]:
    """GPU-hours a day of 16 groups in May 2020, those that used above 100 a day."""
    days: dict[str, dict[str, float]] = defaultdict(lambda: defaultdict(float))
    path = shared / "data" / "curves" / "helios_earth_vc_gpus_30min_2020-05.csv"
    with path.open(encoding="utf-8") as rows:
        for row in csv.DictReader(rows):
            days[row["group"]][row["timestamp"][:10]] += float(row["running_gpus"]) / 2
    series = [[of[day] for day in sorted(of)] for of in days.values()]
    return [one for one in series if sum(one) / len(one) > 100]


def philly(shared: Path) -> list[list[float]]:
    """GPU-hours a day of four virtual clusters' jobs, laid from their submission; from day 30."""
    days: dict[str, list[float]] = defaultdict(lambda: [0.0] * 125)
    path = shared / "data" / "traces" / "philly_4vcs_full.csv"
    with path.open(encoding="utf-8") as rows:
        for row in csv.DictReader(rows):
            for day, hours in _laid(float(row["submit_time_s"]), float(row["duration_s"])):
                if day < 125:
                    days[row["group"]][day] += int(row["gpus"]) * hours
    return [of[30:] for of in days.values()]


def _laid(start: float, lasts: float) -> Iterator[tuple[int, float]]:
    end = start + lasts
    while start < end:
        day = int(start // 86_400)
        until = min(end, (day + 1) * 86_400.0)
        yield day, (until - start) / 3600
        start = until


def told(name: str, days: int) -> list[str]:
    """The page's row of a backtest, without its first two cells."""
    pattern = rf"^\| {re.escape(name)} \| {days} \| (.*) \|$"
    row = re.search(pattern, PAGE, flags=re.MULTILINE)
    assert row is not None
    return row[1].split(" | ")


def compare(name: str, days: int, found: Scores) -> None:
    assert 0.7 <= found.inside <= 0.9 + 0.02
    assert found.error < found.pace_error * 1.1
    percents = [f"{100 * one:.0f} %" for one in found[1:]]
    assert told(name, days) == [str(found.number), *percents]


@pytest.mark.parametrize("days", [7, 14, 30, 60])
def test_a_made_year(days):
    compare("a made year", days, backtest([made_year(n) for n in range(6)], days, first=21, step=7))


@pytest.mark.parametrize("days", [7, 14])
def test_the_days_of_a_real_cluster(shared, days):
    compare("Helios, 14 groups", days, backtest(helios(shared), days, first=10, step=3))


@pytest.mark.parametrize("days", [7, 14, 30, 60])
def test_the_days_of_real_jobs(shared, days):
    compare("Philly, 4 clusters", days, backtest(philly(shared), days, first=21, step=3))
