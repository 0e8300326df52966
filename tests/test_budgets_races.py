"""Twenty managers at once can't slip past the sum rule; without lock and trigger they do.

The lock is a row's on PostgreSQL; on SQLite it is the transaction's, which excludes all other
writers from its start. The triggers are there on both.
"""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext, suppress
from threading import Barrier, BrokenBarrierError, Event
from time import sleep
from types import SimpleNamespace
from typing import Any

import pytest
from django.db import Error, connection, transaction

from budgets import change_sets, places, services, shares, structure
from budgets.models import Budget, ChangeSet, Share
from budgets.services import Refused, StaleBase
from clusters.models import Pool
from ledger.lock import lock_ledger
from tests import factories as make

pytestmark = pytest.mark.django_db(transaction=True)
needs_row_locks = pytest.mark.skipif(
    "connection.vendor != 'postgresql'", reason="SQLite has one writer at a time"
)
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


def move(root: Budget) -> Callable[[int], object]:
    """Twenty projects of another program, moved below the root with a tenth each."""
    author = make.someone()
    other = make.make_budget("other", parent=root)
    make.make_shares(root, {other: 0})
    budgets = [make.make_budget(f"m{n}", parent=other) for n in range(THREADS)]
    make.make_shares(other, dict.fromkeys(budgets, 0))

    def work(number: int) -> object:
        return services.move_budget(
            budget=budgets[number], to=root, share=10_000, author=author, reason="race", now=NOW
        )

    return work


def reactivate(root: Budget) -> Callable[[int], object]:
    author = make.someone()
    budgets = [
        make.make_budget(f"r{n}", parent=root, archived_at=make.LONG_AGO) for n in range(THREADS)
    ]

    def work(number: int) -> object:
        return services.reactivate_budget(
            budget=budgets[number], share=10_000, author=author, reason="race", now=NOW
        )

    return work


def total_and_versions(pool: Pool | None = None) -> tuple[int, list[int]]:
    """What the root's children's newest rows add up to, and the versions of its approved sets."""
    nodes = shares.tree(at=NOW, pool=pool)
    approved = ChangeSet.objects.filter(status="approved", parent__parent=None)
    versions = sorted(approved.values_list("version", flat=True))
    return sum(node.thousandths for node in nodes.values() if node.depth == 1), versions


@pytest.mark.parametrize("make_work", [create, move, reactivate])
def test_of_twenty_that_want_a_tenth_exactly_ten_fit(
    make_work: Callable[[Budget], Callable[[int], object]],
) -> None:
    root = make.make_budget("orlo")
    work = make_work(root)
    first = shares.version(root)
    results = at_once(work)
    assert sum(isinstance(result, Budget) for result in results) == 10
    refused = [result for result in results if isinstance(result, Refused)]
    assert len(refused) == 10
    assert all("too much" in one.sentence for one in refused)
    assert total_and_versions() == (100_000, list(range(1, first + 11)))


def test_of_twenty_overrides_in_one_pool_exactly_one_is_approved() -> None:
    """Each raises another child of twenty to 60 % in a pool in which one has 50 %."""
    root, pool = make.make_budget("orlo"), make.make_pool()
    children = [make.make_budget(f"c{n}", parent=root) for n in range(THREADS)]
    make.make_shares(root, dict.fromkeys(children, 5000))
    author = make.someone()

    def override(number: int) -> object:
        overrides = dict.fromkeys(((child, pool) for child in children), 0)
        return services.set_shares(
            parent=root,
            shares=dict.fromkeys(children, 5000),
            overrides={**overrides, (children[number], pool): 60_000},
            reason="race",
            author=author,
            base_version=1,
            now=NOW,
        )

    results = at_once(override)
    assert sum(isinstance(result, ChangeSet) for result in results) == 1
    assert sum(isinstance(result, StaleBase) for result in results) == 19
    assert total_and_versions(pool) == (60_000, [1, 2])
    assert total_and_versions() == (100_000, [1, 2])


def test_of_twenty_edits_on_one_base_exactly_one_is_approved() -> None:
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
def without_lock(monkeypatch: pytest.MonkeyPatch) -> None:
    """Take the first layer away: the row's lock, on SQLite the transaction."""
    if connection.vendor == "postgresql":
        for module in ("budgets.change_sets", "budgets.structure"):
            monkeypatch.setattr(f"{module}.locked", lambda one: Budget.objects.get(pk=one.pk))
        return
    for module in ("budgets.change_sets", "budgets.structure"):
        monkeypatch.setattr(f"{module}.transaction", SimpleNamespace(atomic=nullcontext))
    read = shares.head

    def slowly(parent: Budget) -> ChangeSet | None:
        found = read(parent)
        sleep(0.05)  # until the others have read it too
        return found

    monkeypatch.setattr(shares, "head", slowly)


UNIQUE = "one_approved_set_per_version"


@pytest.fixture
def without_triggers() -> Iterator[None]:
    """Take the second layer away: the database's own rules, the unique version among them."""
    forget, restore = _postgresql() if connection.vendor == "postgresql" else _sqlite()
    execute(forget)
    yield
    execute(restore)


def _postgresql() -> tuple[list[str], list[str]]:
    definition = ask("SELECT indexdef FROM pg_indexes WHERE indexname = %s", UNIQUE)[0][0]
    off = ["ALTER TABLE budgets_changeset DISABLE TRIGGER USER", f"DROP INDEX {UNIQUE}"]
    on = "ALTER TABLE budgets_changeset ENABLE TRIGGER USER"
    return off, ["TRUNCATE budgets_changeset CASCADE", on, definition]


def _sqlite() -> tuple[list[str], list[str]]:
    triggers = ask("SELECT name, sql FROM sqlite_master WHERE type = 'trigger'")
    ((definition,),) = ask("SELECT sql FROM sqlite_master WHERE name = %s", UNIQUE)
    off = [f'DROP TRIGGER "{name}"' for name, _ in triggers]
    empty = ["DELETE FROM budgets_share", "DELETE FROM budgets_changeset"]
    return [*off, f"DROP INDEX {UNIQUE}"], [*empty, definition, *(sql for _, sql in triggers)]


def ask(query: str, *given: str) -> list[Any]:
    with connection.cursor() as cursor:
        cursor.execute(query, given)
        return list(cursor.fetchall())


def execute(statements: list[str]) -> None:
    with connection.cursor() as cursor:
        for statement in statements:
            cursor.execute(statement)


@pytest.mark.usefixtures("without_lock", "without_triggers")
def test_control_without_lock_and_trigger_the_race_is_real() -> None:
    root = make.make_budget("orlo")
    results = at_once(create(root))
    _, versions = total_and_versions()
    assert len(versions) > len(set(versions))  # two approved on one base: one of them is lost
    assert sum(isinstance(result, Budget) for result in results) > len(set(versions))


@pytest.mark.usefixtures("without_lock")
def test_the_database_alone_keeps_the_rule_where_the_lock_is_forgotten() -> None:
    """It refuses whoever is late with an error: fewer than ten may get in, never more.

    On SQLite the transaction is away too: shares may be older than the version read after them.
    """
    root = make.make_budget("orlo")
    results = at_once(create(root))
    created = sum(isinstance(result, Budget) for result in results)
    total, versions = total_and_versions()
    assert versions == list(range(1, created + 1))
    assert 10_000 <= total <= created * 10_000 <= 100_000


@needs_row_locks
def test_a_share_written_during_the_approval_does_not_escape_the_sum() -> None:
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
    assert shares.version(tree["orlo"]) == 1


def closing(work: Callable[[], None]) -> None:
    """Do a thread's work, then give its connection back."""
    try:
        work()
    finally:
        connection.close()


@needs_row_locks
def test_an_approval_keeps_no_entry_from_naming_its_parent() -> None:
    """A tick's foreign keys are checked at its commit, when it has the ledger that others want."""
    root, author = make.make_budget("orlo"), make.someone()

    def named() -> object:
        try:
            with transaction.atomic(), connection.cursor() as cursor:
                lock = "SELECT id FROM budgets_budget WHERE id = %s FOR KEY SHARE NOWAIT"
                cursor.execute(lock, [root.pk])
                return cursor.fetchone()
        except Error as error:
            return error
        finally:
            connection.close()

    with transaction.atomic(), ThreadPoolExecutor(1) as pool:
        services.create_budget(
            parent=root, slug="more", name="More", share=1, author=author, reason="more", now=NOW
        )
        assert pool.submit(named).result(timeout=30) == (root.pk,)


def at_the_same_place(
    monkeypatch: pytest.MonkeyPatch, first: Callable[[], object], second: Callable[[], object]
) -> list[object]:
    """Do two things that each wait, once they have their locks, for the other to have its own.

    Where one waits for the other's locks instead, it goes on alone after a second.
    """
    both, check = Barrier(2), places.check_place

    def meet(parent: Budget, slug: str) -> None:
        with suppress(BrokenBarrierError):
            both.wait(timeout=1)
        check(parent, slug)

    for module in (places, structure):
        monkeypatch.setattr(module, "check_place", meet)

    def one(work: Callable[[], object]) -> object:
        try:
            return work()
        except (Refused, StaleBase, Error) as error:
            return error
        finally:
            connection.close()

    with ThreadPoolExecutor(2) as pool:
        return list(pool.map(one, (first, second)))


def mover(budget: Budget, to: Budget) -> Callable[[], object]:
    why = {"author": make.someone(), "reason": "race", "now": NOW}
    return lambda: services.move_budget(budget=budget, to=to, share=0, **why)  # type: ignore[arg-type]


TWO = {
    "orlo": 0, "orlo/p": 1, "orlo/q": 1, "orlo/p/x": 1, "orlo/q/y": 1,
    "orlo/p/x/under": 1, "orlo/q/y/under": 1,
}  # fmt: skip


@needs_row_locks
def test_of_two_moves_below_each_other_one_is_done_and_the_other_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    tree = make.make_tree(TWO, at=make.LONG_AGO)
    results = at_the_same_place(
        monkeypatch,
        mover(tree["orlo/p/x"], tree["orlo/q/y/under"]),
        mover(tree["orlo/q/y"], tree["orlo/p/x/under"]),
    )
    (done,) = [one for one in results if isinstance(one, Budget)]
    (refused,) = [one for one in results if isinstance(one, Refused)]
    assert "can't move below" in refused.sentence
    assert len(shares.tree(at=NOW)) == len(TWO)
    assert done.path in ("orlo/q/y/under/x", "orlo/p/x/under/y")


@needs_row_locks
def test_of_two_moves_of_one_budget_one_is_done_and_the_other_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    tree = make.make_tree(TWO, at=make.LONG_AGO)
    under, *places = (tree[f"orlo/{path}"] for path in ("p/x/under", "q", "q/y/under"))
    results = at_the_same_place(monkeypatch, *(mover(under, place) for place in places))
    (done,) = [one for one in results if isinstance(one, Budget)]
    (refused,) = [one for one in results if isinstance(one, Refused)]
    assert refused.sentence == f"It has just been moved to {done.path}: look at it there."
    named = Share.objects.filter(budget=under, change_set__effective_at=NOW)
    assert [share.change_set.parent for share in named] == [done.parent]


CHANGES: dict[str, Callable[[dict[str, Budget]], object]] = {
    "move": lambda tree: mover(tree["orlo/p/x"], tree["orlo"])(),
    "archive": lambda tree: services.archive_budget(
        budget=tree["orlo/p"], author=make.someone(), reason="race", now=NOW
    ),
    "rename": lambda tree: services.rename_budget(
        budget=tree["orlo/p/x"], slug="kea", author=make.someone(), now=NOW
    ),
}


@needs_row_locks
@pytest.mark.parametrize(
    ("change", "path"),
    [("move", "orlo/p/x/under"), ("archive", "orlo/p"), ("rename", "orlo/p/x/under")],
)
def test_a_change_of_the_tree_and_a_hold_do_not_wait_for_each_other_for_ever(
    change: str, path: str
) -> None:
    """Who submits, or changes shares, locks one budget and then the ledger, which is the root."""
    tree = make.make_tree(TWO, at=make.LONG_AGO)
    has_it, is_done = Event(), Event()

    def submitting() -> None:
        with transaction.atomic():
            change_sets.locked(tree[path])
            has_it.set()
            is_done.wait(timeout=1)  # it waits for us by now
            lock_ledger()

    def changing() -> None:
        assert has_it.wait(timeout=60)
        CHANGES[change](tree)
        is_done.set()

    with ThreadPoolExecutor(2) as pool:
        both = [pool.submit(closing, work) for work in (submitting, changing)]
        assert [one.exception() for one in both] == [None, None]
    assert is_done.is_set()
