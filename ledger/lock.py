"""The one lock under which money is set aside, moved or spent."""

from django.db import connection

from budgets.models import Budget


def lock_ledger() -> None:
    """Wait for everyone else who writes holds, charges or grants; free at the transaction's end.

    Whatever is made less available is made so in a root too, so locking the roots excludes as
    much as locking whole chains, and can't deadlock however many budgets one transaction
    touches. Take it after the rows of jobs and runs, never before. ``no_key``: rows that merely
    point at a budget may still be written. On SQLite the transaction itself excludes.
    """
    assert connection.in_atomic_block, "the lock lives as long as a transaction"
    if not connection.features.has_select_for_update:
        return
    roots = Budget.objects.filter(parent=None).select_for_update(no_key=True)
    list(roots.order_by("pk").values_list("pk"))
