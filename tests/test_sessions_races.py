"""Extending at the same moment as somebody else does something to the same session."""

import threading
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.db import connection, connections, transaction

from allocator import admission, cycle, sessions
from ledger import reports
from ledger.lock import lock_ledger
from tests.factories import HOUR, T0
from tests.helpers import CREDIT, make_institute
from tests.test_sessions import MINUTE, ends, extend, held, started
from workloads.models import Extension, Run

needs_postgresql = pytest.mark.skipif(
    connection.vendor != "postgresql", reason="a transaction excludes all others on SQLite"
)
pytestmark = pytest.mark.django_db(transaction=True)


def together(*acts: Callable[[], Any]) -> list[Any]:
    """Do things at once, each over its own connection; return what came of each."""
    found: list[Any] = [None] * len(acts)
    gate = threading.Barrier(len(acts))

    def go(number: int) -> None:
        try:
            gate.wait(30)
            found[number] = acts[number]()
        except Exception as error:
            found[number] = error
        finally:
            connections.close_all()

    threads = [threading.Thread(target=go, args=(number,)) for number in range(len(acts))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    return found


@needs_postgresql
def test_two_at_once_don_t_spend_the_same_credits():
    place = make_institute(credits={"orlo/science/petrel": 12})
    job = started(place)
    found = together(*[lambda: extend(job, 30, T0 + MINUTE)] * 6)
    assert sorted(one.rule for one in found) == ["", *["credits"] * 5]
    assert ends(job) == (T0 + 90 * MINUTE, T0 + 90 * MINUTE)
    assert (held(job), reports.spendable(budget=place.petrel, now=T0 + MINUTE)) == (12 * CREDIT, 0)


@needs_postgresql
def test_two_at_once_with_credits_for_both_add_up():
    place = make_institute()
    job = started(place)
    found = together(*[lambda: extend(job, 30, T0 + MINUTE)] * 4)
    assert all(one.is_granted for one in found)
    assert ends(job)[0] == T0 + 3 * HOUR
    assert held(job) == 24 * CREDIT
    job.refresh_from_db()
    assert job.time_limit_s == 3 * 3600
    place.cycle(T0 + MINUTE)
    assert not Run.objects.filter(told_limit_s__lt=3 * 3600).exists()


@needs_postgresql
def test_the_same_key_twice_at_once_extends_once():
    place = make_institute()
    job = started(place)
    found = together(*[lambda: extend(job, 30, T0 + MINUTE, key="k")] * 4)
    assert len({one.extension.pk for one in found}) == 1
    assert Extension.objects.count() == 1
    assert ends(job)[0] == T0 + 90 * MINUTE


@needs_postgresql
@pytest.mark.parametrize("before", [MINUTE, timedelta()])
def test_a_cycle_that_ends_it_meanwhile_and_extensions_don_t_block_each_other(before):
    place = make_institute()
    job = started(place)
    found = together(
        lambda: cycle.run(at=T0 + HOUR, trigger="test"),
        *[lambda: extend(job, 1, T0 + HOUR - before)] * 3,
    )
    assert not [one for one in found if isinstance(one, Exception)]
    place.cycle(T0 + 3 * HOUR)
    job.refresh_from_db()
    assert (job.state, held(job)) == ("timed_out", 0)


@needs_postgresql
def test_a_cancellation_and_an_extension_leave_one_order():
    place = make_institute()
    job = started(place)
    found = together(
        lambda: admission.cancel(job=job, by=None, now=T0 + MINUTE),
        lambda: extend(job, 30, T0 + MINUTE),
    )
    assert not [one for one in found if isinstance(one, Exception)]
    assert found[1].rule in ("", "cancelled")
    place.cycle(T0 + 2 * MINUTE)
    job.refresh_from_db()
    assert (job.state, held(job)) == ("cancelled", 0)


@needs_postgresql
def test_it_never_waits_for_a_row_under_the_ledger_s_lock():
    """A cycle has the run's row and waits for the ledger's lock: that must not be a deadlock."""
    place = make_institute()
    job = started(place)
    has_row, may_lock = threading.Event(), threading.Event()

    def end() -> None:
        with transaction.atomic():
            Run.objects.filter(job=job).update(protected_until=T0 + HOUR)
            has_row.set()
            may_lock.wait(30)
            lock_ledger()

    def ask() -> sessions.Answer:
        has_row.wait(30)
        return extend(job, 30, T0 + MINUTE)

    def let_go() -> None:
        has_row.wait(30)
        threading.Event().wait(0.3)  # meanwhile it has tried
        may_lock.set()

    ended, answer, _ = together(end, ask, let_go)
    assert ended is None
    assert answer.is_granted


@needs_postgresql
def test_a_row_that_stays_locked_is_told_and_not_waited_for(monkeypatch):
    place = make_institute()
    job = started(place)
    monkeypatch.setattr(sessions, "TRIES", 3)

    def ask() -> sessions.Answer:
        return extend(job, 30, T0 + MINUTE)

    with transaction.atomic():
        list(Run.objects.select_for_update().filter(job=job))
        answer = together(ask)[0]
    assert answer.rule == "busy"
    assert held(job) == 8 * CREDIT
