"""The four measures from inventory to work, each now and over a span of time.

Availability = healthy ÷ inventory, occupancy = held ÷ healthy (both from the connector's log),
delivered = funded GPU-time held ÷ owed, utilization = 1 − parked ÷ held (from charges). Ratios
are integers in thousandths of a percent; None where nothing can be said.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta

import numpy as np
from django.db.models import QuerySet, Sum

from allocator import delivery, timesteps
from allocator.models import Delivery
from budgets.models import WHOLE
from clusters import states
from clusters.models import GpuState, Node
from ledger import idle

POINTS = 336  # at most, of a line: a week of half hours
State = tuple[int, int, int, int, int]
Bits = np.ndarray[tuple[int], np.dtype[np.int64]]


@dataclass(frozen=True)
class Measure:
    """A ratio now and over the span, and its line; thousandths of a percent."""

    now: int | None
    mean: int | None
    line: list[int | None]


@dataclass(frozen=True)
class Span:
    """[start, end) cut into equal parts that are whole timesteps each."""

    start: datetime
    end: datetime
    part: timedelta

    @classmethod
    def until(cls, at: datetime, *, hours: int, since: datetime | None) -> Span:
        """The last ``hours`` up to the running timestep's end; from where there is something."""
        end = timesteps.floor(at) + timesteps.step()
        start = end - timedelta(hours=hours)
        if since is not None:
            start = min(max(start, timesteps.floor(since)), end - timesteps.step())
        steps = (end - start) // timesteps.step()
        return cls(start, end, timesteps.step() * max(1, -(-steps // POINTS)))

    @property
    def parts(self) -> int:
        return -(-(self.end - self.start) // self.part)

    def place(self, at: datetime) -> int:
        return (at - self.start) // self.part

    def edges(self, now: datetime) -> Bits:
        """Borders of the parts in seconds, none beyond now."""
        borders = [self.start + self.part * n for n in range(self.parts + 1)]
        return np.array([int(min(b, now).timestamp()) for b in borders], dtype=np.int64)


def ratio(part: int, whole: int) -> int | None:
    """Return part ÷ whole in thousandths of a percent, rounded half up; None of nothing."""
    return (2 * WHOLE * part + whole) // (2 * whole) if whole > 0 else None


def of_gpus(
    span: Span, *, now: datetime, pool_ids: Collection[int] | None
) -> tuple[Measure, Measure]:
    """Availability and occupancy over a span from the log of GPU states. Three queries."""
    held, free, down = _gpu_seconds(span, now, pool_ids)
    healthy = held + free
    return _measure(healthy, healthy + down), _measure(held, healthy)


def of_delivery(span: Span, *, pool_ids: Collection[int] | None) -> Measure:
    """Delivered of owed over a span, all programs together. One query."""
    spanned = Delivery.objects.filter(timestep__gte=span.start, timestep__lt=span.end)
    rows = delivery.of_programs(spanned).order_by()
    if pool_ids is not None:
        rows = rows.filter(pool_id__in=pool_ids)
    sums = rows.values_list("timestep").annotate(owed=Sum(delivery.OWED), got=Sum(delivery.GOT))
    return _summed(span, [(at, got, wanted) for at, wanted, got in sums])


def of_charges(span: Span, *, pool_ids: Collection[int] | None) -> Measure:
    """Utilization over a span: of held GPU-time, what was not parked. One query."""
    held = idle.by_timestep(start=span.start, end=span.end, pool_ids=pool_ids)
    rows = [(at, h.gpu_seconds - h.parked_gpu_seconds, h.gpu_seconds) for at, h in held.items()]
    return _summed(span, rows)


def _summed(span: Span, rows: list[tuple[datetime, int, int]]) -> Measure:
    part, whole = (np.zeros(span.parts, dtype=np.int64) for _ in range(2))
    for at, some, all_of_it in rows:
        part[span.place(at)] += some
        whole[span.place(at)] += all_of_it
    return _measure(part, whole)


def _measure(part: Bits, whole: Bits) -> Measure:
    line = [ratio(int(p), int(w)) for p, w in zip(part, whole, strict=True)]
    known = [value for value in line if value is not None]
    return Measure(known[-1] if known else None, ratio(int(part.sum()), int(whole.sum())), line)


def _gpu_seconds(
    span: Span, now: datetime, pool_ids: Collection[int] | None
) -> tuple[Bits, Bits, Bits]:
    """Held, free and down GPU-seconds in each part of the span."""
    nodes = Node.objects.all() if pool_ids is None else Node.objects.filter(pool_id__in=pool_ids)
    known = dict(nodes.order_by().values_list("pk", "active_until"))
    log = GpuState.objects.filter(at__gt=span.start, at__lt=min(span.end, now))
    changes = _changes(_states(span.start, log), known)
    edges = span.edges(now)
    at = np.array([change[0] for change in changes], dtype=np.int64)
    return tuple(  # type: ignore[return-value]
        _between(at, np.array([change[1 + n] for change in changes], dtype=np.int64), edges)
        for n in range(3)
    )


def _states(start: datetime, log: QuerySet[GpuState]) -> Iterator[State]:
    """Yield (node id, second, held, free, down): the last by the start, and what follows it.

    However long the log before it has grown. Two queries.
    """
    for state in states.last_gpu_states(at=start).values():
        counts = (state.held.bit_count(), state.free.bit_count(), state.down.bit_count())
        yield state.node_id, int(start.timestamp()), *counts
    rows = log.order_by("at", "id").values_list("node_id", "at", "held", "free", "down")
    for node_id, at, *masks in rows:
        held, free, down = (mask.bit_count() for mask in masks)
        yield node_id, int(at.timestamp()), held, free, down


def _changes(
    rows: Iterable[State], known: Mapping[int, datetime | None]
) -> list[tuple[int, int, int, int]]:
    """(second, change of held, of free, of down), in order of time; of the known nodes."""
    last: dict[int, tuple[int, int, int]] = {}
    found = []
    for node_id, at, held, free, down in rows:
        if node_id not in known:
            continue
        before = last.get(node_id, (0, 0, 0))
        last[node_id] = (held, free, down)
        found.append((at, held - before[0], free - before[1], down - before[2]))
    for node_id, (held, free, down) in last.items():
        until = known[node_id]
        if until is not None:
            found.append((int(until.timestamp()), -held, -free, -down))
    return sorted(found)


def _between(at: Bits, change: Bits, edges: Bits) -> Bits:
    """Integral of a step function, given by its changes, between neighbouring edges."""
    if not len(at):
        return np.zeros(len(edges) - 1, dtype=np.int64)
    level = np.cumsum(change)
    whole = np.concatenate([[0], np.cumsum(level[:-1] * np.diff(at))])
    place = np.searchsorted(at, edges, side="right") - 1
    inside = np.where(place >= 0, whole[place] + level[place] * (edges - at[place]), 0)
    return np.diff(inside)
