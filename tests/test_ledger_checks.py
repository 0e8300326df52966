"""What is written past the services, and breaks no constraint, is named by `reconcile`."""

from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from budgets.models import Budget, Period
from clusters.models import PoolRate
from ledger import reports
from ledger.models import Entry
from tests.factories import T0, T1, TIMESTEP, make_job, make_nodes, make_period, make_pool, make_run
from tests.ledger_world import close, give, write_entry
from workloads.models import Job, Run

pytestmark = pytest.mark.django_db
END = T0 + 2 * TIMESTEP


@pytest.fixture
def period() -> Period:
    return make_period(ends_at=END)


@pytest.fixture
def run(tree: dict[str, Budget], period: Period) -> Run:
    """A run of petrel's on one GPU, charged for two timesteps: 3,600 GPU-seconds in all."""
    petrel = tree["orlo/science/petrel"]
    give(petrel, 1000, period)
    (node,) = make_nodes(make_pool())
    run = make_run(make_job(petrel, state=Job.State.RUNNING), {node: 1})
    close(2)
    return run


def problems(rule: str) -> list[str]:
    found = reports.entry_problems(start=T0, end=T1)
    return [one.sentence for one in found if one.rule == rule]


def again(charge: Entry, **changes: Any) -> None:
    """Write a charge as one that is there, but for some of it."""
    columns = [field.name for field in Entry._meta.concrete_fields if not field.primary_key]
    write_entry(**{name: getattr(charge, name) for name in columns} | changes)


def test_sound_books_have_no_problem(run: Run) -> None:
    assert reports.entry_problems(start=T0, end=T1) == []


def test_a_charge_on_another_budget_is_named_though_the_run_s_total_is_right(
    tree: dict[str, Budget], run: Run
) -> None:
    charge = Entry.objects.filter(kind="charge").latest("at")
    other = tree["orlo/vision/tern"]
    again(charge, budget=other, key="charge:wrong", amount_mgpus=7_000)
    assert problems("budget") == [
        f"job {run.job_id}, attempt 1: charge of 7000 mGPU-s in 2026 Q4 stands on "
        "orlo/vision/tern, not on orlo/science/petrel"
    ]


def test_a_charge_in_another_period_than_its_time_s_is_named(
    tree: dict[str, Budget], run: Run
) -> None:
    following = make_period("2027 Q1", starts_at=END, ends_at=T1)
    charge = Entry.objects.filter(kind="charge").latest("at")
    again(charge, period=following, key="charge:wrong")
    assert problems("period") == [
        f"run {run.pk}: its charge of 1800000 mGPU-s from 2026-10-01T00:30:00Z on, to "
        "orlo/science/petrel, stands in 2027 Q1"
    ]


def test_a_refund_above_the_charges_of_its_period_is_named_though_the_run_was_charged_more(
    run: Run, period: Period
) -> None:
    following = make_period("2027 Q1", starts_at=END, ends_at=T1)
    close(2, since=END)
    about = Entry.objects.filter(kind="charge", period=following).latest("at")
    back = {"kind": "refund", "gpu_seconds": 0, "until": None, "timestep": None}
    again(about, **back, amount_mgpus=3_600_000, key=f"refund:{run.pk}:2026-10-01T01:30:00Z")
    assert problems("refund") == []
    about = Entry.objects.filter(kind="charge", period=period).earliest("at")
    key = f"refund:{run.pk}:2026-10-01T00:00:00Z:2"
    again(about, **back, amount_mgpus=3_600_007, key=key, period=following)  # for the closed one
    assert problems("refund") == [
        f"run {run.pk} of orlo/science/petrel, 2026 Q4: 3600007 mGPU-s given back of 3600000 "
        "charged"
    ]


def test_a_charge_unlike_its_gpu_seconds_at_the_rate_is_named(run: Run) -> None:
    charge = Entry.objects.filter(kind="charge").latest("at")
    again(charge, key="forged", amount_mgpus=1_800_007)
    assert problems("rate") == [
        f"run {run.pk} of orlo/science/petrel, timestep 2026-10-01T00:30:00Z: 1800 GPU-seconds at "
        "rate 1000 are 1800000 mGPU-s, charged 1800007"
    ]


def test_a_charge_in_a_timestep_that_is_not_closed_is_named(run: Run) -> None:
    charge = Entry.objects.filter(kind="charge").latest("at")
    again(charge, key="forged", at=END, until=END + TIMESTEP, timestep=END)
    assert problems("charge") == [
        f"run {run.pk} of orlo/science/petrel, timestep 2026-10-01T01:00:00Z, funded: "
        "held 0 GPU-seconds, charged 1800"
    ]


def test_a_charge_over_a_change_of_rate_is_named(run: Run) -> None:
    at = T0 + TIMESTEP / 2
    PoolRate.objects.create(pool=run.pool, effective_at=at, rate_per_mille=2000)
    assert problems("rate") == [
        f"run {run.pk} of orlo/science/petrel, timestep 2026-10-01T00:30:00Z: 1800 GPU-seconds at "
        "rate 2000 are 3600000 mGPU-s, charged 1800000",
        f"run {run.pk} of orlo/science/petrel, timestep 2026-10-01T00:00:00Z: the 1800000 mGPU-s "
        "from 2026-10-01T00:00:00Z on are not cut at 2026-10-01T00:15:00Z, where the rate changes",
    ]


def test_the_questions_asked_do_not_grow_with_the_charges(
    run: Run, django_assert_num_queries: Any
) -> None:
    with CaptureQueriesContext(connection) as few:
        reports.entry_problems(start=T0, end=T1)
    make_period("2027 Q1", starts_at=END, ends_at=T1)
    close(1, since=END)  # a first one in another period
    with CaptureQueriesContext(connection) as more:
        reports.entry_problems(start=T0, end=T1)
    close(3, since=END + TIMESTEP)
    with django_assert_num_queries(len(more)):
        reports.entry_problems(start=T0, end=T1)
    assert len(few) < len(more)
