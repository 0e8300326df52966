"""Carry-over: none, a percent, or one up to so much; undecayed, and never for overspending."""

from datetime import timedelta
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from allocator import steering, turning
from budgets import periods
from budgets.models import WHOLE, Period
from budgets.refusals import Refused
from budgets.services import move_budget
from ledger import reports, services
from ledger.carry_over import capped, moved
from ledger.membership import Membership
from ledger.models import Entry
from tests.factories import HOUR, T0, T1, make_period, make_pool, make_shares, make_user
from tests.ledger_world import CREDIT, give, write_entry

BORDER = T0 + 100 * HOUR


@pytest.mark.django_db
@pytest.mark.parametrize("spent_at", [T0, BORDER - timedelta(seconds=1)])
@pytest.mark.parametrize(
    ("policy", "credits"),
    [
        ({}, {}),
        ({"carry_over_cap": 50_000}, {"orlo": 45, "petrel": 45, "science": 45}),
        (
            {"carry_over_cap": 50_000, "carry_over_max_mgpus": 30 * CREDIT},
            {"orlo": 30, "petrel": 30, "science": 30},
        ),
        (
            {"carry_over_cap": 50_000, "carry_over_max_mgpus": 46 * CREDIT},
            {"orlo": 45, "petrel": 45, "science": 45},
        ),
    ],
)
def test_each_policy_gives_the_same_whenever_it_was_spent(
    tree: Any, policy: dict[str, int], credits: dict[str, int], spent_at: Any
) -> None:
    one = make_period("one", ends_at=BORDER)
    give(tree["orlo/science/petrel"], 100, one)
    services.adjust(
        budget=tree["orlo/science/petrel"], amount_mgpus=10 * CREDIT, author=make_user(), note="x",
        key="x", now=spent_at,
    )  # fmt: skip
    two = make_period(
        "two", starts_at=BORDER, ends_at=T1, status="approved", capacity={make_pool(): 1}, **policy
    )
    services.start_period(period=two, at=BORDER)
    rows = Entry.objects.filter(kind="carry", period=two).order_by("budget__slug")
    found = {
        slug: amount / CREDIT for slug, amount in rows.values_list("budget__slug", "amount_mgpus")
    }
    assert found == credits


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    st.lists(st.integers(0, 10**9), min_size=1, max_size=6),
    st.integers(1, WHOLE),
    st.one_of(st.none(), st.integers(1, 10**9)),
)
def test_nobody_carries_more_than_the_percent_and_all_together_no_more_than_the_most(
    leaves: list[int], cap: int, most: int | None
) -> None:
    unspent = dict(enumerate([sum(leaves), *leaves]))
    found = capped(unspent, dict.fromkeys(unspent, 0), cap=cap, most=most)
    for budget, left in unspent.items():
        assert 0 <= found.get(budget, 0) <= left * cap // WHOLE
    below = sum(found.get(budget, 0) for budget in unspent if budget)
    assert below <= found.get(0, 0)
    if most is not None:
        assert found.get(0, 0) <= most
    if most is None or most >= sum(leaves) * cap // WHOLE + 1:
        assert found.get(0, 0) == sum(leaves) * cap // WHOLE


@pytest.mark.django_db
def test_row_12_what_is_carried_over_counts_once(tree: Any) -> None:
    """Row 12: a rollover counts twice. It is written once, and carried on by the cap alone."""
    pool, petrel = make_pool(), tree["orlo/science/petrel"]
    half = {"carry_over_cap": 50_000, "status": "approved", "capacity": {pool: 1}}
    borders = [T0, BORDER, BORDER + HOUR, BORDER + 2 * HOUR]
    make_period("p0", ends_at=BORDER)
    give(petrel, 100, Period.objects.get())
    for number in (1, 2):
        start, end = borders[number : number + 2]
        make_period(f"p{number}", starts_at=start, ends_at=end, **half)  # type: ignore[arg-type]
    for at in (BORDER, BORDER, BORDER + HOUR, BORDER + HOUR):
        turning.start_due(at=at)
        turning.close_over(at=at)
    carried = Entry.objects.filter(kind="carry", budget=petrel).order_by("period__starts_at")
    amounts = [amount // CREDIT for amount in carried.values_list("amount_mgpus", flat=True)]
    assert amounts == [50, 25]


@pytest.mark.django_db
@pytest.mark.parametrize("first", ["vision", "petrel", "both"])
def test_savings_follow_a_budget_that_moves_between_two_periods(tree: Any, first: str) -> None:
    """petrel saved 80, auk 30 and tern 40: a quarter goes on, to wherever they stand by then."""
    science, vision = tree["orlo/science"], tree["orlo/vision"]
    petrel, auk, tern = (
        tree["orlo/science/petrel"],
        tree["orlo/science/auk"],
        tree["orlo/vision/tern"],
    )
    one, user = make_period("one", ends_at=BORDER), make_user()
    for budget, granted, spent in ((petrel, 100, 20), (auk, 60, 30), (tern, 40, 0)):
        give(budget, granted, one)
        if spent:
            services.adjust(
                budget=budget, amount_mgpus=spent * CREDIT, author=user, note="x",
                key=budget.slug, now=T0,
            )  # fmt: skip
    start = BORDER + 2 * HOUR
    two = make_period(
        "two", starts_at=start, ends_at=T1, status="approved", capacity={make_pool(): 1},
        carry_over_cap=25_000,
    )  # fmt: skip
    moves = {"vision": [(vision, science)], "petrel": [(petrel, vision)]}
    moves["both"] = [*moves["petrel"], *moves["vision"]]
    for number, (budget, to) in enumerate(moves[first], 1):
        budget.refresh_from_db()
        move_budget(
            budget=budget, to=to, share=0, author=user, reason="x",
            now=BORDER + number * timedelta(minutes=1),
        )  # fmt: skip
    services.start_period(period=two, at=start)
    rows = Entry.objects.filter(kind="carry", period=two)
    found = {
        slug: mgpus / CREDIT for slug, mgpus in rows.values_list("budget__slug", "amount_mgpus")
    }
    leaves = {"orlo": 37.5, "petrel": 20, "auk": 7.5, "tern": 10}
    assert (
        found
        == leaves
        | {
            "vision": {"science": 37.5, "vision": 10},
            "petrel": {"science": 7.5, "vision": 30},
            "both": {"science": 37.5, "vision": 30},
        }[first]
    )


@pytest.mark.django_db
@pytest.mark.parametrize(
    "order", ["start, move", "move, start", "move, start, move", "start later"]
)
def test_books_are_sound_where_a_budget_moves_in_the_second_of_a_start(
    tree: Any, order: str
) -> None:
    petrel, auk, vision = (
        tree[f"orlo/{path}"] for path in ("science/petrel", "science/auk", "vision")
    )
    one = make_period("one", ends_at=BORDER)
    give(petrel, 100, one)
    give(auk, 40, one)
    two = make_period(
        "two", starts_at=BORDER, ends_at=T1, status="approved", capacity={make_pool(): 360_000},
        carry_over_cap=25_000,
    )  # fmt: skip
    steps, moving = order.split(", "), [petrel, auk]
    for step in steps:
        if step == "move":
            steering.move_budget(
                budget=moving.pop(0), to=vision, share=0, author=make_user(), reason="x", now=BORDER
            )
        else:
            services.start_period(period=two, at=BORDER)
    if order == "start later":
        steering.move_budget(
            budget=petrel, to=vision, share=0, author=make_user(), reason="x",
            now=BORDER + timedelta(seconds=1),
        )  # fmt: skip
    assert problems() == []
    write_entry(
        kind="carry", budget=vision, period=two, at=BORDER, amount_mgpus=7, author=make_user(),
        key="forged", created_at=BORDER,
    )  # fmt: skip
    (wrong,) = problems()
    assert wrong.startswith("orlo/vision, two: carried over ")


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("then", "science", "vision"),
    [("", 70, 65), ("late", 70, 65), ("shares", 71, 64), ("back", 95, 40)],
)
def test_what_the_start_carried_to_where_a_budget_moves_is_not_taken_along_again(
    tree: Any, then: str, science: int, vision: int
) -> None:
    """petrel's 25 and auk's 10 are carried over; both programs have 100 credits by shares. petrel
    moves in the very second that the period starts in, before it is started."""
    petrel, auk, above, beside = (
        tree[f"orlo/{path}"] for path in ("science/petrel", "science/auk", "science", "vision")
    )
    one, user = make_period("one", ends_at=BORDER), make_user()
    give(petrel, 100, one)
    give(auk, 40, one)
    two = make_period(
        "two", starts_at=BORDER, ends_at=T1, status="approved", capacity={make_pool(): 360_000},
        carry_over_cap=25_000,
    )  # fmt: skip
    there: dict[str, Any] = {"share": 0, "author": user, "reason": "x", "now": BORDER}
    steering.move_budget(budget=petrel, to=beside, **there)
    services.start_period(period=two, at=BORDER + HOUR if then == "late" else BORDER)
    if then == "shares":
        make_shares(tree["orlo"], {above: 61_000, beside: 39_000}, at=BORDER)
    elif then == "back":
        petrel.refresh_from_db()
        steering.move_budget(budget=petrel, to=above, **there)
    for _ in range(2):
        services.apply_due_change_sets(now=BORDER + 2 * HOUR)
    found = reports.figures(period=two, now=BORDER + 2 * HOUR)
    assert [found[one.pk].granted_mgpus / CREDIT for one in (above, beside, petrel)] == [
        science, vision, 25,
    ]  # fmt: skip
    assert problems() == []


def problems() -> list[str]:
    return [
        one.sentence
        for one in reports.entry_problems(start=T0, end=T1)
        if one.rule in ("carry", "grant", "granted", "transfer")
    ]


def test_an_organisation_that_overspent_carries_nothing_whatever_is_left_below() -> None:
    unspent, roots = {1: 0, 2: 50}, {1: 1, 2: 1}
    assert capped(unspent, roots, cap=50_000, most=10) == {2: 25}  # under 1, nothing is spendable


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("policy", "words"),
    [
        ({"carry_over_cap": 100_001}, "0 to 100,000"),
        ({"carry_over_max_mgpus": 5}, "Give a percent too"),
        ({"carry_over_cap": 1, "carry_over_max_mgpus": 0}, "at most 1 to 100,000,000,000,000,000"),
        ({"carry_over_cap": 1, "carry_over_max_mgpus": 10**17 + 1}, "at most 1 to"),
    ],
)
def test_a_policy_that_makes_no_sense_is_refused(policy: dict[str, int], words: str) -> None:
    with pytest.raises(Refused, match=words):
        periods.draft_period(name="x", starts_at=T0, ends_at=T1, now=T0, **policy)  # type: ignore[arg-type]
    assert not Period.objects.exists()


class Places(Membership):
    """A tree as parents by id, of which some have another one from second 10 on."""

    def __init__(self, parents: dict[int, int | None], then: dict[int, int]) -> None:
        super().__init__(parents, {})
        self.then = then
        self.moves = [10]

    def parent(self, budget_id: int, seconds: int) -> int | None:
        later = self.then.get(budget_id) if seconds >= 10 else None
        return later or self._parents[budget_id]


@pytest.mark.parametrize(
    ("then", "found"),
    [
        # 2 saved nothing, so its child 3 could spend nothing of its 50 there, nor can it elsewhere.
        ({2: 4, 3: 5}, {1: 70, 4: 20, 5: 50, 6: 30}),
        ({6: 4}, {1: 70, 3: 50, 4: 50, 5: 20, 6: 30}),
        ({5: 4}, {1: 70, 3: 50, 4: 70, 5: 50, 6: 30}),
        ({6: 4, 5: 6}, {1: 70, 3: 50, 4: 70, 5: 20, 6: 50}),  # each goes below the other's
    ],
)
def test_a_move_makes_no_savings_and_takes_nobody_elses(
    then: dict[int, int], found: dict[int, int]
) -> None:
    """1 is above 2, 4 and 5; 3 below 2, 6 below 5."""
    tree = Places({1: None, 2: 1, 3: 2, 4: 1, 5: 1, 6: 5}, then)
    amounts = {1: 70, 3: 50, 4: 20, 5: 50, 6: 30}
    assert moved(amounts, tree, since=9, at=10) == found
