"""Ranges from thin and rich histories: integers, robust, never out of order."""

import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forecasting.core.quantiles import (
    DECLARED_PRIOR,
    LONGEST_S,
    Range,
    from_declared,
    from_history,
    quantile,
)

PRIOR = Range(1800, 7200, 28800)
DOCS = Path(__file__).parents[2] / "docs" / "forecasting.md"


@pytest.mark.parametrize(
    ("values", "per_mille", "expected"),
    [
        ([5], 900, 5),
        ([1, 2], 500, 2),  # 1.5, half up
        ([4, 1, 3, 2], 500, 3),  # 2.5, half up; order doesn't matter
        ([0, 10, 20, 30, 40], 100, 4),
        ([0, 10, 20, 30, 40], 900, 36),
        ([0, 10], 0, 0),
        ([0, 10], 1000, 10),
    ],
)
def test_a_quantile_lies_between_ranks(values, per_mille, expected):
    assert quantile(values, per_mille) == expected


def test_without_history_the_prior_is_the_answer():
    assert from_history([], PRIOR) == PRIOR
    assert from_declared(3600, []) == Range(1800, 3600, 5400)


def test_the_worked_tables_of_the_documentation_are_what_the_code_gives():
    rows = re.findall(r"^\| `(history|declared)` \|( [–0-9].*)\|$", DOCS.read_text(), re.M)
    assert {kind for kind, _ in rows} == {"history", "declared"}
    for kind, cells in rows:
        given_s, past, *expected = (cell.strip() for cell in cells.split("|"))
        numbers = [int(number) for number in past.split()]
        found = (
            from_history(numbers, PRIOR)
            if kind == "history"
            else from_declared(int(given_s), numbers)
        )
        assert [str(found.p10), str(found.p50), str(found.p90)] == expected


def test_a_rich_history_outweighs_the_prior_and_an_outlier_moves_little():
    calm = from_history([3600] * 96, PRIOR)
    assert abs(calm.p50 - 3600) < 200
    with_a_hang = from_history([3600] * 95 + [7 * 86400], PRIOR)
    assert (with_a_hang.p50, with_a_hang.p90) == (calm.p50, calm.p90)


def test_declarations_that_come_true_at_60_percent_are_read_as_60_percent():
    assert from_declared(10_000, [600] * 36).p50 == 6400
    assert from_declared(10_000, [600] * 396).p50 == 6040


@given(st.lists(st.integers(1, LONGEST_S), max_size=60), st.integers(1, 10**7))
def test_a_range_always_rises_and_stays_within_what_was_seen(history, declared_s):
    found = from_history(history, PRIOR)
    seen = [*history, PRIOR.p10, PRIOR.p90]
    assert min(seen) <= found.p10 <= found.p50 <= found.p90 <= max(seen)
    declared = from_declared(declared_s, [min(ratio, 10**6) for ratio in history])
    assert 0 < declared.p10 <= declared.p50 <= declared.p90 <= LONGEST_S


@given(st.lists(st.integers(1, 10**6), min_size=1, max_size=30), st.randoms())
def test_the_order_of_a_history_does_not_matter(history, random):
    shuffled = list(history)
    random.shuffle(shuffled)
    assert from_history(shuffled, DECLARED_PRIOR) == from_history(history, DECLARED_PRIOR)


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (lambda: quantile([], 500), "one value at least"),
        (lambda: quantile([1], 1001), "between 0 and 1000"),
        (lambda: Range(2, 1, 3), "must rise"),
        (lambda: Range(0, 1, 3), "must rise"),
        (lambda: from_declared(0, []), "above 0"),
    ],
)
def test_nonsense_is_refused_in_a_sentence(call, sentence):
    with pytest.raises(ValueError, match=sentence):
        call()
