"""What is counted on is read under its lock, which nobody else gets until the transaction's end.

The races show what goes wrong; where the database's own rules would stop it all the same, with an
error instead of an answer, this shows that the lock is there. SQLite has one writer at a time.
"""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from time import sleep
from types import ModuleType
from typing import Any

import pytest
from django.db import OperationalError, connection, transaction

from budgets import services, shares, structure
from budgets.models import Budget, ChangeSet
from ledger import holds
from tests import factories as make

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.skipif("connection.vendor != 'postgresql'", reason="needs locks of rows"),
]
NOW = make.T0
Watch = Callable[[ModuleType, str, Budget], list[bool]]


def is_locked(budget: Budget) -> bool:
    """Whether another connection would have to wait for a budget's row."""

    def ask() -> bool:
        try:
            with transaction.atomic():
                rows = Budget.objects.select_for_update(no_key=True, nowait=True)
                return not rows.get(pk=budget.pk)
        except OperationalError:
            return True
        finally:
            connection.close()

    with ThreadPoolExecutor(1) as pool:
        return pool.submit(ask).result(timeout=30)


@pytest.fixture
def watch(monkeypatch: pytest.MonkeyPatch) -> Watch:
    """Look, whenever a function reads, whether a budget's row is locked by then."""

    def looking(module: ModuleType, name: str, budget: Budget) -> list[bool]:
        read, seen = getattr(module, name), []

        def reads(*args: Any, **more: Any) -> Any:
            seen.append(is_locked(budget))
            return read(*args, **more)

        monkeypatch.setattr(module, name, reads)
        return seen

    return looking


def drafted(root: Budget) -> ChangeSet:
    children = Budget.objects.filter(parent=root)
    return services.draft_change_set(
        parent=root,
        shares=dict.fromkeys(children, 10_000),
        reason="a lock",
        author=make.someone(),
        base_version=1,
        effective_at=NOW,
        now=NOW,
    )


def approved_alone(root: Budget) -> Callable[[], object]:
    draft = drafted(root)
    return lambda: services.approve(change_set=draft, by=make.someone(), now=NOW)


def created(root: Budget) -> Callable[[], object]:
    why = {"author": make.someone(), "reason": "a lock", "now": NOW}
    return lambda: services.create_budget(parent=root, slug="kea", name="Kea", share=0, **why)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("make_work", "module", "name"),
    [
        (lambda root: lambda: drafted(root), shares, "head"),
        (approved_alone, shares, "head"),
        (created, structure, "check_place"),
    ],
    ids=["draft", "approve", "create"],
)
def test_shares_and_children_are_read_under_their_parent_s_lock(
    make_work: Callable[[Budget], Callable[[], object]],
    module: ModuleType,
    name: str,
    watch: Watch,
) -> None:
    root = make.make_tree()["orlo"]
    work = make_work(root)
    seen = watch(module, name, root)
    work()
    assert seen
    assert all(seen)


def test_a_hold_looks_at_what_is_left_under_the_ledger_s_lock(watch: Watch) -> None:
    tree = make.make_tree()
    make.make_period()
    seen = watch(holds, "accounts", tree["orlo"])
    job = make.make_job(tree["orlo/science/petrel"])
    assert not holds.place_hold(job=job, amount_mgpus=1, now=NOW).funded
    assert seen == [True]


def test_an_approval_past_our_code_takes_its_parent_s_lock_too() -> None:
    root = make.make_tree()["orlo"]
    draft = drafted(root)
    with transaction.atomic():
        assert not is_locked(root)
        ChangeSet.objects.filter(pk=draft.pk).update(status=ChangeSet.Status.APPROVED)
        assert is_locked(root)


def until_waiting(number: int) -> None:
    """Return once so many wait for a row that another has locked."""
    waiting = (
        "SELECT count(*) FROM pg_stat_activity "
        "WHERE datname = current_database() AND wait_event_type = 'Lock'"
    )
    for _ in range(600):
        with connection.cursor() as cursor:
            cursor.execute("SELECT pg_stat_clear_snapshot()")  # else a transaction's is kept
            cursor.execute(waiting)
            if cursor.fetchone() == (number,):
                return
        sleep(0.05)
    raise AssertionError(f"{number} never waited")


def test_what_came_below_a_budget_meanwhile_is_locked_in_everyone_s_order() -> None:
    """Who waits for a budget, and finds another below it then, does not lock that one second."""
    tree = make.make_tree({"orlo": 0, "orlo/p": 1, "orlo/q": 1}, at=make.LONG_AGO)
    low, high = tree["orlo/p"], tree["orlo/q"]
    assert low.pk < high.pk
    why: dict[str, Any] = {"author": make.someone(), "now": NOW}

    def rename() -> Budget:
        return services.rename_budget(budget=low, slug="kea", **why)

    def move() -> Budget:
        return services.move_budget(budget=high, to=low, share=0, reason="late", **why)

    def alone(work: Callable[[], Budget]) -> Budget:
        try:
            return work()
        finally:
            connection.close()

    with ThreadPoolExecutor(2) as pool:
        with transaction.atomic():
            services.move_budget(budget=high, to=low, share=0, reason="first", **why)
            renamed = pool.submit(alone, rename)
            until_waiting(1)
            moved = pool.submit(alone, move)
            until_waiting(2)
        assert renamed.result(timeout=60).path == "orlo/kea"
        with pytest.raises(services.Refused, match="has just been moved"):
            moved.result(timeout=60)
    assert Budget.objects.get(pk=high.pk).path == "orlo/kea/q"
