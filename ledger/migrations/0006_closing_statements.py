"""Closing statements, which the database itself refuses to change or delete."""

from typing import Any

import django.db.models.deletion
from django.db import migrations, models

SQLITE = """
CREATE TRIGGER ledger_closingstatement_no_{verb} BEFORE {VERB} ON ledger_closingstatement
BEGIN SELECT RAISE(ABORT, 'ledger_closingstatement is append-only: write a reversing entry'); END
"""

# The function is that of entries.
POSTGRESQL = """
CREATE TRIGGER ledger_closingstatement_no_{verb} BEFORE {VERB} ON ledger_closingstatement
FOR EACH ROW EXECUTE FUNCTION ledger_append_only()
"""
VERBS = ("update", "delete")


def create(apps: Any, schema_editor: Any) -> None:
    statement = POSTGRESQL if schema_editor.connection.vendor == "postgresql" else SQLITE
    for verb in VERBS:
        schema_editor.execute(statement.format(verb=verb, VERB=verb.upper()))


def drop(apps: Any, schema_editor: Any) -> None:
    on_postgresql = schema_editor.connection.vendor == "postgresql"
    where = " ON ledger_closingstatement" if on_postgresql else ""
    for verb in VERBS:
        schema_editor.execute(f"DROP TRIGGER ledger_closingstatement_no_{verb}{where}")


class Migration(migrations.Migration):
    dependencies = [
        ("budgets", "0005_carry_over_max"),
        ("ledger", "0005_fill_rollups"),
    ]

    operations = [
        migrations.CreateModel(
            name="ClosingStatement",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                ("path", models.CharField(max_length=400)),
                ("name", models.CharField(max_length=100)),
                ("closed_at", models.DateTimeField()),
                ("granted_mgpus", models.BigIntegerField()),
                ("carried_mgpus", models.BigIntegerField()),
                ("transferred_mgpus", models.BigIntegerField()),
                ("charged_mgpus", models.BigIntegerField()),
                ("refunded_mgpus", models.BigIntegerField()),
                ("adjusted_mgpus", models.BigIntegerField()),
                ("settled_mgpus", models.BigIntegerField()),
                ("released_mgpus", models.BigIntegerField()),
                ("charged_gpu_seconds", models.BigIntegerField()),
                ("parked_gpu_seconds", models.BigIntegerField()),
                ("unfunded_gpu_seconds", models.BigIntegerField()),
                ("owed_gpu_seconds", models.BigIntegerField(null=True)),
                ("delivered_gpu_seconds", models.BigIntegerField(null=True)),
                (
                    "budget",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="+",
                        to="budgets.budget",
                    ),
                ),
                (
                    "period",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="statements",
                        to="budgets.period",
                    ),
                ),
            ],
            options={
                "ordering": ("period_id", "path", "id"),
                "constraints": [
                    models.UniqueConstraint(
                        fields=("period", "budget"), name="one_closing_statement_per_budget"
                    )
                ],
            },
        ),
        migrations.RunPython(create, drop),
    ]
