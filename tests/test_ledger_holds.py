"""Holds: set aside before anything is spent, covered step by step, released at the end."""

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
    make_tree,
    someone,
)

pytestmark = pytest.mark.django_db

CREDIT = 3_600_000  # milli-GPU-seconds


def give(budget: Budget, credits: int, period: Period) -> None:
    """Give a budget and everything above it credits, as a grant of shares would."""
    node: Budget | None = budget
    while node is not None:
        Entry.objects.create(
            kind="grant",
            budget=node,
            period=period,
            at=T0,
            amount_mgpus=credits * CREDIT,
            author=someone(),
            key=f"test:{node.pk}:{Entry.objects.count()}",
            created_at=T0,
        )
        node = node.parent


@pytest.fixture
def tree() -> dict[str, Budget]:
    return make_tree()


@pytest.fixture
def period() -> Period:
    return make_period()


@pytest.fixture
def petrel(tree: dict[str, Budget]) -> Budget:
    return tree["orlo/science/petrel"]


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
    assert list(Entry.objects.filter(kind="hold").values_list("key", flat=True)) == [
        f"hold:{first.pk}:1"
    ]
    figures = reports.figures(period=period, now=T0)[petrel.pk]
    assert (figures.held_mgpus, figures.spendable_mgpus) == (8 * CREDIT, 2 * CREDIT)


def test_the_ancestor_that_has_least_binds(
    tree: dict[str, Budget], petrel: Budget, period: Period
) -> None:
    give(petrel, 10, period)
    Entry.objects.create(
        kind="grant", budget=petrel, period=period, at=T0, amount_mgpus=90 * CREDIT,
        key="more", created_at=T0,
    )  # fmt: skip
    result = services.place_hold(job=make_job(petrel), amount_mgpus=11 * CREDIT, now=T0)
    assert not result.funded
    assert result.binding == tree["orlo/science"]
    assert result.spendable_mgpus == 10 * CREDIT


def test_covering_and_closing_moves_each_second_from_held_to_in_flight_to_settled(
    petrel: Budget, period: Period
) -> None:
    give(petrel, 100, period)
    (node,) = make_nodes(make_pool())
    job = make_job(petrel, minimum_runtime_s=3600)
    assert services.place_hold(job=job, amount_mgpus=8 * CREDIT, now=T0).funded
    run = make_run(job, {node: 0xFF})

    def figures(at):
        f = reports.figures(period=period, now=at)[petrel.pk]
        return tuple(x / CREDIT for x in (f.settled_mgpus, f.in_flight_mgpus, f.held_mgpus))

    assert figures(T0) == (0, 0, 8)
    assert figures(T0 + HOUR / 4) == (0, 2, 6)
    assert services.close_timestep(start=T0, end=T0 + TIMESTEP, parked={}, now=T0 + TIMESTEP)
    assert figures(T0 + TIMESTEP) == (4, 0, 4)
    later = T0 + HOUR
    assert services.close_timestep(start=T0 + TIMESTEP, end=later, parked={}, now=later)
    assert figures(later) == (8, 0, 0)
    assert services.cover(runs=[run], start=later, end=later + TIMESTEP, now=later) == set()
    assert figures(later) == (8, 0, 4)
    assert services.cover(runs=[run], start=later, end=later + TIMESTEP, now=later) == set()
    assert figures(later) == (8, 0, 4)
    assert figures(later + timedelta(minutes=15)) == (8, 2, 2)
