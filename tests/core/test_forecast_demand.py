"""A service's week and level: what is learned is what was there, whatever else befell it."""

import math
from datetime import UTC, datetime, timedelta

import numpy as np
import pytest

from forecasting.core.backtest import needs, pinball, play, rolling, score
from forecasting.core.demand import ahead, gpus_ahead, learn, week_profile
from forecasting.core.levels import know
from forecasting.core.profile import OUTAGE, DemandError, Traffic, by_day, clock, weighted_median
from forecasting.core.ramps import gpus_for, violations

MONDAY = datetime(2025, 1, 6, tzinfo=UTC)
NOON, HOUR = 12, 3600


def _rate(weekday: int, hour: int) -> float:
    """Busy at noon, quiet at night; half on Saturday and Sunday."""
    busy = 100 + 60 * math.sin((hour - 6) / 24 * 2 * math.pi)
    return busy / 2 if weekday >= 5 else busy


def _traffic(days: int, *, start: datetime = MONDAY, zone: str = "UTC", of=_rate) -> Traffic:
    """Hourly, on the local clock, without noise."""
    local, slots = clock(start, HOUR, days * 24, zone)
    rates = tuple(
        float(of((d + 6) % 7, h)) for d, h in zip(local.tolist(), slots.tolist(), strict=True)
    )
    return Traffic(start, HOUR, rates, zone)


def _changed(traffic: Traffic, steps: range, to) -> Traffic:
    rates = list(traffic.rates)
    for n in steps:
        rates[n] = to(rates[n])
    return Traffic(traffic.start, traffic.step_s, tuple(rates), traffic.zone)


def _near(found, expected, share=0.1) -> bool:
    return bool(np.all(np.abs(np.array(found) - expected) <= share * np.array(expected)))


def test_a_week_without_noise_is_found_again():
    traffic = _traffic(28)
    found = ahead(learn(traffic), traffic, 24 * 7)
    expected = [_rate(n // 24, n % 24) for n in range(24 * 7)]
    assert _near(found.median, expected)
    assert all(high >= mid for mid, high in zip(found.median, found.capacity, strict=True))
    assert found.start == traffic.end


def test_twice_the_traffic_is_twice_the_forecast():
    traffic = _traffic(21)
    double = _changed(traffic, range(len(traffic.rates)), lambda rate: 2 * rate)
    one, two = (ahead(learn(each), each, 24).capacity for each in (traffic, double))
    assert np.allclose(2 * np.array(one), two, rtol=1e-6)


def test_a_holiday_and_a_launch_do_not_poison_the_week():
    traffic = _traffic(28)
    odd = _changed(traffic, range(15 * 24, 16 * 24), lambda rate: rate / 4)
    odd = _changed(odd, range(22 * 24 + 10, 22 * 24 + 14), lambda rate: rate * 5)
    plain, poisoned = (ahead(learn(each), each, 48).median for each in (traffic, odd))
    assert _near(poisoned, plain, 0.05)


@pytest.mark.parametrize("times", [0.4, 3])
def test_a_new_level_is_followed_within_two_days(times):
    traffic = _traffic(28)
    shifted = _changed(traffic, range(26 * 24, 28 * 24), lambda rate: rate * times)
    expected = [times * _rate(0, hour) for hour in range(24)]
    assert _near(ahead(learn(shifted), shifted, 24).median, expected, 0.2)


def test_a_gap_is_no_zero():
    traffic = _traffic(28)
    gap = _changed(traffic, range(27 * 24 + 6, 28 * 24), lambda rate: None)
    zero = _changed(traffic, range(26 * 24 + 6, 28 * 24), lambda rate: 0.0)
    expected = [_rate(0, hour) for hour in range(24)]
    assert _near(ahead(learn(gap), gap, 24).median, expected)
    assert max(ahead(learn(zero), zero, 24).median) < 0.5 * max(expected)


def test_a_short_outage_is_passed_over_and_a_long_one_believed():
    levels = np.zeros(96)
    levels[50:55] = -2 * OUTAGE
    assert know(levels, 24).filled.min() == 0
    assert np.isnan(know(levels, 24).target[50:55]).all()
    levels[50:] = -2 * OUTAGE
    assert know(levels, 24).filled[73] == 0
    assert know(levels, 24).filled[74] == -2 * OUTAGE


def test_the_last_step_alone_is_known_as_among_all():
    levels = np.sin(np.arange(24 * 9) / 5) + np.arange(24 * 9) % 7
    one, every = know(levels, 24, last=True), know(levels, 24)
    assert np.allclose(one.inputs[-1], every.inputs[-1])
    assert np.allclose((one.base[-1], one.restless[-1]), (every.base[-1], every.restless[-1]))


@pytest.mark.parametrize(
    "change", [datetime(2025, 3, 30, tzinfo=UTC), datetime(2025, 10, 26, tzinfo=UTC)]
)
def test_the_local_clock_decides_where_clocks_change(change):
    start = change - timedelta(days=27, hours=1)
    traffic = _traffic(27, start=start, zone="Europe/Paris")
    found = ahead(learn(traffic), traffic, 48)
    days, slots = clock(found.start, HOUR, 48, "Europe/Paris")
    expected = [_rate((d + 6) % 7, h) for d, h in zip(days.tolist(), slots.tolist(), strict=True)]
    assert _near(found.median, expected, 0.15)


def test_a_repeated_hour_has_its_slot_twice_and_a_skipped_one_none():
    _, autumn = clock(datetime(2025, 10, 25, 22, tzinfo=UTC), HOUR, 25, "Europe/Paris")
    assert autumn.tolist() == [0, 1, 2, 2, *range(3, 24)]
    _, spring = clock(datetime(2025, 3, 29, 23, tzinfo=UTC), HOUR, 23, "Europe/Paris")
    assert spring.tolist() == [0, 1, *range(3, 24)]
    days, kolkata = clock(MONDAY, HOUR, 1, "Asia/Kolkata")
    assert (days.tolist(), kolkata.tolist()) == ([MONDAY.toordinal()], [5])


def test_a_service_that_nobody_uses_needs_nothing():
    traffic = _traffic(7, of=lambda *_: 0)
    assert max(ahead(learn(traffic), traffic, 24).median) < 0.05


def test_gpus_ahead_keep_the_cap_from_what_is_held():
    traffic = _traffic(21)
    found = ahead(learn(traffic), traffic, 24)
    ramp = gpus_ahead(found, per_gpu=10, cap=2, held=3)
    assert violations(ramp.gpus, 2, 3) == 0
    assert all(
        have + short >= rate / 10
        for have, short, rate in zip(ramp.gpus, ramp.short, found.capacity, strict=True)
    )


def test_the_profile_of_a_week_starts_on_monday_and_keeps_the_cap_over_its_end():
    traffic = _traffic(31)  # ends on a Wednesday
    ramp = week_profile(learn(traffic), traffic, per_gpu=10, cap=1)
    assert len(ramp.gpus) == 7 * 24
    assert violations([*ramp.gpus, ramp.gpus[0]], 1) == 0
    assert ramp.gpus[NOON] * 10 >= _rate(0, NOON)
    assert max(ramp.gpus[5 * 24 + 8 : 7 * 24 - 8]) < max(ramp.gpus[: 5 * 24])


def test_the_profile_of_a_week_has_each_hour_in_its_slot():
    traffic = _traffic(28, of=lambda _, hour: 100 if 9 <= hour < 15 else 10)
    gpus = week_profile(learn(traffic), traffic, per_gpu=10, cap=None, quantile=0.5).gpus
    assert min(gpus[9:15]) > max(*gpus[:8], *gpus[16:24])
    assert gpus[9] > gpus[7]
    assert gpus[14] > gpus[16]


def test_a_day_of_outage_is_left_out_of_the_week():
    traffic = _traffic(10)
    dead = _changed(traffic, range(4 * 24, 5 * 24), lambda rate: 0.0)
    table = by_day(np.log(dead.values() + 1), *clock(MONDAY, HOUR, 240, "UTC"), 24)
    assert np.isnan(table.table[4]).all()
    assert not np.isnan(np.delete(table.table, 4, axis=0)).any()


def test_only_timesteps_that_are_acted_on_take_the_quantile():
    traffic = _traffic(21)
    found = ahead(learn(traffic), traffic, 24)
    firm = gpus_ahead(found, per_gpu=1, cap=None, firm=2).gpus
    rates = (*found.capacity[:2], *found.median[2:])
    assert firm == tuple(gpus_for(rate, 1) for rate in rates)


def test_a_backtest_sees_nothing_of_what_comes():
    traffic = _traffic(14)
    other = _changed(traffic, range(11 * 24, 14 * 24), lambda rate: 9 * rate)
    one, two = (rolling(each, 10 * 24, 24, 0.9) for each in (traffic, other))
    assert one[:2] == two[:2]
    assert one[2] != two[2]
    found = play(traffic, 10 * 24, 24, one, 10, 2)
    assert (found.timesteps, found.broken) == (96, 0)
    assert found.demand_covered > 0.97


def test_a_score_leaves_gaps_out_and_counts_broken_caps():
    found = score([2, 4, 4, 1], [2, 5, None, 1], cap=2)
    assert (found.timesteps, found.time_covered, found.broken) == (3, 2 / 3, 1)
    assert (found.demand_covered, found.over) == (7 / 8, 7 / 8 - 1)
    assert needs(Traffic(MONDAY, HOUR, (None, 3.0, 0.0)), 2) == [None, 2, 0]


def test_pinball_weighs_under_and_over():
    assert pinball(np.array([1.0, 3.0]), np.array([2.0, 2.0]), 0.9) == pytest.approx(0.5)


def test_a_weighted_median_is_where_half_the_weight_lies():
    values = np.array([[1.0, np.nan], [2.0, np.nan], [10.0, 7.0]])
    assert weighted_median(values, np.array([1.0, 1.0, 1.0])).tolist() == [2, 7]
    assert weighted_median(values[:2], np.array([1.0, 1.0]))[0] == 1.5
    assert weighted_median(values, np.array([1.0, 1.0, 3.0]))[0] == 10


def test_a_coarser_step_is_the_peak_and_a_gap_only_where_all_are():
    found = Traffic(MONDAY, 600, (1.0, None, 3.0, None, None, None, 9.0)).coarser(1800)
    assert found.rates == (3.0, None)


@pytest.mark.parametrize(
    ("call", "told"),
    [
        (lambda: Traffic(MONDAY, HOUR, ()), "1 to 100000 steps"),
        (lambda: Traffic(MONDAY, HOUR, (None,)), "one known rate"),
        (lambda: Traffic(MONDAY, HOUR, (1.0, -2.0)), "The rate of step 1 must lie"),
        (lambda: Traffic(MONDAY, HOUR, (math.nan,)), "The rate of step 0 must lie"),
        (lambda: Traffic(MONDAY, HOUR, (math.inf,)), "The rate of step 0 must lie"),
        (lambda: Traffic(MONDAY, HOUR, ("9",)), "must be a number"),  # type: ignore[arg-type]
        (lambda: Traffic(MONDAY, 7000, (1.0,)), "A step of traffic"),
        (lambda: Traffic(MONDAY, 2400, (1.0,)), "must divide an hour"),
        (lambda: Traffic(datetime(2025, 1, 6), HOUR, (1.0,)), "offset from UTC"),  # noqa: DTZ001
        (lambda: Traffic(MONDAY, HOUR, (1.0,), "Mars/Base"), "no time zone"),
        (lambda: learn(_traffic(2)), "three days at least"),
        (lambda: ahead(learn(_traffic(7)), _traffic(7), 0), "Steps to forecast"),
        (lambda: ahead(learn(_traffic(7)), _traffic(7), 24, math.nan), "A quantile"),
        (lambda: ahead(learn(_traffic(7)), _traffic(7).first(9), 24), "last day's traffic"),
        (lambda: ahead(learn(_traffic(7)), _traffic(7, zone="Asia/Tokyo"), 24), "the zone"),
        (lambda: score([1], [None]), "some demand"),
    ],
)
def test_nonsense_is_told_in_one_sentence(call, told):
    with pytest.raises(DemandError, match=told) as caught:
        call()
    assert "\n" not in str(caught.value)
