"""What was learned, as bytes and back; and whether it is any better than what there is."""

import io
import json

import numpy as np
import pytest

from forecasting.core import storing
from forecasting.core.comparing import HeldOut, Learned, judge, learn_and_play, median_error
from forecasting.core.correction import KNOWN, Correction, History, Played, fit_correction
from forecasting.core.describing import describe
from forecasting.core.reading import training_spec

SIZES = ("1B", "3B", "7B", "13B", "34B")


def history(rows, factor=1.5):
    described, seconds = [], []
    for k in range(rows):
        gpu = ("H100", "A100", "H200")[k % 3]
        work = {"parameters": SIZES[k % 5], "tokens": (1 + k % 7) * 1e8, "sequence_length": 2048}
        one = describe(training_spec(work, gpu=gpu), 4 << (k % 4))
        described.append(one)
        seconds.append(np.exp(one.log_physics) * factor * (1 + 0.01 * (k % 9)))
    return History.of(described, seconds), described


def test_a_correction_comes_back_from_its_bytes_as_it_was():
    rows, described = history(60)
    made = fit_correction(rows)
    read = storing.unpack(storing.pack(made))
    assert (read.rows, read.seen, set(read.errors)) == (made.rows, made.seen, set(made.errors))
    for one in described[:10]:
        assert read.correct(one) == made.correct(one)
    strange = describe(training_spec({"parameters": "99B", "tokens": 1e9}, gpu="T4"), 64)
    assert read.correct(strange) == made.correct(strange)


def arrays(**told):
    kept = io.BytesIO()
    np.savez(kept, told=np.frombuffer(json.dumps(told).encode(), dtype=np.uint8))
    return kept.getvalue()


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"nothing",
        b"PK\x03\x04",
        arrays(format=99),
        arrays(format=1),
        arrays(format=1, rows=3, seen=[], ways=["known"], model=None),
    ],
)
def test_bytes_that_hold_none_are_refused(data):
    with pytest.raises(storing.Unreadable, match="hold no correction"):
        storing.unpack(data)


def test_nothing_that_runs_is_read():
    kept = io.BytesIO()
    np.savez(kept, told=np.array([{"a": 1}], dtype=object))
    with pytest.raises(storing.Unreadable, match="pickle"):
        storing.unpack(kept.getvalue())


def test_errors_are_of_rows_that_the_fit_had_not_seen():
    rows, _ = history(60)
    learned = learn_and_play(rows)
    assert set(learned.held_out) == {"known", "gpu", "size", "count"}
    found = learned.held_out[KNOWN]
    assert found.corrected < 0.05 < found.physics
    assert found.physics == median_error(rows.target[learned.played[KNOWN].rows])
    same = fit_correction(rows)
    assert {way: list(one.errors) for way, one in same.errors.items()} == {
        way: list(one.errors) for way, one in learned.correction.errors.items()
    }


def test_the_error_is_that_of_the_forecast_over_the_truth():
    assert median_error(np.log(np.array([1 / 1.5, 1.0, 2.0]))) == pytest.approx(0.5)


def learned_with(rows, errors, physics=0.3, corrected=0.1):
    one = Played(np.arange(len(errors)), np.array(errors))
    score = HeldOut(len(errors), physics, corrected)
    return Learned(fit_correction(rows), {KNOWN: one}, {KNOWN: score})


def test_one_that_is_no_better_than_physics_is_not_switched_to():
    rows, _ = history(20)
    verdict = judge(learned_with(rows, [0.1] * 20, 0.1, 0.11), rows, None, np.arange(20))
    assert not verdict.switch
    assert "Not better than physics: 11.0% off on 20 held-out jobs" in verdict.why
    as_good = judge(learned_with(rows, [0.1] * 20, 0.1, 0.1), rows, None, np.arange(20))
    assert as_good.switch


def test_one_is_compared_with_the_old_on_rows_that_neither_had_seen():
    rows, _ = history(40)
    old = fit_correction(history(40, factor=1.0)[0])  # about a third off
    newer = np.arange(20, 40)
    worse = [0.0] * 20 + [1.0] * 20
    verdict = judge(learned_with(rows, worse), rows, old, newer)
    assert (verdict.switch, verdict.compared) == (False, 20)
    assert verdict.why.startswith("Worse than the old one: 63.2% off on the 20 jobs that are new")
    better = [1.0] * 20 + [0.0] * 20  # what the old one had seen doesn't count
    verdict = judge(learned_with(rows, better), rows, old, newer)
    assert verdict.switch
    assert verdict.old == pytest.approx(1 / 3, abs=0.05)


def test_too_few_new_rows_compare_nothing_and_none_held_out_switches_nothing():
    rows, _ = history(20)
    old = fit_correction(rows)
    verdict = judge(learned_with(rows, [1.0] * 20), rows, old, np.arange(13, 20))
    assert verdict.switch
    assert "too few are new" in verdict.why
    few = Learned(Correction(20, None, {}, ()), {}, {})
    assert not judge(few, rows, None, np.arange(20)).switch


def test_a_history_too_thin_is_learned_from_by_nobody():
    rows, _ = history(7)
    learned = learn_and_play(rows)
    assert (learned.correction.model, learned.held_out) == (None, {})
