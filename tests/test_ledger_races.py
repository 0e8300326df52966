"""Many at once: nothing is spent twice and nothing charged twice, and the races are real."""

import threading
import time
from collections.abc import Callable
from typing import Any

import pytest
from django.db import connection, connections, transaction

from allocator.models import Delivery
from budgets.change_sets import locked
from budgets.models import Budget, Period
from ledger import holds, reports, services
from ledger.lock import lock_ledger
from ledger.models import ClosedTimestep, Entry
from tests.factories import (
    T0,
    TIMESTEP,
    make_job,
    make_nodes,
    make_period,
    make_pool,
    make_run,
    make_tree,
)
from tests.ledger_world import CREDIT, give
from workloads.models import Job

pytestmark = pytest.mark.django_db(transaction=True)
THREADS = 50


def all_at_once(work: Callable[[int], Any], number: int) -> list[Any]:
    """Run work(0) … work(number − 1) in threads that start together; return results or errors."""
    barrier = threading.Barrier(number)
    results: list[Any] = [None] * number

    def one(index: int) -> None:
        try:
            barrier.wait(timeout=60)
            results[index] = work(index)
        except BaseException as error:
            results[index] = error
        finally:
            connections.close_all()

    threads = [threading.Thread(target=one, args=(index,)) for index in range(number)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return results


def funds_for_ten() -> tuple[Budget, list[Job]]:
    petrel = make_tree()["orlo/science/petrel"]
    give(petrel, 10, make_period())
    make_pool()
    return petrel, [make_job(petrel) for _ in range(THREADS)]


def submit(jobs: list[Job]) -> list[Any]:
    return all_at_once(
        lambda index: services.place_hold(job=jobs[index], amount_mgpus=CREDIT, now=T0).funded,
        len(jobs),
    )


def test_fifty_submit_against_funds_for_ten_and_exactly_ten_are_funded() -> None:
    petrel, jobs = funds_for_ten()
    found = submit(jobs)
    assert sorted(map(str, found)) == ["False"] * (THREADS - 10) + ["True"] * 10
    assert Entry.objects.filter(kind="hold").count() == 10
    assert reports.spendable(budget=petrel, now=T0) == 0


@pytest.mark.skipif(
    connection.vendor != "postgresql", reason="a transaction excludes all others on SQLite"
)
def test_without_the_lock_the_same_fifty_oversell(monkeypatch: pytest.MonkeyPatch) -> None:
    """The control: the set-up above can fail, so its success means something."""
    monkeypatch.setattr(holds, "lock_ledger", lambda: None)
    petrel, jobs = funds_for_ten()
    found = submit(jobs)
    assert found.count(True) > 10
    assert reports.spendable(budget=petrel, now=T0) < 0


def test_eight_workers_close_one_timestep_and_one_does() -> None:
    petrel, jobs = funds_for_ten()
    give(petrel, 10, Period.objects.get())  # five runs of four credits each
    nodes = make_nodes(make_pool(), 5)
    runs = [make_run(job, {node: 0xFF}) for job, node in zip(jobs, nodes, strict=False)]
    services.cover(runs=runs[:2], start=T0, end=T0 + TIMESTEP, now=T0)
    end = T0 + TIMESTEP
    found = all_at_once(lambda _: services.close_timestep(start=T0, end=end, parked={}, now=end), 8)
    assert sorted(map(str, found)) == ["False"] * 7 + ["True"]
    assert ClosedTimestep.objects.count() == 1
    assert Entry.objects.filter(kind="charge").count() == 5
    assert reports.entry_problems(start=T0, end=end) == []


def test_releasing_while_the_timestep_closes_releases_once() -> None:
    petrel, jobs = funds_for_ten()
    nodes = make_nodes(make_pool(), 8, gpus=1)
    for job, node in zip(jobs, nodes, strict=False):
        services.place_hold(job=job, amount_mgpus=CREDIT, now=T0)
        make_run(job, {node: 0b1})
    end = T0 + TIMESTEP

    def work(index: int) -> Any:
        if index == 0:
            return services.close_timestep(start=T0, end=end, parked={}, now=end)
        return services.release_rest(job=jobs[index - 1], attempt=1, at=end, now=end)

    found = all_at_once(work, 9)
    assert found[0] is True
    # What the close did not use up came back; or all of it, before the close.
    assert {type(amount) for amount in found[1:]} == {int}
    assert set(found[1:]) <= {CREDIT, CREDIT // 2}
    period = Entry.objects.filter(kind="hold")[0].period
    figures = reports.figures(period=period, now=end)[petrel.pk]
    assert (figures.held_mgpus, figures.settled_mgpus) == (0, 8 * CREDIT // 2)


def test_top_ups_and_submissions_at_once_never_oversell() -> None:
    petrel, jobs = funds_for_ten()
    nodes = make_nodes(make_pool(), 4)
    runs = [make_run(job, {node: 0xFF}) for job, node in zip(jobs, nodes, strict=False)]
    end = T0 + TIMESTEP

    def work(index: int) -> Any:
        if index < 4:
            return services.cover(runs=[runs[index]], start=T0, end=end, now=T0)
        return services.place_hold(job=jobs[index], amount_mgpus=CREDIT, now=T0).funded

    found = all_at_once(work, 24)
    assert not [one for one in found if isinstance(one, BaseException)]
    figures = reports.figures(period=Entry.objects.all()[0].period, now=T0)[petrel.pk]
    assert 0 <= figures.spendable_mgpus < CREDIT
    assert figures.held_mgpus <= 10 * CREDIT


@pytest.mark.skipif(
    connection.vendor != "postgresql", reason="a transaction excludes all others on SQLite"
)
def test_a_manager_and_a_tick_do_not_wait_for_each_other_for_ever() -> None:
    """Shares are changed under a budget's lock, then the ledger's; a tick's rows point at it."""
    science, pool = make_tree()["orlo/science"], make_pool()
    both = threading.Barrier(2)

    @transaction.atomic
    def manager() -> None:
        locked(science)
        both.wait(timeout=20)
        lock_ledger()

    @transaction.atomic
    def tick() -> None:
        lock_ledger()
        both.wait(timeout=20)
        time.sleep(0.2)  # the manager waits for the ledger by now
        numbers = ("entitled_gpu_seconds", "demand_gpu_seconds", "funded_gpu_seconds")
        Delivery.objects.create(timestep=T0, budget=science, pool=pool, **dict.fromkeys(numbers, 0))

    assert all_at_once(lambda index: (manager, tick)[index](), 2) == [None, None]
    assert Delivery.objects.count() == 1
