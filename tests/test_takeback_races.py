"""Checkpoints under many workers at once: each is carried out once, and nothing below claims."""

import threading
from collections.abc import Callable
from typing import Any

import pytest
from django.db import connection, connections

from budgets.models import Checkpoint, CheckpointResult, Notice
from ledger import reports, services
from ledger.losses import losses
from ledger.takeback import take_due
from ledger.takeback_notices import announce
from tests.factories import (
    HOUR,
    T0,
    make_checkpoint,
    make_job,
    make_period,
    make_role,
    make_tree,
    make_user,
)
from tests.ledger_world import CREDIT, give
from tests.takeback_world import DAY, NREL, QUARTER, charged_until, taken, transfers

pytestmark = pytest.mark.django_db(transaction=True)
THREADS = 8


def all_at_once(work: Callable[[int], Any], number: int = THREADS) -> list[Any]:
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


def world() -> tuple[Any, Any]:
    tree, period = make_tree(), make_period()
    give(tree["orlo/science/petrel"], 100, period)
    make_role(make_user("lead"), tree["orlo/science/petrel"], "manager")
    return tree, period


def test_eight_workers_carry_out_two_checkpoints_and_each_is_carried_out_once() -> None:
    _, period = world()
    first = make_checkpoint(period, T0 + QUARTER, NREL)
    second = make_checkpoint(period, T0 + 2 * QUARTER, NREL)
    charged_until(second.at)
    found = all_at_once(lambda _: [one.pk for one in take_due(now=second.at + HOUR)])
    assert sorted(pk for one in found for pk in one) == [first.pk, second.pk]
    assert take_due(now=second.at + HOUR) == []
    assert (taken(first), taken(second)) == ({"petrel": 20}, {"petrel": 20})
    assert len(transfers()) == 2
    assert Notice.objects.filter(kind="taken", user__username="lead").count() == 2


@pytest.mark.skipif(
    connection.vendor != "postgresql", reason="a transaction excludes all others on SQLite"
)
def test_without_its_locks_the_same_race_is_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    """The control: without them several workers compute it, and only keys and rows save us."""
    computed = []
    real = losses

    def slow(**asked: Any) -> Any:
        computed.append(1)
        found = real(**asked)
        threading.Event().wait(0.3)
        return found

    monkeypatch.setattr("ledger.takeback.losses", slow)
    monkeypatch.setattr("ledger.takeback.lock_ledger", lambda: None)
    monkeypatch.setattr(
        Checkpoint.objects,
        "select_for_update",
        lambda **_: Checkpoint.objects.all(),
        raising=False,
    )
    _, period = world()
    checkpoint = make_checkpoint(period, T0 + QUARTER, NREL)
    charged_until(checkpoint.at)
    all_at_once(lambda _: take_due(now=checkpoint.at + HOUR))
    assert len(computed) > 1
    assert len(transfers()) == 1
    assert CheckpointResult.objects.filter(taken_mgpus__gt=0).count() == 1


def test_holds_and_a_checkpoint_at_once_never_pass_what_was_granted() -> None:
    tree, period = world()
    petrel = tree["orlo/science/petrel"]
    checkpoint = make_checkpoint(
        period, T0 + QUARTER, [(99, 90)], measured="granted", removed_of="remaining"
    )
    charged_until(checkpoint.at)
    now = checkpoint.at + HOUR
    jobs = [make_job(petrel) for _ in range(THREADS - 1)]

    def work(index: int) -> Any:
        if index == len(jobs):
            return take_due(now=now)
        return services.place_hold(job=jobs[index], amount_mgpus=20 * CREDIT, now=now).funded

    found = all_at_once(work)
    held = found.count(True) * 20
    one = reports.figures(period=period, now=now)[petrel.pk]
    assert one.held_mgpus == held * CREDIT
    assert one.granted_mgpus == 100 * CREDIT - checkpoint.results.get(budget=petrel).taken_mgpus
    assert one.spendable_mgpus >= 0
    assert found[-1] == [checkpoint]


def test_eight_workers_take_what_is_free_again_once() -> None:
    tree, period = world()
    petrel = tree["orlo/science/petrel"]
    checkpoint = make_checkpoint(
        period, T0 + QUARTER, [(99, 100)], measured="granted", removed_of="remaining"
    )
    job = make_job(petrel)
    assert services.place_hold(job=job, amount_mgpus=30 * CREDIT, now=T0).funded
    charged_until(checkpoint.at)
    now = checkpoint.at + HOUR
    take_due(now=now)
    assert taken(checkpoint) == {"petrel": 70}
    assert services.release_rest(job=job, attempt=1, at=now, now=now) == 30 * CREDIT
    all_at_once(lambda _: take_due(now=now + HOUR))
    assert [amount for _, amount in transfers()] == [-70 * CREDIT, -30 * CREDIT]
    assert reports.figures(period=period, now=now + HOUR)[petrel.pk].granted_mgpus == 0


def test_eight_workers_tell_a_lead_once() -> None:
    _, period = world()
    make_checkpoint(period, T0 + 2 * QUARTER, NREL)
    all_at_once(lambda _: announce(now=T0 + 2 * QUARTER - 14 * DAY))
    assert Notice.objects.filter(user__username="lead").count() == 1
