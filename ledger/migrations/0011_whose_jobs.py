"""What a job settled is kept with who submitted it: people are ranked without reading jobs."""

from importlib import import_module
from typing import Any

from django.conf import settings
from django.db import migrations, models
from django.db.models import PROTECT

before = import_module("ledger.migrations.0010_settled_by_jobs")
FILL = f"""
INSERT INTO ledger_jobsettled
    (job_id, period_id, budget_id, person_id, settled_mgpus, gpu_seconds)
SELECT one.job_id, one.period_id, one.budget_id, job.submitted_by_id,
    SUM(CASE one.kind WHEN 'refund' THEN -one.amount_mgpus ELSE one.amount_mgpus END),
    SUM(one.gpu_seconds)
FROM ledger_entry one JOIN workloads_job job ON job.id = one.job_id
WHERE one.kind IN {before.KINDS}
GROUP BY one.job_id, one.period_id, one.budget_id, job.submitted_by_id
ORDER BY one.job_id, one.period_id, one.budget_id
"""


def empty(apps: Any, schema_editor: Any) -> None:
    """Leave nothing that has no person; written anew, rows have room beside them again."""
    on_postgresql = schema_editor.connection.vendor == "postgresql"
    schema_editor.execute(f"{'TRUNCATE' if on_postgresql else 'DELETE FROM'} ledger_jobsettled")


def fill(apps: Any, schema_editor: Any) -> None:
    _whole(schema_editor)
    schema_editor.execute(FILL)


def fill_as_before(apps: Any, schema_editor: Any) -> None:
    _whole(schema_editor)
    schema_editor.execute(before.FILL)


def _whole(schema_editor: Any) -> None:
    """Django has written SQLite's table anew, without its trigger."""
    if schema_editor.connection.vendor == "sqlite":
        schema_editor.execute(before.WHOLE)


class Migration(migrations.Migration):
    dependencies = (
        ("ledger", "0010_settled_by_jobs"),
        ("workloads", "0002_indexes_of_logs"),
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
    )
    operations = (
        migrations.RunPython(empty, fill_as_before),
        migrations.AddField(
            model_name="jobsettled",
            name="person",
            field=models.ForeignKey(
                to=settings.AUTH_USER_MODEL, db_index=False, on_delete=PROTECT, related_name="+"
            ),
        ),
        migrations.RunPython(fill, empty),
    )
