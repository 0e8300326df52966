"""Grants by shares in whole milli-GPU-seconds: no reserve falls below 0 because of rounding."""

from collections import defaultdict
from collections.abc import Mapping
from fractions import Fraction
from itertools import pairwise
from math import floor

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from budgets.models import Budget
from ledger import reports, services
from ledger.rounding import Place, dues
from tests.factories import T0, TIMESTEP, make_period, make_pool, make_shares

WHOLE = 100_000  # thousandths of a percent
SHAPE: dict[int, int | None] = {1: None, 2: 1, 3: 1, 4: 1, 5: 2, 6: 2, 7: 5, 8: 5, 9: 3}
BELOW: dict[int, list[int]] = defaultdict(list)
for child, parent in SHAPE.items():
    if parent is not None:
        BELOW[parent].append(child)
Tree = Mapping[int, int]  # thousandths of the parent, by budget


@st.composite
def trees(draw: st.DrawFn) -> Tree:
    """Shares of every parent's children: together at most all of it, often all of it."""
    shares = {1: WHOLE}
    for children in BELOW.values():
        left = WHOLE
        for child in children:
            shares[child] = draw(st.integers(0, left) | st.sampled_from([left, left // 3]))
            left -= shares[child]
    return shares


def places(tree: Tree, whole: Fraction) -> dict[int, Place]:
    found: dict[int, Place] = {}
    for budget, parent in SHAPE.items():
        above = whole if parent is None else found[parent].worth
        found[budget] = Place(parent, above * tree[budget] / WHOLE)
    return found


@settings(max_examples=150, deadline=None)
@given(
    capacity=st.integers(1, 10**6) | st.integers(1, 12),
    every=st.lists(st.tuples(trees(), st.integers(0, 97)), min_size=2, max_size=6),
)
def test_whatever_shares_do_no_reserve_is_negative_and_none_is_far_off(
    capacity: int, every: list[tuple[Tree, int]]
) -> None:
    """From the start of a period on, with the time that is left at each change, of 97 parts."""
    steps = sorted(every, key=lambda step: -step[1])
    start = places(steps[0][0], Fraction(capacity))
    granted = {budget: floor(place.worth) for budget, place in start.items()}
    exact = {budget: place.worth for budget, place in start.items()}
    for number, ((before, _), (after, rest)) in enumerate(pairwise(steps), 1):
        whole = Fraction(capacity * rest, 97)
        old, new = places(before, whole), places(after, whole)
        for budget, amount in dues(old, new).items():
            change = new[budget].worth - old[budget].worth
            assert amount <= change, "nothing is rounded up"
            granted[budget] += amount
            exact[budget] += change
        for parent, children in BELOW.items():
            assert granted[parent] >= sum(granted[child] for child in children)
        assert granted[1] == capacity
        assert all(exact[one] - granted[one] < 4 * (number + 1) for one in SHAPE)


def test_what_is_too_much_is_taken_from_whom_rounding_took_least() -> None:
    before = {1: Place(None, Fraction(0)), 2: Place(1, Fraction(0)), 3: Place(1, Fraction(0))}
    before[4] = Place(1, Fraction(0))
    worth = {1: Fraction(59, 10), 2: Fraction(22, 10), 3: Fraction(21, 10), 4: Fraction(10, 10)}
    after = {pk: Place(before[pk].parent, worth[pk]) for pk in before}
    # 5.9 becomes 5, so the children share ⌊5 - 5.9 + 5.3⌋ = 4, not 2 + 2 + 1.
    assert dues(before, after) == {1: 5, 2: 2, 3: 2, 4: 0}


def test_a_budget_that_moves_leaves_at_least_what_it_had() -> None:
    half = Fraction(1, 2)
    before = {1: Place(None, 9 * half), 2: Place(1, 3 * half), 3: Place(1, half), 4: Place(2, half)}
    after = {**before, 4: Place(3, half)}
    assert dues(before, after) == {1: 0, 2: 0, 3: 0, 4: -1}


def test_who_leaves_the_tree_gives_back_what_it_had() -> None:
    before = {1: Place(None, Fraction(9)), 2: Place(1, Fraction(7, 2))}
    assert dues(before, {1: before[1]}) == {1: 0, 2: -3}


@pytest.mark.django_db
def test_the_ledger_grants_by_that_rule(tree: dict[str, Budget]) -> None:
    """Five pools, each with a fraction left over at the start, and then with nothing."""
    orlo, science, vision = (tree[path] for path in ("orlo", "orlo/science", "orlo/vision"))
    make_shares(orlo, {science: 39_000, vision: 60_000})
    pools = {make_pool(): 90 for _ in range(5)}
    period = make_period(
        starts_at=T0, ends_at=T0 + 10 * TIMESTEP, status="approved", capacity=pools, rate=1
    )
    services.start_period(period=period, at=T0)
    for number, shares in enumerate([(41_000, 59_000), (39_300, 60_700), (41_700, 58_300)], 1):
        at = T0 + number * TIMESTEP
        change = make_shares(orlo, dict(zip((science, vision), shares, strict=True)), at=at)
        services.apply_change_set(change_set=change, now=at)
        figures = reports.figures(period=period, now=at)
        assert min(one.reserve_mgpus for one in figures.values()) >= 0
    assert reports.entry_problems(start=T0, end=period.ends_at) == []
