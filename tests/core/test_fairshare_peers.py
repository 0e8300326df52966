"""Fair share beside other schedulers' published vectors: equal where both define the same thing.

Where they don't, docs/fairshare.md says what differs; the counts there are recomputed here.
"""

import json
from collections.abc import Iterator, Mapping
from fractions import Fraction
from itertools import combinations, pairwise
from pathlib import Path
from typing import Any

import pytest

from allocator.core.fairshare import factors, read_tree
from allocator.core.problem import FULL_SHARE, BudgetNode
from allocator.core.turns import Turn, Turns
from ledger.decay import ONE, weight_of
from tests.core.problems import problem, tree

ROOT = Path(__file__).parents[3]
FOLDER = ROOT / "shared" / "data" / "fairshare"
PAGE = Path(__file__).parents[2] / "docs" / "fairshare.md"
pytestmark = pytest.mark.skipif(not FOLDER.is_dir(), reason="../shared/data/fairshare is not here")
HOUR = 3600


def load(name: str) -> dict[str, Any]:
    data: dict[str, Any] = json.loads((FOLDER / f"{name}.json").read_text())
    return data


def counted(peer: str) -> tuple[int, int]:
    """Return how many vectors of a file are held and how many are not, as the page says."""
    rows = [line.split("|") for line in PAGE.read_text().splitlines() if f"`{peer}`" in line]
    (row,) = rows
    return int(row[2]), int(row[3])


# Slurm


def test_slurm_fair_tree_every_number_but_the_one_that_rounding_splits() -> None:
    case = load("slurm_fair_tree_test24_4")["cases"][0]
    answer = factors(read_tree({"tree": case["tree"]}))
    expected = {row["user"]: row["fairshare"] for row in case["expected"] if row["user"]}
    held = {user for user, factor in expected.items() if round(float(answer[user]), 6) == factor}
    assert set(expected) - held == {"uD2"}
    assert answer["uD2"] == answer["uD3"] == answer["uDA3"]
    assert (len(held), len(expected) - len(held)) == counted("slurm_fair_tree_test24_4")


def test_slurm_classic_the_order_of_all_that_need_no_merging_of_levels() -> None:
    """Classic mixes a parent's usage into its children's; the order of its own example is ours."""
    held = other = 0
    for case in load("slurm_classic_fairshare")["cases"]:
        answer = factors(read_tree({"tree": case["tree"]}))
        classic = {row["user"]: row["fairshare"] for row in case["expected"] if "fairshare" in row}
        for a, b in combinations(sorted(classic), 2):
            same = _sign(classic[a] - classic[b]) == _sign(answer[a] - answer[b])
            held, other = held + same, other + (not same)
        if case["name"] == "test24.1":
            assert other == 0
    assert (held, other) == counted("slurm_classic_fairshare")


def _sign(value: float | Fraction) -> int:
    return (value > 0) - (value < 0)


# Kueue


def test_kueue_decayed_usage_is_its_curve_but_for_a_constant() -> None:
    """Its moving average is our sum of weights × (1 − 2^(−sample ÷ half-life)): one constant for
    all, which no comparison sees. Here in our steps of an hour."""
    case = load("kueue_admission_usage")["decay_cases"][0]
    half_life = case["half_life_s"] // HOUR
    for after, expected in case["expected_after_half_lives"].items():
        hours = int(after) * half_life
        total = sum(weight_of(age, half_life) for age in range(1, hours + 1)) / ONE
        average = case["usage_constant"] * total * (2 ** (1 / half_life) - 1)
        assert average == pytest.approx(expected, abs=case["tolerance"])


def test_kueue_small_contributions_are_not_dropped() -> None:
    """1 GPU, 5 minutes, half-life 168 h: positive at once, and more with every sample."""
    case = load("kueue_admission_usage")["decay_cases"][1]
    sample = case["usage"]["gpu"] * case["sample_interval_s"] * 1000
    used = [n * sample * weight_of(0, case["half_life_s"] // HOUR) for n in range(4)]
    assert all(earlier < later for earlier, later in pairwise(used))
    assert sample * weight_of(90 * 24, 1) > 0


def test_kueue_usage_over_weight_is_our_usage_over_shares() -> None:
    """Its resources are our pools, their weights our rates, its entry penalty what a plan gave."""
    held = 0
    cases = load("kueue_admission_usage")["cases"]
    for case in cases:
        weights = case["resource_weights"]
        amounts = [*case["consumed"].items(), *case["penalty"].items()]
        used = sum(amount * Fraction(str(weights.get(name, 1))) for name, amount in amounts)
        if case["queue_weight"] < 0:
            continue  # a share below 0 is refused
        held += _ties(used, case["queue_weight"], case["expected_usage"])
    assert (held, len(cases) - held) == (8, 1)
    decayed = len(load("kueue_admission_usage")["decay_cases"])
    assert (held + decayed, 1) == counted("kueue_admission_usage")


def _ties(used: Fraction | int, share: int, expected: float | str) -> bool:
    """Whether a budget ties with one of share 1 that used what is expected; "inf" is last."""
    rows = [{"name": "o", "parent": None, "shares": None, "usage": 0}]
    rest: dict[str, Any] = {"parent": "o"}
    rows.append(rest | {"name": "its", "shares": share, "usage": int(used)})
    if expected == "inf":
        rows.append(rest | {"name": "greedy", "shares": 1, "usage": 10**9})
        answer = factors(read_tree({"tree": rows}))
        return answer["its"] < answer["greedy"]
    rows.append(rest | {"name": "plain", "shares": 1, "usage": int(expected)})
    answer = factors(read_tree({"tree": rows}))
    return answer["its"] == answer["plain"]


# KAI


def divided(total: float, queues: Mapping[str, Any]) -> dict[str, float]:
    """Divide a timestep's GPUs one by one among leaves by turns, up to what each asks for.

    A queue's share is its part of its siblings' deserved GPUs; a budget with share 0 has no funds.
    """
    turns = Turns(problem(budgets=tuple(_budgets(queues))), 0)
    asks: dict[int, float] = {}
    for path, leaf in turns.leaf_of.items():
        queue = queues[str(path).rsplit("/", 1)[-1]]
        most = queue["max_allowed"] if queue["max_allowed"] != "unlimited" else queue["request"]
        asks[leaf] = min(queue["request"], most) if queue["deserved"] else 0
        if asks[leaf] >= 1:
            turns.open(leaf, Turn.WAITING)
    got = dict.fromkeys(asks, 0)
    while sum(got.values()) + 1 <= total and (turn := turns.next()) is not None:
        leaf = turn[0]
        got[leaf] += 1
        turns.give(leaf, 1, 0)
        if got[leaf] + 1 > asks[leaf]:
            turns.close(*turn)
    return {str(path).rsplit("/", 1)[-1]: got[leaf] for path, leaf in turns.leaf_of.items()}


def _budgets(queues: Mapping[str, Any]) -> Iterator[BudgetNode]:
    yield BudgetNode("o", None, FULL_SHARE, 0)
    paths: dict[str | None, str] = {None: "o"}
    for name, queue in queues.items():
        parent = queue.get("parent")
        siblings = [one for one in queues.values() if one.get("parent") == parent]
        whole = sum(Fraction(one["deserved"]) for one in siblings)
        share = int(Fraction(queue["deserved"]) / whole * FULL_SHARE) if whole else 0
        paths[name] = f"{paths[parent]}/{name}"
        yield BudgetNode(paths[name], paths[parent], share, 0)


# One share, not a guarantee and a weight; no priorities among siblings; never more than there is;
# whole GPUs.
WEIGHTS_OF_THEIR_OWN = {
    "two queues: allocates GPUs proportionally",
    "two queues: distributes remainder between queues based on largest remaining",
    "README example of cmd/fairshare-simulator",
    "two queues: priority does affect over-quota",
    "two queues: priority does affect over-quota, even when overQuotaWeight is set",
    "single queue: gives up to deserved when over subscribed",
    "single queue: gives up to full quota",
    "single queue: fraction in deserved",
    "single queue: fraction in request",
}


def test_kai_division_where_a_guarantee_is_the_whole_share() -> None:
    data = load("kai_resource_division")
    differs = set()
    for case in data["cases"]:
        got = divided(case["total"], case["queues"])
        if got != case["expected_fair_share"]:
            differs.add(case["name"])
    assert differs == WEIGHTS_OF_THEIR_OWN
    held = len(data["cases"]) - len(differs)
    not_held = len(differs) + len(data["multi_resource_cases"])  # we divide GPUs alone
    assert (held, not_held) == counted("kai_resource_division")


def test_kai_two_levels_where_a_guarantee_is_the_whole_share() -> None:
    held = []
    cases = load("kai_two_level_hierarchy")["cases"]
    for case in cases:
        got = divided(case["total"], case["queues"])
        if all(case["expected_fair_share"][name] == gpus for name, gpus in got.items()):
            held.append(case["name"])
    assert held == ["two top parent queues - sanity"]
    assert (len(held), len(cases) - len(held)) == counted("kai_two_level_hierarchy")


def test_kai_usage_over_time_evens_out_to_the_job() -> None:
    """The peer asserts nothing of its scenarios; ours end even, to within the largest job."""
    cases = load("kai_time_based_scenarios")["cases"]
    for case in cases:
        gpus = sum(node["gpus"] * node["count"] for node in case["nodes"])
        budgets = tree(**{name.replace("-", "_"): (1, 0) for name in case["queues"]})
        turns = Turns(problem(budgets=budgets), 0)
        sizes = {
            turns.leaf_of[f"org/{name.replace('-', '_')}"]: jobs["gpus"]
            for name, jobs in case["jobs"].items()
        }
        used = dict.fromkeys(sizes, 0)
        for _ in range(300):
            free = gpus
            for leaf in sizes:
                turns.open(leaf, Turn.WAITING)
            while (turn := turns.next()) is not None:
                leaf = turn[0]
                if sizes[leaf] > free:
                    turns.close(*turn)
                    continue
                free -= sizes[leaf]
                used[leaf] += sizes[leaf]
                turns.give(leaf, sizes[leaf], 0)
        assert max(used.values()) - min(used.values()) <= max(sizes.values()), case["name"]
    assert (len(cases), 0) == counted("kai_time_based_scenarios")


# YuniKorn


def test_yunikorn_usage_over_guarantee_of_one_resource() -> None:
    """Ours has one resource, so the largest part of several is its only one."""
    held = 0
    cases = load("yunikorn_fair_share")["cases"]
    for case in cases:
        if len(case["allocated"] or {}) != 1 or not case["guaranteed"]:
            continue
        ((name, used),) = case["allocated"].items()
        part = Fraction(str(case["expected"]))
        rows = [{"name": "o", "parent": None, "shares": None, "usage": 0}]
        rest: dict[str, Any] = {"parent": "o"}
        rows.append(rest | {"name": "its", "shares": case["guaranteed"][name], "usage": used})
        rows.append(rest | {"name": "plain", "shares": part.denominator, "usage": part.numerator})
        answer = factors(read_tree({"tree": rows}))
        held += answer["its"] == answer["plain"]
    assert (held, len(cases) - held) == counted("yunikorn_fair_share")


def test_kueue_dominant_share_is_another_measure() -> None:
    """It measures what is borrowed above a quota, of the largest of several resources."""
    assert (0, len(load("kueue_dominant_resource_share")["cases"])) == counted(
        "kueue_dominant_resource_share"
    )
