"""What a job settled in a period is one row, to rank a year's jobs without adding any up.

Until now the sums of attempts had it, by kind: they keep what is set aside and released.
"""

from typing import Any

import django.db.models.deletion
from django.db import migrations, models

REFUSAL = "the sum is more than an integer holds"
KINDS = "('charge', 'refund', 'adjust')"
FILL = f"""
INSERT INTO ledger_jobsettled (job_id, period_id, budget_id, settled_mgpus, gpu_seconds)
SELECT job_id, period_id, budget_id,
    SUM(CASE kind WHEN 'refund' THEN -amount_mgpus ELSE amount_mgpus END), SUM(gpu_seconds)
FROM ledger_entry WHERE job_id IS NOT NULL AND kind IN {KINDS}
GROUP BY job_id, period_id, budget_id ORDER BY job_id, period_id, budget_id
"""
LESS = f"DELETE FROM ledger_jobrollup WHERE kind IN {KINDS}"
BACK = f"""
INSERT INTO ledger_jobrollup
    (job_id, attempt, period_id, budget_id, kind, amount_mgpus, gpu_seconds)
SELECT job_id, attempt, period_id, budget_id, kind, SUM(amount_mgpus), SUM(gpu_seconds)
FROM ledger_entry WHERE job_id IS NOT NULL AND kind IN {KINDS}
GROUP BY job_id, attempt, period_id, budget_id, kind
"""
# SQLite would keep a sum that is beyond its integers as a float. (It drops triggers when Django
# rebuilds their table: a later change of this one must create it again.)
WHOLE = (
    "CREATE TRIGGER ledger_jobsettled_whole BEFORE UPDATE ON ledger_jobsettled "
    "WHEN typeof(NEW.settled_mgpus) <> 'integer' "
    f"BEGIN SELECT RAISE(ABORT, '{REFUSAL}'); END"
)
# Every tick changes it: with room beside a row PostgreSQL leaves its indexes as they are.
ROOM = "ALTER TABLE ledger_jobsettled SET (fillfactor = 50)"


def fill(apps: Any, schema_editor: Any) -> None:
    schema_editor.execute(WHOLE if schema_editor.connection.vendor == "sqlite" else ROOM)
    schema_editor.execute(FILL)
    schema_editor.execute(LESS)


def back(apps: Any, schema_editor: Any) -> None:
    schema_editor.execute(BACK)


def _of(to: str) -> models.ForeignKey:
    return models.ForeignKey(
        to, db_index=False, on_delete=django.db.models.deletion.PROTECT, related_name="+"
    )


class Migration(migrations.Migration):
    dependencies = (
        ("budgets", "0001_initial"),
        ("ledger", "0009_less_to_write"),
        ("workloads", "0002_indexes_of_logs"),
    )
    operations = (
        migrations.CreateModel(
            name="JobSettled",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                ("settled_mgpus", models.BigIntegerField()),
                ("gpu_seconds", models.BigIntegerField()),
                ("budget", _of("budgets.budget")),
                ("job", _of("workloads.job")),
                ("period", _of("budgets.period")),
            ],
            options={
                "ordering": ("job", "period", "id"),
                "constraints": (
                    models.UniqueConstraint(
                        fields=["job", "period", "budget"], name="one_sum_settled_by_a_job"
                    ),
                ),
            },
        ),
        migrations.AddIndex(
            model_name="jobsettled", index=models.Index(fields=["period", "budget"], name="ledger_jobs_period__28701c_idx")
        ),
        migrations.RunPython(fill, back),
    )
