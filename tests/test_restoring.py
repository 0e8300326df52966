"""A dump of the database, restored: as a whole, and its rows alone into a migrated one.

A dump empties the search path of its session, in which functions of triggers have to find their
tables all the same. And triggers judge how rows come about: rows alone are restored past them, as
docs/install.md says.
"""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from django.db import IntegrityError, connection, transaction

from budgets.models import Budget, ChangeSet, Period
from ledger.models import Entry
from tests.addresses import database_url
from tests.burn_world import END, odd_ledger
from tests.factories import HOUR, LONG_AGO, T0, make_period, make_tree, someone
from tests.ledger_world import give

ROOT = Path(__file__).resolve().parent.parent
TOOLS = ("pg_dump", "pg_restore", "psql")
pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.skipif(connection.vendor != "postgresql", reason="PostgreSQL's own"),
]
with_tools = pytest.mark.skipif(
    not all(map(shutil.which, TOOLS)), reason="PostgreSQL's client programs aren't installed"
)


@pytest.fixture
def tree() -> dict[str, Budget]:
    return make_tree(at=LONG_AGO)


@pytest.fixture
def ledger(tree: dict[str, Budget]) -> None:
    """A closed period, and one that runs with entries of every kind in it."""
    past = make_period("past", starts_at=T0 - 4 * HOUR, ends_at=T0)
    give(tree["orlo/science/petrel"], 7, past)
    Period.objects.filter(pk=past.pk).update(status=Period.Status.CLOSED)
    odd_ledger(tree)


@pytest.fixture
def other() -> Iterator[str]:
    """The address of an empty database beside this one."""
    here = database_url()
    name = f"{urlsplit(here).path[1:]}_restored"
    psql(here, f'DROP DATABASE IF EXISTS "{name}"')
    psql(here, f'CREATE DATABASE "{name}"')
    yield urlsplit(here)._replace(path=f"/{name}").geturl()
    psql(here, f'DROP DATABASE "{name}" WITH (FORCE)')


def run(*command: str) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    return done.stdout


def psql(address: str, sql: str) -> str:
    return run("psql", "--quiet", "--tuples-only", "--no-align", "-c", sql, address)


def dumped(folder: Path, *options: str) -> str:
    file = str(folder / f"{len(list(folder.iterdir()))}.dump")
    run("pg_dump", "--format", "custom", "--file", file, *options, database_url())
    return file


def restore(file: str, address: str, *options: str) -> None:
    run("pg_restore", "--exit-on-error", "--single-transaction", *options, "-d", address, file)


def rows(address: str) -> dict[str, str]:
    """Return of every table how many rows it has, and what they come to."""
    tables = psql(address, "SELECT tablename FROM pg_tables WHERE schemaname = 'public'")
    each = "SELECT '{0}', count(*), md5(string_agg(one::text, ';' ORDER BY one::text)) FROM {0} one"
    found = psql(address, " UNION ALL ".join(each.format(table) for table in tables.split()))
    return dict(line.split("|", 1) for line in found.splitlines())


def reconciled(address: str) -> str:
    return subprocess.run(
        [sys.executable, "manage.py", "reconcile"],
        cwd=ROOT,
        env=os.environ | {"DATABASE_URL": address},
        capture_output=True,
        text=True,
        check=False,
    ).stdout


@with_tools
def test_a_dump_of_all_is_restored(ledger: None, other: str, tmp_path: Path) -> None:
    file, before = dumped(tmp_path), rows(database_url())
    restore(file, other)
    assert rows(other) == before
    restore(file, other, "--clean", "--if-exists")
    assert rows(other) == before
    assert reconciled(other) == reconciled(database_url()) != ""


@with_tools
def test_rows_alone_are_restored_past_the_triggers(
    ledger: None, other: str, tmp_path: Path
) -> None:
    restore(dumped(tmp_path, "--schema-only"), other)
    text = (ROOT / "docs/install.md").read_text()
    (emptied,) = re.findall(r'"(TRUNCATE [^"]*)"', text)
    psql(other, emptied)
    restore(dumped(tmp_path, "--data-only"), other, "--data-only", "--disable-triggers")
    assert rows(other) == rows(database_url())
    assert reconciled(other) == reconciled(database_url()) != ""
    with pytest.raises(AssertionError, match="append-only"):
        psql(other, "DELETE FROM ledger_entry")


@with_tools
def test_entries_alone_are_restored_with_the_triggers(
    tree: dict[str, Budget], other: str, tmp_path: Path
) -> None:
    """They find their tables without a search path, and let pass what may be written."""
    odd_ledger(tree)
    restore(dumped(tmp_path, "--exclude-table-data=ledger_entry"), other)
    restore(dumped(tmp_path, "--data-only", "--table=ledger_entry"), other)
    assert rows(other) == rows(database_url())


def test_triggers_judge_the_same_without_a_search_path(tree: dict[str, Budget]) -> None:
    period = odd_ledger(tree)
    row = Entry.objects.filter(kind="charge").values().first()
    assert row is not None
    science = ChangeSet.objects.get(parent=tree["orlo/science"])
    insert = (
        "INSERT INTO public.ledger_entry (kind, budget_id, period_id, at, amount_mgpus, "
        "attempt, gpu_seconds, parked_gpu_seconds, funded, note, key, created_at) "
        "VALUES ('grant', {budget}, {period}, now(), 1, 0, 0, 0, true, '', '{key}', now())"
    )
    good = insert.format(budget=science.parent_id, period=period.pk, key="x")
    mine, its = f"WHERE id = {science.parent_id}", f"WHERE change_set_id = {science.pk}"
    refused = {
        "of no row of budgets_budget": insert.format(budget=0, period=period.pk, key="y"),
        "has rows that entries point at": "TRUNCATE public.budgets_budget CASCADE",
        "entry's budget_id is of row": f"DELETE FROM public.budgets_budget {mine}",
        "never change": f"UPDATE public.budgets_share SET thousandths = 1 {its}",
        "since its base": (
            "UPDATE public.budgets_changeset SET status = 'approved' WHERE status = 'draft'"
        ),
    }
    ChangeSet.objects.create(
        parent=science.parent, version=7, reason="x", author=someone(), created_at=T0,
        effective_at=END,
    )  # fmt: skip
    for says, sql in {"": good, **refused}.items():
        with transaction.atomic(), connection.cursor() as cursor:
            cursor.execute("SELECT pg_catalog.set_config('search_path', '', true)")
            if not says:
                cursor.execute(sql)
            else:
                with pytest.raises(IntegrityError, match=says), transaction.atomic():
                    cursor.execute(sql)
            transaction.set_rollback(True)


def test_every_function_that_reads_a_table_names_its_schema() -> None:
    """CREATE OR REPLACE FUNCTION forgets it: a migration that does that has to say it again."""
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT proname, proconfig FROM pg_proc WHERE pronamespace = 'public'::regnamespace "
            "AND prorettype = 'trigger'::regtype AND prosrc ~ 'FROM'"
        )
        found = dict(cursor.fetchall())
    assert len(found) == 14
    assert {
        name for name, told in found.items() if told != ["search_path=public, pg_temp"]
    } == set()


def test_nobody_s_table_stands_in_for_ours(tree: dict[str, Budget]) -> None:
    """Else a session could hide an approved set from the trigger behind a table of its own."""
    science = ChangeSet.objects.get(parent=tree["orlo/science"])
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute("CREATE TEMPORARY TABLE budgets_changeset (id bigint, status text)")
        with pytest.raises(IntegrityError, match="never change"), transaction.atomic():
            cursor.execute(f"DELETE FROM public.budgets_share WHERE change_set_id = {science.pk}")
        transaction.set_rollback(True)
