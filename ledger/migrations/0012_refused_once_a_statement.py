"""What an entry points at is looked up once a statement; and no table of entries is emptied.

PostgreSQL's foreign keys look at each row of five columns by itself: a tick of 2,000 runs took a
fifth of its time for 26,000 looks at some thousand rows. The same is refused as before, on both
sides, by triggers: an entry that points at nothing, and that what an entry points at goes or gets
another number. Entries never change or go, so nothing else can come to point at nothing. SQLite
keeps its foreign keys.
"""

from collections.abc import Iterator
from typing import Any

from django.db import migrations

# Column of an entry, and what it points at; in the order in which others lock these rows.
POINTS_AT = (
    ("period_id", "budgets_period"),
    ("budget_id", "budgets_budget"),
    ("job_id", "workloads_job"),
    ("run_id", "workloads_run"),
    ("pool_id", "clusters_pool"),
)
EMPTIED = ("ledger_entry", "ledger_closedtimestep")

# FOR KEY SHARE is what a foreign key takes: it waits for who deletes the row, and keeps them
# waiting until this transaction ends; then their own trigger sees the entry.
_LOOK = """
    SELECT array_agg(DISTINCT {column}) INTO wanted FROM added WHERE {column} IS NOT NULL;
    SELECT count(*) INTO found FROM (
        SELECT FROM {table} WHERE id = ANY (wanted) ORDER BY id FOR KEY SHARE
    ) kept;
    IF found < cardinality(wanted) THEN
        RAISE EXCEPTION 'an entry''s {column} is of no row of {table}'
            USING ERRCODE = 'foreign_key_violation';
    END IF;
"""
_LOOKS = "".join(_LOOK.format(column=column, table=table) for column, table in POINTS_AT)
LOOK = f"""
CREATE FUNCTION ledger_entry_points_at() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    wanted bigint[];
    found bigint;
BEGIN
{_LOOKS}
    RETURN NULL;
END $$;
CREATE TRIGGER ledger_entry_points_at AFTER INSERT ON ledger_entry
REFERENCING NEW TABLE AS added
FOR EACH STATEMENT EXECUTE FUNCTION ledger_entry_points_at()
"""
KEEP = """
CREATE FUNCTION {table}_kept_by_entries() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF TG_OP = 'UPDATE' THEN
        IF NEW.id = OLD.id THEN
            RETURN NULL;
        END IF;
    END IF;
    IF EXISTS (SELECT FROM ledger_entry WHERE {column} = OLD.id) THEN
        RAISE EXCEPTION 'an entry''s {column} is of row % of {table}', OLD.id
            USING ERRCODE = 'foreign_key_violation';
    END IF;
    RETURN NULL;
END $$;
CREATE TRIGGER ledger_kept_by_entries AFTER DELETE OR UPDATE OF id ON {table}
FOR EACH ROW EXECUTE FUNCTION {table}_kept_by_entries();
CREATE FUNCTION {table}_not_emptied() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF EXISTS (SELECT FROM ledger_entry) THEN
        RAISE EXCEPTION '{table} has rows that entries point at'
            USING ERRCODE = 'foreign_key_violation';
    END IF;
    RETURN NULL;
END $$;
CREATE TRIGGER ledger_not_emptied BEFORE TRUNCATE ON {table}
FOR EACH STATEMENT EXECUTE FUNCTION {table}_not_emptied()
"""
LET_GO = """
DROP TRIGGER ledger_kept_by_entries ON {table};
DROP FUNCTION {table}_kept_by_entries();
DROP TRIGGER ledger_not_emptied ON {table};
DROP FUNCTION {table}_not_emptied()
"""
NOT_EMPTIED = """
CREATE TRIGGER {table}_not_emptied BEFORE TRUNCATE ON {table}
FOR EACH STATEMENT EXECUTE FUNCTION ledger_append_only()
"""


def look_once(apps: Any, schema_editor: Any) -> None:
    if schema_editor.connection.vendor != "postgresql":
        return
    for statement in (LOOK, *(KEEP.format(column=of, table=table) for of, table in POINTS_AT)):
        schema_editor.execute(statement, params=None)
    for name in _foreign_keys(schema_editor):
        quoted = schema_editor.quote_name(name)
        schema_editor.execute(f"ALTER TABLE ledger_entry DROP CONSTRAINT {quoted}")
    for table in EMPTIED:
        schema_editor.execute(NOT_EMPTIED.format(table=table))


def look_by_row(apps: Any, schema_editor: Any) -> None:
    if schema_editor.connection.vendor != "postgresql":
        return
    for table in EMPTIED:
        schema_editor.execute(f"DROP TRIGGER {table}_not_emptied ON {table}")
    for column, table in POINTS_AT:
        schema_editor.execute(
            f"ALTER TABLE ledger_entry ADD CONSTRAINT ledger_entry_{column}_fk FOREIGN KEY "
            f"({column}) REFERENCES {table} (id) DEFERRABLE INITIALLY DEFERRED"
        )
        schema_editor.execute(LET_GO.format(table=table), params=None)
    schema_editor.execute("DROP TRIGGER ledger_entry_points_at ON ledger_entry")
    schema_editor.execute("DROP FUNCTION ledger_entry_points_at()")


def _foreign_keys(schema_editor: Any) -> Iterator[str]:
    """Yield the names of those that the triggers stand in for."""
    connection, columns = schema_editor.connection, {column for column, _ in POINTS_AT}
    with connection.cursor() as cursor:
        found = connection.introspection.get_constraints(cursor, "ledger_entry")
    for name, one in found.items():
        if one["foreign_key"] and columns.issuperset(one["columns"]):
            yield name


class Migration(migrations.Migration):
    # A later change of one of these columns has Django make its foreign key again: drop it there.
    dependencies = (("ledger", "0011_whose_jobs"),)
    operations = (migrations.RunPython(look_once, look_by_row),)
