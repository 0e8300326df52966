"""Ends that become known late: what was charged past them is given back, once and exactly."""

from datetime import datetime, timedelta
from typing import Any

import pytest

from budgets.models import Budget, Period
from clusters.models import Node, PoolRate
from ledger import reports, services
from ledger.entries import write
from ledger.models import Entry
from tests.factories import (
    HOUR,
    T0,
    T1,
    TIMESTEP,
    make_holding,
    make_job,
    make_nodes,
    make_period,
    make_pool,
    make_run,
    make_service,
)
from tests.ledger_world import CREDIT, close, give, ledger
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


def a_node(rate: int = 1000) -> Node:
    return make_nodes(make_pool(rate=rate))[0]


def running(petrel: Budget, node: Node, mask: int = 0xFF, **fields: Any) -> Run:
    return make_run(make_job(petrel, state=Job.State.RUNNING), {node: mask}, **fields)


def end_late(
    run: Run, *, ended: datetime, known: datetime, reason: str = "completed", policy: str = "all"
) -> int:
    """End a run at an instant that becomes known later; return what is given back."""
    workloads.end_run(run=run, reason=reason, at=ended)
    return services.settle_late_end(run=run, now=known, policy=policy)


def adjustments(run: Run) -> list[tuple[str, int]]:
    rows = Entry.objects.filter(run=run, kind="adjust").order_by("key")
    return [
        (key.removeprefix(f"adjust:late-end:{run.pk}:")[11:16], amount)
        for key, amount in rows.values_list("key", "amount_mgpus")
    ]


def settled(budget: Budget, period: Period, now: datetime) -> int:
    return reports.figures(period=period, now=now)[budget.pk].settled_mgpus


def assert_clean(end: datetime = T0 + 12 * HOUR, start: datetime = T0) -> None:
    assert [str(one) for one in reports.entry_problems(start=start, end=end)] == []


@pytest.mark.parametrize(("rate", "by_hand"), [(1000, 19_200_000), (2500, 48_000_000)])
def test_what_was_charged_past_the_end_is_given_back_to_the_second(petrel, period, rate, by_hand):
    """8 GPUs, ended at 00:20, closed to 01:00: 40 minutes too much."""
    run = running(petrel, a_node(rate))
    known = close(2) + 5 * MINUTE
    before = reports.spendable(budget=petrel, now=known)
    assert end_late(run, ended=T0 + 20 * MINUTE, known=known) == by_hand
    assert adjustments(run) == [("00:00", -by_hand // 4), ("00:30", -by_hand * 3 // 4)]
    assert settled(petrel, period, known) == 8 * 1200 * rate
    # In flight was what it was believed to run since the last close; that is free again too.
    assert reports.spendable(budget=petrel, now=known) == before + by_hand + 8 * 300 * rate
    assert_clean()


def test_they_carry_no_gpu_seconds_and_say_why(petrel):
    run = running(petrel, a_node())
    close()
    end_late(run, ended=T0 + 20 * MINUTE, known=T0 + 35 * MINUTE)
    entry = Entry.objects.get(kind="adjust")
    assert entry.key == f"adjust:late-end:{run.pk}:2026-10-01T00:00:00Z"
    assert (entry.gpu_seconds, entry.parked_gpu_seconds) == (0, 0)
    assert (entry.job_id, entry.pool_id, entry.at) == (run.job_id, run.pool_id, T0 + 35 * MINUTE)
    assert "had ended at 2026-10-01T00:20:00Z" in entry.note
    assert Entry.objects.get(kind="charge").gpu_seconds == 8 * 1800


def test_a_timestep_that_lies_wholly_past_the_end_is_given_back_wholly(petrel, period):
    run = running(petrel, a_node())
    known = close(4)
    assert end_late(run, ended=T0 + 30 * MINUTE, known=known) == 8 * 3 * 1800 * 1000
    assert [amount for _, amount in adjustments(run)] == [-8 * 1800 * 1000] * 3
    assert settled(petrel, period, known) == 8 * 1800 * 1000
    assert_clean()


def test_a_change_of_rate_counts(petrel, period):
    node = a_node(1000)
    PoolRate.objects.create(pool=node.pool, effective_at=T0 + 40 * MINUTE, rate_per_mille=2500)
    run = running(petrel, node, 0b11)
    known = close(2)
    by_hand = 2 * 300 * 1000 + 2 * 1200 * 2500
    assert end_late(run, ended=T0 + 35 * MINUTE, known=known) == by_hand
    assert settled(petrel, period, known) == 2 * 35 * 60 * 1000
    assert_clean()


def test_an_end_that_is_known_in_time_gives_nothing_back(petrel):
    run = running(petrel, a_node())
    known = close()
    assert end_late(run, ended=known, known=known) == 0
    assert end_late(run, ended=known + MINUTE, known=known + 2 * MINUTE) == 0
    assert not Entry.objects.filter(kind="adjust").exists()


def test_a_report_that_comes_again_writes_nothing(petrel):
    run = running(petrel, a_node())
    known = close(2)
    end_late(run, ended=T0 + 20 * MINUTE, known=known)
    before = ledger()
    assert not workloads.end_run(run=run, reason="completed", at=T0 + 10 * MINUTE)
    assert services.settle_late_end(run=run, now=known + HOUR, policy="all") == 0
    assert ledger() == before


def test_what_ran_unfunded_was_free_anyway(petrel, period):
    run = running(petrel, a_node())
    close()
    workloads.unfund(run=run, at=T0 + 30 * MINUTE)
    known = close(2, since=T0 + 30 * MINUTE)
    assert end_late(run, ended=T0 + 20 * MINUTE, known=known) == 8 * 600 * 1000
    assert adjustments(run) == [("00:00", -8 * 600 * 1000)]
    assert settled(petrel, period, known) == 8 * 1200 * 1000
    assert_clean()


def test_a_service_gets_back_what_each_of_its_sets_was_charged(petrel, period):
    """2 GPUs from 00:00, 4 from 00:30, 1 from 00:45; it had ended at 00:20."""
    node = a_node(2500)
    job = make_service(petrel, state=Job.State.RUNNING)
    run = make_run(job, {node: 0b11}, started_at=T0)
    run.holdings.update(ended_at=T0 + 30 * MINUTE)
    make_holding(run, node, 0b1111, started_at=T0 + 30 * MINUTE, ended_at=T0 + 45 * MINUTE)
    make_holding(run, node, 0b1, started_at=T0 + 45 * MINUTE)
    known = close(2)
    by_hand = (2 * 600 + 4 * 900 + 1 * 900) * 2500
    assert end_late(run, ended=T0 + 20 * MINUTE, known=known, reason="failed") == by_hand
    assert settled(petrel, period, known) == 2 * 1200 * 2500
    assert_clean()


def test_a_closed_period_is_corrected_in_the_open_one(petrel, period):
    """The run had ended before the border; a timestep on either side was charged."""
    node = a_node()
    start = T1 - TIMESTEP
    run = running(petrel, node, started_at=start)
    following = make_period("2027 Q1", starts_at=T1, ends_at=T1 + 90 * 24 * HOUR)
    close(2, since=start)
    Period.objects.filter(pk=period.pk).update(status="closed")
    known = T1 + TIMESTEP + 5 * MINUTE
    assert end_late(run, ended=T1 - 10 * MINUTE, known=known) == 8 * 2400 * 1000
    entries = Entry.objects.filter(kind="adjust").order_by("key")
    assert [(e.period, e.amount_mgpus) for e in entries] == [
        (following, -8 * 600 * 1000),
        (following, -8 * 1800 * 1000),
    ]
    assert settled(petrel, period, T1 - MINUTE) == 8 * 1800 * 1000, "as it was closed"
    assert settled(petrel, following, known) == -8 * 600 * 1000
    assert_clean(start=start, end=T1 + HOUR)


def test_a_period_that_is_not_closed_yet_is_corrected_itself(petrel, period):
    run = running(petrel, a_node(), started_at=T1 - TIMESTEP)
    following = make_period("2027 Q1", starts_at=T1, ends_at=T1 + 90 * 24 * HOUR)
    close(2, since=T1 - TIMESTEP)
    end_late(run, ended=T1 - 10 * MINUTE, known=T1 + TIMESTEP)
    entries = Entry.objects.filter(kind="adjust").order_by("key")
    assert [entry.period for entry in entries] == [period, following]
    assert all(e.period.starts_at <= e.at < e.period.ends_at for e in entries)
    assert settled(petrel, period, T1 - MINUTE) == 8 * 1200 * 1000


def test_without_an_open_period_nothing_is_written_until_there_is_one(petrel, period):
    run = running(petrel, a_node())
    known = close(2)
    Period.objects.update(status="closed")
    before = ledger()
    with pytest.raises(services.LedgerError, match="No period is active"):
        end_late(run, ended=T0 + 20 * MINUTE, known=known)
    assert ledger() == before
    make_period("2027 Q1", starts_at=T0, ends_at=T1)
    assert services.settle_late_end(run=run, now=known, policy="all") == 8 * 2400 * 1000


@pytest.mark.parametrize(
    ("policy", "refund"),
    [("all", 8 * 1200 * 2500), ("checkpoint", 8 * 300 * 2500), ("none", 0)],
)
def test_with_a_node_s_failure_never_more_is_given_back_than_was_charged(
    petrel, period, policy, refund
):
    """It failed at 00:20, its last checkpoint was at 00:15; closed to 01:00."""
    run = running(petrel, a_node(2500))
    JobEvent.objects.create(job=run.job, run=run, at=T0 + 15 * MINUTE, kind="checkpoint")
    known = close(2)
    past = 8 * 2400 * 2500
    given = end_late(run, ended=T0 + 20 * MINUTE, known=known, reason="node_failure", policy=policy)
    assert given == past + refund
    assert sum(amount for _, amount in adjustments(run)) == -past
    assert settled(petrel, period, known) == 8 * 1200 * 2500 - refund
    assert services.settle_late_end(run=run, now=known, policy=policy) == 0
    if policy != "none":
        assert services.refund_run(run=run, now=known, policy=policy) == 0
    close(since=known)
    assert settled(petrel, period, known) == 8 * 1200 * 2500 - refund
    assert_clean()


def test_a_job_s_charges_and_the_day_s_burn_show_it(petrel, period):
    run = running(petrel, a_node())
    known = close(2)
    end_late(run, ended=T0 + 20 * MINUTE, known=known)
    found = reports.job_charges(job=run.job)
    assert (found.charged_mgpus, found.adjusted_mgpus) == (8 * CREDIT, -8 * 2400 * 1000)
    (day,) = reports.burn_by_day(budget=petrel, start=T0, end=T0 + 24 * HOUR)
    assert day.settled_mgpus == 8 * 1200 * 1000


def test_reconcile_names_an_end_whose_charges_were_not_given_back(petrel):
    run = running(petrel, a_node())
    close(2)
    workloads.end_run(run=run, reason="completed", at=T0 + 20 * MINUTE)
    assert [str(one) for one in reports.entry_problems(start=T0, end=T0 + HOUR)] == [
        f"late end: run {run.pk} of orlo/science/petrel, timestep 2026-10-01T00:{minute}:00Z: "
        f"{amount} mGPU-s are charged past its end at 2026-10-01T00:20:00Z, 0 given back"
        for minute, amount in (("00", 8 * 600 * 1000), ("30", 8 * 1800 * 1000))
    ]


def test_reconcile_names_more_given_back_than_was_charged(petrel, period):
    run = running(petrel, a_node())
    known = close()
    end_late(run, ended=T0 + 20 * MINUTE, known=known)
    forged = {"kind": "adjust", "amount_mgpus": -8 * 1200 * 1000 - 7, "key": "forged"}
    rest = {"budget": petrel, "period": period, "run": run, "job": run.job}
    write([Entry(**forged, **rest, at=T0, created_at=T0)])
    problems = [str(one) for one in reports.entry_problems(start=T0, end=T0 + HOUR)]
    assert problems == [
        f"refund: run {run.pk} of orlo/science/petrel, 2026 Q4: 14400007 mGPU-s given back of "
        "14400000 charged"
    ]
