"""The database itself refuses to change or delete what the ledger holds."""

from typing import Any

from django.db import migrations

TABLES = ("ledger_entry", "ledger_closedtimestep")

SQLITE = """
CREATE TRIGGER {table}_no_{verb} BEFORE {VERB} ON {table}
BEGIN SELECT RAISE(ABORT, '{table} is append-only: write a reversing entry'); END
"""

POSTGRESQL_FUNCTION = """
CREATE OR REPLACE FUNCTION ledger_append_only() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION '% is append-only: write a reversing entry', TG_TABLE_NAME
        USING ERRCODE = 'check_violation';
END $$
"""

POSTGRESQL = """
CREATE TRIGGER {table}_no_{verb} BEFORE {VERB} ON {table}
FOR EACH ROW EXECUTE FUNCTION ledger_append_only()
"""


def each_trigger() -> list[dict[str, str]]:
    return [
        {"table": table, "verb": verb, "VERB": verb.upper()}
        for table in TABLES
        for verb in ("update", "delete")
    ]


def create(apps: Any, schema_editor: Any) -> None:
    on_postgresql = schema_editor.connection.vendor == "postgresql"
    if on_postgresql:
        schema_editor.execute(POSTGRESQL_FUNCTION, params=None)
    for names in each_trigger():
        schema_editor.execute((POSTGRESQL if on_postgresql else SQLITE).format(**names))


def drop(apps: Any, schema_editor: Any) -> None:
    on_postgresql = schema_editor.connection.vendor == "postgresql"
    for names in each_trigger():
        suffix = f" ON {names['table']}" if on_postgresql else ""
        schema_editor.execute(f"DROP TRIGGER {names['table']}_no_{names['verb']}{suffix}")
    if on_postgresql:
        schema_editor.execute("DROP FUNCTION ledger_append_only()")


class Migration(migrations.Migration):
    # SQLite drops triggers when Django rebuilds a table: a later change of these tables must
    # create them again.
    dependencies = (("ledger", "0001_initial"),)
    operations = (migrations.RunPython(create, drop),)
