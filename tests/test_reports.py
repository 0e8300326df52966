"""Figures of the tree, fair-share usage and a job's charges: sums that are right, quickly."""

from datetime import timedelta

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from allocator import steering
from budgets.models import Budget, Period
from ledger import reports, services
from tests.factories import (
    HOUR,
    T0,
    TIMESTEP,
    make_budget,
    make_holding,
    make_job,
    make_nodes,
    make_period,
    make_pool,
    make_run,
    make_shares,
    someone,
)
from tests.ledger_world import CREDIT, close, give, give_alone, write_entry
from workloads.models import Job, Run

pytestmark = pytest.mark.django_db
MINUTE = timedelta(minutes=1)


@pytest.fixture
def period() -> Period:
    return make_period()


def run_on(budget: Budget, gpus: int = 8, **fields) -> Run:
    """A run of `gpus` GPUs on a node of its own, in a pool of its own."""
    (node,) = make_nodes(make_pool(), gpus=gpus)
    return make_run(make_job(budget, gpus=gpus), {node: (1 << gpus) - 1}, **fields)


def test_a_node_s_figures_include_its_subtree_s(tree: dict[str, Budget], period: Period) -> None:
    for leaf, gpus in {"science/petrel": 4, "science/auk": 2, "vision/tern": 1}.items():
        give(tree[f"orlo/{leaf}"], 100, period)
        run_on(tree[f"orlo/{leaf}"], gpus)
    run_on(tree["orlo/vision/tern"], 8, funded=False)
    end = close(2)
    found = reports.figures(period=period, now=end + 15 * MINUTE)
    settled = {path: found[b.pk].settled_mgpus / CREDIT for path, b in tree.items()}
    in_flight = {path: found[b.pk].in_flight_mgpus / CREDIT for path, b in tree.items()}
    assert settled == {
        "orlo": 7,
        "orlo/science": 6,
        "orlo/science/petrel": 4,
        "orlo/science/auk": 2,
        "orlo/vision": 1,
        "orlo/vision/tern": 1,
    }
    assert in_flight == {path: amount / 4 for path, amount in settled.items()}
    assert found[tree["orlo"].pk].unfunded_gpu_seconds == 8 * 3600
    assert found[tree["orlo/science"].pk].unfunded_gpu_seconds == 0
    assert found[tree["orlo/science"].pk].charged_gpu_seconds == 6 * 3600


def test_spendable_is_the_least_over_the_ancestors_and_reserve_what_no_child_has(
    tree: dict[str, Budget], period: Period
) -> None:
    amounts = {"orlo": 50, "orlo/science": 30, "orlo/science/petrel": 40, "orlo/vision": 5}
    for path, credits in amounts.items():
        write_entry(
            kind="grant", budget=tree[path], period=period, at=T0, created_at=T0,
            amount_mgpus=credits * CREDIT, key=path,
        )  # fmt: skip
    found = reports.figures(period=period, now=T0)
    spendable = {path: found[b.pk].spendable_mgpus / CREDIT for path, b in tree.items()}
    assert spendable == {
        "orlo": 50,
        "orlo/science": 30,
        "orlo/science/petrel": 30,
        "orlo/science/auk": 0,
        "orlo/vision": 5,
        "orlo/vision/tern": 0,
    }
    reserve = {path: found[b.pk].reserve_mgpus / CREDIT for path, b in tree.items()}
    assert (reserve["orlo"], reserve["orlo/science"], reserve["orlo/vision"]) == (15, -10, 5)


def test_a_move_never_changes_totals_of_the_past(tree: dict[str, Budget], period: Period) -> None:
    auk, science, vision = (tree[p] for p in ("orlo/science/auk", "orlo/science", "orlo/vision"))
    run_on(auk, 1)
    end = close(2)
    make_shares(science, {tree["orlo/science/petrel"]: 50_000}, at=end)
    make_shares(vision, {tree["orlo/vision/tern"]: 50_000, auk: 50_000}, at=end)
    auk.parent = vision
    auk.save()
    end = close(4, since=end)
    found = reports.figures(period=period, now=end)
    settled = [found[budget.pk].settled_mgpus / CREDIT for budget in (auk, science, vision)]
    assert settled == [3, 1, 2]
    assert found[tree["orlo"].pk].settled_mgpus == 3 * CREDIT
    assert found[science.pk].charged_gpu_seconds == 3600
    # What is set aside from now on binds the new parent alone.
    give(auk, 10, period)
    services.place_hold(job=make_job(auk), amount_mgpus=CREDIT, now=end)
    found = reports.figures(period=period, now=end)
    assert found[vision.pk].held_mgpus == CREDIT
    assert found[science.pk].held_mgpus == 0
    give_alone(science, 1, period)  # what auk spent there was never granted
    assert reports.entry_problems(start=T0, end=end) == []


def test_an_archived_budget_s_charges_still_count_above_it(
    tree: dict[str, Budget], period: Period
) -> None:
    run_on(tree["orlo/science/auk"], 1, ended_at=T0 + HOUR)
    end = close(2)
    make_shares(tree["orlo/science"], {tree["orlo/science/petrel"]: 50_000}, at=end)
    assert reports.figures(period=period, now=end)[tree["orlo/science"].pk].settled_mgpus == CREDIT


def test_figures_take_the_same_number_of_queries_for_any_number_of_budgets(
    tree: dict[str, Budget], period: Period
) -> None:
    def queries() -> int:
        with CaptureQueriesContext(connection) as asked:
            reports.figures(period=period, now=T0 + 3 * HOUR)
        return len(asked)

    run_on(tree["orlo/vision/tern"], 1)
    close(2)
    few = queries()
    shares = {tree["orlo/vision/tern"]: 10_000}
    shares |= {make_budget(parent=tree["orlo/vision"]): 1000 for _ in range(20)}
    make_shares(tree["orlo/vision"], shares, at=T0)
    for budget in shares:
        run_on(budget, 1)
    close(2, since=T0 + HOUR)
    assert queries() == few <= 12


def test_a_run_that_ended_since_the_last_close_is_still_in_flight(
    tree: dict[str, Budget], period: Period
) -> None:
    petrel = tree["orlo/science/petrel"]
    give(petrel, 10, period)
    run_on(petrel, 8, ended_at=T0 + 15 * MINUTE)
    found = reports.figures(period=period, now=T0 + 25 * MINUTE)[petrel.pk]
    assert (found.in_flight_mgpus, found.spendable_mgpus) == (2 * CREDIT, 8 * CREDIT)
    assert reports.spendable(budget=petrel, now=T0 + 25 * MINUTE) == 8 * CREDIT


# --- Fair-share usage -----------------------------------------------------------------------------


def test_usage_counts_the_funded_seconds_inside_the_window_to_the_second(
    tree: dict[str, Budget], period: Period
) -> None:
    petrel, tern = tree["orlo/science/petrel"], tree["orlo/vision/tern"]
    run_on(petrel, 2)
    run = run_on(tern, 4, ended_at=T0 + 70 * MINUTE)
    make_holding(run, run.holdings.get().node, 0b1, funded=False, ended_at=T0 + HOUR)
    close(2)
    second = timedelta(seconds=1)
    now = T0 + 80 * MINUTE

    def usage(start, end, now=now):
        return reports.usage_window(start=start, end=end, now=now)

    assert usage(T0 + 10 * MINUTE + second, T0 + 50 * MINUTE) == {
        petrel.pk: 2 * 2399 * 1000,
        tern.pk: 4 * 2399 * 1000,
    }
    # What runs, or ran, since the last close counts to now, or to where it ended.
    assert usage(T0 + HOUR, now) == {petrel.pk: 2 * 1200 * 1000, tern.pk: 4 * 600 * 1000}
    assert usage(T0 + 65 * MINUTE, now) == {petrel.pk: 2 * 900 * 1000, tern.pk: 4 * 300 * 1000}
    assert usage(T0 + 75 * MINUTE, now + HOUR) == {petrel.pk: 2 * 300 * 1000}
    assert usage(T0 - HOUR, T0) == {}
    whole = usage(T0, now)
    parts = [usage(T0 + a * MINUTE, T0 + b * MINUTE) for a, b in ((0, 17), (17, 61), (61, 80))]
    for budget in (petrel, tern):
        assert whole[budget.pk] == sum(part.get(budget.pk, 0) for part in parts)


def test_usage_keeps_to_the_rate_of_each_second(tree: dict[str, Budget], period: Period) -> None:
    petrel = tree["orlo/science/petrel"]
    run = run_on(petrel, 1)
    run.pool.rates.create(effective_at=T0 + 20 * MINUTE, rate_per_mille=3000)
    now = T0 + 25 * MINUTE
    since = T0 + 15 * MINUTE
    expected = {petrel.pk: 5 * 60 * 1000 + 5 * 60 * 3000}
    assert reports.usage_window(start=since, end=now, now=now) == expected  # still in flight
    close()
    assert reports.usage_window(start=since, end=now, now=now) == expected  # charged


def test_changing_the_window_never_changes_the_ledger(
    tree: dict[str, Budget], period: Period
) -> None:
    petrel = tree["orlo/science/petrel"]
    run_on(petrel, 2)
    end = close(8)
    before = reports.figures(period=period, now=end)
    short = reports.usage_window(start=end - HOUR, end=end, now=end)
    long = reports.usage_window(start=end - 7 * 24 * HOUR, end=end, now=end)
    assert (short[petrel.pk], long[petrel.pk]) == (2 * CREDIT, 8 * CREDIT)
    assert reports.figures(period=period, now=end) == before


# --- Statements -----------------------------------------------------------------------------------


def test_a_job_s_charges_tell_each_segment_and_its_sum(
    tree: dict[str, Budget], period: Period
) -> None:
    petrel = tree["orlo/science/petrel"]
    give(petrel, 100, period)
    run = run_on(petrel, 8, ended_at=T0 + 45 * MINUTE)
    services.place_hold(job=run.job, amount_mgpus=8 * CREDIT, now=T0)
    close(1, parked={(run.pk, T0): 600})
    found = reports.job_charges(job=run.job)
    assert (found.charged_mgpus, found.refunded_mgpus, found.held_mgpus) == (
        4 * CREDIT,
        0,
        4 * CREDIT,
    )
    assert (found.charged_gpu_seconds, found.parked_gpu_seconds) == (14_400, 600)
    close(1, since=T0 + TIMESTEP)
    found = reports.job_charges(job=run.job)
    assert [(line.start, line.gpu_seconds, line.amount_mgpus) for line in found.lines] == [
        (T0, 14_400, 4 * CREDIT),
        (T0 + TIMESTEP, 7200, 2 * CREDIT),
    ]
    assert found.charged_mgpus == sum(line.amount_mgpus for line in found.lines)


def test_parked_time_rolls_up_and_counts_the_timesteps_asked_for(
    tree: dict[str, Budget], period: Period
) -> None:
    one, two = run_on(tree["orlo/science/petrel"], 2), run_on(tree["orlo/science/auk"], 2)
    close(2, parked={(one.pk, T0): 100, (two.pk, T0): 20, (one.pk, T0 + TIMESTEP): 3})
    found = reports.parked_by_budget(start=T0, end=T0 + TIMESTEP)
    assert found[tree["orlo/science/petrel"].pk].parked == 100
    assert found[tree["orlo"].pk].parked == 120
    assert found[tree["orlo"].pk].parked_mgpus == 120_000
    assert found[tree["orlo"].pk].charged == 4 * 1800
    assert tree["orlo/vision"].pk not in found


# --- What runs while nobody ticks -----------------------------------------------------------------


def late(tree: dict[str, Budget], period: Period, credits: dict[str, int]) -> Job:
    """Credits of leaves, and a run of petrel on 8 GPUs with a hold of 4 that no tick tops up."""
    for path, amount in credits.items():
        give(tree[path], amount, period)
    petrel = tree["orlo/science/petrel"]
    job = make_job(petrel, gpus=8)
    services.place_hold(job=job, amount_mgpus=4 * CREDIT, now=T0)
    (node,) = make_nodes(make_pool(), gpus=8)
    make_run(job, {node: 0xFF})
    return job


def test_what_a_run_owes_is_what_its_budget_and_all_above_it_can_pay(
    tree: dict[str, Budget], period: Period
) -> None:
    late(tree, period, {"orlo/science/petrel": 5, "orlo/science/auk": 5})
    write_entry(
        kind="grant", budget=tree["orlo/science/petrel"], period=period, at=T0, created_at=T0,
        amount_mgpus=20 * CREDIT, key="beyond the reserve", author=someone(),
    )  # fmt: skip
    found = reports.figures(period=period, now=T0 + 120 * MINUTE)
    petrel, auk = (found[tree[f"orlo/science/{slug}"].pk] for slug in ("petrel", "auk"))
    # Science has 10 for both: what petrel can still take of it leaves auk with none, no less.
    assert (petrel.in_flight_mgpus, auk.spendable_mgpus) == (10 * CREDIT, 0)


@pytest.mark.parametrize("minutes", [20, 120])
def test_a_move_while_ticks_are_late_takes_along_what_the_run_cannot_owe(
    tree: dict[str, Budget], period: Period, minutes: int
) -> None:
    """Petrel has 10: a run's hold of 4, and 6 set aside for a job that waits."""
    petrel = tree["orlo/science/petrel"]
    late(tree, period, {"orlo/science/petrel": 10, "orlo/science/auk": 5, "orlo/vision/tern": 5})
    services.place_hold(job=make_job(petrel), amount_mgpus=6 * CREDIT, now=T0)
    now = T0 + minutes * MINUTE
    petrel.refresh_from_db()
    steering.move_budget(
        budget=petrel, to=tree["orlo/vision"], share=0, author=someone(), reason="r", now=now
    )
    found = reports.figures(period=period, now=now)
    spendable = {path: found[budget.pk].spendable_mgpus / CREDIT for path, budget in tree.items()}
    assert (spendable["orlo/science"], spendable["orlo/vision/tern"]) == (5, 5)
