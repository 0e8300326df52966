from django.db import migrations, models
from django.db.models import Max, Q


def close_doubles(apps, schema_editor):
    """Of those that were raised twice at once the newest stays open."""
    open_now = apps.get_model("allocator", "Alarm").objects.filter(cleared_at=None)
    newest = open_now.order_by().values("kind").annotate(last=Max("pk"))
    for alarm in open_now.exclude(pk__in=list(newest.values_list("last", flat=True))):
        alarm.cleared_at = alarm.raised_at
        alarm.save(update_fields=["cleared_at"])


class Migration(migrations.Migration):
    dependencies = [("allocator", "0012_simulation_events")]

    operations = [
        migrations.RunPython(close_doubles, migrations.RunPython.noop),
        migrations.AddConstraint(
            model_name="alarm",
            constraint=models.UniqueConstraint(
                condition=Q(cleared_at=None), fields=("kind",), name="one_open_alarm_per_kind"
            ),
        ),
    ]
