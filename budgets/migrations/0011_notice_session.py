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
    ("session", "Session ends"),
)


class Migration(migrations.Migration):
    dependencies = (("budgets", "0010_notice_renamed"),)

    operations = (
        migrations.AlterField("notice", "kind", models.CharField(max_length=16, choices=KINDS)),
    )
