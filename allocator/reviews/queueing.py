"""How long a budget's jobs waited in an interval, and how often they were preempted."""

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from django.db.models import BigIntegerField, Count, Exists, F, Func, OuterRef, Q, QuerySet

from allocator.reviews.pack import Waits
from workloads.models import Job, Run

Row = int
Names = Mapping[Row, str]


class Seconds(Func):
    """An instant as whole seconds since 1970: what any database can subtract."""

    output_field = BigIntegerField()
    template = "CAST(EXTRACT(EPOCH FROM %(expressions)s) AS bigint)"

    def as_sqlite(self, compiler: Any, connection: Any, **extra: Any) -> Any:
        template = "CAST(strftime('%%%%s', %(expressions)s) AS integer)"
        return self.as_sql(compiler, connection, template=template, **extra)


@dataclass
class _Seen:
    waits: list[int] = field(default_factory=list)
    preempted: int = 0
    waiting: int = 0

    def add(self, other: "_Seen") -> None:
        self.waits += other.waits
        self.preempted += other.preempted
        self.waiting += other.waiting


def waits(
    *,
    budget_ids: Collection[int] | None,
    row_of: Mapping[int, Row],
    names: Names,
    start: datetime,
    end: datetime,
    counts_waiting: bool,
) -> tuple[tuple[Waits, ...], Waits]:
    """Return a line for each named row, in the order given, and one of all. Three queries.

    A wait is from submission to first start, of jobs that first started in [start, end);
    preempted are the runs that were in it. ``row_of``: in whose row a budget counts, if not in its
    own. ``budget_ids`` None: of all budgets.
    """
    mine = Q() if budget_ids is None else Q(job__budget_id__in=budget_ids)
    of_budget: dict[int, _Seen] = defaultdict(_Seen)
    for budget, seconds in _first_starts(mine, start, end):
        of_budget[budget].waits.append(seconds)
    stopped = Run.objects.filter(
        mine, end_reason=Run.EndReason.PREEMPTED, ended_at__gte=start, ended_at__lt=end
    )
    by_budget = stopped.order_by().values_list("job__budget_id").annotate(number=Count("pk"))
    for budget, number in by_budget:
        of_budget[budget].preempted += number
    if counts_waiting:
        own = Q() if budget_ids is None else Q(budget_id__in=budget_ids)
        queued = Job.objects.filter(own, state=Job.State.QUEUED).order_by()
        for budget, number in queued.values_list("budget_id").annotate(number=Count("pk")):
            of_budget[budget].waiting += number
    seen: dict[Row, _Seen] = defaultdict(_Seen)
    for budget, one in of_budget.items():
        seen[row_of.get(budget, budget)].add(one)
    every = _Seen()
    for one in seen.values():
        every.add(one)
    return tuple(_line(row, name, seen[row]) for row, name in names.items()), _line(0, "", every)


def _first_starts(mine: Q, start: datetime, end: datetime) -> QuerySet[Any, Any]:
    """Budget and seconds of each job that started for the first time."""
    earlier = Run.objects.filter(
        job=OuterRef("job"), number__lt=OuterRef("number"), started_at__isnull=False
    )
    first = Q(number=1) | ~Exists(earlier)
    runs = Run.objects.filter(mine, first, started_at__gte=start, started_at__lt=end)
    seconds = Seconds(F("started_at")) - Seconds(F("job__submitted_at"))
    return runs.order_by().values_list("job__budget_id", seconds)


def _line(row: Row, name: str, seen: _Seen) -> Waits:
    ordered = sorted(max(0, one) for one in seen.waits)
    return Waits(
        budget=row,
        label=name,
        jobs=len(ordered),
        p50_s=quantile(ordered, 50),
        p90_s=quantile(ordered, 90),
        preempted=seen.preempted,
        waiting=seen.waiting,
    )


def quantile(ordered: Sequence[int], percent: int) -> int | None:
    """Return the least value that so many percent do not exceed; None of nothing."""
    if not ordered:
        return None
    return ordered[max(0, -(-len(ordered) * percent // 100) - 1)]
