"""The list of cycles: what started each, what came of it, and what it changed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from statistics import median
from typing import Any

from django.db.models import Q, QuerySet

from allocator.models import Alarm, Cycle
from allocator.pages import keyed
from allocator.pages.keyed import Part
from budgets.models import WHOLE

ROWS = 50
DAY = timedelta(days=1)
HEAVY = ("snapshot", "plan", "hint", "versions")  # what a list doesn't need
TRIGGERS = (
    *("timestep", "submission", "completion", "cancellation", "urgency", "extension", "shares"),
    *("request", "drain", "period", "refusal", "retry", "move", "unfinished", "catch-up"),
)
CHANGED = "changed"  # an outcome: it started or stopped something
OUTCOMES = (CHANGED, *Cycle.Status.values)


@dataclass(frozen=True)
class Filters:
    """What the address asks for; what it can't mean is dropped."""

    trigger: str = ""
    outcome: str = ""

    @classmethod
    def read(cls, query: Mapping[str, Any]) -> Filters:
        trigger, outcome = keyed.words(query, "trigger"), keyed.words(query, "outcome")
        return cls(trigger[:32], outcome if outcome in OUTCOMES else "")

    @property
    def narrow(self) -> bool:
        return bool(self.trigger or self.outcome)

    def apply(self, cycles: QuerySet[Cycle]) -> QuerySet[Cycle]:
        if self.trigger:
            cycles = cycles.filter(trigger=self.trigger)
        if self.outcome == CHANGED:
            return cycles.filter(Q(starts__gt=0) | Q(stops__gt=0))
        return cycles.filter(status=self.outcome) if self.outcome else cycles


@dataclass(frozen=True)
class Row:
    """A cycle as a line; the gap in thousandths of a percent of the proven bound."""

    cycle: Cycle
    alarms: list[Alarm]

    @property
    def gap(self) -> int | None:
        return gap(self.cycle)

    @property
    def is_kept(self) -> bool:
        """Whether its plan is in force, or was."""
        return self.cycle.status == Cycle.Status.COMMITTED


@dataclass(frozen=True)
class CyclesPage:
    """All that the list shows; the sums are of the last 24 hours."""

    filters: Filters
    part: Part
    rows: list[Row]
    now: datetime
    number: int
    starts: int
    preemptions: int
    not_kept: int
    median_ms: float | None
    triggers: tuple[str, ...] = TRIGGERS


def page(*, now: datetime, query: Mapping[str, Any]) -> CyclesPage:
    """Read a part of the list. Three queries."""
    filters = Filters.read(query)
    part = keyed.by_id(filters.apply(Cycle.objects.defer(*HEAVY)), query, ROWS)
    told = _alarms([cycle.pk for cycle in part.rows])
    lately = Cycle.objects.filter(at__gt=now - DAY, at__lte=now)
    day = list(lately.values_list("status", "starts", "preemptions", "solve_ms"))
    return CyclesPage(
        filters=filters,
        part=part,
        rows=[Row(cycle, told.get(cycle.pk, [])) for cycle in part.rows],
        now=now,
        number=len(day),
        starts=sum(row[1] for row in day),
        preemptions=sum(row[2] for row in day),
        not_kept=sum(row[0] != Cycle.Status.COMMITTED for row in day),
        median_ms=median(row[3] for row in day) if day else None,
    )


def gap(cycle: Cycle) -> int | None:
    """How far a plan is at most from the best, in thousandths of a percent of its proven bound."""
    if not cycle.bound or cycle.objective is None:
        return None
    return max(0, round((1 - cycle.objective / cycle.bound) * WHOLE))


def _alarms(cycles: list[int]) -> dict[int, list[Alarm]]:
    """Alarms that cycles raised about their own plans."""
    found: dict[int, list[Alarm]] = {}
    for alarm in Alarm.objects.filter(data__cycle__in=cycles):
        found.setdefault(alarm.data["cycle"], []).append(alarm)
    return found
