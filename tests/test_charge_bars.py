"""A job's charges as bars: as they are while they are few, joined once they are many."""

from datetime import UTC, datetime, timedelta
from itertools import pairwise

import pytest
from django.utils import timezone

from allocator.pages import charge_bars
from ledger.reports import ChargeLine

STEP = timedelta(minutes=30)
START = datetime(2026, 3, 1, 3, tzinfo=UTC)  # midnight in São Paulo


def charged(number: int, *, funded: bool = True, start: datetime = START) -> list[ChargeLine]:
    return [
        ChargeLine(1, at, at, at + STEP, funded, 1800, 600, 1_800_000 if funded else 0)
        for at in (start + STEP * n for n in range(number))
    ]


def test_few_charges_stay_as_they_are():
    lines = charged(charge_bars.MOST)
    assert charge_bars.joined(lines) == (0, lines)


def test_no_charge_has_no_bar():
    assert charge_bars.joined([]) == (0, [])


@pytest.mark.parametrize("days", [6, 30, 90, 365])
def test_many_are_joined_and_nothing_is_lost(days):
    lines = charged(48 * days)
    hours, bars = charge_bars.joined(lines)
    assert hours in charge_bars.HOURS
    assert charge_bars.MOST / 4 < len(bars) <= charge_bars.MOST + 1
    for name in ("gpu_seconds", "parked_gpu_seconds", "amount_mgpus"):
        assert sum(getattr(bar, name) for bar in bars) == sum(getattr(one, name) for one in lines)
    assert (bars[0].start, bars[-1].end) == (lines[0].start, lines[-1].end)
    assert all(one.end == other.start for one, other in pairwise(bars))


def test_joined_bars_begin_at_round_hours_of_the_reader():
    with timezone.override("America/Sao_Paulo"):
        hours, bars = charge_bars.joined(charged(48 * 50, start=START + 3 * STEP))
    assert hours == 6
    assert bars[0].start == START + 3 * STEP
    assert {(bar.start - START) % timedelta(hours=6) for bar in bars[1:]} == {timedelta(0)}


def test_what_is_not_funded_stands_apart_over_the_same_span():
    part = charged(300)
    rest = charged(299, funded=False, start=START + STEP)
    hours, bars = charge_bars.joined(sorted(part + rest, key=lambda one: one.start))
    spans = [{(b.start, b.end) for b in bars if b.funded == kind} for kind in (True, False)]
    assert hours == 1
    assert spans[0] == spans[1]
    assert sum(b.gpu_seconds for b in bars if not b.funded) == 299 * 1800
