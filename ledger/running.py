"""What ran funded since the last close: added up by the database, by attempt or by budget.

What the same seconds will be charged is worked out in `segments`.
"""

from collections import defaultdict
from collections.abc import Collection, Sequence
from datetime import datetime
from itertools import pairwise
from typing import Any, NamedTuple

from django.db import connection
from django.db.models import (
    BigIntegerField,
    Case,
    F,
    Func,
    Subquery,
    Value,
    When,
)
from django.db.models.expressions import Combinable

from budgets.models import Period
from clusters.reading import once
from ledger.entries import Attempt
from ledger.instants import from_seconds, to_seconds
from ledger.kinds import HOLDS
from ledger.membership import Membership
from ledger.models import ClosedTimestep
from ledger.rates import REFERENCE, Rates
from ledger.segments import held_in
from ledger.totals import Total

# Spans in one statement: SQLite nests sums up to 1,000 deep, PostgreSQL has 1,664 columns in a row.
MOST = 400
Statement = tuple[str, Sequence[Any]]  # with its values
Amounts = tuple[int, ...]  # milli-GPU-seconds, one for each span


class OfAttempt(NamedTuple):
    """What one attempt ran in each span, and what is left of its hold in the period."""

    attempt: Attempt
    budget_id: int
    hold_mgpus: int
    parts: Amounts

    @property
    def amount_mgpus(self) -> int:
        return sum(self.parts)


class InBudget(NamedTuple):
    """What all attempts of one budget ran in each span, and how much of it their holds cover."""

    budget_id: int
    covered_mgpus: int
    parts: Amounts


class Epoch(Func):
    """An instant in seconds since 1970."""

    output_field = BigIntegerField()
    template = "CAST(EXTRACT(EPOCH FROM %(expressions)s) AS bigint)"

    def as_sqlite(self, compiler: Any, connection: Any, **extra: Any) -> Any:
        # The sign is doubled once for the template and once for the cursor.
        template = "CAST(strftime('%%%%s', %(expressions)s) AS integer)"
        return self.as_sql(compiler, connection, template=template, **extra)


@once
def closed_span() -> tuple[datetime, datetime] | None:
    """Return the start of the first closed timestep and the end of the last; None before any."""
    first = ClosedTimestep.objects.order_by("start").values("start")[:1]
    last = ClosedTimestep.objects.order_by("-start").annotate(first=Subquery(first))
    return last.values_list("first", "end").first()


def closed_until() -> datetime | None:
    """Return the end of the last closed timestep; None before the first."""
    closed = closed_span()
    return closed[1] if closed else None


class Uncharged:
    """What ran funded in [since, until) and after the last close, ended runs included.

    In spans in which no rate changed and, with ``tree``, no budget moved; ``starts`` are where
    they begin, in seconds since 1970. Two queries for what the spans are, one for what ran in
    them, or in each ``MOST`` of them where nothing was closed for long: as it was when it was
    first asked for, for all parts of a page.
    """

    def __init__(self, *, since: datetime, until: datetime, tree: Membership | None = None) -> None:
        self._closed, self._rates, self._marks = closed_until(), Rates(()), list[int]()
        self._bounds = low, high = self._between(since, until)
        self._by_budget: dict[int | None, list[InBudget]] = {}
        if low < high:
            self._rates = Rates.load()
            moves = tree.moves if tree else ()
            inside = {at for at in (*moves, *self._rates.instants()) if low < at < high}
            self._marks = [low, *sorted(inside), high]
        self.starts: Sequence[int] = self._marks[:-1]

    def _between(self, since: datetime, until: datetime) -> tuple[int, int]:
        return to_seconds(max(since, self._closed or since)), to_seconds(until)

    def is_in(self, since: datetime, until: datetime) -> bool:
        """Say whether it is just what ran in [since, until) and isn't charged."""
        return self._between(since, until) == self._bounds

    def by_attempt(
        self, period: Period | None, *, jobs: Collection[int] | None = None
    ) -> list[OfAttempt]:
        """Return it attempt by attempt, of some jobs or of all, with what a hold has left."""
        found: dict[Attempt, OfAttempt] = {}
        for first in range(0, len(self.starts), MOST):
            marks = self._marks[first : first + MOST + 1]
            for job, number, budget, hold, *parts in _rows(*self._attempts(period, jobs, marks)):
                mine = Attempt(job, number)
                before = found[mine].parts if mine in found else ()
                idle = (0,) * (first - len(before))
                found[mine] = OfAttempt(mine, budget, int(hold), (*before, *idle, *_whole(parts)))
        rest = len(self.starts)
        return [
            one._replace(parts=(*one.parts, *(0,) * (rest - len(one.parts))))
            for one in found.values()
        ]

    def by_budget(self, period: Period | None = None) -> list[InBudget]:
        """Return it added up by budget; without a period no hold covers any of it."""
        key = period.pk if period else None
        if key not in self._by_budget:
            add_up = self._added_up if len(self.starts) <= MOST else self._added_up_here
            self._by_budget[key] = add_up(period) if self.starts else []
        return self._by_budget[key]

    def amounts(self) -> dict[int, int]:
        """Return what each budget ran in all spans, in milli-GPU-seconds."""
        rows = next(iter(self._by_budget.values()), None)
        rows = self.by_budget() if rows is None else rows
        return {row.budget_id: sum(row.parts) for row in rows}

    def _added_up(self, period: Period | None) -> list[InBudget]:
        statement, values = self._attempts(period, None, self._marks)
        parts = _parts(self._marks)
        ran = " + ".join(parts)
        sums = [f"CASE WHEN hold < {ran} THEN hold ELSE {ran} END", *parts]
        columns = ", ".join(f"SUM({one})" for one in sums)
        statement = f"SELECT budget_id, {columns} FROM ({statement}) ran GROUP BY budget_id"
        return [
            InBudget(budget, int(covered), _whole(parts))
            for budget, covered, *parts in _rows(statement, values)
        ]

    def _added_up_here(self, period: Period | None) -> list[InBudget]:
        """Return the same of what is too much for one statement."""
        by_budget: dict[int, list[OfAttempt]] = defaultdict(list)
        for one in self.by_attempt(period):
            by_budget[one.budget_id].append(one)
        return [
            InBudget(
                budget,
                sum(min(one.hold_mgpus, one.amount_mgpus) for one in mine),
                tuple(map(sum, zip(*(one.parts for one in mine), strict=True))),
            )
            for budget, mine in by_budget.items()
        ]

    def _attempts(
        self, period: Period | None, jobs: Collection[int] | None, marks: Sequence[int]
    ) -> Statement:
        """Return a row for each attempt: its number, its budget, its hold, what each span costs."""
        held, values = _held(jobs, marks)
        costs = (
            f"held.{part} * {self._rate(at)} AS {part}"
            for part, at in zip(_parts(marks), marks[:-1], strict=True)
        )
        columns = ", ".join((_hold(period), *costs))
        return (
            f"SELECT run.job_id, run.number, job.budget_id, {columns} FROM ({held}) held "
            "JOIN workloads_run run ON run.id = held.of_run "
            "JOIN workloads_job job ON job.id = run.job_id",
            values,
        )

    def _rate(self, at: int) -> str:
        """Return what pools ask per mille at an instant."""
        rates = {pool_id: self._rates.at(pool_id, at) for pool_id in self._rates.pools()}
        cases = "".join(f"WHEN {pool_id} THEN {rate} " for pool_id, rate in rates.items())
        return f"CASE run.pool_id {cases}ELSE {REFERENCE} END" if cases else f"{REFERENCE}"


def _parts(marks: Sequence[int]) -> list[str]:
    return [f"part_{number}" for number in range(len(marks) - 1)]


def _held(jobs: Collection[int] | None, marks: Sequence[int]) -> Statement:
    """Return a row for each run: the GPU-seconds it held in each span between marks.

    Grouped by a value that no index has: else SQLite goes through all there ever were, in order
    of run.
    """
    held = held_in(from_seconds(marks[0]), from_seconds(marks[-1]))
    if jobs is not None:
        held = held.filter(run__job__in=sorted(jobs))
    spans = zip(_parts(marks), pairwise(marks), strict=True)
    parts = {name: Total(F("gpus") * _seconds(*span)) for name, span in spans}
    rows = held.filter(funded=True).values(of_run=F("run_id") + 0).annotate(**parts)
    return rows.query.sql_with_params()


def _rows(statement: str, values: Sequence[Any]) -> list[tuple[Any, ...]]:
    with connection.cursor() as cursor:
        cursor.execute(statement, values)
        return cursor.fetchall()


def _whole(amounts: Sequence[Any]) -> Amounts:
    return tuple(map(int, amounts))  # PostgreSQL adds up big integers to decimals


def _seconds(low: int, high: int) -> Combinable:
    """Return how long a holding lasted in [low, high); most began before and go on."""
    since, until = from_seconds(low), from_seconds(high)
    began = Case(
        When(started_at__lte=since, then=Value(low)),
        When(started_at__gte=until, then=Value(high)),
        default=Epoch("started_at"),
        output_field=BigIntegerField(),
    )
    ended = Case(
        When(ended_at__lte=since, then=Value(low)),
        When(ended_at__lt=until, then=Epoch("ended_at")),
        default=Value(high),
        output_field=BigIntegerField(),
    )
    return ended - began


def _hold(period: Period | None) -> str:
    """Return what is left of an attempt's hold in a period."""
    if period is None:
        return "0 AS hold"
    signs = " ".join(f"WHEN '{kind}' THEN {sign}" for kind, sign in HOLDS.items())
    kinds = ", ".join(f"'{kind}'" for kind in HOLDS)
    return (
        f"COALESCE((SELECT CAST(SUM(amount_mgpus * CASE kind {signs} END) AS bigint) "
        "FROM ledger_jobrollup one "
        "WHERE one.job_id = run.job_id AND one.attempt = run.number "
        f"AND one.period_id = {period.pk} AND one.kind IN ({kinds})), 0) AS hold"
    )
