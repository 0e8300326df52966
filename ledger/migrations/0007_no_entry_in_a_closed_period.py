"""The database itself refuses a new entry in a closed period: what is in it stays as it was."""

from typing import Any

from django.db import migrations

REFUSAL = "the period is closed: write the entry in the open one"

SQLITE = f"""
CREATE TRIGGER ledger_entry_not_closed BEFORE INSERT ON ledger_entry
WHEN (SELECT status FROM budgets_period WHERE id = NEW.period_id) = 'closed'
BEGIN SELECT RAISE(ABORT, '{REFUSAL}'); END
"""

# Closing locks the period FOR NO KEY UPDATE, as any update of its status does. FOR SHARE waits for
# that, and keeps it waiting; the foreign key's own lock does neither. Entries don't wait for each
# other, nor for rows that merely point at a period.
POSTGRESQL = (
    f"""
CREATE FUNCTION ledger_entry_not_closed() RETURNS trigger LANGUAGE plpgsql AS $$
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


def create(apps: Any, schema_editor: Any) -> None:
    on_postgresql = schema_editor.connection.vendor == "postgresql"
    for statement in POSTGRESQL if on_postgresql else (SQLITE,):
        schema_editor.execute(statement, params=None)


def drop(apps: Any, schema_editor: Any) -> None:
    if schema_editor.connection.vendor == "postgresql":
        schema_editor.execute("DROP TRIGGER ledger_entry_not_closed ON ledger_entry")
        schema_editor.execute("DROP FUNCTION ledger_entry_not_closed()")
        return
    schema_editor.execute("DROP TRIGGER ledger_entry_not_closed")


class Migration(migrations.Migration):
    # SQLite drops triggers when Django rebuilds their table, and can't rebuild one that another
    # table's trigger reads: a later change of entries must create this again, and one of periods
    # must drop it first.
    dependencies = (
        ("budgets", "0006_approvals_lock_no_key"),
        ("ledger", "0006_closing_statements"),
    )
    operations = (migrations.RunPython(create, drop),)
