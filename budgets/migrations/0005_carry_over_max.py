"""The most that an organisation takes along into a period."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = (("budgets", "0004_plans_and_checkpoints"),)
    operations = (
        migrations.AddField(
            model_name="period",
            name="carry_over_max_mgpus",
            field=models.PositiveBigIntegerField(blank=True, null=True),
        ),
    )
