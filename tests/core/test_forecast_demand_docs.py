"""The worked figures on the demand of services in the documentation are what the code gives."""

import re
from pathlib import Path

import numpy as np
import pytest

from forecasting.core import arriving
from forecasting.core.backtest import pinball, score
from forecasting.core.levels import Horizon
from forecasting.core.profile import HALF_LIFE_DAYS, agreed, weighted_median
from forecasting.core.ramps import gpus_for, least_profile

DOCS = Path(__file__).parents[2] / "docs" / "forecasting.md"


def _rows(name: str) -> list[list[str]]:
    section = DOCS.read_text(encoding="utf-8").split("## Real time: what a service will need")[1]
    found = re.findall(rf"^\| `{name}` \|(.*)\|$", section, re.M)
    assert found
    return [[cell.strip().replace("−", "-") for cell in row.split("|")] for row in found]


def _numbers(cell: str) -> list[float]:
    return [float(number) for number in cell.split()]


def _column(cell: str) -> np.ndarray:
    return np.array(_numbers(cell))[:, None]


def test_weighted_medians():
    for values, ages, expected in _rows("median"):
        weights = 2.0 ** (-np.array(_numbers(ages)) / HALF_LIFE_DAYS)
        assert weighted_median(_column(values), weights)[0] == float(expected)


def test_how_long_traffic_may_stay_away():
    for gaps, every, step, expected in _rows("arriving"):
        found = None
        for gap in _numbers(gaps.replace("–", "")):
            found = arriving.cadence(found, int(60 * gap))
        assert found == (None if every == "–" else 60 * int(every))
        assert arriving.allowed(60 * int(step), found) == 60 * int(expected)


def test_how_far_days_agree():
    for found, noise, expected in _rows("agreed"):
        assert round(agreed(np.array(_numbers(found)), float(noise)), 3) == float(expected)


def test_blends_of_levels():
    for base, figures, blend, expected in _rows("blend"):
        differences = np.array(_numbers(figures)) - float(base)
        level = float(base) + float(differences @ np.array(_numbers(blend)))
        assert level == pytest.approx(float(expected))


def test_quantiles_of_errors():
    for errors, weights, share, expected in _rows("quantile"):
        running = np.cumsum(_numbers(weights)) / sum(_numbers(weights))
        horizon = Horizon(1, np.zeros(5), np.array(_numbers(errors)), running)
        assert horizon.quantile(float(share)) == float(expected)


def test_gpus_and_ramps():
    for rate, per_gpu, gpus in _rows("gpus"):
        assert gpus_for(float(rate), float(per_gpu)) == int(gpus)
    for needs, cap, held, gpus, short in _rows("ramp"):
        wanted = [int(need) for need in needs.split()]
        found = least_profile(
            wanted, None if cap == "none" else int(cap), None if held == "–" else int(held)
        )
        assert " ".join(map(str, found.gpus)) == gpus
        assert " ".join(map(str, found.short)) == short


def test_scores():
    for provided, needed, *expected in _rows("score"):
        wanted = [None if need == "gap" else int(need) for need in needed.split()]
        found = score([int(have) for have in provided.split()], wanted)
        measured = (found.time_covered, found.demand_covered, found.over)
        assert [round(value, 3) for value in measured] == [float(value) for value in expected]
    for forecast, actual, quantile, loss in _rows("pinball"):
        pair = (np.array(_numbers(forecast)), np.array(_numbers(actual)))
        assert pinball(*pair, float(quantile)) == pytest.approx(float(loss))
