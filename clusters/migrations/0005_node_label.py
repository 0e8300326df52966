"""What people call a node beside its name: where it stands, what is special about it."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("clusters", "0004_windows_of_drains")]

    operations = [
        migrations.AddField("node", "label", models.CharField(blank=True, default="", max_length=100)),
    ]
