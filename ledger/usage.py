"""Fair-share usage: a windowed number for ordering, never money."""

from collections import defaultdict
from datetime import datetime

from django.db.models import Q

from clusters.reading import reading
from ledger.decay import ONE, Decay, rounded_up
from ledger.figures import segment_bounds
from ledger.instants import span, to_seconds
from ledger.models import Entry
from ledger.running import Uncharged
from ledger.stretches import cover
from ledger.totals import Total


@reading()
def usage_window(
    *,
    start: datetime,
    end: datetime,
    now: datetime,
    half_life_hours: int = 0,
    uncharged: Uncharged | None = None,
) -> dict[int, int]:
    """Return funded GPU-seconds × rate per mille in [start, end), by the budgets that ran.

    Charges wholly inside count in full, those at the window's edges by the whole seconds inside;
    what runs since the last close counts up to ``now``. Real time is in it, unfunded never.
    Refunds don't change it: the GPUs were used. With a half-life, what was charged in an hour that
    is `a` hours before the window's end counts 2^(−a ÷ half-life) of it; each sum is rounded up
    once, so that nothing used is ever nothing. ``uncharged``: what runs, where it is read already.
    """
    start, end = span(start, end)
    window = to_seconds(start), to_seconds(end)
    decay = Decay(window[1], half_life_hours)
    found = cover(decay.marks(*window))
    used: dict[int, int] = defaultdict(int)  # amounts × weights
    for sums in found.rollups():
        charges = sums.filter(kind=Entry.Kind.CHARGE, funded=True)
        if half_life_hours:
            rows = charges.values_list("budget_id", "amount_mgpus", "since")
            for budget_id, amount, since in rows.iterator(chunk_size=5000):
                used[budget_id] += amount * decay.weight(since)
        else:
            totals = charges.values_list("budget_id").annotate(total=Total("amount_mgpus"))
            for budget_id, total in totals:
                used[budget_id] += total * ONE
    for edge in found.charges():
        inside = Q(at__gte=start, until__lte=end)
        whole = edge.filter(inside, funded=True).values_list("budget_id", "at")
        for budget_id, at, total in whole.annotate(total=Total("amount_mgpus")):
            used[budget_id] += total * decay.weight(to_seconds(at))
        for charge in edge.filter(~inside, funded=True):
            bounds = segment_bounds(charge)
            part = _part(charge.amount_mgpus, bounds, window)
            used[charge.budget_id] += part * decay.weight(bounds[0])
    until = min(end, now)
    if uncharged is None or not uncharged.is_in(start, until):
        uncharged = Uncharged(since=start, until=until)
    for budget_id, amount in uncharged.amounts().items():
        used[budget_id] += amount * ONE
    return {pk: rounded_up(weighted) for pk, weighted in sorted(used.items()) if weighted}


def _part(amount: int, bounds: tuple[int, int], window: tuple[int, int]) -> int:
    """Return what of an amount, even over its seconds, lies in the window."""
    start, end = bounds
    inside = max(0, min(end, window[1]) - max(start, window[0]))
    return amount * inside // (end - start)
