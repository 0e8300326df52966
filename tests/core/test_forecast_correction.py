"""History corrects physics: robustly, by groups, and with ranges that keep their promise."""

import math
import random
from functools import partial
from typing import Any

import numpy as np
import pytest

from forecasting.core import estimate as estimating
from forecasting.core.correction import (
    METHODS,
    PRIOR,
    THIN,
    Errors,
    History,
    fit_correction,
)
from forecasting.core.describing import NAMES, Described, Standard, codes, describe
from forecasting.core.estimate import (
    VERSION,
    Forecast,
    Observation,
    cheapest,
    estimate,
    learn,
    least_in_time,
    options,
)
from forecasting.core.robust import fit_robust
from forecasting.core.training import SpecError, TrainingSpec
from forecasting.core.trees import fit_trees


def spec(**given: Any) -> TrainingSpec:
    plain: dict[str, Any] = {
        "gpu": "H100",
        "parameters": 8e9,
        "tokens": 1e9,
        "global_batch": 256,
    }
    return TrainingSpec(**plain | given)


def jobs(count: int, factor: float, seed: int = 0, noise: float = 0.1, **given: Any):
    """Jobs that took `factor` times as long as by physics, but for noise."""
    chance = random.Random(seed)
    found = []
    for _ in range(count):
        one = spec(
            parameters=chance.choice([1e9, 3e9, 8e9, 13e9]),
            tokens=chance.uniform(1e8, 1e10),
            sequence_length=chance.choice([2048, 4096]),
            **{"gpu": chance.choice(["H100", "A100", "H200"])} | given,
        )
        gpus = chance.choice([8, 16, 32])
        physics = estimate(one, gpus=gpus).physics_s
        found.append(Observation(one, gpus, physics * factor * math.exp(chance.gauss(0, noise))))
    return found


def test_without_history_physics_stands_alone():
    found = estimate(spec(), gpus=8)
    assert found.p50 == round(found.physics_s)
    assert found.p10 == round(found.physics_s * math.exp(PRIOR[0]))
    assert found.p90 == round(found.physics_s * math.exp(PRIOR[1]))
    assert "physics alone" in found.reasons[-1]
    assert estimate(spec(), jobs(THIN - 1, 2.0), gpus=8).p50 == found.p50


def test_a_history_of_twice_as_long_is_learned():
    learned = learn(jobs(60, 2.0))
    found = estimate(spec(), learned, gpus=8)
    assert found.p50 == pytest.approx(2 * found.physics_s, rel=0.1)
    assert found.p10 < found.p50 < found.p90 < 1.5 * found.p50
    assert "60 jobs" in found.reasons[-1]
    assert found.version == VERSION


@pytest.mark.parametrize("method", METHODS)
def test_every_method_learns_what_groups_differ_in_and_forgives_outliers(method):
    past = jobs(80, 1.0, framework="quick") + jobs(80, 3.0, framework="slow")
    broken = [Observation(one.spec, one.gpus, one.seconds * 1000) for one in past[:3]]
    rows = [describe(one.spec, one.gpus) for one in (*past, *broken)]
    history = History.of(rows, [one.seconds for one in (*past, *broken)])
    learned = fit_correction(history, method, ways=())
    for framework, factor in (("quick", 1.0), ("slow", 3.0)):
        found = learned.correct(describe(spec(framework=framework), 16))
        assert math.exp(found.p50) == pytest.approx(factor, rel=0.2)


def test_the_range_covers_what_it_says_on_jobs_not_seen():
    learned = learn(jobs(300, 1.5, noise=0.3))
    after = jobs(300, 1.5, seed=7, noise=0.3)
    ranges = [(one, estimate(one.spec, learned, one.gpus)) for one in after]
    below = sum(one.seconds <= found.p90 for one, found in ranges) / len(ranges)
    inside = sum(found.p10 <= one.seconds <= found.p90 for one, found in ranges) / len(ranges)
    assert 0.85 <= below <= 0.96
    assert 0.74 <= inside <= 0.90


def test_what_is_new_about_a_job_widens_its_range_and_is_said():
    past = [
        one
        for seed, (gpu, factor) in enumerate({"H100": 1.0, "A100": 2.0, "H200": 0.7}.items())
        for one in jobs(60, factor, seed=seed, gpu=gpu)
    ]
    learned = learn(past)
    known, new = (estimate(spec(gpu=gpu), learned, gpus=8) for gpu in ("A100", "B200"))
    assert new.p90 / new.p10 > 2 * known.p90 / known.p10
    assert "no job on this type of GPU" in new.reasons[-1]
    assert "The history has" not in known.reasons[-1]
    bigger = estimate(spec(parameters=200e9), learned, gpus=64)
    assert "no model of this size and no job on as many GPUs" in bigger.reasons[-1]


def test_offsets_are_shrunk_by_their_count():
    groups = [np.repeat([0, 1], [1, 36])]
    target = np.ones(37)
    fitted = fit_robust(np.zeros((37, 0)), groups, target - 1 + 1e-9)
    assert fitted.predict(np.zeros((1, 0)), [np.array([-1])])[0] == pytest.approx(0, abs=1e-6)
    mixed = np.concatenate([np.full(50, -1.0), np.full(50, 1.0)])
    both = fit_robust(np.zeros((100, 0)), [np.repeat([0, 1], 50)], mixed)
    assert both.offsets[0][1] == pytest.approx(50 / 54, abs=0.02)
    assert both.offsets[0][2] == 0  # an unknown group


def test_a_line_is_found_despite_rows_far_off():
    chance = np.random.default_rng(0)
    features = chance.standard_normal((400, 3))
    target = features @ np.array([0.5, -0.2, 0.0]) + 0.05 * chance.standard_normal(400)
    target[:30] += 20
    fitted = fit_robust(features, [], target)
    assert fitted.slopes == pytest.approx([0.5, -0.2, 0.0], abs=0.06)


def test_trees_find_steps_and_predict_what_they_grew():
    chance = np.random.default_rng(0)
    features = chance.standard_normal((600, 4))
    target = np.where((features[:, 1] > 0) & (features[:, 2] > 0), 1.0, 0.0)
    trees = fit_trees(features, target)
    assert np.abs(trees.predict(features) - target).mean() < 0.1
    assert trees.predict(np.array([[0.0, 2.0, 2.0, 0.0]]))[0] > 0.8
    assert trees.predict(np.array([[0.0, -2.0, 2.0, 0.0]]))[0] < 0.2


def test_errors_like_the_job_weigh_more():
    features = np.repeat([[0.0], [10.0]], 200, axis=0)
    spread = np.concatenate([np.linspace(-0.1, 0.1, 200), np.linspace(-1, 1, 200)])
    found = Errors(features, spread)
    _, near = found.quantiles(np.array([0.0]), (0.1, 0.9))
    _, far = found.quantiles(np.array([10.0]), (0.1, 0.9))
    assert near is not None
    assert far is not None
    assert near < 0.12 < 0.7 < far


def test_features_reach_no_further_than_history_did():
    standard = Standard.of(np.array([[0.0, 5.0], [2.0, 5.0]]))
    assert standard.apply(np.array([[9.0, 9.0]])).tolist() == [[1.0, 0.0]]
    known, found = codes(["b", "a", "b"])
    assert (known, found.tolist()) == ({"b": 0, "a": 1}, [0, 1, 0])


@pytest.fixture
def by_lines(monkeypatch):
    """Lines alone, which are quicker to fit."""
    monkeypatch.setattr(estimating, "fit_correction", partial(fit_correction, method="lines"))


@pytest.mark.usefixtures("by_lines")
def test_a_history_may_come_described_and_must_be_of_durations():
    past = jobs(20, 2.0)
    kept: list[tuple[Described, float]] = [
        (describe(one.spec, one.gpus), one.seconds) for one in past
    ]
    assert estimate(spec(), learn(kept), 8) == estimate(spec(), learn(past), 8)
    assert len(kept[0][0].features) == len(NAMES)
    for wrong in (0.0, -1.0, math.nan, math.inf):
        with pytest.raises(ValueError, match="above 0 s"):
            learn([(kept[0][0], wrong)])
    with pytest.raises(ValueError, match="one duration"):
        History.of([kept[0][0]], [])


@pytest.mark.usefixtures("by_lines")
def test_the_order_of_a_history_matters_little():
    past = jobs(40, 2.0)
    first, turned = (estimate(spec(), learn(rows), 8) for rows in (past, past[::-1]))
    assert turned.p50 == pytest.approx(first.p50, rel=0.05)


def test_the_best_count_is_the_least_in_time_or_the_cheapest():
    tried = options(spec(parameters=70e9), most=256)
    assert [one.gpus for one in tried] == [64, 128, 256]
    assert least_in_time(tried, 1e9).gpus == 64
    assert least_in_time(tried, tried[0].p90).gpus == 64
    assert least_in_time(tried, tried[0].p90 - 1).gpus == 128
    cheap = cheapest(tried)
    assert cheap.gpus * cheap.p50 == min(one.gpus * one.p50 for one in tried)
    with pytest.raises(SpecError, match="can't be kept: the fastest, on 256 GPUs"):
        least_in_time(tried, 1)


def test_without_a_count_the_least_that_fits_is_taken_and_misfits_are_said():
    assert estimate(spec(parameters=70e9)).gpus == 64
    tight = estimate(spec(parameters=70e9), gpus=8)
    assert not tight.fits
    assert any("doesn't fit" in one for one in tight.reasons)
    assert tight.gpu_hours[1] == pytest.approx(8 * tight.seconds / 3600)


def test_a_forecast_rises():
    good = estimate(spec(), gpus=8)
    with pytest.raises(ValueError, match="must rise"):
        Forecast(8, 5, 4, 6, 1.0, good.memory, True, (), VERSION)
