"""A refused extension counts those like it; the database lets nothing but that count move."""

from typing import Any

from django.db import migrations, models

TABLE = "workloads_extension"
COUNTED = ("again", "again_at")
STAYS = (
    *("id", "run_id", "asked_by_id", "asked_at", "asked_s", "ended_at", "asked_until"),
    *("rule", "data", "idempotency_key"),
)

SQLITE = f"""
CREATE TRIGGER {TABLE}_no_update BEFORE UPDATE ON {TABLE}
WHEN NOT (NEW.again > OLD.again AND {" AND ".join(f"NEW.{one} IS OLD.{one}" for one in STAYS)})
BEGIN SELECT RAISE(ABORT, '{TABLE} is append-only'); END
"""
SQLITE_BEFORE = f"""
CREATE TRIGGER {TABLE}_no_update BEFORE UPDATE ON {TABLE}
BEGIN SELECT RAISE(ABORT, '{TABLE} is append-only'); END
"""
SQLITE_DELETE = f"""
CREATE TRIGGER {TABLE}_no_delete BEFORE DELETE ON {TABLE}
BEGIN SELECT RAISE(ABORT, '{TABLE} is append-only'); END
"""

POSTGRESQL_FUNCTION = f"""
CREATE OR REPLACE FUNCTION {TABLE}_counts() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF NEW.again > OLD.again AND
       to_jsonb(NEW) - '{{{",".join(COUNTED)}}}'::text[]
       = to_jsonb(OLD) - '{{{",".join(COUNTED)}}}'::text[] THEN
        RETURN NEW;
    END IF;
    RAISE EXCEPTION '% is append-only', TG_TABLE_NAME USING ERRCODE = 'check_violation';
END $$
"""
POSTGRESQL = """
CREATE TRIGGER {table}_no_update BEFORE UPDATE ON {table}
FOR EACH ROW EXECUTE FUNCTION {function}()
"""


def open_up(apps: Any, schema_editor: Any) -> None:
    """SQLite makes the table anew for a column with a default, which loses its triggers anyway."""
    if schema_editor.connection.vendor == "postgresql":
        schema_editor.execute(f"DROP TRIGGER {TABLE}_no_update ON {TABLE}")
    else:
        for verb in ("update", "delete"):
            schema_editor.execute(f"DROP TRIGGER IF EXISTS {TABLE}_no_{verb}")


def close(apps: Any, schema_editor: Any) -> None:
    if schema_editor.connection.vendor == "postgresql":
        schema_editor.execute(POSTGRESQL_FUNCTION, params=None)
        schema_editor.execute(POSTGRESQL.format(table=TABLE, function=f"{TABLE}_counts"))
    else:
        schema_editor.execute(SQLITE)
        schema_editor.execute(SQLITE_DELETE)


def close_as_before(apps: Any, schema_editor: Any) -> None:
    if schema_editor.connection.vendor == "postgresql":
        schema_editor.execute(POSTGRESQL.format(table=TABLE, function="workloads_append_only"))
        schema_editor.execute(f"DROP FUNCTION {TABLE}_counts()")
    else:
        schema_editor.execute(SQLITE_BEFORE)
        schema_editor.execute(SQLITE_DELETE)


class Migration(migrations.Migration):
    # SQLite drops triggers when Django rebuilds a table: a later change of this one must create
    # them again.
    dependencies = (("workloads", "0008_calibration"),)
    operations = (
        migrations.RunPython(open_up, close_as_before),
        migrations.AddField("extension", "again", models.PositiveIntegerField(default=0)),
        migrations.AddField("extension", "again_at", models.DateTimeField(blank=True, null=True)),
        migrations.RunPython(close, open_up),
    )
