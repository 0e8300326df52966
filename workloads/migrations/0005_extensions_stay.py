"""The database itself refuses to change or delete what was answered about more time."""

from typing import Any

from django.db import migrations

TABLE = "workloads_extension"

SQLITE = """
CREATE TRIGGER {table}_no_{verb} BEFORE {VERB} ON {table}
BEGIN SELECT RAISE(ABORT, '{table} is append-only'); END
"""

POSTGRESQL_FUNCTION = """
CREATE OR REPLACE FUNCTION workloads_append_only() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION '% is append-only', TG_TABLE_NAME USING ERRCODE = 'check_violation';
END $$
"""

POSTGRESQL = """
CREATE TRIGGER {table}_no_{verb} BEFORE {VERB} ON {table}
FOR EACH ROW EXECUTE FUNCTION workloads_append_only()
"""
VERBS = ("update", "delete")


def create(apps: Any, schema_editor: Any) -> None:
    on_postgresql = schema_editor.connection.vendor == "postgresql"
    if on_postgresql:
        schema_editor.execute(POSTGRESQL_FUNCTION, params=None)
    for verb in VERBS:
        sql = POSTGRESQL if on_postgresql else SQLITE
        schema_editor.execute(sql.format(table=TABLE, verb=verb, VERB=verb.upper()))


def drop(apps: Any, schema_editor: Any) -> None:
    on_postgresql = schema_editor.connection.vendor == "postgresql"
    for verb in VERBS:
        suffix = f" ON {TABLE}" if on_postgresql else ""
        schema_editor.execute(f"DROP TRIGGER {TABLE}_no_{verb}{suffix}")
    if on_postgresql:
        schema_editor.execute("DROP FUNCTION workloads_append_only()")


class Migration(migrations.Migration):
    # SQLite drops triggers when Django rebuilds a table: a later change of this one must create
    # them again.
    dependencies = (("workloads", "0004_sessions"),)
    operations = (migrations.RunPython(create, drop),)
