"""Two managers at once, a submission that is quicker, a death between statements: all or nothing.

PostgreSQL only, but for the death: SQLite lets one transaction write at a time.
"""

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.db import connection, transaction

from budgets import notices, requests, shares
from budgets.models import Budget, ChangeSet, Notice, Request
from budgets.refusals import Refused
from ledger import reports, services
from ledger.models import Entry
from ledger.services import LedgerError
from tests import factories as make
from tests.addresses import database_url
from tests.factories import HOUR, T0
from tests.ledger_world import CREDIT, give, ledger

pytestmark = pytest.mark.django_db(transaction=True)
one_writer = pytest.mark.skipif(
    "connection.vendor != 'postgresql'", reason="SQLite has one writer at a time"
)
ROOT = Path(__file__).resolve().parent.parent
PETREL, AUK, SCIENCE = "orlo/science/petrel", "orlo/science/auk", "orlo/science"


@pytest.fixture
def tree() -> dict[str, Budget]:
    """10 credits for petrel and auk each, and 100 in science's reserve."""
    tree, period = make.make_tree(), make.make_period()
    for path in (PETREL, AUK):
        give(tree[path], 10, period)
    give(tree[SCIENCE], 100, period)
    return tree


def at_once(works: list[Callable[[], object]]) -> list[Any]:
    """Start each work in a thread of its own, all together; return results or refusals."""
    barrier = Barrier(len(works))

    def one(work: Callable[[], object]) -> object:
        try:
            connection.ensure_connection()
            barrier.wait(timeout=30)
            return work()
        except (Refused, LedgerError) as error:
            return error
        finally:
            connection.close()

    with ThreadPoolExecutor(len(works)) as pool:
        return list(pool.map(one, works))


def grant(made: Request, source: Budget, by: Any) -> Callable[[], object]:
    return lambda: services.grant_request(request=made, source=source, by=by, now=T0 + HOUR)


def decline(made: Request, by: Any) -> Callable[[], object]:
    return lambda: services.decline_request(request=made, answer="no", by=by, now=T0 + HOUR)


@one_writer
@pytest.mark.parametrize("unit", ["credits", "percent"])
def test_of_eight_decisions_at_once_one_is_made_and_the_others_are_told_whose(tree, unit):
    make.make_shares(tree[SCIENCE], {tree[PETREL]: 40_000, tree[AUK]: 50_000})
    asked = {"credits": 4 * CREDIT, "percent": 4_000}[unit]
    made = make.make_request(tree[PETREL], unit=unit, asked=asked)
    managers = [make.make_user(f"manager{n}") for n in range(8)]
    sources = (tree[SCIENCE], tree[AUK])
    works = [
        decline(made, by) if n % 4 == 3 else grant(made, sources[n % 2], by)
        for n, by in enumerate(managers)
    ]
    results = at_once(works)
    (done,) = [one for one in results if isinstance(one, Request)]
    others = [one for one in results if isinstance(one, requests.DecidedAlready)]
    assert len(others) == 7
    assert all(f"{done.decided_by.username} decided first" in one.sentence for one in others)
    moved = Entry.objects.filter(kind="transfer", budget=tree[PETREL]).count()
    sets = ChangeSet.objects.filter(parent=tree[SCIENCE]).count()
    granted = done.status == "granted"
    assert moved == (granted and unit == "credits")
    assert sets == 2 + (granted and unit == "percent")
    assert Notice.objects.filter(kind="decided").count() == 1


@one_writer
def test_of_eight_who_ask_for_the_same_at_once_one_does(tree):
    people = [make.make_user(f"user{n}x") for n in range(8)]

    def ask(by: Any) -> Callable[[], object]:
        return lambda: requests.ask(
            budget=tree[PETREL], unit="credits", asked=CREDIT, reason="race", by=by, now=T0
        )

    results = at_once([ask(by) for by in people])
    (made,) = [one for one in results if isinstance(one, Request)]
    others = [one for one in results if isinstance(one, requests.AskedAlready)]
    assert len(others) == 7
    assert {one.open.pk for one in others} == {made.pk}


@one_writer
def test_a_transfer_and_the_holds_of_a_sibling_never_take_the_same_credits(tree):
    """auk has 10: ten submissions of 2 each and a grant of 6 to petrel want 26 of them."""
    made = make.make_request(tree[PETREL], unit="credits", asked=6 * CREDIT)
    jobs = [make.make_job(tree[AUK]) for _ in range(10)]
    by = make.make_user("manager")

    def hold(job: Any) -> Callable[[], object]:
        return lambda: services.place_hold(job=job, amount_mgpus=2 * CREDIT, now=T0 + HOUR)

    works: list[Callable[[], object]] = [hold(job) for job in jobs]
    works.insert(5, grant(made, tree[AUK], by))
    results = at_once(works)
    funded = sum(getattr(one, "funded", False) for one in results)
    made.refresh_from_db()
    if made.status == "granted":
        assert funded == 2  # of the 4 that were left
    else:
        (refused,) = [one for one in results if isinstance(one, LedgerError)]
        assert "neither spent nor set aside" in str(refused)
        assert funded == 5
        assert not Entry.objects.filter(kind="transfer").exists()
        assert not Notice.objects.exists()
    found = reports.figures(period=make.Period.objects.get(), now=T0 + HOUR)[tree[AUK].pk]
    assert found.spendable_mgpus == 0


def test_a_transfer_that_a_hold_outran_is_refused_and_nothing_is_half_written(tree):
    made = make.make_request(tree[PETREL], unit="credits", asked=6 * CREDIT)
    assert services.place_hold(job=make.make_job(tree[AUK]), amount_mgpus=5 * CREDIT, now=T0).funded
    before = ledger()
    with pytest.raises(LedgerError, match=r"auk has 5\.00 credits .* not 6\.00"):
        grant(made, tree[AUK], make.make_user("manager"))()
    made.refresh_from_db()
    assert (made.status, made.decided_at, ledger()) == ("open", None, before)


@one_writer
def test_two_workers_end_it_and_send_its_emails_once(tree, mailoutbox, monkeypatch):
    asker = make.make_user("member")
    until = T0 + 2 * HOUR
    made = make.make_request(
        tree[PETREL], unit="credits", asked=4 * CREDIT, asked_by=asker, until=until
    )
    grant(made, tree[SCIENCE], make.make_user("manager"))()
    at_once([lambda: services.end_due(now=until) for _ in range(6)])
    assert Entry.objects.filter(kind="transfer", key__contains=":back:").count() == 1
    assert Notice.objects.filter(kind="ended").count() == 1
    for number in range(20):
        make.tell(asker, tree[PETREL], key=f"n{number}")
    sent = at_once([lambda: notices.send_due(now=until) for _ in range(6)])
    assert sum(sent) == len(mailoutbox) == Notice.objects.count() == 22


# Decides on the only request and kills its own process before the n-th statement.
DECIDE = """
import os, signal, sys
from datetime import datetime, timezone
import django
django.setup()
from django.contrib.auth.models import User
from django.contrib.auth.models import User
from django.db import connection, transaction
from budgets.models import Budget, Request
from ledger import services

statement, source = int(sys.argv[1]), Budget.objects.get(path=sys.argv[2])
made, by = Request.objects.get(), User.objects.get(username="manager")
sent = 0

def die(execute, *args):
    global sent
    sent += 1
    if sent == statement:
        os.kill(os.getpid(), signal.SIGKILL)
    return execute(*args)

at = datetime(2026, 10, 1, 1, tzinfo=timezone.utc)
with connection.execute_wrapper(die):
    services.grant_request(request=made, source=source, by=by, now=at)
    print(sent)
"""


def decide_in_a_process(statement: int, source: str) -> subprocess.CompletedProcess[str]:
    environment = os.environ | {
        "DATABASE_URL": database_url(),
        "DJANGO_SETTINGS_MODULE": "config.settings",
        "CELERY_BROKER_URL": "memory://",
    }
    return subprocess.run(
        [sys.executable, "-c", DECIDE, str(statement), source],
        cwd=ROOT, env=environment, capture_output=True, text=True, timeout=120,
    )  # fmt: skip


def statements(source: str) -> int:
    """Count what the decision sends inside a transaction (savepoints too), and take it back."""
    sent = 0

    def count(execute: Any, *args: Any) -> Any:
        nonlocal sent
        sent += 1
        return execute(*args)

    given: dict[str, Any] = {
        "request": Request.objects.get(),
        "by": User.objects.get(username="manager"),
    }
    with transaction.atomic(), connection.execute_wrapper(count):
        budget = Budget.objects.get(path=source)
        services.grant_request(source=budget, now=T0 + HOUR, **given)
        transaction.set_rollback(True)
    return sent


def state() -> tuple[Any, ...]:
    rows = Request.objects.values_list("status", "given", "decided_by__username")
    return (
        list(rows),
        ledger(),
        ChangeSet.objects.filter(status="approved").count(),
        Notice.objects.count(),
    )


@pytest.mark.slow
@pytest.mark.parametrize("unit", ["credits", "percent"])
def test_killed_between_two_statements_a_decision_is_made_whole_or_not_at_all(tree, unit):
    asked = {"credits": 4 * CREDIT, "percent": 4_000}[unit]
    until = T0 + 5 * HOUR
    make.make_request(
        tree[PETREL], unit=unit, asked=asked, until=until, asked_by=make.make_user("member")
    )
    make.make_user("manager")
    before = state()
    sent = statements(AUK)
    assert state() == before
    # In the midst of it, after the money has moved, and at the very end.
    for statement in (sent // 2, sent - 8, sent - 4):
        killed = decide_in_a_process(statement, AUK)
        assert killed.returncode == -signal.SIGKILL, killed.stderr + killed.stdout
        assert state() == before
    finished = decide_in_a_process(0, AUK)
    assert finished.returncode == 0, finished.stderr
    assert int(finished.stdout) >= sent - 4  # the last kill was in the midst of it
    (decided,), _, sets, told = state()
    assert decided == ("granted", asked, "manager")
    assert (sets - before[2], told) == ({"credits": 0, "percent": 2}[unit], 1)
    share = shares.share_of(tree[PETREL], T0 + HOUR)
    assert share == {"credits": 50_000, "percent": 54_000}[unit]
    again = decide_in_a_process(0, SCIENCE)
    assert "manager decided first" in again.stderr
