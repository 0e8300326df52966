"""The organisation's sums by time are rows of their own: a year of them is read without budgets."""

from importlib import import_module
from typing import Any

from django.db import migrations, models
from django.db.models import PROTECT

REFUSAL = import_module("ledger.migrations.0008_whole_sums").REFUSAL
WHOSE = "size, since, period_id, kind, funded, is_realtime"
AMOUNTS = ("amount_mgpus", "gpu_seconds", "parked_gpu_seconds", "parked_mgpus")
FILL = f"""
INSERT INTO ledger_wholerollup ({WHOSE}, {", ".join(AMOUNTS)})
SELECT {WHOSE}, {", ".join(f"SUM({name})" for name in AMOUNTS)}
FROM ledger_rollup WHERE size <> 0 GROUP BY {WHOSE} ORDER BY {WHOSE}
"""
# SQLite would keep a sum that is beyond its integers as a float. (It drops triggers when Django
# rebuilds their table: a later change of this one must create it again.)
WHOLE = (
    "CREATE TRIGGER ledger_wholerollup_whole BEFORE UPDATE ON ledger_wholerollup "
    "WHEN typeof(NEW.amount_mgpus) <> 'integer' "
    f"BEGIN SELECT RAISE(ABORT, '{REFUSAL}'); END"
)
# Every tick changes it: with room beside a row PostgreSQL leaves its index as it is.
ROOM = "ALTER TABLE ledger_wholerollup SET (fillfactor = 50)"
KINDS = (
    *(("grant", "Grant"), ("carry", "Carry-over"), ("transfer", "Transfer"), ("hold", "Hold")),
    *(("release", "Release"), ("charge", "Charge"), ("adjust", "Adjustment")),
    ("refund", "Refund"),
)
SIZES = ((0, "Period"), (1, "Local day"), (3600, "Hour"), (86400, "Day"), (604800, "Week"))


def fill(apps: Any, schema_editor: Any) -> None:
    schema_editor.execute(WHOLE if schema_editor.connection.vendor == "sqlite" else ROOM)
    schema_editor.execute(FILL)


class Migration(migrations.Migration):
    dependencies = (
        ("budgets", "0002_sum_rule"),
        ("ledger", "0012_refused_once_a_statement"),
    )
    operations = (
        migrations.CreateModel(
            name="WholeRollup",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                ("size", models.PositiveIntegerField(choices=SIZES)),
                ("since", models.BigIntegerField()),
                ("kind", models.CharField(choices=KINDS, max_length=8)),
                ("funded", models.BooleanField()),
                ("is_realtime", models.BooleanField()),
                *((name, models.BigIntegerField()) for name in AMOUNTS),
                (
                    "period",
                    models.ForeignKey(on_delete=PROTECT, related_name="+", to="budgets.period"),
                ),
            ],
            options={
                "ordering": ("size", "since", "id"),
                "constraints": (
                    models.UniqueConstraint(
                        fields=["size", "since", "period", "kind", "funded", "is_realtime"],
                        name="one_whole_rollup_each",
                    ),
                ),
            },
        ),
        migrations.RunPython(fill, migrations.RunPython.noop),
    )
