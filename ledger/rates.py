"""Dated rates of the pools: what a GPU-second costs at an instant, per mille."""

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable
from datetime import datetime
from itertools import pairwise

from clusters.models import PoolRate
from ledger.instants import to_seconds

REFERENCE = 1000  # per mille: a pool without a rate counts as the reference GPU


class Rates:
    """Every pool's rates. A rate holds from its instant on; before the first one it is 1000."""

    def __init__(self, rows: Iterable[tuple[int, int, int]]) -> None:
        """Take rows of (pool id, seconds since 1970, rate per mille)."""
        self._since: dict[int, list[int]] = defaultdict(list)
        self._rate: dict[int, list[int]] = defaultdict(list)
        self._prices: dict[tuple[int, int, int], int] = {}
        for pool_id, since, rate in sorted(rows):
            self._since[pool_id].append(since)
            self._rate[pool_id].append(rate)

    @classmethod
    def load(cls) -> "Rates":
        rows = PoolRate.objects.values_list("pool_id", "effective_at", "rate_per_mille")
        return cls((pool_id, to_seconds(at), rate) for pool_id, at, rate in rows)

    def at(self, pool_id: int, seconds: int) -> int:
        """Return the rate per mille in force."""
        index = bisect_right(self._since.get(pool_id, []), seconds) - 1
        return self._rate[pool_id][index] if index >= 0 else REFERENCE

    def changes(self, pool_id: int) -> list[int]:
        """Return the instants (seconds) at which the pool's rate may change, in order."""
        return self._since.get(pool_id, [])

    def pools(self) -> list[int]:
        """Return the pools that have a rate of their own, in order."""
        return sorted(self._since)

    def instants(self) -> set[int]:
        """Return the instants (seconds) at which any pool's rate may change."""
        return {since for mine in self._since.values() for since in mine}

    def price(self, pool_id: int, start: int, end: int) -> int:
        """Return what one GPU costs from start to end (seconds), in milli-GPU-seconds."""
        known = self._prices.get((pool_id, start, end))
        if known is None:
            inner = [since for since in self.changes(pool_id) if start < since < end]
            marks = pairwise([start, *inner, end])
            known = sum(self.at(pool_id, a) * (b - a) for a, b in marks)
            self._prices[pool_id, start, end] = known  # most runs of a timestep last all of it
        return known

    def highest(self, pool_ids: Iterable[int], at: datetime) -> int:
        """Return the highest rate among the pools at an instant."""
        return max(self.at(pool_id, to_seconds(at)) for pool_id in pool_ids)
