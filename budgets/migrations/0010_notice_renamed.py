from django.db import migrations, models

KINDS = (
    ("asked", "Asked"),
    ("decided", "Decided"),
    ("withdrawn", "Withdrawn"),
    ("expired", "Expired"),
    ("transferred", "Transferred"),
    ("by_hand", "Credits by hand"),
    ("ended", "Ended"),
    ("checkpoint", "Checkpoint ahead"),
    ("taken", "Taken back"),
    ("renamed", "Renamed"),
)


class Migration(migrations.Migration):
    dependencies = (("budgets", "0009_notice_by_hand"),)

    operations = (
        migrations.AlterField("notice", "kind", models.CharField(max_length=16, choices=KINDS)),
    )
