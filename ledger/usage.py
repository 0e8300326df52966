"""Fair-share usage: a windowed number for ordering, never money."""

from collections import defaultdict
from datetime import datetime, timedelta

from django.db.models import Q, Sum

from ledger.figures import segment_bounds, uncharged
from ledger.instants import span, to_seconds
from ledger.models import Entry

LONGEST_TIMESTEP = timedelta(hours=24)


def usage_window(*, start: datetime, end: datetime, now: datetime) -> dict[int, int]:
    """Return funded GPU-seconds × rate per mille in [start, end), by the budgets that ran.

    Charges wholly inside count in full, those at the window's edges by the whole seconds inside;
    what runs since the last close counts up to ``now``. Real time is in it, unfunded never.
    Refunds don't change it: the GPUs were used.
    """
    start, end = span(start, end)
    charges = Entry.objects.filter(
        *(Q(kind=Entry.Kind.CHARGE), Q(funded=True)),
        # No segment is longer than a timestep, so these find all of them by the index.
        *(Q(timestep__gt=start - LONGEST_TIMESTEP), Q(timestep__lt=end)),
    ).order_by()
    inside = charges.filter(at__gte=start, until__lte=end)
    used: dict[int, int] = defaultdict(int)
    for budget_id, total in inside.values_list("budget_id").annotate(total=Sum("amount_mgpus")):
        used[budget_id] += total
    at_edge = charges.filter(Q(at__lt=start, until__gt=start) | Q(at__lt=end, until__gt=end))
    window = to_seconds(start), to_seconds(end)
    for charge in at_edge:
        used[charge.budget_id] += _part(charge.amount_mgpus, segment_bounds(charge), window)
    for part in uncharged(since=start, until=min(end, now)):
        used[part.budget_id] += part.amount_mgpus
    return {budget_id: amount for budget_id, amount in sorted(used.items()) if amount}


def _part(amount: int, bounds: tuple[int, int], window: tuple[int, int]) -> int:
    """Return what of an amount, even over its seconds, lies in the window."""
    start, end = bounds
    inside = max(0, min(end, window[1]) - max(start, window[0]))
    return amount * inside // (end - start)
