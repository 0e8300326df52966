"""Sums while many write at once, while they are made anew, and after a kill at any statement."""

from collections.abc import Callable
from importlib import import_module
from itertools import count
from random import Random
from typing import Any

import pytest
from django.apps import apps
from django.db import connection
from django.db.models import Sum

from budgets.models import Budget
from ledger import grants, reports, services
from ledger.models import ClosedTimestep, Entry, JobRollup, JobSettled, WholeRollup
from ledger.rollup_checks import wrong_sums
from tests.factories import (
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
from tests.ledger_by_hand import make_world
from tests.ledger_world import CREDIT, give
from tests.test_ledger_races import all_at_once
from tests.test_rollups import kept

pytestmark = pytest.mark.django_db(transaction=True)
WRITERS, EACH = 8, 5


def orlo() -> Budget:
    someone()
    make_period()
    return make_tree()["orlo"]


def correct(budget: Budget, writer: int) -> None:
    for number in range(EACH):
        services.adjust(
            budget=budget,
            amount_mgpus=number + 1,
            author=someone(),
            note="why",
            key=f"{writer}:{number}",
            now=T0,
        )


def settled(budget: Budget) -> int:
    (period,) = {entry.period for entry in Entry.objects.all()}
    return reports.figures(period=period, now=T0)[budget.pk].settled_mgpus


def test_writers_at_once_lose_no_sum_and_neither_does_a_rebuild_among_them() -> None:
    budget = orlo()

    def work(index: int) -> None:
        if index < WRITERS:
            correct(budget, index)
        else:
            for _ in range(EACH):
                services.rebuild_rollups()

    assert all_at_once(work, WRITERS + 1) == [None] * (WRITERS + 1)
    assert settled(budget) == WRITERS * EACH * (EACH + 1) // 2
    assert list(wrong_sums()) == []


@pytest.mark.skipif(
    connection.vendor != "postgresql", reason="a transaction excludes all others on SQLite"
)
def test_writers_that_wait_for_no_lock_lose_no_sum_either(monkeypatch: pytest.MonkeyPatch) -> None:
    """A sum is added to in the database: two that read the same one before don't lose one."""
    monkeypatch.setattr(grants, "lock_ledger", lambda: None)
    budget = orlo()
    assert all_at_once(lambda index: correct(budget, index), WRITERS) == [None] * WRITERS
    assert settled(budget) == WRITERS * EACH * (EACH + 1) // 2
    assert list(wrong_sums()) == []


class Killed(Exception):
    """Stands for the process's end: nothing after it is done."""


def dying_at(last: int) -> Callable[..., Any]:
    """Return a wrapper of statements that lets all through before one, and dies there."""
    statements = count(1)

    def die(execute: Callable[..., Any], *args: Any) -> Any:
        if next(statements) == last:
            raise Killed
        return execute(*args)

    return die


def test_a_worker_that_dies_at_any_statement_leaves_sums_and_entries_alike() -> None:
    petrel = make_tree()["orlo/science/petrel"]
    give(petrel, 100, make_period())
    for node in make_nodes(make_pool(), 3):
        job = make_job(petrel)
        services.place_hold(job=job, amount_mgpus=8 * CREDIT, now=T0)
        make_run(job, {node: 0xFF})
    before = kept()
    for last in range(1, 60):
        try:
            with connection.execute_wrapper(dying_at(last)):
                services.close_timestep(start=T0, end=T0 + TIMESTEP, parked={}, now=T0 + TIMESTEP)
            break
        except Killed:
            assert kept() == before
            assert list(wrong_sums()) == []
    assert last > 15
    assert ClosedTimestep.objects.count() == 1
    assert kept() != before
    assert list(wrong_sums()) == []


def test_the_migration_fills_a_ledger_that_had_no_sums() -> None:

    make_world(Random(7), "Asia/Kolkata")
    right = kept()
    migration = import_module("ledger.migrations.0005_fill_rollups")
    settled = import_module("ledger.migrations.0010_settled_by_jobs")
    whose = import_module("ledger.migrations.0011_whose_jobs")
    of_all = import_module("ledger.migrations.0013_whole_rollups")
    for _ in range(2):
        migration.empty(apps, None)
        JobSettled.objects.all().delete()
        WholeRollup.objects.all().delete()
        migration.fill(apps, None)
        with connection.cursor() as cursor:
            cursor.execute(settled.LESS)
            cursor.execute(whose.FILL)
            cursor.execute(of_all.FILL)
        assert kept() == right


def test_what_jobs_settled_goes_back_into_the_sums_of_attempts() -> None:
    make_world(Random(7))
    right = kept()
    migration = import_module("ledger.migrations.0010_settled_by_jobs")
    entries = Entry.objects.filter(kind__in=["charge", "refund", "adjust"]).exclude(job=None)
    names = ("job_id", "attempt", "period_id", "budget_id", "kind")
    told = entries.order_by().values_list(*names)
    expected = set(told.annotate(a=Sum("amount_mgpus"), b=Sum("gpu_seconds")))
    with connection.cursor() as cursor:
        cursor.execute(migration.BACK)
        back = JobRollup.objects.filter(kind__in=["charge", "refund", "adjust"])
        assert set(back.values_list(*names, "amount_mgpus", "gpu_seconds")) == expected
        assert len(expected) > 10
        cursor.execute(migration.LESS)
    assert kept() == right
