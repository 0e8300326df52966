"""An approval locks its parent as everything else does: so that entries may name it meanwhile.

``FOR UPDATE`` kept the foreign keys of a tick's entries waiting at its commit, while the approval
waited for the ledger that the tick had locked: one of the two was lost to a deadlock.
"""

from importlib import import_module
from typing import Any

from django.db import migrations

RULES = import_module("budgets.migrations.0002_sum_rule").POSTGRESQL[0]
REPLACED = RULES.replace("CREATE FUNCTION", "CREATE OR REPLACE FUNCTION")


def lock_no_key(apps: Any, schema_editor: Any) -> None:
    if schema_editor.connection.vendor == "postgresql":
        schema_editor.execute(REPLACED.replace("FOR UPDATE;", "FOR NO KEY UPDATE;"), params=None)


def lock(apps: Any, schema_editor: Any) -> None:
    if schema_editor.connection.vendor == "postgresql":
        schema_editor.execute(REPLACED, params=None)


class Migration(migrations.Migration):
    dependencies = (("budgets", "0005_carry_over_max"),)
    operations = (migrations.RunPython(lock_no_key, lock),)
