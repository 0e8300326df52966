"""Fair-share usage: a windowed number for ordering, never money."""

from collections import defaultdict
from datetime import datetime
from typing import Any

from django.db.models import Q, QuerySet, Sum

from ledger.figures import segment_bounds, uncharged
from ledger.instants import span, to_seconds
from ledger.models import Entry
from ledger.stretches import cover


def usage_window(*, start: datetime, end: datetime, now: datetime) -> dict[int, int]:
    """Return funded GPU-seconds × rate per mille in [start, end), by the budgets that ran.

    Charges wholly inside count in full, those at the window's edges by the whole seconds inside;
    what runs since the last close counts up to ``now``. Real time is in it, unfunded never.
    Refunds don't change it: the GPUs were used.
    """
    start, end = span(start, end)
    window = to_seconds(start), to_seconds(end)
    found = cover(window)
    used: dict[int, int] = defaultdict(int)
    for sums in found.rollups():
        _add(used, sums.filter(kind=Entry.Kind.CHARGE, funded=True))
    for charges in found.charges():
        inside = Q(at__gte=start, until__lte=end)
        _add(used, charges.filter(inside, funded=True))
        for charge in charges.filter(~inside, funded=True):
            used[charge.budget_id] += _part(charge.amount_mgpus, segment_bounds(charge), window)
    for part in uncharged(since=start, until=min(end, now)):
        used[part.budget_id] += part.amount_mgpus
    return {budget_id: amount for budget_id, amount in sorted(used.items()) if amount}


def _add(used: dict[int, int], rows: QuerySet[Any]) -> None:
    for budget_id, total in rows.values_list("budget_id").annotate(total=Sum("amount_mgpus")):
        used[budget_id] += total


def _part(amount: int, bounds: tuple[int, int], window: tuple[int, int]) -> int:
    """Return what of an amount, even over its seconds, lies in the window."""
    start, end = bounds
    inside = max(0, min(end, window[1]) - max(start, window[0]))
    return amount * inside // (end - start)
