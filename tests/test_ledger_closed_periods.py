"""The database itself keeps a closed period as it was: no entry goes into it any more."""

import threading
import time
from collections.abc import Callable
from typing import Any

import pytest
from django.db import IntegrityError, OperationalError, connection, transaction
from psycopg.errors import CheckViolation

from budgets import periods
from budgets.models import Budget, Period
from budgets.refusals import Refused
from ledger import services
from ledger.entries import write
from ledger.models import ClosingStatement, Entry, Rollup
from tests.factories import HOUR, T0, T1, make_job, make_period, make_pool, make_tree
from tests.ledger_world import CREDIT, close, give, write_entry
from tests.test_ledger_races import all_at_once

pytestmark = pytest.mark.django_db
needs_row_locks = pytest.mark.skipif(
    connection.vendor != "postgresql", reason="a transaction excludes all others on SQLite"
)
on_postgresql = pytest.mark.skipif(connection.vendor != "postgresql", reason="PostgreSQL's own")
BORDER = T0 + HOUR
REFUSAL = "the period is closed: write the entry in the open one"
# IntegrityError on both: a check is violated.


def an_entry(budget: Budget, period: Period, key: str, kind: str = "adjust") -> Entry:
    return Entry(
        kind=kind, budget=budget, period=period, at=T0, amount_mgpus=5, key=key, created_at=T0
    )


@pytest.mark.parametrize("kind", Entry.Kind.values)
def test_no_entry_of_any_kind_goes_into_a_closed_period(tree: dict[str, Budget], kind: str) -> None:
    period = make_period(status="closed")
    with pytest.raises(IntegrityError, match=REFUSAL), transaction.atomic():
        write([an_entry(tree["orlo"], period, "late", kind)])
    assert not Entry.objects.exists()
    assert not Rollup.objects.exists()


COLUMNS = [str(field.column) for field in Entry._meta.concrete_fields if not field.primary_key]
NAMES = ", ".join(COLUMNS)
COPIED = ", ".join("'copy'" if name == "key" else name for name in COLUMNS)
FROM_ONE = ", ".join("'copy'" if name == "key" else f"one.{name}" for name in COLUMNS)
PLAIN = f"INSERT INTO ledger_entry ({NAMES}) SELECT {COPIED} FROM ledger_entry WHERE true"
ON_BOTH = [PLAIN, f"{PLAIN} ON CONFLICT (key) DO NOTHING"]
ON_POSTGRESQL = [
    f"WITH one AS ({PLAIN} RETURNING id) SELECT id FROM one",
    f"MERGE INTO ledger_entry USING (SELECT {NAMES} FROM ledger_entry) one ON false "
    f"WHEN NOT MATCHED THEN INSERT ({NAMES}) VALUES ({FROM_ONE})",
]
ON_SQLITE = [PLAIN.replace("INSERT", f"INSERT OR {what}") for what in ("REPLACE", "IGNORE")]


@pytest.mark.parametrize(
    "sql", ON_BOTH + (ON_POSTGRESQL if connection.vendor == "postgresql" else ON_SQLITE)
)
def test_nor_by_plain_sql(tree: dict[str, Budget], sql: str) -> None:
    """Looked at by rows or by statements, the database has no way of inserting around it."""
    period = make_period()
    write_entry_of(tree["orlo"], period, "early")
    Period.objects.filter(pk=period.pk).update(status="closed")
    with (
        pytest.raises(IntegrityError, match=REFUSAL),
        transaction.atomic(),
        connection.cursor() as cursor,
    ):
        cursor.execute(sql)
    assert list(Entry.objects.values_list("key", flat=True)) == ["early"]


@on_postgresql
def test_nor_by_copying_a_file_in(tree: dict[str, Budget]) -> None:
    shut = make_period("shut", ends_at=BORDER, status="closed")
    running = make_period("running", starts_at=BORDER)
    write_entry_of(tree["orlo"], running, "early")
    at = COLUMNS.index("period_id")

    def copy_in() -> None:
        with transaction.atomic(), connection.cursor() as cursor:
            cursor.execute(f"SELECT {COPIED} FROM ledger_entry")
            row = list(cursor.fetchone())
            with cursor.copy(f"COPY ledger_entry ({NAMES}) FROM STDIN") as lines:
                lines.write_row([*row[:at], shut.pk, *row[at + 1 :]])

    with pytest.raises(CheckViolation, match=REFUSAL):
        copy_in()
    assert list(Entry.objects.values_list("key", flat=True)) == ["early"]


def write_entry_of(budget: Budget, period: Period, key: str) -> None:
    write_entry(
        kind="adjust", budget=budget, period=period, at=T0, amount_mgpus=5, key=key, created_at=T0
    )


def test_of_many_entries_one_in_a_closed_period_keeps_all_out(tree: dict[str, Budget]) -> None:
    shut = make_period("shut", ends_at=BORDER, status="closed")
    running = make_period("running", starts_at=BORDER)
    many = [an_entry(tree["orlo"], running, str(number)) for number in range(20)]
    many.insert(10, an_entry(tree["orlo"], shut, "late"))
    with pytest.raises(IntegrityError, match=REFUSAL), transaction.atomic():
        write(many)
    assert not Entry.objects.exists()
    assert not Rollup.objects.exists()


@pytest.mark.parametrize("status", ["approved", "active"])
def test_a_period_that_is_not_closed_takes_entries(tree: dict[str, Budget], status: str) -> None:
    """What runs is charged in an approved period too, before it has been started."""
    write_entry_of(tree["orlo"], make_period(status=status), "in time")
    assert Entry.objects.get().key == "in time"


def test_what_is_left_set_aside_is_given_back_while_the_period_closes(
    tree: dict[str, Budget],
) -> None:
    """The last entries of a period, and its statement with them; then nothing more."""
    petrel, period = tree["orlo/science/petrel"], make_period(ends_at=BORDER)
    give(petrel, 9, period)
    make_pool()
    services.place_hold(job=make_job(petrel), amount_mgpus=7 * CREDIT, now=T0)
    close(2)
    services.close_period(period=period, at=BORDER)
    assert Period.objects.get(pk=period.pk).status == period.status == "closed"
    last = Entry.objects.latest("pk")
    assert (last.kind, last.period, last.amount_mgpus) == ("release", period, 7 * CREDIT)
    assert ClosingStatement.objects.get(budget=petrel).released_mgpus == 7 * CREDIT
    with pytest.raises(services.LedgerError, match="isn't active: only an active period is closed"):
        services.close_period(period=period, at=BORDER)
    with pytest.raises(IntegrityError, match=REFUSAL), transaction.atomic():
        write_entry_of(petrel, period, "late")


# --- Two at once ----------------------------------------------------------------------------------


def beside(work: Callable[[], Any]) -> Any:
    """Run work on a connection of its own, waiting a moment for locks; return what came of it."""

    @transaction.atomic
    def patient() -> Any:
        with connection.cursor() as cursor:
            cursor.execute("SET LOCAL lock_timeout = '300ms'")
        return work()

    return all_at_once(lambda _: patient(), 1)[0]


def shut(period: Period) -> int:
    """Close a period as somebody might who doesn't take the ledger's lock."""
    return Period.objects.filter(pk=period.pk).update(status="closed")


@needs_row_locks
@pytest.mark.django_db(transaction=True)
def test_closing_waits_for_an_entry_that_is_being_written() -> None:
    orlo, period = make_tree()["orlo"], make_period()
    with transaction.atomic():
        write_entry_of(orlo, period, "in time")
        waited = beside(lambda: shut(period))
    assert isinstance(waited, OperationalError)
    assert "lock timeout" in str(waited)
    assert beside(lambda: shut(period)) == 1


@needs_row_locks
@pytest.mark.django_db(transaction=True)
def test_an_entry_waits_for_a_period_that_is_being_closed_and_is_refused() -> None:
    orlo, period = make_tree()["orlo"], make_period()
    found: list[Any] = []

    def late() -> None:
        found.extend(all_at_once(lambda _: write_entry_of(orlo, period, "late"), 1))

    writer = threading.Thread(target=late)
    with transaction.atomic():
        shut(period)
        writer.start()
        time.sleep(0.3)
        assert not found, "it has to wait: nobody knows yet what becomes of the period"
    writer.join()
    assert isinstance(found[0], IntegrityError)
    assert REFUSAL in str(found[0])
    assert not Entry.objects.exists()


@needs_row_locks
@pytest.mark.django_db(transaction=True)
def test_two_who_write_entries_do_not_wait_for_each_other() -> None:
    """Other than for the ledger's own lock, which neither has here; nor does a new checkpoint."""
    orlo, period = make_tree()["orlo"], make_period()
    with transaction.atomic():
        Entry.objects.bulk_create([an_entry(orlo, period, "one")])
        other = beside(lambda: Entry.objects.bulk_create([an_entry(orlo, period, "two")]))
        capacity = beside(lambda: period.capacities.create(
            pool=make_pool(), gpu_seconds=1, rate_per_mille=1000
        ))  # fmt: skip
    assert isinstance(other, list), other
    assert not isinstance(capacity, BaseException), capacity
    assert Entry.objects.count() == 2


@needs_row_locks
@pytest.mark.django_db(transaction=True)
def test_an_approval_does_not_wait_for_a_tick_that_writes_entries() -> None:
    """Nor could it lock one period while a tick, which holds the next, turns that one."""
    orlo, first = make_tree()["orlo"], make_period("first", ends_at=BORDER)
    second = make_period("second", starts_at=BORDER, ends_at=T1 - HOUR)
    some = {make_pool(): 1}
    third = make_period("third", starts_at=T1 - HOUR, status="draft", capacity=some)
    with transaction.atomic():
        write_entry_of(orlo, second, "in time")
        approved = beside(lambda: periods.approve_period(period=third))
        shut(first)
    assert not isinstance(approved, BaseException), approved
    assert set(Period.objects.values_list("name", "status")) == {
        ("first", "closed"),
        ("second", "active"),
        ("third", "approved"),
    }


@needs_row_locks
@pytest.mark.django_db(transaction=True)
def test_of_two_approvals_that_overlap_one_waits_for_the_other() -> None:
    one = make_period("one", status="draft", capacity={make_pool(): 1})
    other = make_period("other", status="proposed")
    with transaction.atomic():
        periods.approve_period(period=one)
        waited = beside(lambda: periods.approve_period(period=other))
    assert isinstance(waited, OperationalError)
    with pytest.raises(Refused, match="other overlaps one"):
        periods.approve_period(period=other)
