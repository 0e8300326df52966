"""Many forecasts together: errors, coverage, losses against plain ones; and when they drift."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forecasting.core.drifting import look
from forecasting.core.tally import Scored, earlier_means, tally


def test_of_nothing_there_is_no_tally():
    assert tally([]) is None


def test_errors_coverage_and_losses_are_added_up():
    rows = [
        Scored(50, 100, 150, 100, declared_s=200, mean_s=100),
        Scored(50, 100, 150, 200, declared_s=200),
        Scored(50, 100, 150, 40, gpus=8),
        Scored(50, 100, 150, 150),
    ]
    found = tally(rows)
    assert found.number == 4
    assert found.mean_error == (0 + 500 + 1500 + 333 + 2) // 4
    assert found.median_error == (333 + 500 + 1) // 2
    assert found.below == (250, 500, 750)
    assert (found.inside, found.below_p90) == (500, 750)
    losses = [50 + 0 + 50, 150 + 500 + 450, 90 + 300 + 110, 100 + 250 + 0]
    assert (found.said_gpu_s, found.taken_gpu_s) == (1100, 100 + 200 + 8 * 40 + 150)
    assert found.loss_ds == sum(losses) // 4 + 1  # 512.5, half up
    # Declared alone: 200 for each quantile. One was right; the other took 100 of 200.
    assert (found.declared.number, found.declared.theirs_ds) == (2, (100 * (9 + 5 + 1)) // 2)
    assert found.declared.ours_ds == (losses[0] + losses[1]) // 2
    assert (found.mean.number, found.mean.ours_ds, found.mean.theirs_ds) == (1, losses[0], 0)


@given(st.lists(st.integers(1, 10**6), min_size=1, max_size=40))
def test_shares_rise_with_the_quantile(truths):
    found = tally([Scored(10, 1000, 10**5, one) for one in truths])
    assert 0 <= found.below[0] <= found.below[1] <= found.below[2] <= 1000
    assert found.mean_error >= 0


def test_the_mean_of_a_kind_is_of_those_that_had_ended():
    ended = [(30.0, 300), (10.0, 100), (20.0, 201)]
    assert earlier_means(ended, [5.0, 10.0, 25.0, 99.0]) == [None, 100, 151, 200]


# --- Drift ----------------------------------------------------------------------------------------


def rows(number, *, beyond=0, off=0.1):
    """So many forecasts, each `off`; of `beyond` of them the truth is beyond p90."""
    likely = round(1000 * (1 + off))
    inside = [Scored(500, likely, 1500, 1000) for _ in range(number - beyond)]
    return inside + [Scored(100, 200, 300, 1000) for _ in range(beyond)]


def test_fewer_than_the_window_say_nothing():
    assert look(rows(49), rows(200), window=50) is None


@pytest.mark.parametrize(
    ("beyond", "wrong", "calm"),
    [
        (0, True, False),  # 100 %
        (1, False, False),  # 98 %: no more than it may be
        (2, False, True),  # 96 %
        (5, False, True),
        (8, False, True),  # 84 %
        (9, False, False),  # 82 %
        (10, False, False),  # 80 %
        (11, True, False),  # 78 %
    ],
)
def test_coverage_is_wrong_outside_the_outer_limits_and_calm_inside_the_inner(beyond, wrong, calm):
    found = look(rows(50, beyond=beyond), rows(200, beyond=20), window=50)
    assert (found.covers_wrongly, found.is_calm) == (wrong, calm)
    assert (found.begins, found.errs_more) == (wrong, False)


@pytest.mark.parametrize(
    ("off", "before", "wrong", "calm"),
    [
        (0.30, 0.20, True, False),
        (0.29, 0.20, False, False),
        (0.27, 0.20, False, False),
        (0.26, 0.20, False, True),
        (0.01, 0.00, False, True),  # twice next to nothing is next to nothing
        (0.03, 0.01, True, False),
    ],
)
def test_the_median_error_is_held_against_that_before(off, before, wrong, calm):
    found = look(rows(50, beyond=5, off=off), rows(200, off=before), window=50)
    assert (found.errs_more, found.is_calm) == (wrong, calm)
    assert (found.begins, found.covers_wrongly, found.compared) == (wrong, False, 200)


def test_too_few_before_compare_nothing():
    found = look(rows(50, beyond=5, off=0.4), rows(49, off=0.01), window=50)
    assert (found.before, found.begins, found.is_calm) == (None, False, True)
