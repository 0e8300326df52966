from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("forecasting", "0006_demand_scores")]

    operations = [
        migrations.AddField(
            model_name="forecast", name="sentences", field=models.JSONField(default=list)
        ),
    ]
