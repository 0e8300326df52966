"""Sums of a period and open holds read an index and never the table."""

from django.db import migrations, models


class Migration(migrations.Migration):
    # Indexes alone leave the table as it is, and with it SQLite's triggers.
    dependencies = (("ledger", "0002_append_only"),)
    operations = (
        migrations.RemoveIndex(model_name="entry", name="ledger_entr_budget__08c6fd_idx"),
        migrations.RemoveIndex(model_name="entry", name="ledger_entr_job_id_365608_idx"),
        migrations.AddIndex(
            model_name="entry",
            index=models.Index(
                fields=["period", "budget", "kind", "amount_mgpus"], name="ledger_entry_sums"
            ),
        ),
        migrations.AddIndex(
            model_name="entry",
            index=models.Index(
                fields=["job", "attempt", "period", "kind", "amount_mgpus"],
                name="ledger_entry_open_holds",
            ),
        ),
    )
