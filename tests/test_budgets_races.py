"""Twenty managers at once can't slip past the sum rule; without lock and trigger they do.

PostgreSQL only: SQLite lets one transaction write at a time.
"""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier, Event

import pytest
from django.db import Error, connection, transaction

from budgets import change_sets, services, shares
from budgets.models import Budget, ChangeSet
from budgets.services import Refused, StaleBase
from tests import factories as make

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.skipif(
        "connection.vendor != 'postgresql'", reason="SQLite has one writer at a time"
    ),
]
THREADS = 20
NOW = make.T0


def at_once(work: Callable[[int], object]) -> list[object]:
    """Run `work(n)` in 20 threads that start together; return results or what they raised."""
    barrier = Barrier(THREADS)

    def one(number: int) -> object:
        try:
            connection.ensure_connection()
            barrier.wait(timeout=30)
            return work(number)
        except (Refused, StaleBase, Error) as error:
            return error
        finally:
            connection.close()

    with ThreadPoolExecutor(THREADS) as pool:
        return list(pool.map(one, range(THREADS)))


def create(root: Budget) -> Callable[[int], object]:
    author = make.someone()

    def work(number: int) -> object:
        return services.create_budget(
            parent=root,
            slug=f"b{number}",
            name="B",
            share=10_000,
            author=author,
            reason="race",
            now=NOW,
        )

    return work


def total_and_versions() -> tuple[int, list[int]]:
    """What the children's newest rows add up to, and the versions of approved sets."""
    nodes = shares.tree(at=NOW)
    approved = ChangeSet.objects.filter(status="approved")
    versions = sorted(approved.values_list("version", flat=True))
    return sum(node.thousandths for node in nodes.values() if node.depth), versions


def test_of_twenty_creations_of_a_tenth_exactly_ten_fit():
    root = make.make_budget("orlo")
    results = at_once(create(root))
    assert sum(isinstance(result, Budget) for result in results) == 10
    assert sum(isinstance(result, Refused) for result in results) == 10
    assert total_and_versions() == (100_000, list(range(1, 11)))


def test_of_twenty_edits_on_one_base_exactly_one_is_approved():
    tree = make.make_tree({"orlo": 0, "orlo/a": 1, "orlo/b": 2})
    author = make.someone()

    def edit(number: int) -> object:
        return services.set_shares(
            parent=tree["orlo"],
            shares={tree["orlo/a"]: number, tree["orlo/b"]: 50_000 + number},
            reason="race",
            author=author,
            base_version=1,
            now=NOW,
        )

    results = at_once(edit)
    assert sum(isinstance(result, ChangeSet) for result in results) == 1
    assert sum(isinstance(result, StaleBase) for result in results) == 19
    assert total_and_versions()[1] == [1, 2]


@pytest.fixture
def without_lock(monkeypatch):
    def unlocked(budget: Budget) -> Budget:
        return Budget.objects.get(pk=budget.pk)

    monkeypatch.setattr(change_sets, "locked", unlocked)
    monkeypatch.setattr("budgets.structure.locked", unlocked)


@pytest.fixture
def without_triggers():
    """Switch off the database's own rules, the unique version among them."""
    constraint = "one_approved_set_per_version"
    with connection.cursor() as cursor:
        cursor.execute("SELECT indexdef FROM pg_indexes WHERE indexname = %s", [constraint])
        (definition,) = cursor.fetchone()
        cursor.execute("ALTER TABLE budgets_changeset DISABLE TRIGGER USER")
        cursor.execute(f"DROP INDEX {constraint}")
    yield
    with connection.cursor() as cursor:
        cursor.execute("TRUNCATE budgets_changeset CASCADE")
        cursor.execute("ALTER TABLE budgets_changeset ENABLE TRIGGER USER")
        cursor.execute(definition)


@pytest.mark.usefixtures("without_lock", "without_triggers")
def test_control_without_lock_and_trigger_the_race_is_real():
    root = make.make_budget("orlo")
    results = at_once(create(root))
    _, versions = total_and_versions()
    assert len(versions) > len(set(versions))  # two approved on one base: one of them is lost
    assert sum(isinstance(result, Budget) for result in results) > len(set(versions))


@pytest.mark.usefixtures("without_lock")
def test_the_database_alone_keeps_the_rule_where_the_lock_is_forgotten():
    root = make.make_budget("orlo")
    results = at_once(create(root))
    created = sum(isinstance(result, Budget) for result in results)
    total, versions = total_and_versions()
    assert versions == list(range(1, created + 1))
    assert total == created * 10_000 <= 100_000


def test_a_share_written_during_the_approval_does_not_escape_the_sum():
    tree = make.make_tree({"orlo": 0, "orlo/a": 0, "orlo/b": 0})
    draft = services.draft_change_set(
        parent=tree["orlo"],
        shares={tree["orlo/a"]: 60_000, tree["orlo/b"]: 40_000},
        reason="race",
        author=make.someone(),
        base_version=1,
        effective_at=NOW,
        now=NOW,
    )
    late = make.make_budget("late", parent=tree["orlo"])
    written = Event()

    def insert() -> None:
        with transaction.atomic(), connection.cursor() as cursor:
            cursor.execute(
                "INSERT INTO budgets_share (change_set_id, budget_id, thousandths) "
                "VALUES (%s, %s, 1)",
                [draft.pk, late.pk],
            )
            written.set()
            cursor.execute("SELECT pg_sleep(0.5)")  # not committed while the other approves

    def approve() -> None:
        assert written.wait(timeout=30)
        ChangeSet.objects.filter(pk=draft.pk).update(status="approved")

    with ThreadPoolExecutor(2) as pool:
        first, second = (pool.submit(closing, work) for work in (insert, approve))
        assert first.exception() is None
        assert "total more than 100 %" in str(second.exception())
    assert shares.head(tree["orlo"]).version == 1


def closing(work: Callable[[], None]) -> None:
    """Do a thread's work, then give its connection back."""
    try:
        work()
    finally:
        connection.close()
