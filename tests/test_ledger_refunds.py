"""Refunds: what a failed node cost is given back, once, in the period that it was charged in."""

from datetime import timedelta
from typing import Any

import pytest

from budgets.models import Budget, Period
from ledger import reports, services
from ledger.models import Entry
from ledger.refunds import _due
from tests.factories import (
    HOUR,
    T0,
    T1,
    TIMESTEP,
    make_job,
    make_nodes,
    make_period,
    make_pool,
    make_run,
)
from tests.ledger_world import CREDIT, close, give
from workloads import services as workloads
from workloads.models import Job, JobEvent, Run

pytestmark = pytest.mark.django_db
MINUTE = timedelta(minutes=1)


@pytest.fixture
def period() -> Period:
    return make_period()


@pytest.fixture
def petrel(tree: dict[str, Budget], period: Period) -> Budget:
    give(tree["orlo/science/petrel"], 1000, period)
    return tree["orlo/science/petrel"]


def failed_run(petrel: Budget, at: Any) -> Run:
    (node,) = make_nodes(make_pool(rate=2000))
    run = make_run(make_job(petrel, state=Job.State.RUNNING), {node: 0b11})
    close(2)
    workloads.end_run(run=run, reason=Run.EndReason.NODE_FAILURE, at=at)
    return run


def test_a_node_failure_gives_back_all_charges_also_those_written_later(
    petrel: Budget, period: Period
) -> None:
    at = T0 + HOUR + 5 * MINUTE
    run = failed_run(petrel, at)
    assert services.refund_run(run=run, now=at, policy="all") == 2 * 3600 * 2000
    assert services.refund_run(run=run, now=at, policy="all") == 0
    end = close(since=T0 + HOUR)
    refunds = Entry.objects.filter(kind="refund", run=run).order_by("pk")
    assert [r.amount_mgpus for r in refunds] == [2 * 3600 * 2000, 2 * 300 * 2000]
    assert {r.gpu_seconds for r in refunds} == {0}
    found = reports.figures(period=period, now=end)[petrel.pk]
    assert found.settled_mgpus == 0
    assert found.charged_gpu_seconds == 2 * 3900  # it was held all the same


def test_an_end_at_the_border_that_becomes_known_late_is_settled_at_the_next_close(
    petrel: Budget, period: Period
) -> None:
    (node,) = make_nodes(make_pool())
    job = make_job(petrel, state=Job.State.RUNNING)
    services.place_hold(job=job, amount_mgpus=8 * CREDIT, now=T0)
    run = make_run(job, {node: 0xFF})
    border = close()
    workloads.end_run(run=run, reason=Run.EndReason.NODE_FAILURE, at=border)
    end = close(since=border)
    found = reports.figures(period=period, now=end)[petrel.pk]
    assert (found.settled_mgpus, found.held_mgpus) == (0, 0)


def test_a_checkpoint_keeps_what_came_before_it_paid(petrel: Budget) -> None:
    at = T0 + HOUR
    run = failed_run(petrel, at)
    for minute in (10, 40):
        JobEvent.objects.create(job=run.job, run=run, at=T0 + minute * MINUTE, kind="checkpoint")
    assert services.refund_run(run=run, now=at, policy="checkpoint") == 20 * 60 * 2 * 2000


def test_a_mark_of_after_the_end_keeps_nothing_paid(petrel: Budget) -> None:
    """A late clock's: the requeued job keeps nothing of it either."""
    at = T0 + 50 * MINUTE
    run = failed_run(petrel, at)
    for minute in (10, 51):
        JobEvent.objects.create(job=run.job, run=run, at=T0 + minute * MINUTE, kind="checkpoint")
    assert services.refund_run(run=run, now=T0 + HOUR, policy="checkpoint") == 40 * 60 * 2 * 2000


def test_without_a_checkpoint_that_policy_gives_back_all(petrel: Budget) -> None:
    run = failed_run(petrel, T0 + HOUR)
    assert services.refund_run(run=run, now=T0 + HOUR, policy="checkpoint") == 2 * 3600 * 2000


@pytest.mark.parametrize("at_close", [False, True])
def test_a_later_policy_gives_back_only_what_is_not_given_back_yet(
    petrel: Budget, period: Period, settings: Any, at_close: bool
) -> None:
    at = T0 + HOUR
    run = failed_run(petrel, at)
    JobEvent.objects.create(job=run.job, run=run, at=T0 + 40 * MINUTE, kind="checkpoint")
    assert services.refund_run(run=run, now=at, policy="checkpoint") == 20 * 60 * 2 * 2000
    settings.NODE_FAILURE_REFUND = "all"
    if at_close:
        close(since=at)
    else:
        assert services.refund_run(run=run, now=at, policy="all") == 40 * 60 * 2 * 2000
    for policy in ("all", "checkpoint", "all"):
        assert services.refund_run(run=run, now=at, policy=policy) == 0
    refunds = Entry.objects.filter(kind="refund", run=run).order_by("pk")
    key = f"refund:{run.pk}:2026-10-01T00:30:00Z"
    assert [(one.key, one.amount_mgpus) for one in refunds] == [
        (key, 20 * 60 * 2 * 2000),
        (f"{key}:2", 40 * 60 * 2 * 2000),
    ]
    assert reports.figures(period=period, now=at)[petrel.pk].settled_mgpus == 0


def test_the_policy_none_gives_back_nothing_at_the_close_either(
    petrel: Budget, settings: Any
) -> None:
    settings.NODE_FAILURE_REFUND = "none"
    at = T0 + HOUR + 5 * MINUTE
    run = failed_run(petrel, at)
    assert services.refund_run(run=run, now=at, policy="none") == 0
    close(since=T0 + HOUR)
    assert not Entry.objects.filter(kind="refund").exists()


def test_preemption_refunds_nothing(petrel: Budget) -> None:
    (node,) = make_nodes(make_pool())
    run = make_run(make_job(petrel, state=Job.State.RUNNING), {node: 1})
    workloads.end_run(run=run, reason=Run.EndReason.PREEMPTED, at=T0 + 5 * MINUTE)
    close()
    assert not Entry.objects.filter(kind="refund").exists()
    with pytest.raises(services.LedgerError, match="did not end by node failure"):
        services.refund_run(run=run, now=T0 + TIMESTEP, policy="all")


def test_an_unknown_policy_is_refused(petrel: Budget) -> None:
    run = failed_run(petrel, T0 + HOUR)
    with pytest.raises(services.LedgerError, match="choose all, checkpoint, none"):
        services.refund_run(run=run, now=T0 + HOUR, policy="half")


def test_the_refund_of_a_charge_in_a_closed_period_stands_in_the_open_one(
    petrel: Budget, period: Period
) -> None:
    run = failed_run(petrel, T0 + HOUR)
    Period.objects.filter(pk=period.pk).update(ends_at=T0 + HOUR, status="closed")
    following = make_period("next", starts_at=T0 + HOUR, ends_at=T1)
    services.refund_run(run=run, now=T0 + 2 * HOUR, policy="all")
    assert Entry.objects.get(kind="refund").period == following


def over_a_border(petrel: Budget, period: Period, *, status: str) -> tuple[Run, Period]:
    """A run of 2 GPUs at rate 2000 from T0 on, charged for half an hour in each of two periods."""
    border = T0 + TIMESTEP
    Period.objects.filter(pk=period.pk).update(ends_at=border)
    following = make_period("next", starts_at=border, ends_at=T1)
    run = failed_run(petrel, border + TIMESTEP)
    Period.objects.filter(pk=period.pk).update(status=status)
    return run, following


EACH = 2 * 1800 * 2000


@pytest.mark.parametrize("status", ["active", "closed"])
def test_a_run_over_a_border_is_refunded_in_each_period_that_is_open(
    petrel: Budget, period: Period, status: str
) -> None:
    run, following = over_a_border(petrel, period, status=status)
    now = T0 + 2 * TIMESTEP
    assert services.refund_run(run=run, now=now, policy="all") == 2 * EACH
    assert services.refund_run(run=run, now=now, policy="all") == 0
    first, second = Entry.objects.filter(kind="refund").order_by("pk")
    assert [first.amount_mgpus, second.amount_mgpus] == [EACH, EACH]
    assert second.period == following
    if status == "active":
        assert (first.period, first.at) == (period, T0 + TIMESTEP - timedelta(seconds=1))
        assert first.note == "node failure: all of it"
    else:
        assert (first.period, first.at) == (following, now)
        assert first.note == f"for {period.name}: node failure: all of it"


def test_what_one_period_was_given_back_for_another_is_not_given_twice() -> None:
    """Once all of a run's refund stood in its last period."""
    assert _due({(1, 1): 10, (1, 2): 10}, {(1, 2): 20}) == {}
    assert _due({(1, 1): 10, (1, 2): 10}, {(1, 2): 13}) == {(1, 1): 7}
    assert _due({(1, 1): 10, (1, 2): 10}, {(1, 1): 10}) == {(1, 2): 10}
    assert _due({(1, 1): 10, (2, 1): 4}, {}) == {(1, 1): 10, (2, 1): 4}
