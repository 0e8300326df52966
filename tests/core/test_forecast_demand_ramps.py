"""From rates to GPUs to the least profile that keeps a swap cap: against every profile there is."""

from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forecasting.core.profile import DemandError
from forecasting.core.ramps import gpus_for, least_cycle, least_profile, violations

NEEDS = st.lists(st.integers(0, 4), min_size=1, max_size=5)
CAPS = st.integers(1, 3)


def _keeping(count: int, cap: int, held: int | None, most: int = 8) -> list[tuple[int, ...]]:
    return [p for p in product(range(most), repeat=count) if not violations(p, cap, held)]


@given(NEEDS, CAPS)
def test_no_profile_that_keeps_the_cap_and_covers_need_is_lower_anywhere(needs, cap):
    covering = [
        p
        for p in _keeping(len(needs), cap, None, most=5)
        if all(have >= need for have, need in zip(p, needs, strict=True))
    ]
    assert least_profile(needs, cap).gpus == tuple(
        min(column) for column in zip(*covering, strict=True)
    )
    assert least_profile(needs, cap).gpus in covering


@given(st.lists(st.integers(0, 4), min_size=1, max_size=4), CAPS, st.integers(0, 4))
def test_from_what_is_held_it_covers_all_that_can_be_and_is_least_of_those(needs, cap, held):
    feasible = _keeping(len(needs), cap, held)
    short = [min(max(0, need - p[t]) for p in feasible) for t, need in enumerate(needs)]
    covering = [p for p in feasible if all(p[t] + short[t] >= need for t, need in enumerate(needs))]
    found = least_profile(needs, cap, held)
    assert found.gpus == tuple(min(column) for column in zip(*covering, strict=True))
    assert found.gpus in covering
    assert list(found.short) == short


@given(NEEDS, CAPS)
def test_a_week_that_repeats_keeps_the_cap_over_its_end_and_is_least(needs, cap):
    covering = [
        p
        for p in _keeping(len(needs), cap, None, most=5)
        if abs(p[0] - p[-1]) <= cap
        and all(have >= need for have, need in zip(p, needs, strict=True))
    ]
    assert least_cycle(needs, cap).gpus == tuple(
        min(column) for column in zip(*covering, strict=True)
    )


def test_without_a_cap_needs_are_the_profile():
    assert least_profile([0, 9, 1], None, held=4).gpus == (0, 9, 1)
    assert least_cycle([0, 9, 1], None).gpus == (0, 9, 1)
    assert violations([0, 9], None) == 0


@pytest.mark.parametrize(
    ("rate", "per_gpu", "gpus"),
    [(0, 5, 0), (5, 5, 1), (5.001, 5, 2), (0.3, 0.1, 3), (0.1 + 0.2, 0.1, 3), (1e-9, 5, 1)],
)
def test_gpus_are_the_least_whole_number_that_does_the_rate(rate, per_gpu, gpus):
    assert gpus_for(rate, per_gpu) == gpus


@pytest.mark.parametrize(
    ("call", "told"),
    [
        (lambda: gpus_for(1.0, 0), "The rate that one GPU does"),
        (lambda: gpus_for(-1.0, 1), "A rate must lie"),
        (lambda: gpus_for(float("nan"), 1), "A rate must lie"),
        (lambda: gpus_for(1e14, 1e-3), "is a GPU's 0.001 right?"),
        (lambda: least_profile([1], 0), "A swap cap must be a whole number from 1"),
        (lambda: least_profile([1], 1.5), "A swap cap"),  # type: ignore[arg-type]
        (lambda: least_profile([1], True), "A swap cap"),
        (lambda: least_cycle([1], 0), "A swap cap"),
        (lambda: least_profile([], 1), "Needs must be 1 to"),
        (lambda: least_profile([2, -1], 1), "needed in timestep 1"),
        (lambda: least_profile([1], 1, held=-1), "The GPUs held before"),
    ],
)
def test_nonsense_is_told_in_one_sentence(call, told):
    with pytest.raises(DemandError, match=told.replace("?", r"\?")) as caught:
        call()
    assert str(caught.value).count("\n") == 0
