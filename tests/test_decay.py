"""The half-life of fair-share usage: exact weights, nothing lost, and the ledger left alone."""

from collections import defaultdict
from datetime import timedelta
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

from allocator import entitlements
from budgets import shares
from budgets.models import Budget, Period
from ledger import reports
from ledger.decay import ONE, Decay, rounded_up, weight_of
from ledger.models import Entry
from tests.factories import (
    HOUR,
    LONG_AGO,
    T0,
    make_job,
    make_nodes,
    make_period,
    make_pool,
    make_run,
)
from tests.ledger_world import close, ledger, log_gpus, write_entry

PAGE = Path(__file__).parents[1] / "docs" / "fairshare.md"
MINUTE = timedelta(minutes=1)


# --- Weights --------------------------------------------------------------------------------------


def test_each_half_life_halves_exactly_and_nothing_weighs_nothing() -> None:
    assert [weight_of(age, 24) for age in (0, 24, 48, 240)] == [ONE, ONE // 2, ONE // 4, ONE >> 10]
    weights = [weight_of(age, 7) for age in range(90 * 24)]
    assert weights == sorted(weights, reverse=True)
    assert weights[-1] == 1
    assert len(set(weights[:200])) == 200


def test_without_a_half_life_all_weighs_the_same_and_nothing_is_cut() -> None:
    decay = Decay(end=10**9, half_life_hours=0)
    assert {decay.weight(at) for at in (0, 10**8, 10**9)} == {ONE}
    assert decay.marks(5, 10**6) == [5, 10**6]


def test_with_one_time_is_cut_at_whole_hours() -> None:
    decay = Decay(end=7300, half_life_hours=1)
    assert decay.marks(1800, 9000) == [1800, 3600, 7200, 9000]
    assert decay.marks(3600, 7200) == [3600, 7200]
    assert [decay.weight(at) for at in (0, 3599, 3600, 7199, 7200, 9000)] == [
        *[ONE // 4] * 2,
        *[ONE // 2] * 2,
        *[ONE] * 2,
    ]


def test_a_sum_is_rounded_up_once() -> None:
    assert [rounded_up(value) for value in (0, 1, ONE, ONE + 1)] == [0, 1, 1, 2]


def test_the_page_s_table_of_weights_is_recomputed() -> None:
    lines = PAGE.read_text().splitlines()
    first = lines.index("| age, hours | h = 24 | h = 168 |") + 2
    rows = [line.strip("|").split("|") for line in lines[first : first + 6]]
    for age, *weights in ([int(cell) for cell in row] for row in rows):
        assert weights == [weight_of(age, 24), weight_of(age, 168)]


# --- Usage ----------------------------------------------------------------------------------------


@pytest.fixture
def period(tree: dict[str, Budget]) -> Period:
    return make_period()


def run_on(budget: Budget, gpus: int, *, rate: int = 1000, **fields: Any) -> Any:
    pool = make_pool(rate=rate)
    (node,) = make_nodes(pool, gpus=8)
    return make_run(make_job(budget, gpus=gpus), {node: (1 << gpus) - 1}, **fields)


def test_an_hour_counts_half_for_every_half_life(tree: dict[str, Budget], period: Period) -> None:
    petrel, tern = tree["orlo/science/petrel"], tree["orlo/vision/tern"]
    run_on(petrel, 2, ended_at=T0 + HOUR)
    run_on(tern, 1, started_at=T0 + 2 * HOUR)
    end = close(6)
    window: dict[str, Any] = {"start": T0 - HOUR, "end": end, "now": end}
    assert reports.usage_window(**window) == {petrel.pk: 7_200_000, tern.pk: 3_600_000}
    # At 03:00 the first hour is three hours old, the last one.
    decayed = reports.usage_window(**window, half_life_hours=1)
    assert decayed == {petrel.pk: 7_200_000 // 8, tern.pk: 3_600_000 // 2}


def test_decayed_usage_is_the_sum_of_its_charges(tree: dict[str, Budget], period: Period) -> None:
    """From hourly sums and from entries at the edges alike, whatever the window."""
    petrel, tern = tree["orlo/science/petrel"], tree["orlo/vision/tern"]
    run_on(petrel, 3, started_at=T0 + 17 * MINUTE, rate=700, ended_at=T0 + 5 * HOUR)
    run_on(tern, 5, started_at=T0 + 95 * MINUTE, ended_at=T0 + 6 * HOUR)
    now = close(14)
    for first, last in ((0, 420), (40, 290), (100, 130), (61, 419)):
        start, end = T0 + first * MINUTE, T0 + last * MINUTE
        by_hand: dict[int, Fraction] = defaultdict(Fraction)
        for charge in Entry.objects.filter(kind="charge"):
            assert charge.until is not None
            inside = min(end, charge.until) - max(start, charge.at)
            if inside > timedelta(0):
                part = Fraction(inside / (charge.until - charge.at)) * charge.amount_mgpus
                age = int(end.timestamp()) // 3600 - int(charge.at.timestamp()) // 3600
                by_hand[charge.budget_id] += part * weight_of(age, 5) / ONE
        found = reports.usage_window(start=start, end=end, now=now, half_life_hours=5)
        assert found.keys() == by_hand.keys()
        assert all(0 <= found[pk] - by_hand[pk] < 1 for pk in found)


def test_what_runs_since_the_last_close_counts_in_full(
    tree: dict[str, Budget], period: Period
) -> None:
    petrel = tree["orlo/science/petrel"]
    run_on(petrel, 1)
    close(2)
    now = T0 + 80 * MINUTE
    found = reports.usage_window(start=T0, end=now, now=now, half_life_hours=1)
    assert found == {petrel.pk: 3_600_000 // 2 + 20 * 60_000}


def test_five_minutes_of_one_gpu_never_add_up_to_nothing(
    tree: dict[str, Budget], period: Period
) -> None:
    """Half-life 168 h, a sample of 5 minutes, 1 GPU; and a week later still."""
    petrel = tree["orlo/science/petrel"]
    run_on(petrel, 1, ended_at=T0 + 5 * MINUTE)
    seen = [T0 + 2 * MINUTE, T0 + 4 * MINUTE]
    growing = [
        reports.usage_window(start=T0, end=at, now=at, half_life_hours=168)[petrel.pk]
        for at in seen
    ]
    close()
    for later, half_life in ((HOUR, 168), (6 * 24 * HOUR, 168), (7 * 24 * HOUR, 1)):
        end = T0 + later
        used = reports.usage_window(start=T0, end=end, now=end, half_life_hours=half_life)
        assert 0 < used[petrel.pk] < 300_000
    assert growing == [120_000, 240_000]


# --- What the allocator makes of it ---------------------------------------------------------------


def nodes_at(at: Any) -> dict[str, Any]:
    found = entitlements.budget_nodes(tree=shares.tree(at=at), at=at, until=at + 30 * MINUTE)
    return {node.path: node for node in found}


def test_less_than_a_reference_gpu_second_is_still_use(
    tree: dict[str, Budget], period: Period
) -> None:
    run_on(tree["orlo/science/petrel"], 1, rate=3, ended_at=T0 + timedelta(seconds=1))
    end = close()
    assert nodes_at(end)["orlo/science/petrel"].usage == 1
    assert nodes_at(end)["orlo/science/auk"].usage == 0


@pytest.mark.parametrize("half_life", [0, 1, 24])
def test_who_used_its_share_is_at_its_entitlement_whatever_the_half_life(
    tree: dict[str, Budget], period: Period, settings: Any, half_life: int
) -> None:
    """tern has 40 % of ten GPUs, in use since T0, and held four of them all the time."""
    settings.USAGE_HALF_LIFE_HOURS = half_life
    pool = make_pool()
    (node,) = make_nodes(pool, gpus=10, active_from=T0)
    log_gpus(node, LONG_AGO)
    make_run(make_job(tree["orlo/vision/tern"], gpus=4), {node: 0b1111})
    end = close(20)
    tern = nodes_at(end)["orlo/vision/tern"]
    ahead = 4 * 1800  # what the plan's first timestep is worth is in the entitlement already
    assert 0 <= tern.usage + ahead - tern.entitled <= 1


def test_a_node_that_was_down_lowers_the_entitlement_of_its_own_hours(
    tree: dict[str, Budget], period: Period, settings: Any
) -> None:
    pool = make_pool()
    (node,) = make_nodes(pool, gpus=10, active_from=T0)
    log_gpus(node, LONG_AGO)
    log_gpus(node, T0 + HOUR, down=0b11111)
    log_gpus(node, T0 + 2 * HOUR)
    at = T0 + 3 * HOUR
    assert nodes_at(at)["orlo"].entitled == (10 + 5 + 10 + 5) * 3600
    settings.USAGE_HALF_LIFE_HOURS = 1
    # 10 GPUs three hours ago, 5 two hours ago, 10 an hour ago, and half an hour ahead in full.
    expected = Fraction(10, 8) + Fraction(5, 4) + Fraction(10, 2) + 5
    assert nodes_at(at)["orlo"].entitled == expected * 3600


def test_the_half_life_changes_who_goes_first_and_not_a_unit_of_the_ledger(
    tree: dict[str, Budget], period: Period, settings: Any
) -> None:
    """petrel used much long ago, auk a little of late: with a short memory petrel goes first."""
    write_entry(
        kind="grant", budget=tree["orlo"], period=period, at=T0, created_at=T0, key="grant",
        amount_mgpus=10**12,
    )  # fmt: skip
    run_on(tree["orlo/science/petrel"], 8, ended_at=T0 + HOUR)
    run_on(tree["orlo/science/auk"], 2, started_at=T0 + 9 * HOUR, ended_at=T0 + 10 * HOUR)
    end = close(20)
    books = ledger(), reports.figures(period=period, now=end)
    first = {}
    for half_life in (0, 1):
        settings.USAGE_HALF_LIFE_HOURS = half_life
        factors = entitlements.factors(nodes_at(end).values())
        science = {path: factors[path] for path in factors if path.startswith("orlo/science")}
        first[half_life] = max(science, key=lambda path: science[path])
        assert (ledger(), reports.figures(period=period, now=end)) == books
    assert first == {0: "orlo/science/auk", 1: "orlo/science/petrel"}
