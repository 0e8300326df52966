"""Functions of triggers name the schema that they look in, whatever the session's search path is.

`pg_restore` and the SQL of `pg_dump` empty it, and a statement then failed for want of a table. So
does nobody's temporary table, of the same name as one of ours, stand in for it any more.
"""

from typing import Any

from django.db import migrations

POINTED_AT = ("budgets_budget", "budgets_period", "clusters_pool", "workloads_job", "workloads_run")
FUNCTIONS = (
    "budgets_changeset_rules",
    "budgets_share_rules",
    "ledger_entry_not_closed",
    "ledger_entry_points_at",
    *(f"{table}_{what}" for table in POINTED_AT for what in ("kept_by_entries", "not_emptied")),
)


def fix(apps: Any, schema_editor: Any) -> None:
    if schema_editor.connection.vendor != "postgresql":
        return
    with schema_editor.connection.cursor() as cursor:
        cursor.execute("SELECT quote_ident(current_schema())")
        (schema,) = cursor.fetchone()
    for name in FUNCTIONS:
        schema_editor.execute(
            f"ALTER FUNCTION {schema}.{name}() SET search_path = {schema}, pg_temp", params=None
        )


def loosen(apps: Any, schema_editor: Any) -> None:
    if schema_editor.connection.vendor == "postgresql":
        for name in FUNCTIONS:
            schema_editor.execute(f"ALTER FUNCTION {name}() RESET search_path", params=None)


class Migration(migrations.Migration):
    # CREATE OR REPLACE FUNCTION forgets it: a later change of one of these must say it again.
    dependencies = (
        ("budgets", "0014_signing_in"),
        ("ledger", "0013_whole_rollups"),
    )
    operations = (migrations.RunPython(fix, loosen),)
