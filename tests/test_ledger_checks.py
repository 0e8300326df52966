"""What is written past the services, and breaks no constraint, is named by `reconcile`."""

from typing import Any

import pytest

from budgets.models import Budget, Period
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
    """A run of petrel's on one GPU, charged for two timesteps: 3,600 credits' seconds in all."""
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
