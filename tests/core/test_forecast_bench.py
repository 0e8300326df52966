"""The bench of forecasts: rows are what the tables say, and what is held out stays unseen."""

import math
from typing import Any

import numpy as np
import pytest

from benchmarks import forecast_rows, forecasts
from benchmarks.forecast_rows import SMALL, TRAINING, TRANSFORMERS, Row
from benchmarks.forecasts import NAMES, Outcome, Result, covered, floors, off, tables
from forecasting.core.correction import KNOWN, METHOD, THIN, WAYS, History
from forecasting.core.describing import describe
from forecasting.core.physics import estimate_on
from forecasting.core.training import TrainingSpec, settle

at_hand = pytest.mark.skipif(not TRAINING.exists(), reason="the tables aren't at hand")


def outcome(error: float, *, way: str = "gpu", plain: float = 1.0) -> Outcome:
    errors = dict.fromkeys(NAMES, plain) | {METHOD: error}
    return Outcome(way, "a table", errors, error - 0.2, error + 0.2)


def result(*outcomes: Outcome, quote_s: float = 1e-4) -> Result:
    return Result(outcomes, {"a table": (3, 4)}, quote_s, 10.0)


def row(gpu: str, gpus: int, seconds: float, **given: Any) -> Row:
    plain: dict[str, Any] = {"parameters": 8e9, "tokens": 1e9, "framework": "one"}
    return Row("a table", TrainingSpec(gpu=gpu, **plain | given), gpus, seconds)


def test_errors_are_parts_of_the_truth_and_coverage_counts_ends():
    assert off([math.log(1.2), math.log(0.8), math.log(1.5)]) == pytest.approx(0.2)
    rows = [outcome(error) for error in (-0.3, -0.1, 0.1, 0.3)]
    assert covered(rows) == (0.75, 0.5)


def test_floors_are_met_or_missed_by_what_was_asked():
    found = {floor.what: floor.met for floor in floors(result(*[outcome(0.1)] * 10))}
    assert found["forecasts, new: the type of GPU; error"]
    assert found["forecasts, new: the type of GPU; beats mean of the kind"]
    assert not found["forecasts, new: the type of GPU; p90 covers"]  # all are covered: too wide
    worse = [outcome(0.4, plain=0.2), outcome(-0.5, way="size")]
    found = {floor.what: floor.met for floor in floors(result(*worse, quote_s=1.0))}
    assert not any(found[what] for what in found if "error" in what or "time" in what)
    assert not found["forecasts, new: the type of GPU; beats nearest neighbour"]
    assert floors(None) == []


def test_tables_tell_every_way_and_table():
    told = [table.text() for table in tables(result(outcome(0.1), outcome(0.1, way=KNOWN)))]
    assert "the type of GPU" in told[0]
    assert "nothing" in told[0]
    assert "75.0 %" in told[2]
    assert "aren't at hand" in tables(None)[0].text()


def test_nothing_of_a_group_is_seen_while_it_is_held_out(monkeypatch):
    rows = [
        row(gpu, 8 * (1 + i % 2), 1000.0 + i, parameters=(1 + i % 3) * 4e9)
        for gpu in ("A100", "H100", "H200")
        for i in range(THIN)
    ]
    jobs = [describe(one.spec, one.gpus) for one in rows]
    history = History.of(jobs, [one.seconds for one in rows])
    seen: list[History] = []
    true_fit = forecasts.fit_correction

    def fit(past, **given):
        seen.append(past)
        return true_fit(past, "lines", **given)

    monkeypatch.setattr(forecasts, "fit_correction", fit)
    monkeypatch.setattr(forecasts, "METHODS", {METHOD: None})
    monkeypatch.setattr(forecasts, "NAMES", {name: name for name in ("physics", METHOD, "kind")})
    found = list(forecasts._held_out("gpu", rows, jobs, history))
    assert len(found) == len(rows)
    for past, gpu in zip(seen, ("A100-80", "H100-SXM", "H200"), strict=True):
        assert len(past) == 2 * THIN
        assert gpu not in {novel[0] for novel in past.novel}


def test_plain_forecasts_carry_gpu_seconds_a_token_over():
    rows = [row("H100", 8, 100.0), row("H100", 16, 200.0), row("A100", 8, 50.0)]
    jobs = [describe(one.spec, one.gpus) for one in rows]
    history = History.of(jobs, [one.seconds for one in rows])
    units = np.array([forecasts._unit(one) for one in rows])
    rest, out = np.array([0, 1]), np.array([2])
    found = forecasts._plain(rows, rest, out, units, history)
    assert found["nearest"] == [units[0]]
    assert found["kind"] == [pytest.approx((units[0] + units[1]) / 2)]
    assert math.exp(units[1] - units[0]) == pytest.approx(4)


@at_hand
def test_the_tables_are_read_as_they_stand():
    rows = forecast_rows.all_rows()
    count: dict[str, int] = {}
    for one in rows:
        count[one.table] = count.get(one.table, 0) + 1
        assert 0 < one.seconds < math.inf
    assert count == {
        "llm_foundry": 216,
        "megatron_bridge": 277,  # one of 278 is of an unpublished model
        "megatron_lm": 13,
        "mlperf": 201,
        "elasticflow": 169,  # 12 of 181 never ran
        "gavel": 411,  # 81 of 492 say one GPU, or nothing, twice
    }
    published = next(one for one in rows if one.spec.model == "mpt-70b" and one.gpus == 512)
    tokens = settle(published.spec).tokens
    assert tokens / published.seconds / 512 == pytest.approx(1007)


@at_hand
def test_physics_alone_is_near_on_language_models():
    """Nothing was fitted to llm-foundry's table: half of its rows are within an eighth."""
    rows = [one for one in forecast_rows.llm_foundry()][::6]
    errors = [
        math.log(estimate_on(settle(one.spec), one.gpus).seconds / one.seconds) for one in rows
    ]
    assert off(errors) < 0.125


def test_models_are_as_large_as_their_names_say():
    for name, model in TRANSFORMERS.items():
        assert model.active <= model.parameters
        assert settle(row("H100", 8, 1.0, **model.fields()).spec).active == model.active * 1e9, name
    assert all(flops > 0 and parameters > 0 for flops, parameters in SMALL.values())
    assert set(WAYS) == set(forecasts.WORDS)
