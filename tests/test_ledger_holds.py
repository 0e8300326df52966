"""Holds: set aside before anything is spent, topped up step by step, released at the end."""

from datetime import timedelta

import pytest

from budgets.models import Budget, Period
from ledger import reports, services
from ledger.models import Entry
from tests.factories import (
    HOUR,
    T0,
    TIMESTEP,
    make_job,
    make_nodes,
    make_period,
    make_pool,
    make_run,
)
from tests.ledger_world import CREDIT, close, give, give_alone
from workloads import services as workloads
from workloads.models import Job, Run

pytestmark = pytest.mark.django_db
MINUTE = timedelta(minutes=1)


@pytest.fixture
def period() -> Period:
    return make_period()


@pytest.fixture
def petrel(tree: dict[str, Budget]) -> Budget:
    return tree["orlo/science/petrel"]


def figures_of(budget: Budget, period: Period, at) -> tuple[float, ...]:
    """Settled, in flight and held, in credits."""
    found = reports.figures(period=period, now=at)[budget.pk]
    amounts = (found.settled_mgpus, found.in_flight_mgpus, found.held_mgpus)
    return tuple(amount / CREDIT for amount in amounts)


def test_a_hold_is_minimum_runtime_times_gpus_times_the_highest_acceptable_rate(
    petrel: Budget,
) -> None:
    slow, fast = make_pool(rate=500), make_pool(rate=2000)
    make_pool(rate=9000)
    job = make_job(petrel, gpus=4, minimum_runtime_s=600, pools=[slow, fast])

    assert services.hold_amount(job=job, at=T0) == 600 * 4 * 2000
    job.pools.clear()  # none named: any pool
    assert services.hold_amount(job=job, at=T0) == 600 * 4 * 9000


def test_a_job_is_funded_while_credits_last(petrel: Budget, period: Period) -> None:
    give(petrel, 10, period)
    first, second = make_job(petrel), make_job(petrel)

    one = services.place_hold(job=first, amount_mgpus=8 * CREDIT, now=T0)
    two = services.place_hold(job=second, amount_mgpus=8 * CREDIT, now=T0)

    assert (one.funded, one.spendable_mgpus, one.binding) == (True, 2 * CREDIT, None)
    assert (two.funded, two.needed_mgpus, two.spendable_mgpus) == (False, 8 * CREDIT, 2 * CREDIT)
    assert two.binding == petrel
    keys = Entry.objects.filter(kind="hold").values_list("key", flat=True)
    assert list(keys) == [f"hold:{first.pk}:1"]
    assert reports.spendable(budget=petrel, now=T0) == 2 * CREDIT


def test_a_hold_of_all_that_is_spendable_is_placed_and_one_more_unit_is_not(
    petrel: Budget, period: Period
) -> None:
    give(petrel, 1, period)
    job = make_job(petrel)
    assert not services.place_hold(job=job, amount_mgpus=CREDIT + 1, now=T0).funded
    assert services.place_hold(job=job, amount_mgpus=CREDIT, now=T0).funded


def test_several_holds_are_placed_in_order_each_against_what_is_left(
    petrel: Budget, period: Period
) -> None:
    give(petrel, 10, period)
    jobs = [make_job(petrel) for _ in range(4)]
    wanted = list(zip(jobs, (6 * CREDIT, 5 * CREDIT, 4 * CREDIT, 1), strict=True))
    found = services.place_holds(wanted=wanted, now=T0)
    assert [one.funded for one in found] == [True, False, True, False]
    assert [one.spendable_mgpus for one in found] == [4 * CREDIT, 4 * CREDIT, 0, 0]


def test_the_same_hold_twice_is_one(petrel: Budget, period: Period) -> None:
    give(petrel, 10, period)
    job = make_job(petrel)
    for _ in range(2):
        assert services.place_hold(job=job, amount_mgpus=8 * CREDIT, now=T0).funded
    assert Entry.objects.filter(kind="hold").count() == 1
    assert reports.spendable(budget=petrel, now=T0) == 2 * CREDIT


def test_the_ancestor_that_has_least_binds(
    tree: dict[str, Budget], petrel: Budget, period: Period
) -> None:
    give(petrel, 10, period)
    give_alone(petrel, 90, period)
    result = services.place_hold(job=make_job(petrel), amount_mgpus=11 * CREDIT, now=T0)
    assert not result.funded
    # Both ancestors have 10: the one nearest to the job is named.
    assert result.binding == tree["orlo/science"]
    assert result.spendable_mgpus == 10 * CREDIT


def test_a_sibling_s_hold_takes_from_the_common_parent(
    tree: dict[str, Budget], petrel: Budget, period: Period
) -> None:
    give(petrel, 10, period)
    give_alone(tree["orlo/science/auk"], 10, period)
    assert services.place_hold(job=make_job(petrel), amount_mgpus=7 * CREDIT, now=T0).funded
    auk = make_job(tree["orlo/science/auk"])
    assert not services.place_hold(job=auk, amount_mgpus=4 * CREDIT, now=T0).funded
    assert services.place_hold(job=auk, amount_mgpus=3 * CREDIT, now=T0).funded


def test_without_minimum_runtime_or_period_nothing_is_held(petrel: Budget) -> None:
    job = make_job(petrel, minimum_runtime_s=0)
    make_pool()
    assert services.hold_amount(job=job, at=T0) == 0
    assert not services.place_hold(job=job, amount_mgpus=5, now=T0).funded  # no period yet
    give(petrel, 10, make_period())
    assert not services.place_hold(job=job, amount_mgpus=0, now=T0).funded
    assert not Entry.objects.filter(kind="hold").exists()


@pytest.mark.parametrize(
    ("amount", "now", "words"),
    [
        (-1, T0, "negative"),
        (1, T0.replace(tzinfo=None), "no time zone"),
        (1, T0.replace(microsecond=1), "fraction of a second"),
    ],
)
def test_bad_input_is_refused_in_a_sentence(petrel, period, amount, now, words) -> None:
    job = make_job(petrel)
    with pytest.raises(services.LedgerError, match=words):
        services.place_hold(job=job, amount_mgpus=amount, now=now)


def test_each_second_moves_from_held_to_in_flight_to_settled(
    petrel: Budget, period: Period
) -> None:
    give(petrel, 100, period)
    (node,) = make_nodes(make_pool())
    job = make_job(petrel, minimum_runtime_s=3600)
    assert services.place_hold(job=job, amount_mgpus=8 * CREDIT, now=T0).funded
    run = make_run(job, {node: 0xFF})

    assert figures_of(petrel, period, T0) == (0, 0, 8)
    assert figures_of(petrel, period, T0 + 15 * MINUTE) == (0, 2, 6)
    close()
    assert figures_of(petrel, period, T0 + TIMESTEP) == (4, 0, 4)
    later = close(since=T0 + TIMESTEP)
    assert figures_of(petrel, period, later) == (8, 0, 0)
    for _ in range(2):  # a second top-up finds nothing missing
        assert services.cover(runs=[run], start=later, end=later + TIMESTEP, now=later) == set()
        assert figures_of(petrel, period, later) == (8, 0, 4)
    assert figures_of(petrel, period, later + 15 * MINUTE) == (8, 2, 2)
    # Beyond what is held, it is in flight all the same.
    assert figures_of(petrel, period, later + 45 * MINUTE) == (8, 6, 0)


def test_a_top_up_adds_only_what_the_hold_lacks(petrel: Budget, period: Period) -> None:
    give(petrel, 100, period)
    (node,) = make_nodes(make_pool(rate=2000))
    job = make_job(petrel, minimum_runtime_s=600)
    services.place_hold(job=job, amount_mgpus=600 * 8 * 2000, now=T0)
    run = make_run(job, {node: 0xFF})
    assert services.cover(runs=[run], start=T0, end=T0 + TIMESTEP, now=T0) == set()
    top_up = Entry.objects.get(key=f"hold:{job.pk}:1:2026-10-01T00:00:00Z")
    assert top_up.amount_mgpus == (1800 - 600) * 8 * 2000
    assert top_up.run == run


def test_a_top_up_makes_good_what_ran_beyond_the_hold(petrel: Budget, period: Period) -> None:
    give(petrel, 100, period)
    (node,) = make_nodes(make_pool())
    run = make_run(make_job(petrel), {node: 0b111111})
    now = T0 + 10 * MINUTE
    services.cover(runs=[run], start=now, end=T0 + TIMESTEP, now=now)
    assert figures_of(petrel, period, now) == (0, 1, 2)
    assert figures_of(petrel, period, now + 10 * MINUTE) == (0, 2, 1)
    close()
    assert figures_of(petrel, period, T0 + TIMESTEP) == (3, 0, 0)
    assert reports.entry_problems(start=T0, end=T0 + TIMESTEP) == []


def test_top_ups_go_by_run_id_until_the_budget_has_no_more(petrel: Budget, period: Period) -> None:
    give(petrel, 9, period)  # each run costs 4 a timestep
    nodes = make_nodes(make_pool(), 3)
    runs = [make_run(make_job(petrel), {node: 0xFF}) for node in nodes]
    uncovered = services.cover(runs=reversed(runs), start=T0, end=T0 + TIMESTEP, now=T0)
    assert uncovered == {runs[2].pk}
    assert reports.spendable(budget=petrel, now=T0) == CREDIT


def test_a_run_that_grows_at_the_same_instant_is_topped_up_again(
    petrel: Budget, period: Period
) -> None:
    give(petrel, 100, period)
    (node,) = make_nodes(make_pool())
    job = make_job(petrel)
    run = make_run(job, {node: 0b1})
    services.cover(runs=[run], start=T0, end=T0 + TIMESTEP, now=T0)
    run.holdings.update(mask=0b11)
    services.cover(runs=[run], start=T0, end=T0 + TIMESTEP, now=T0)
    amounts = Entry.objects.filter(kind="hold").order_by("pk").values_list("key", "amount_mgpus")
    key = f"hold:{job.pk}:1:2026-10-01T00:00:00Z"
    assert list(amounts) == [(key, CREDIT // 2), (f"{key}:2", CREDIT // 2)]


def test_runs_that_hold_nothing_funded_need_no_cover_and_without_period_none_has_it(
    petrel: Budget,
) -> None:
    one, two = make_nodes(make_pool(), 2)
    free = make_run(make_job(petrel), {one: 1}, funded=False)
    paid = make_run(make_job(petrel), {two: 1})
    assert services.cover(runs=[free, paid], start=T0, end=T0 + TIMESTEP, now=T0) == {paid.pk}
    assert not Entry.objects.exists()


def test_a_run_that_ends_early_gives_back_all_that_it_did_not_use(
    petrel: Budget, period: Period
) -> None:
    give(petrel, 100, period)
    (node,) = make_nodes(make_pool())
    job = make_job(petrel, minimum_runtime_s=36_000, state=Job.State.RUNNING)
    services.place_hold(job=job, amount_mgpus=80 * CREDIT, now=T0)
    run = make_run(job, {node: 0xFF})
    end = T0 + HOUR  # a tenth of what was set aside
    close(1)
    workloads.end_run(run=run, reason=Run.EndReason.COMPLETED, at=end)

    assert services.release_rest(job=job, attempt=1, at=end, now=end) == 76 * CREDIT
    assert services.release_rest(job=job, attempt=1, at=end, now=end) == 0
    assert figures_of(petrel, period, end) == (4, 4, 0)  # spent but not yet billed
    close(since=T0 + TIMESTEP)
    assert figures_of(petrel, period, end) == (8, 0, 0)
    assert reports.spendable(budget=petrel, now=end) == 92 * CREDIT


def test_each_requeue_needs_its_own_hold(petrel: Budget, period: Period) -> None:
    give(petrel, 10, period)
    job = make_job(petrel)
    services.place_hold(job=job, amount_mgpus=8 * CREDIT, now=T0)
    services.release_rest(job=job, attempt=1, at=T0, now=T0)
    job.attempt = 2
    job.save()
    assert services.place_hold(job=job, amount_mgpus=9 * CREDIT, now=T0).funded
    assert Entry.objects.filter(key=f"hold:{job.pk}:2").count() == 1
    assert reports.spendable(budget=petrel, now=T0) == CREDIT


def test_orphan_holds_are_swept_and_named(petrel: Budget, period: Period) -> None:
    give(petrel, 100, period)
    ended, moved_on, waiting = (make_job(petrel) for _ in range(3))
    for job in (ended, moved_on, waiting):
        services.place_hold(job=job, amount_mgpus=8 * CREDIT, now=T0)
    Job.objects.filter(pk=ended.pk).update(state=Job.State.FAILED)
    Job.objects.filter(pk=moved_on.pk).update(attempt=2)

    rules = [p.rule for p in reports.entry_problems(start=T0, end=T0 + HOUR)]
    swept = services.sweep_holds(now=T0 + HOUR)

    assert rules == ["orphan hold", "orphan hold"]
    assert [(one.job_id, one.amount_mgpus) for one in swept] == [
        (ended.pk, 8 * CREDIT),
        (moved_on.pk, 8 * CREDIT),
    ]
    assert swept[0].budget_path == "orlo/science/petrel"
    assert services.sweep_holds(now=T0 + HOUR) == []
    assert reports.spendable(budget=petrel, now=T0) == 92 * CREDIT


def test_a_hold_is_needed_until_its_run_is_charged(petrel: Budget, period: Period) -> None:
    """Between two timesteps that are closed late, one that has ended may still have a hold."""
    give(petrel, 100, period)
    (node,) = make_nodes(make_pool())
    job = make_job(petrel, state=Job.State.COMPLETED)
    services.place_hold(job=job, amount_mgpus=8 * CREDIT, now=T0)
    make_run(job, {node: 0xFF}, ended_at=T0 + TIMESTEP + HOUR / 4)
    close(1)
    assert services.sweep_holds(now=T0 + HOUR) == []
    close(1, since=T0 + TIMESTEP)
    assert reports.figures(period=period, now=T0 + HOUR)[petrel.pk].held_mgpus == 0


def test_a_live_run_s_hold_is_no_orphan(petrel: Budget, period: Period) -> None:
    give(petrel, 100, period)
    (node,) = make_nodes(make_pool())
    job = make_job(petrel, state=Job.State.RUNNING)
    services.place_hold(job=job, amount_mgpus=8 * CREDIT, now=T0)
    make_run(job, {node: 0xFF})
    assert services.sweep_holds(now=T0) == []
    # Nor once its job is over, or has gone on to its next attempt, while it still stops.
    for changed in ({"state": Job.State.CANCELLED}, {"attempt": 2}):
        Job.objects.filter(pk=job.pk).update(**changed)
        assert services.sweep_holds(now=T0) == []
