"""What a tick writes goes into few indexes: none that begins another, none that nobody reads.

A timestep of 2,000 runs is 6,000 entries, each of which went into thirteen indexes. An index on a
foreign key alone is read for nothing where another begins with that column; few entries have an
author, and keys are looked for by their beginning among what is decided only.
"""

from collections.abc import Iterable
from typing import Any

from django.conf import settings
from django.db import migrations, models
from django.db.models import PROTECT, ForeignKey

NO_INDEX = (
    ("ledger", "entry", ("author", "job", "period", "pool", "run")),
    ("ledger", "rollup", ("budget",)),
    ("ledger", "jobrollup", ("job", "period")),
)
# A row that every tick changes: with room beside it PostgreSQL leaves its indexes as they are.
ROOM = (
    ("ledger", "jobrollup", 40),
    ("ledger", "rollup", 50),
    ("workloads", "run", 50),
)
REFUSAL = "the period is closed: write the entry in the open one"

# Once a statement: row by row, finding the same period again took a third of the insert. Who closes
# a period holds its row FOR NO KEY UPDATE; FOR SHARE waits for that, reads what it has become, and
# keeps it waiting. Rows that were inserted before the wait go with the statement that is refused.
BY_STATEMENT = (
    "DROP TRIGGER ledger_entry_not_closed ON ledger_entry",
    f"""
CREATE OR REPLACE FUNCTION ledger_entry_not_closed() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    one bigint;
    found text;
BEGIN
    FOR one IN SELECT DISTINCT period_id FROM added ORDER BY period_id LOOP
        SELECT status INTO found FROM budgets_period WHERE id = one FOR SHARE;
        IF found = 'closed' THEN
            RAISE EXCEPTION '{REFUSAL}' USING ERRCODE = 'check_violation';
        END IF;
    END LOOP;
    RETURN NULL;
END $$
""",
    """
CREATE TRIGGER ledger_entry_not_closed AFTER INSERT ON ledger_entry
REFERENCING NEW TABLE AS added
FOR EACH STATEMENT EXECUTE FUNCTION ledger_entry_not_closed()
""",
)
BY_ROW = (
    "DROP TRIGGER ledger_entry_not_closed ON ledger_entry",
    f"""
CREATE OR REPLACE FUNCTION ledger_entry_not_closed() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    found text;
BEGIN
    SELECT status INTO found FROM budgets_period WHERE id = NEW.period_id FOR SHARE;
    IF found = 'closed' THEN
        RAISE EXCEPTION '{REFUSAL}' USING ERRCODE = 'check_violation';
    END IF;
    RETURN NEW;
END $$
""",
    """
CREATE TRIGGER ledger_entry_not_closed BEFORE INSERT ON ledger_entry
FOR EACH ROW EXECUTE FUNCTION ledger_entry_not_closed()
""",
)


def write_less(apps: Any, schema_editor: Any) -> None:
    for name, _, _ in _indexes(apps, schema_editor):
        schema_editor.execute(f"DROP INDEX IF EXISTS {schema_editor.quote_name(name)}")
    _on_postgresql(schema_editor, (*BY_STATEMENT, *_room(apps, "SET (fillfactor = {room})")))


def write_more(apps: Any, schema_editor: Any) -> None:
    quote = schema_editor.quote_name
    for name, table, column in _indexes(apps, schema_editor):
        columns = quote(column) + (" varchar_pattern_ops" if name.endswith("_like") else "")
        schema_editor.execute(f"CREATE INDEX {quote(name)} ON {quote(table)} ({columns})")
    _on_postgresql(schema_editor, (*BY_ROW, *_room(apps, "RESET (fillfactor)")))


def _indexes(apps: Any, schema_editor: Any) -> Iterable[tuple[str, str, str]]:
    """Yield name, table and column of each index that goes, as it was named when it was made."""
    for app, model_name, fields in NO_INDEX:
        table = apps.get_model(app, model_name)._meta.db_table
        for field in fields:
            column = f"{field}_id"
            yield schema_editor._create_index_name(table, [column]), table, column
    if schema_editor.connection.vendor == "postgresql":
        # It comes with a unique text; SQLite has none.
        table = apps.get_model("ledger", "entry")._meta.db_table
        yield schema_editor._create_index_name(table, ["key"], suffix="_like"), table, "key"


def _room(apps: Any, what: str) -> Iterable[str]:
    for app, model_name, room in ROOM:
        table = apps.get_model(app, model_name)._meta.db_table
        yield f"ALTER TABLE {table} {what.format(room=room)}"


def _on_postgresql(schema_editor: Any, statements: Iterable[str]) -> None:
    if schema_editor.connection.vendor == "postgresql":
        for statement in statements:
            schema_editor.execute(statement, params=None)


def _alter(model_name: str, name: str, to: str, **options: Any) -> migrations.AlterField:
    field: ForeignKey = ForeignKey(
        to, on_delete=PROTECT, db_index=False, **{"related_name": "+", **options}
    )
    return migrations.AlterField(model_name=model_name, name=name, field=field)


OPTIONAL = {"null": True, "blank": True}


class Migration(migrations.Migration):
    # The columns stay as they are, and Django would write SQLite's tables anew, without triggers.
    dependencies = (
        ("ledger", "0008_whole_sums"),
        ("workloads", "0002_indexes_of_logs"),
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
    )
    operations = (
        migrations.SeparateDatabaseAndState(
            database_operations=[migrations.RunPython(write_less, write_more)],
            state_operations=[
                _alter("entry", "author", settings.AUTH_USER_MODEL, **OPTIONAL),
                _alter("entry", "job", "workloads.job", **OPTIONAL),
                _alter("entry", "period", "budgets.period", related_name="entries"),
                _alter("entry", "pool", "clusters.pool", **OPTIONAL),
                _alter("entry", "run", "workloads.run", related_name="entries", **OPTIONAL),
                _alter("rollup", "budget", "budgets.budget"),
                _alter("jobrollup", "job", "workloads.job"),
                _alter("jobrollup", "period", "budgets.period"),
            ],
        ),
        migrations.AddIndex(
            model_name="entry",
            index=models.Index(
                fields=["author"],
                condition=models.Q(author__isnull=False),
                name="ledger_entry_by_hand",
            ),
        ),
        migrations.AddIndex(
            model_name="entry",
            index=models.Index(
                fields=["key"],
                condition=models.Q(kind__in=["grant", "carry", "transfer"]),
                opclasses=["varchar_pattern_ops"],
                name="ledger_entry_decisions",
            ),
        ),
    )
