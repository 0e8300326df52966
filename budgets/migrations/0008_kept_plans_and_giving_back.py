from importlib import import_module

from django.db import migrations, models
from django.db.models import Q

TRIGGERS = import_module("budgets.migrations.0004_plans_and_checkpoints")


class Migration(migrations.Migration):
    dependencies = (("budgets", "0007_former_names"),)

    operations = (
        migrations.AddField("budgetplan", "kept_until", models.DateTimeField(blank=True, null=True)),
        migrations.AddField("checkpoint", "gives_back", models.BooleanField(default=False)),
        migrations.AddField("checkpoint", "initial_only", models.BooleanField(default=False)),
        # SQLite rebuilds the table of results, and loses its triggers with it.
        migrations.RunPython(TRIGGERS.drop, TRIGGERS.create),
        migrations.AddField("checkpointresult", "returned_mgpus", models.BigIntegerField(default=0)),
        migrations.AddConstraint(
            "checkpointresult",
            models.CheckConstraint(
                condition=Q(returned_mgpus=0) | Q(returned_mgpus__gt=0, taken_mgpus=0),
                name="taken_or_returned",
            ),
        ),
        migrations.RunPython(TRIGGERS.create, TRIGGERS.drop),
    )
