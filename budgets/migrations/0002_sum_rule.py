"""The database itself keeps the sum rule and the order of change sets.

When a set becomes approved, the shares of the parent's children may not pass 100 % in any pool
and no other set of that parent may have been approved since its base. Afterwards neither the
set nor its rows change.
"""

from typing import Any

from django.db import migrations

OVER_100 = """
EXISTS (
    SELECT 1 FROM (
        SELECT DISTINCT pool_id FROM budgets_share WHERE change_set_id = NEW.id
    ) pools
    WHERE (
        SELECT SUM(COALESCE(
            (SELECT o.thousandths FROM budgets_share o
             WHERE o.change_set_id = NEW.id AND o.budget_id = b.budget_id
               AND o.pool_id = pools.pool_id),
            b.thousandths))
        FROM budgets_share b WHERE b.change_set_id = NEW.id AND b.pool_id IS NULL
    ) > 100000
)
"""

WITHOUT_BASE = """
EXISTS (
    SELECT 1 FROM budgets_share o
    WHERE o.change_set_id = NEW.id AND o.pool_id IS NOT NULL AND NOT EXISTS (
        SELECT 1 FROM budgets_share b
        WHERE b.change_set_id = NEW.id AND b.budget_id = o.budget_id AND b.pool_id IS NULL)
)
"""

OUT_OF_ORDER = """
NEW.version <> 1 + COALESCE(
    (SELECT MAX(version) FROM budgets_changeset
     WHERE parent_id = NEW.parent_id AND status = 'approved'), 0)
"""

RULES = (
    (OVER_100, "the shares of one parent total more than 100 % in a pool"),
    (WITHOUT_BASE, "a pool override needs a share to override"),
    (OUT_OF_ORDER, "another change set of this parent was approved since its base"),
)

SQLITE = (
    [
        f"""CREATE TRIGGER budgets_changeset_rule_{number} BEFORE UPDATE ON budgets_changeset
    WHEN NEW.status = 'approved' AND OLD.status <> 'approved' AND ({condition})
    BEGIN SELECT RAISE(ABORT, '{message}'); END"""
        for number, (condition, message) in enumerate(RULES, start=1)
    ]
    + [
        """CREATE TRIGGER budgets_changeset_insert BEFORE INSERT ON budgets_changeset
    WHEN NEW.status = 'approved'
    BEGIN SELECT RAISE(ABORT, 'a change set is written first, then approved'); END""",
        """CREATE TRIGGER budgets_changeset_no_update BEFORE UPDATE ON budgets_changeset
    WHEN OLD.status = 'approved'
    BEGIN SELECT RAISE(ABORT, 'an approved change set never changes'); END""",
        """CREATE TRIGGER budgets_changeset_no_delete BEFORE DELETE ON budgets_changeset
    WHEN OLD.status = 'approved'
    BEGIN SELECT RAISE(ABORT, 'an approved change set never changes'); END""",
    ]
    + [
        f"""CREATE TRIGGER budgets_share_no_{verb} BEFORE {verb.upper()} ON budgets_share
    WHEN EXISTS (SELECT 1 FROM budgets_changeset s
                 WHERE s.id IN ({ids}) AND s.status = 'approved')
    BEGIN SELECT RAISE(ABORT, 'the shares of an approved change set never change'); END"""
        for verb, ids in (
            ("insert", "NEW.change_set_id"),
            ("update", "OLD.change_set_id, NEW.change_set_id"),
            ("delete", "OLD.change_set_id"),
        )
    ]
)

POSTGRESQL_RULES = "\n".join(
    f"""IF ({condition}) THEN
        RAISE EXCEPTION '{message.replace("%", "%%")}' USING ERRCODE = 'check_violation';
    END IF;"""
    for condition, message in RULES
)

POSTGRESQL = [
    f"""CREATE FUNCTION budgets_changeset_rules() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF TG_OP = 'INSERT' THEN
        IF NEW.status = 'approved' THEN
            RAISE EXCEPTION 'a change set is written first, then approved'
                USING ERRCODE = 'check_violation';
        END IF;
        RETURN NEW;
    END IF;
    IF OLD.status = 'approved' THEN
        RAISE EXCEPTION 'an approved change set never changes' USING ERRCODE = 'check_violation';
    END IF;
    IF TG_OP = 'DELETE' THEN RETURN OLD; END IF;
    IF NEW.status = 'approved' THEN
        -- Two approvals at once, on a connection that did not lock the parent itself.
        PERFORM 1 FROM budgets_budget WHERE id = NEW.parent_id FOR UPDATE;
        {POSTGRESQL_RULES}
    END IF;
    RETURN NEW;
END $$""",
    """CREATE TRIGGER budgets_changeset_rules BEFORE INSERT OR UPDATE OR DELETE
    ON budgets_changeset FOR EACH ROW EXECUTE FUNCTION budgets_changeset_rules()""",
    """CREATE FUNCTION budgets_share_rules() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    -- A row written while its set is being approved would escape the sum: wait for the approval.
    PERFORM 1 FROM budgets_changeset
    WHERE (TG_OP <> 'DELETE' AND id = NEW.change_set_id)
       OR (TG_OP <> 'INSERT' AND id = OLD.change_set_id)
    ORDER BY id FOR SHARE;
    IF EXISTS (SELECT 1 FROM budgets_changeset s WHERE s.status = 'approved' AND (
            (TG_OP <> 'DELETE' AND s.id = NEW.change_set_id)
            OR (TG_OP <> 'INSERT' AND s.id = OLD.change_set_id))) THEN
        RAISE EXCEPTION 'the shares of an approved change set never change'
            USING ERRCODE = 'check_violation';
    END IF;
    IF TG_OP = 'DELETE' THEN RETURN OLD; END IF;
    RETURN NEW;
END $$""",
    """CREATE TRIGGER budgets_share_rules BEFORE INSERT OR UPDATE OR DELETE
    ON budgets_share FOR EACH ROW EXECUTE FUNCTION budgets_share_rules()""",
]


def create(apps: Any, schema_editor: Any) -> None:
    on_postgresql = schema_editor.connection.vendor == "postgresql"
    for statement in POSTGRESQL if on_postgresql else SQLITE:
        schema_editor.execute(statement, params=None)


def drop(apps: Any, schema_editor: Any) -> None:
    if schema_editor.connection.vendor == "postgresql":
        for table in ("changeset", "share"):
            schema_editor.execute(f"DROP TRIGGER budgets_{table}_rules ON budgets_{table}")
            schema_editor.execute(f"DROP FUNCTION budgets_{table}_rules()")
        return
    for statement in SQLITE:
        schema_editor.execute(f"DROP TRIGGER {statement.split()[2]}")


class Migration(migrations.Migration):
    # SQLite drops triggers when Django rebuilds a table: a later change of these tables must
    # create them again.
    dependencies = (("budgets", "0001_initial"),)
    operations = (migrations.RunPython(create, drop),)
