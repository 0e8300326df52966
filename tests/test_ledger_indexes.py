"""A tick writes thousands of rows: into no index that is read for nothing."""

import re
from collections.abc import Iterator

import pytest
from django.db import connection, models

from budgets.models import Budget
from ledger.kept import CHANGES
from ledger.models import Entry, JobRollup, JobSettled, Rollup, WholeRollup
from tests.factories import T0, make_period
from tests.ledger_world import write_entry

pytestmark = pytest.mark.django_db
on_postgresql = pytest.mark.skipif(connection.vendor != "postgresql", reason="PostgreSQL's own")


def columns_of_indexes(model: type[models.Model]) -> Iterator[tuple[str, list[str]]]:
    """Yield the indexes of all rows. Those of a part are written for that part only."""
    of_a_part = {index.name for index in model._meta.indexes if index.condition}
    with connection.cursor() as cursor:
        found = connection.introspection.get_constraints(cursor, model._meta.db_table)
    for name, one in found.items():
        if (one["index"] or one["unique"]) and one["columns"] and name not in of_a_part:
            yield name, one["columns"]


@pytest.mark.parametrize("model", [Entry, Rollup, WholeRollup, JobRollup, JobSettled])
def test_no_index_begins_another(model: type[models.Model]) -> None:
    indexes = dict(columns_of_indexes(model))
    needless = [
        name
        for name, columns in indexes.items()
        for other, longer in indexes.items()
        if name != other and longer[: len(columns)] == columns
    ]
    assert len(indexes) >= 2
    assert needless == []


def test_only_entries_by_hand_are_kept_by_their_author() -> None:
    indexes = dict(columns_of_indexes(Entry)).values()
    assert not [columns for columns in indexes if columns[0] in ("author_id", "pool_id")]
    by_hand = next(one for one in Entry._meta.indexes if one.name == "ledger_entry_by_hand")
    assert by_hand.condition == models.Q(author__isnull=False)


def drop_indexes_but(kept: str) -> None:
    """Leave entries one index, so that a plan tells whether it can serve, not whether it is best.

    Which one is best is a matter of statistics. The test's transaction rolls this back.
    """
    others = """
        SELECT indexrelid::regclass::text, conname FROM pg_index
        LEFT JOIN pg_constraint ON conindid = indexrelid AND conrelid = indrelid
        WHERE indrelid = 'ledger_entry'::regclass AND NOT indisprimary
        AND indexrelid <> %s::regclass
    """
    with connection.cursor() as cursor:
        cursor.execute("SET CONSTRAINTS ALL IMMEDIATE")  # or what is written would stand in the way
        cursor.execute(others, [kept])
        for index, constraint in cursor.fetchall():
            dropped = f'ALTER TABLE ledger_entry DROP CONSTRAINT "{constraint}"'
            cursor.execute(dropped if constraint else f"DROP INDEX {index}")


@on_postgresql
def test_a_change_sets_entries_are_found_by_the_beginning_of_their_keys(
    tree: dict[str, Budget],
) -> None:
    period = make_period()
    for number in range(3):
        key = f"{CHANGES}{number}:{tree['orlo'].pk}"
        values = {"budget": tree["orlo"], "period": period, "at": T0, "amount_mgpus": 0}
        write_entry(kind="grant", key=key, created_at=T0, **values)
    found = Entry.objects.filter(kind="grant", key__startswith=f"{CHANGES}1:").order_by()
    assert found.count() == 1
    drop_indexes_but("ledger_entry_decisions")
    with connection.cursor() as cursor:
        cursor.execute("SET LOCAL enable_seqscan = off")
    plan = found.explain()
    assert "ledger_entry_decisions" in plan
    assert re.search(r"Index Cond: .*key.* ~>=~ 'grant:change:1:'", plan)  # and the beginning leads


@on_postgresql
def test_rows_that_every_tick_changes_have_room_beside_them() -> None:
    with connection.cursor() as cursor:
        cursor.execute("SELECT relname, reloptions FROM pg_class WHERE reloptions IS NOT NULL")
        rooms = dict(cursor.fetchall())
    assert rooms["ledger_jobrollup"] == ["fillfactor=40"]
    assert rooms["ledger_jobsettled"] == ["fillfactor=50"]
    assert rooms["ledger_rollup"] == ["fillfactor=50"]
    assert rooms["ledger_wholerollup"] == ["fillfactor=50"]
    assert rooms["workloads_run"] == ["fillfactor=50"]
