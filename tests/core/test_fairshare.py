"""Fair Tree: the peer's numbers, ties that stay ties, and turns that follow what is given."""

import json
import sys
from collections.abc import Callable
from fractions import Fraction
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

import pytest

from allocator.core.fairshare import ShareNode, budget_factors, factors, read_tree
from allocator.core.problem import BudgetNode, Problem, ProblemError
from allocator.core.turns import Turn, Turns
from tests.core.problems import job, problem, tree

ROOT = Path(__file__).parents[3]
GOLDEN = ROOT / "shared" / "data" / "fairshare" / "slurm_fair_tree_test24_4.json"


def nodes(*rows: tuple[str, str | None, int | str, int]) -> list[ShareNode]:
    return [ShareNode(*row) for row in rows]


def test_the_peers_tree_gives_the_peers_numbers() -> None:
    """One number differs: three leaves tie exactly at 22/17, the peer's rounding splits them."""
    if not GOLDEN.exists():
        pytest.skip("../shared/data/fairshare is not here")
    case = json.loads(GOLDEN.read_text())["cases"][0]
    answer = factors(read_tree({"tree": case["tree"]}))
    expected = {row["user"]: row["fairshare"] for row in case["expected"] if row["user"]}
    expected["uD2"] = expected["uD3"]
    assert {leaf: round(float(factor), 6) for leaf, factor in answer.items()} == expected


def test_the_less_used_of_two_equal_shares_comes_first() -> None:
    answer = factors(nodes(("o", None, 1, 0), ("a", "o", 50, 30), ("b", "o", 50, 10)))
    assert answer == {"b": 1, "a": Fraction(1, 2)}


def test_twice_the_share_carries_twice_the_usage() -> None:
    """60 of 90 shares with 20 of 30 usage ties with 30 of 90 with 10 of 30."""
    answer = factors(nodes(("o", None, 1, 0), ("a", "o", 60, 20), ("b", "o", 30, 10)))
    assert answer == {"a": 1, "b": 1}


def test_usage_zero_comes_first_and_share_zero_last() -> None:
    rows = (("o", None, 1, 0), ("used", "o", 10, 1), ("fresh", "o", 1, 0), ("none", "o", 0, 0))
    answer = factors(nodes(*rows))
    assert sorted(answer, key=answer.__getitem__, reverse=True) == ["fresh", "used", "none"]


def test_a_program_that_is_ahead_lifts_its_busy_project() -> None:
    """Leaves are compared at the first level below their common ancestor, not by themselves."""
    rows = (
        ("o", None, 1, 0), ("p", "o", 50, 0), ("q", "o", 50, 0),
        ("p/busy", "p", 10, 40), ("p/idle", "p", 90, 0), ("q/idle", "q", 50, 0),
        ("q/busy", "q", 50, 60),
    )  # fmt: skip
    answer = factors(nodes(*rows))
    order = sorted(answer, key=answer.__getitem__, reverse=True)
    assert order == ["p/idle", "p/busy", "q/idle", "q/busy"]


def test_children_of_tied_siblings_are_compared_together() -> None:
    rows = (
        ("o", None, 1, 0), ("p", "o", 50, 0), ("q", "o", 50, 0),
        ("p1", "p", 50, 6), ("p2", "p", 50, 4), ("q1", "q", 50, 9), ("q2", "q", 50, 1),
    )  # fmt: skip
    answer = factors(nodes(*rows))
    assert answer == {"q2": 1, "p2": Fraction(3, 4), "p1": Fraction(1, 2), "q1": Fraction(1, 4)}


def test_shares_parent_compete_one_level_up_and_a_leaf_with_it_ranks_first() -> None:
    rows = (
        ("o", None, 1, 0), ("p", "o", 100, 0), ("team", "p", "parent", 0),
        ("lead", "p", "parent", 99), ("a", "p", 10, 5), ("b", "team", 10, 1),
    )  # fmt: skip
    answer = factors(nodes(*rows))
    assert answer == {"lead": 1, "b": Fraction(2, 3), "a": Fraction(1, 3)}


def test_a_third_is_no_rounding_matter() -> None:
    """Usages 1/3 and 33.333 % shares tie exactly; one millisecond more does not."""
    even = [ShareNode("o", None, 1, 0)]
    even += [ShareNode(name, "o", 33_333, 7) for name in "abc"]
    assert set(factors(even).values()) == {1}
    even[3] = ShareNode("c", "o", 33_333 * 10**15, 7 * 10**15 + 1)
    big = [ShareNode(n.name, n.parent, n.shares, n.usage) for n in even]
    big[1:3] = [ShareNode(name, "o", 33_333 * 10**15, 7 * 10**15) for name in "ab"]
    assert factors(big) == {"a": 1, "b": 1, "c": Fraction(1, 3)}


def test_shares_too_close_for_floating_point_are_told_apart() -> None:
    big = 10**30
    rows = nodes(("o", None, 1, 0), ("a", "o", big, big), ("b", "o", big + 1, big))
    assert factors(rows) == {"b": 1, "a": Fraction(1, 2)}


def test_products_past_64_bits_keep_their_order() -> None:
    """Shares and usage each fit in 64 bits, their products don't: 60,000 × 4·10¹⁴ and 40,000 × …"""
    usage = 2 * 10**17
    rows = nodes(
        ("o", None, 1, 0), ("a", "o", 60_000, 3 * usage), ("b", "o", 40_000, 2 * usage + 1),
        ("c", "o", 40_000, 2 * usage - 1), ("d", "o", 1, usage),
    )  # fmt: skip
    answer = factors(rows)
    assert sorted(answer, key=answer.__getitem__, reverse=True) == ["c", "a", "b", "d"]


def test_quotients_past_the_largest_float_are_told_apart() -> None:
    big = 10**400
    rows = nodes(("o", None, 1, 0), ("a", "o", big, 1), ("b", "o", big + 1, 1), ("c", "o", 1, big))
    assert factors(rows) == {"b": 1, "a": Fraction(2, 3), "c": Fraction(1, 3)}


def test_order_of_rows_does_not_matter() -> None:
    rows = _random_tree(Random(3), 300)
    answer = factors(rows)
    Random(4).shuffle(rows)
    assert factors(rows) == answer


def test_ten_times_the_budgets_make_ten_times_the_work() -> None:
    """Counted in calls, which no neighbour on the machine changes (`./run bench fairshare`
    measures the time): a walk that looks at all budgets for each of them makes a hundred times."""
    calls = {}
    for count in (1_000, 10_000):
        rows = _random_tree(Random(5), count)
        calls[count], answer = _calls_of(partial(factors, rows))
    assert calls[10_000] < 15 * calls[1_000]
    assert calls[10_000] < 20 * 10_000
    assert max(answer.values()) == 1
    assert min(answer.values()) == Fraction(1, len(answer))


def _calls_of(work: Callable[[], Any]) -> tuple[int, Any]:
    """How many functions, Python's and C's, were called while it worked; and its answer."""
    seen = 0

    def counts(_frame: object, event: str, _argument: object) -> None:
        nonlocal seen
        seen += event in ("call", "c_call")

    before = sys.getprofile()
    sys.setprofile(counts)
    try:
        answer = work()
    finally:
        sys.setprofile(before)
    return seen, answer


def _random_tree(rng: Random, count: int) -> list[ShareNode]:
    rows = [ShareNode("n0", None, 1, 0)]
    for i in range(1, count):
        parent = "n0" if i < 20 else f"n{(i - 10) // 10}"
        rows.append(ShareNode(f"n{i}", parent, rng.randint(0, 1000), rng.randint(0, 10**12)))
    return rows


@pytest.mark.parametrize(
    ("data", "says"),
    [
        ([], "one field"),
        ({"tree": []}, "at least one node"),
        ({"tree": [3]}, "must be an object"),
        ({"tree": [{"name": "a", "parent": None, "shares": 1}]}, "'usage' is missing"),
        ({"tree": [{"name": "a", "parent": None, "shares": 1, "usage": 0, "x": 1}]}, "'x'"),
        ({"tree": [{"name": "a", "parent": "b", "shares": 1, "usage": 0}]}, "no node 'b'"),
        ({"tree": [{"name": "a", "parent": "a", "shares": 1, "usage": 0}]}, "no root"),
        ({"tree": [{"name": "a", "parent": None, "shares": "parent", "usage": 0}]}, "root"),
        ({"tree": [{"name": "a", "parent": None, "shares": "x", "usage": 0}]}, '"parent"'),
        ({"tree": [{"name": "a", "parent": None, "shares": -1, "usage": 0}]}, "at least 0"),
        ({"tree": [{"name": "a", "parent": None, "shares": 1, "usage": True}]}, "not true"),
        ({"tree": [{"name": "a", "parent": None, "shares": 1, "usage": 0}] * 2}, "twice"),
    ],
)
def test_a_bad_tree_gets_one_sentence(data: Any, says: str) -> None:
    with pytest.raises(ProblemError) as refused:
        factors(read_tree(data))
    assert says in str(refused.value)


def test_decimal_shares_are_exact() -> None:
    row = {"parent": "o", "usage": 0.3}
    data = {
        "tree": [
            {"name": "o", "parent": None, "shares": None, "usage": 0},
            {"name": "a", "shares": 0.1, **row},
            {"name": "b", "shares": 0.1, **row},
        ]
    }
    assert factors(read_tree(data)) == {"a": 1, "b": 1}


def test_decimals_below_one_are_not_cut_off() -> None:
    """0.1 of 0.3 shares with 0.2 of 0.3 usage is behind; whole parts alone would tie at nothing."""
    rows = (("o", None, 1, 0), ("a", "o", 0.1, 0.2), ("b", "o", 0.2, 0.1), ("c", "o", 0.05, 0.1))
    data = [dict(zip(("name", "parent", "shares", "usage"), row, strict=True)) for row in rows]
    answer = factors(read_tree({"tree": data}))
    assert answer == {"b": 1, "a": Fraction(2, 3), "c": Fraction(2, 3)}


# Turns: the same order, kept up to date while a plan is built.


def turns_of(budgets: tuple[BudgetNode, ...]) -> tuple[Turns, Problem]:
    made = problem(budgets=budgets)
    return Turns(made, made.gpus * made.horizon * made.timestep_seconds), made


def test_turns_start_in_fair_tree_order() -> None:
    for seed in range(30):
        rng = Random(seed)
        budgets = [BudgetNode("o", None, 100_000, 0)]
        for p in range(4):
            budgets.append(BudgetNode(f"o/{p}", "o", rng.randint(1, 25_000), 0))
            for q in range(rng.randint(1, 4)):
                usage = rng.randint(1, 10**9)
                budgets.append(BudgetNode(f"o/{p}/{q}", f"o/{p}", rng.randint(1, 25_000), usage))
        turns, _ = turns_of(tuple(budgets))
        for leaf in turns.leaf_of.values():
            turns.open(leaf, Turn.WAITING)
        order = []
        while (turn := turns.next()) is not None:
            order.append(turns.path(turn[0]))
            turns.close(*turn)
        ranks = budget_factors(budgets)
        assert order == sorted(ranks, key=ranks.__getitem__, reverse=True)


def test_what_the_plan_gives_passes_the_turn_on() -> None:
    turns, _ = turns_of(tree(a=(50, 100), b=(50, 150)))
    a, b = turns.leaf_of["org/a"], turns.leaf_of["org/b"]
    for leaf in (a, a, b):
        turns.open(leaf, Turn.WAITING)
    assert turns.next() == (a, Turn.WAITING)
    turns.close(a, Turn.WAITING)
    turns.give(a, 100, 0)
    assert turns.next() == (b, Turn.WAITING)


def test_a_run_stays_up_to_ten_percent() -> None:
    """The bonus raises a run's level fair share by a tenth: 109 used as 99, 111 as 101."""
    for usage, stays in ((109, True), (111, False)):
        turns, _ = turns_of(tree(waits=(50, 100), runs=(50, usage)))
        waits, runs = turns.leaf_of["org/waits"], turns.leaf_of["org/runs"]
        turns.open(waits, Turn.WAITING)
        turns.open(runs, Turn.RUNNING)
        assert turns.next() == ((runs, Turn.RUNNING) if stays else (waits, Turn.WAITING))
        assert turns.outranks(waits, runs) is not stays


def test_without_budgets_there_is_one_leaf() -> None:
    made = problem(job("a"), job("b"))
    turns = Turns(made, 1)
    turns.open(turns.leaf_of[None], Turn.WAITING)
    assert turns.next() == (turns.leaf_of[None], Turn.WAITING)


def test_entitlement_is_derived_from_shares_where_it_is_not_stated() -> None:
    """8 GPUs x 4 half hours = 57,600 GPU-seconds; 60 % of it is 34,560."""
    turns, made = turns_of(tree(a=(60, 34_000), b=(40, 0)))
    a = turns.leaf_of["org/a"]
    assert turns.inside(a, a, 560)
    assert not turns.inside(a, a, 561)
    stated = tuple(BudgetNode(b.path, b.parent, b.shares, b.usage, 50_000) for b in made.budgets)
    turns, _ = turns_of(stated)
    assert turns.inside(a, a, 16_000)
    assert not turns.inside(a, a, 16_001)


def test_what_the_plan_gives_in_its_first_timestep_uses_up_an_entitlement() -> None:
    turns, _ = turns_of(tree(a=(60, 34_000), b=(40, 0)))
    a = turns.leaf_of["org/a"]
    turns.give(a, 10_000, 500)  # later timesteps count for turns only
    assert turns.inside(a, a, 60)
    assert not turns.inside(a, a, 61)


def test_inside_means_at_every_level_below_the_common_ancestor() -> None:
    """Program p has used up its entitlement by its project p/y, so p/x is outside with it."""
    turns, _ = turns_of(
        (
            BudgetNode("o", None, 100_000, 0),
            BudgetNode("o/p", "o", 50_000, 0),
            BudgetNode("o/p/x", "o/p", 50_000, 0),
            BudgetNode("o/p/y", "o/p", 50_000, 28_800),
            BudgetNode("o/q", "o", 50_000, 40_000, entitled=100_000),
        )
    )
    x, y, q = (turns.leaf_of[f"o/{name}"] for name in ("p/x", "p/y", "q"))
    assert turns.may_preempt(x, 1800, y, 0)  # beside its sibling it is judged alone
    assert turns.outranks(x, q)
    assert turns.may_preempt(x, 0, q, 0)
    assert not turns.may_preempt(x, 1, q, 0)  # q is inside, and with one second more p is not
