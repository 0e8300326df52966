"""What each budget used and was entitled to in the fair-share window, as the core wants it."""

from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from fractions import Fraction

from django.conf import settings

from allocator.core.fairshare import budget_factors
from allocator.core.problem import BudgetNode
from budgets import shares
from clusters import services as clusters
from ledger import reports


def budget_nodes(
    *, tree: Mapping[int, shares.TreeNode], at: datetime, until: datetime
) -> tuple[BudgetNode, ...]:
    """The tree at an instant with usage and entitlement in reference GPU-seconds.

    Usage is funded GPU-seconds × rate in the window up to ``at``. Entitlement is effective share
    × healthy GPU-seconds × rate from the window's start to ``until``, the end of the timestep
    that this plan commits.
    """
    start = at - timedelta(days=settings.USAGE_WINDOW_DAYS)
    used = reports.usage_window(start=start, end=at, now=at)
    entitled = _entitled(start, until, at)
    return tuple(
        BudgetNode(
            path=node.budget.path,
            parent=None if node.parent_id is None else tree[node.parent_id].budget.path,
            shares=node.thousandths,
            usage=used.get(pk, 0) // 1000 if node.is_leaf else 0,
            entitled=entitled.get(pk, 0),
        )
        for pk, node in tree.items()
    )


def factors(nodes: Iterable[BudgetNode]) -> Mapping[str, Fraction]:
    """Fair Tree factor of each leaf by path."""
    return budget_factors(nodes)


def _entitled(start: datetime, until: datetime, at: datetime) -> dict[int, int]:
    healthy = clusters.healthy_gpu_seconds(start=start, end=until)
    rates = clusters.rates(at=at)
    begun = clusters.in_use_since()
    slices = [
        # From where there was capacity: spread over more time it would be taken for less.
        shares.CapacitySlice(pool, max(start, begun[pool]), until, gpus)
        for pool, gpus in healthy.items()
        if begun[pool] < until
    ]
    totals: dict[int, int] = {}
    for (budget, pool), seconds in shares.entitled_gpu_seconds(slices=slices).items():
        totals[budget] = totals.get(budget, 0) + seconds * rates[pool] // 1000
    return totals
