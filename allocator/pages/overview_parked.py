"""What parked GPUs cost in the last days: in all, by leaf and by day, as far as the reader sees."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal
from typing import Any

from django.utils import timezone

from allocator.pages import overview_trends
from allocator.pages.names import Names
from budgets.hues import Hue
from budgets.models import Budget
from ledger import reports
from ledger.standing import GpuTime

MOST = 5  # leaves that are told
FEW = 100 * 3_600_000  # milli-GPU-seconds
HEIGHT = 32  # pixels of the tallest bar
GAP = 16  # per mille of the width, between two days


@dataclass(frozen=True)
class Leaf:
    """What one budget's parked GPUs cost."""

    budget: Budget
    hue: Hue
    time: GpuTime

    @property
    def bar(self) -> list[dict[str, Any]]:
        return [{"value": self.time.parked_mgpus, "hue": self.hue}]


@dataclass(frozen=True)
class Day:
    """A local day's bar in an SVG as high as HEIGHT, and what it tells."""

    day: date
    time: GpuTime
    x: str
    width: str
    middle: str
    y: str
    height: str


@dataclass(frozen=True)
class Parked:
    """The leaves that cost most, all of them together, and each day."""

    leaves: list[Leaf]
    total: GpuTime
    days: list[Day]
    seconds: int  # of the whole span

    @property
    def most_mgpus(self) -> int:
        return max((one.time.parked_mgpus for one in self.leaves), default=0)

    @property
    def part(self) -> int | None:
        """Of the GPU-time held, what was parked; in thousandths of a percent."""
        return overview_trends.ratio(self.total.parked, self.total.charged + self.total.unfunded)

    @property
    def gpus(self) -> Decimal:
        """GPUs that stood idle on average over the span."""
        return Decimal(self.total.parked) / self.seconds

    @property
    def decimals(self) -> int:
        """Of credits and GPU-hours: one where they are so few that whole ones say little."""
        return 1 if self.total.parked_mgpus < FEW else 0

    @property
    def worst(self) -> Day | None:
        """The day that cost most, the first of them."""
        return max(self.days, key=lambda one: (one.time.parked_mgpus, -one.day.toordinal()))


def parked(names: Names, *, start: datetime, end: datetime) -> Parked:
    """Sum the leaves that the reader sees, by day of the zone that pages tell time in."""
    parents = {budget.parent_id for budget in names.budgets.values()}
    leaves = {
        budget.pk: Leaf(budget, names.hue_of(path), GpuTime())
        for path, budget in names.budgets.items()
        if budget.pk not in parents and names.sees(path)
    }
    days: list[tuple[date, GpuTime]] = []
    zone = timezone.get_current_timezone()
    for day, by_budget in reports.parked_by_day(start=start, end=end, zone=zone):
        days.append((day, GpuTime()))
        for pk in leaves.keys() & by_budget.keys():
            leaves[pk].time.add(by_budget[pk])
            days[-1][1].add(by_budget[pk])
    told = [one for one in leaves.values() if one.time.parked]
    told.sort(key=lambda one: (-one.time.parked_mgpus, one.budget.path))
    total = _sum(time for _, time in days)
    return Parked(told[:MOST], total, _drawn(days), int((end - start).total_seconds()))


def _sum(times: Iterable[GpuTime]) -> GpuTime:
    total = GpuTime()
    for time in times:
        total.add(time)
    return total


def _drawn(days: list[tuple[date, GpuTime]]) -> list[Day]:
    """Lay a bar for each day beside the other, the dearest as high as the picture."""
    most = max((time.parked_mgpus for _, time in days), default=0) or 1
    wide = 1000 // len(days)
    found = []
    for n, (day, time) in enumerate(days):
        height = (HEIGHT - 2) * time.parked_mgpus / most
        found.append(
            Day(
                day=day,
                time=time,
                x=_percent(n * wide + GAP // 2),
                width=_percent(wide - GAP),
                middle=_percent(n * wide + wide // 2),
                y=f"{HEIGHT - 1 - height:.1f}",
                height=f"{height:.1f}",
            )
        )
    return found


def _percent(per_mille: int) -> str:
    return f"{per_mille / 10:.1f}%"
