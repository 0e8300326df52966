from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("allocator", "0009_simulation_left")]

    operations = [
        migrations.AddField(
            model_name="alarm", name="sentence", field=models.JSONField(default=dict)
        ),
    ]
