"""What budgets were called before they were renamed: rows that never change.

Until now no rename was kept, so each budget has had its present name from its creation on, and
there is nothing to fill in.
"""

from typing import Any

import django.db.models.deletion
from django.conf import settings
from django.db import migrations, models

TABLE = "budgets_formername"
VERBS = ("update", "delete")

SQLITE = """
CREATE TRIGGER {table}_no_{verb} BEFORE {verb} ON {table}
BEGIN SELECT RAISE(ABORT, '{table} never changes'); END
"""

POSTGRESQL_FUNCTION = """
CREATE FUNCTION budgets_name_never_changes() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION '% never changes', TG_TABLE_NAME USING ERRCODE = 'check_violation';
END $$
"""

POSTGRESQL = """
CREATE TRIGGER {table}_no_{verb} BEFORE {verb} ON {table}
FOR EACH ROW EXECUTE FUNCTION budgets_name_never_changes()
"""


def create(apps: Any, schema_editor: Any) -> None:
    on_postgresql = schema_editor.connection.vendor == "postgresql"
    if on_postgresql:
        schema_editor.execute(POSTGRESQL_FUNCTION, params=None)
    for verb in VERBS:
        sql = POSTGRESQL if on_postgresql else SQLITE
        schema_editor.execute(sql.format(table=TABLE, verb=verb), params=None)


def drop(apps: Any, schema_editor: Any) -> None:
    on_postgresql = schema_editor.connection.vendor == "postgresql"
    for verb in VERBS:
        suffix = f" ON {TABLE}" if on_postgresql else ""
        schema_editor.execute(f"DROP TRIGGER {TABLE}_no_{verb}{suffix}", params=None)
    if on_postgresql:
        schema_editor.execute("DROP FUNCTION budgets_name_never_changes()", params=None)


class Migration(migrations.Migration):
    dependencies = (
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
        ("budgets", "0006_approvals_lock_no_key"),
    )

    operations = (
        migrations.CreateModel(
            name="FormerName",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                ("slug", models.SlugField()),
                ("name", models.CharField(max_length=100)),
                ("until", models.DateTimeField()),
                (
                    "author",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="+",
                        to=settings.AUTH_USER_MODEL,
                    ),
                ),
                (
                    "budget",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="former_names",
                        to="budgets.budget",
                    ),
                ),
            ],
            options={"ordering": ("until", "id")},
        ),
        migrations.RunPython(create, drop),
    )
