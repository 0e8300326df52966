"""The burn report: one line per child of a budget, and a total that is their sum."""

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, fields
from datetime import datetime, timedelta
from typing import Any, Protocol

from budgets import plans
from budgets.models import Budget, Period
from budgets.names import Names
from clusters.reading import reading
from clusters.saying import say as _
from ledger import period_end
from ledger.burn import pace, per_day, rate_window, runway_days
from ledger.figures import closed_until
from ledger.instants import LedgerError, from_seconds, iso, span, to_seconds, whole
from ledger.membership import Membership
from ledger.period_end import UNKNOWN, Known
from ledger.segments import STARTED, periods_in_force
from ledger.spent import Spent, amounts_between, settled_over, spent_in
from ledger.standing import Figures, figures

SECOND = timedelta(seconds=1)


class Delivered(Protocol):
    """What a budget was owed in the interval and what of it was delivered, in GPU-seconds.

    Counted above the ledger, by whoever plans; so a report is given it.
    """

    @property
    def owed_gpu_seconds(self) -> int: ...
    @property
    def delivered_gpu_seconds(self) -> int: ...


@dataclass(frozen=True, slots=True)
class BurnRow:
    """A budget in the report, all below it included. Milli-GPU-seconds and GPU-seconds.

    ``path`` is where it is found today, ``name`` what it was called at the interval's end.

    Granted to spendable are the period's at the report's instant, and the forecast is of what will
    be settled at its end; ``burned``, its parts and GPU-seconds are those of the interval asked
    for. ``is_reserve``: the part of the budget itself that no child has. ``pace_per_mille``: 1000
    is on time. None: nothing was planned, nothing is spent, it is too early for a forecast, or
    nobody said what was owed.
    """

    path: str
    name: str
    is_reserve: bool
    granted_mgpus: int
    settled_mgpus: int
    in_flight_mgpus: int
    held_mgpus: int
    spendable_mgpus: int
    pace_per_mille: int | None
    burn_rate_mgpus: int
    runway_hours: int | None
    forecast_low_mgpus: int | None
    forecast_mgpus: int | None
    forecast_high_mgpus: int | None
    burned_mgpus: int
    busy_mgpus: int
    parked_mgpus: int
    realtime_mgpus: int
    corrected_mgpus: int
    busy_gpu_seconds: int
    parked_gpu_seconds: int
    realtime_gpu_seconds: int
    unfunded_gpu_seconds: int
    owed_gpu_seconds: int | None
    delivered_gpu_seconds: int | None


# The columns in which the rows add up to the total, to the last unit.
ADDITIVE = (
    "granted_mgpus",
    "settled_mgpus",
    "in_flight_mgpus",
    "held_mgpus",
    "burned_mgpus",
    "busy_mgpus",
    "parked_mgpus",
    "realtime_mgpus",
    "corrected_mgpus",
    "busy_gpu_seconds",
    "parked_gpu_seconds",
    "realtime_gpu_seconds",
    "unfunded_gpu_seconds",
)


@dataclass(frozen=True, slots=True)
class BurnReport:
    """``by`` "child" or "leaf"; ``closed_until``: where the last closed timestep ends."""

    budget: str
    name: str
    period: str
    time_zone: str
    period_start: datetime
    period_end: datetime
    by: str
    start: datetime
    end: datetime
    now: datetime
    closed_until: datetime | None
    rows: tuple[BurnRow, ...]
    total: BurnRow


@reading()
def burn_report(
    *,
    budget: Budget,
    start: datetime,
    end: datetime,
    now: datetime,
    by: str = "child",
    delivered: Mapping[int, Delivered] | None = None,
    tree: Membership | None = None,
) -> BurnReport:
    """Report what a budget's children ("child") or all leaves below it ("leaf") spent.

    The period is the one in which the interval ends. What a child settled while it stood
    elsewhere is not in its row. ``delivered``: by budget id, over the same interval; ``tree``:
    who stood under whom, where it is loaded already. Raises LedgerError if no period covers the
    interval's end.
    """
    start, end = span(start, end)
    now = whole(now, "now")
    if by not in ("child", "leaf"):
        raise LedgerError(_("There is no report by %(by)s: choose child or leaf.", by=repr(by)))
    period = report_period(start, end)
    named_at = now if now <= end else end - SECOND
    known = tree or Membership.load()
    report = _Report(budget, period, now, by, delivered or {}, known, named_at)
    report.add_period()
    report.add_interval(start, end)
    report.add_rate()
    report.add_forecast()
    rows = report.rows()
    return BurnReport(
        budget=budget.path,
        name=report.name(budget),
        period=period.name,
        time_zone=period.time_zone,
        period_start=period.starts_at,
        period_end=period.ends_at,
        by=by,
        start=start,
        end=end,
        now=now,
        closed_until=closed_until(),
        rows=rows,
        total=report.total(),
    )


def report_period(start: datetime, end: datetime) -> Period:
    """Return the started period in which an interval ends."""
    started = [one for one in periods_in_force() if one.status in STARTED]
    inside = [one for one in started if one.starts_at < end and one.ends_at > start]
    if not inside:
        raise LedgerError(
            _(
                "No started period covers %(start)s to %(end)s: choose another interval.",
                start=iso(start),
                end=iso(end),
            )
        )
    return inside[-1]


class _Report:
    """Sorts every sum into the row of the child, or leaf, it stood under at the time."""

    def __init__(
        self,
        budget: Budget,
        period: Period,
        now: datetime,
        by: str,
        delivered: Mapping[int, Delivered],
        tree: Membership,
        named_at: datetime,
    ) -> None:
        self.budget, self.period, self.by = budget, period, by
        self.delivered = delivered
        self.now = min(now, from_seconds(to_seconds(period.ends_at) - 1))
        self.tree = tree
        self.names, self.named_at = Names.load(), named_at
        shown = {budget.pk, *self._members()}
        self.sums = {period.pk: spent_in(period, tree)}
        self.figures = figures(
            period=period, now=self.now, tree=tree, only=shown, sums=self.sums[period.pk]
        )
        self.plans = plans.load(period=period, at=self.now)
        self.settled: dict[int, int] = defaultdict(int)
        self.burned: dict[int, Spent] = defaultdict(Spent)
        self.rate: dict[int, int] = defaultdict(int)
        self.ranges: dict[int, period_end.Range | None] = {}
        self.range: period_end.Range | None = None
        self.row_of: dict[tuple[int, int], int] = {}

    def name(self, budget: Budget) -> str:
        """Return what a budget was called at the interval's end, as far as that has come."""
        return self.names.at(budget, self.named_at).name

    def add_period(self) -> None:
        for one in self.sums[self.period.pk]:
            below = self.budget.pk in self.tree.chain(one.budget_id, one.since)
            if below and one.spent != Spent():
                row = self._row_of(one.budget_id, one.since)
                self.settled[row] += one.spent.settled_mgpus

    def add_interval(self, start: datetime, end: datetime) -> None:
        for row, spent in self._pieces(start, end):
            self.burned[row].add(spent)

    def add_rate(self) -> None:
        window = rate_window(self.period, self.now)
        if window is None:
            return
        amounts: dict[int, int] = defaultdict(int)
        for pk, at, amount in amounts_between(*window, tree=self.tree, below=self.budget):
            amounts[self._row_of(pk, at)] += amount
        self.rate.update({row: per_day(amount, window) for row, amount in amounts.items()})

    def add_forecast(self) -> None:
        """Forecast each row, and the whole as a row of its own: scatter doesn't add up."""
        view = period_end.outlook(self.period, self.now)
        if view is None:
            return
        # Hundreds of budgets have a sum a day: added up first, so that each is looked at once.
        by_day: dict[tuple[int, int], int] = defaultdict(int)
        for pk, at, amount in period_end.spent_since(view, tree=self.tree, below=self.budget):
            by_day[self._row_of(pk, at), at] += amount
        spent = [(row, at, amount) for (row, at), amount in by_day.items()]
        rows = {row: self.settled[row] for row in {*self.settled, *self._members()}}
        known = {
            row: Known(one.in_flight_mgpus, one.held_mgpus) for row, one in self.figures.items()
        }
        here = known.get(self.budget.pk, UNKNOWN)
        if self._members():  # its own row is what no child has, its figures are all
            known.pop(self.budget.pk, None)
        self.ranges = period_end.ranges(view=view, settled=rows, spent=spent, known=known)
        whole = {0: sum(self.settled.values())}
        every = [(0, at, amount) for _, at, amount in spent]
        all_of_it = {0: here}
        self.range = period_end.ranges(view=view, settled=whole, spent=every, known=all_of_it)[0]

    def _pieces(self, start: datetime, end: datetime) -> list[tuple[int, Spent]]:
        """Return what was spent, by row."""
        found = settled_over(
            start, end, now=self.now, tree=self.tree, below=self.budget, read=self.sums
        )
        return [(self._row_of(piece.budget_id, piece.start), piece.spent) for piece in found]

    def _row_of(self, budget_id: int, seconds: int) -> int:
        """Return whose row an entry of a budget belongs to: a child's, a leaf's or our own."""
        if self.by == "leaf":
            return budget_id
        place = budget_id, self.tree.epoch(seconds)
        row = self.row_of.get(place)
        if row is None:
            chain = self.tree.chain(budget_id, seconds)
            row = self.row_of[place] = chain[max(0, chain.index(self.budget.pk) - 1)]
        return row

    def _members(self) -> list[int]:
        """Return the budgets that have a row now, in order of path."""
        at = to_seconds(self.now)
        if self.by == "child":
            return self.tree.children(self.budget.pk, at)
        below = [one for one in self.tree if self.budget.pk in self.tree.chain(one, at)]
        parents = {self.tree.parent(one, at) for one in below}
        return [one for one in below if one not in parents and one != self.budget.pk]

    def rows(self) -> tuple[BurnRow, ...]:
        here = set(self._members())
        gone = {row for row in {*self.settled, *self.burned} if row not in here}
        budgets = Budget.objects.in_bulk([*here, *gone])
        own = self.budget.pk
        # By path; those that have left by slug after them: where they stand now is no one's here.
        order = sorted(here, key=lambda pk: budgets[pk].path)
        order += sorted(gone, key=lambda pk: (budgets[pk].slug, pk))
        rows = [
            self._row(budgets[row], self.figures[row] if row in here else None)
            for row in order
            if row != own
        ]
        rest = self._rest(here)
        if not here:
            return (self._row(self.budget, self.figures[own], is_reserve=bool(rows)), *rows)
        return (*rows, self._row(self.budget, rest, is_reserve=True))

    def _rest(self, here: set[int]) -> Figures:
        """Return the budget's own figures, without those of the budgets that have a row."""
        mine = self.figures[self.budget.pk]
        less = [self.figures[row] for row in here]
        values = {
            one.name: getattr(mine, one.name) - sum(getattr(other, one.name) for other in less)
            for one in fields(Figures)
        }
        return Figures(**values | {"spendable_mgpus": mine.spendable_mgpus})

    def _row(self, budget: Budget, mine: Figures | None, *, is_reserve: bool = False) -> BurnRow:
        pk = budget.pk
        return self._build(
            *(budget, is_reserve, mine, self.settled[pk], self.rate[pk], self.burned[pk]),
            *(self.ranges.get(pk), None if is_reserve else self.delivered.get(pk)),
        )

    def total(self) -> BurnRow:
        mine = self.figures[self.budget.pk]
        burned = Spent()
        for spent in self.burned.values():
            burned.add(spent)
        return self._build(
            *(self.budget, False, mine, mine.settled_mgpus, sum(self.rate.values()), burned),
            *(self.range, self.delivered.get(self.budget.pk)),
        )

    def _build(
        self,
        budget: Budget,
        is_reserve: bool,
        mine: Figures | None,  # None: it stands elsewhere now
        settled: int,
        rate: int,
        burned: Spent,
        ahead: period_end.Range | None,
        delivered: Delivered | None,
    ) -> BurnRow:
        granted, in_flight = (mine.granted_mgpus, mine.in_flight_mgpus) if mine else (0, 0)
        spendable = mine.spendable_mgpus if mine else 0
        used = settled + in_flight
        planned = self.plans.planned(budget.pk, self.now)
        on_pace = pace(used_mgpus=used, granted_mgpus=granted, planned=planned)
        runway = runway_days(spendable_mgpus=spendable, burn_rate_mgpus=rate)
        return BurnRow(
            path=budget.path,
            name=self.name(budget),
            is_reserve=is_reserve,
            granted_mgpus=granted,
            settled_mgpus=settled,
            in_flight_mgpus=in_flight,
            held_mgpus=mine.held_mgpus if mine else 0,
            spendable_mgpus=spendable,
            pace_per_mille=None if on_pace is None else int(on_pace * 1000),
            burn_rate_mgpus=rate,
            runway_hours=None if runway is None else int(runway * 24),
            **_ahead(ahead),
            **_spent(burned),
            owed_gpu_seconds=delivered.owed_gpu_seconds if delivered else None,
            delivered_gpu_seconds=delivered.delivered_gpu_seconds if delivered else None,
        )


def _ahead(found: period_end.Range | None) -> dict[str, Any]:
    return {
        "forecast_low_mgpus": found.low_mgpus if found else None,
        "forecast_mgpus": found.likely_mgpus if found else None,
        "forecast_high_mgpus": found.high_mgpus if found else None,
    }


def _spent(burned: Spent) -> dict[str, Any]:
    return {
        "burned_mgpus": burned.settled_mgpus,
        "busy_mgpus": burned.busy_mgpus,
        "parked_mgpus": burned.parked_mgpus,
        "realtime_mgpus": burned.realtime_mgpus,
        "corrected_mgpus": burned.corrected_mgpus,
        "busy_gpu_seconds": burned.busy_gpu_seconds,
        "parked_gpu_seconds": burned.parked_gpu_seconds,
        "realtime_gpu_seconds": burned.realtime_gpu_seconds,
        "unfunded_gpu_seconds": burned.unfunded_gpu_seconds,
    }
