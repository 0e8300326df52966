"""SQLite itself refuses a sum that is beyond its integers, which it would keep as a float.

PostgreSQL refuses it by itself: the column is a bigint.
"""

from typing import Any

from django.db import migrations

REFUSAL = "the sum is more than an integer holds"
TABLES = ("ledger_rollup", "ledger_jobrollup")


def create(apps: Any, schema_editor: Any) -> None:
    if schema_editor.connection.vendor != "sqlite":
        return
    # What is inserted comes from Python, whose driver refuses it; what is added up is updated.
    for table in TABLES:
        schema_editor.execute(
            f"CREATE TRIGGER {table}_whole BEFORE UPDATE ON {table} "
            "WHEN typeof(NEW.amount_mgpus) <> 'integer' "
            f"BEGIN SELECT RAISE(ABORT, '{REFUSAL}'); END"
        )


def drop(apps: Any, schema_editor: Any) -> None:
    if schema_editor.connection.vendor != "sqlite":
        return
    for table in TABLES:
        schema_editor.execute(f"DROP TRIGGER {table}_whole")


class Migration(migrations.Migration):
    # SQLite drops triggers when Django rebuilds their table: a later change of sums must create
    # these again.
    dependencies = (("ledger", "0007_no_entry_in_a_closed_period"),)
    operations = (migrations.RunPython(create, drop),)
