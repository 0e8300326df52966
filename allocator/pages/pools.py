"""Pools and what they cost: now, since when, and what is to come."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.db.models import Count, Q, Sum

from budgets.access import Person, may_administer
from clusters.models import Node, Pool, PoolRate


@dataclass(frozen=True)
class PoolLine:
    """A pool; ``rates`` the newest first, ``rate_per_mille`` that of now."""

    pool: Pool
    nodes: int
    gpus: int
    rate_per_mille: int
    rates: list[PoolRate]


@dataclass(frozen=True)
class PoolsPage:
    lines: list[PoolLine]
    may_change: bool
    now: datetime


def page(user: Person, *, now: datetime) -> PoolsPage:
    """Return what the page shows. A constant number of queries."""
    active = Q(active_from__lte=now) & (Q(active_until=None) | Q(active_until__gt=now))
    sums = Node.objects.filter(active).order_by().values("pool_id")
    counted = {row["pool_id"]: row for row in sums.annotate(nodes=Count("pk"), all=Sum("gpus"))}
    rates: dict[int, list[PoolRate]] = {}
    for rate in PoolRate.objects.order_by("-effective_at"):
        rates.setdefault(rate.pool_id, []).append(rate)
    lines = []
    for pool in Pool.objects.select_related("cluster"):
        mine: list[PoolRate] = rates.get(pool.pk, [])
        count: Any = counted.get(pool.pk, {})
        held = (rate.rate_per_mille for rate in mine if rate.effective_at <= now)
        number, gpus = count.get("nodes", 0), count.get("all", 0)
        lines.append(PoolLine(pool, number, gpus, next(held, 1000), mine))
    return PoolsPage(lines, may_administer(user), now)
