"""What each budget used and was entitled to in the fair-share window, as the core wants it."""

from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from fractions import Fraction
from itertools import pairwise

from django.conf import settings

from allocator.core.fairshare import budget_factors
from allocator.core.problem import BudgetNode
from budgets import shares
from clusters import services as clusters
from ledger import reports
from ledger.decay import ONE, Decay
from ledger.instants import from_seconds, to_seconds
from ledger.running import Uncharged


def window_start(at: datetime) -> datetime:
    """When the fair-share window of an instant begins."""
    return at - timedelta(days=settings.USAGE_WINDOW_DAYS)


def budget_nodes(
    *,
    tree: Mapping[int, shares.TreeNode],
    at: datetime,
    until: datetime,
    history: shares.History | None = None,
) -> tuple[BudgetNode, ...]:
    """The tree at an instant with usage and entitlement in reference GPU-seconds.

    Usage is funded GPU-seconds × rate in the window up to ``at``, rounded up, so that nobody who
    used anything counts as one who used nothing. Entitlement is effective share × healthy
    GPU-seconds × rate from the window's start to ``until``, the end of the timestep that this plan
    commits. With a half-life, older hours count less in both. ``history`` is the shares' from
    the window's start to ``until``, where it was read before.
    """
    used = usage(at=at)
    entitled = _entitled(window_start(at), until, at, history)
    return tuple(
        BudgetNode(
            path=node.budget.path,
            parent=None if node.parent_id is None else tree[node.parent_id].budget.path,
            shares=node.thousandths,
            usage=used.get(pk, 0) if node.is_leaf else 0,
            entitled=entitled.get(pk, 0),
        )
        for pk, node in tree.items()
    )


def usage(*, at: datetime, uncharged: Uncharged | None = None) -> dict[int, int]:
    """What each budget's own jobs used in the window, in reference GPU-seconds, rounded up.

    ``uncharged``: what runs, where that has been read already.
    """
    start, half_life = window_start(at), settings.USAGE_HALF_LIFE_HOURS
    used = reports.usage_window(
        start=start, end=at, now=at, half_life_hours=half_life, uncharged=uncharged
    )
    return {pk: -(-weighted // 1000) for pk, weighted in used.items()}


def factors(nodes: Iterable[BudgetNode]) -> Mapping[str, Fraction]:
    """Fair Tree factor of each leaf by path."""
    return budget_factors(nodes)


def _entitled(
    start: datetime, until: datetime, at: datetime, history: shares.History | None
) -> dict[int, int]:
    rates = clusters.rates(at=at)
    begun = clusters.in_use_since()
    decay = Decay(to_seconds(at), settings.USAGE_HALF_LIFE_HOURS)
    marks = [from_seconds(mark) for mark in decay.marks(to_seconds(start), to_seconds(until))]
    stretches = zip(pairwise(marks), clusters.healthy_by_stretch(marks=marks), strict=True)
    slices = [
        # From where there was capacity: spread over more time it would be taken for less.
        shares.CapacitySlice(
            pool, max(since, begun[pool]), end, gpus * decay.weight(to_seconds(since))
        )
        for (since, end), healthy in stretches
        for pool, gpus in healthy.items()
        if begun[pool] < end
    ]
    totals: dict[int, int] = {}
    entitled = shares.entitled_gpu_seconds(slices=slices, history=history)
    for (budget, pool), weighted in entitled.items():
        totals[budget] = totals.get(budget, 0) + weighted // ONE * rates[pool] // 1000
    return totals
