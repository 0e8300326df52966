"""Periods as people read them: all of them, and one with its plan of shares or its statement."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from zoneinfo import ZoneInfo

from django.http import Http404

from budgets import calendars, hues, period_plans, periods
from budgets.access import Action, Person, Standing, may_administer, standing
from budgets.hues import Hue
from budgets.models import Budget, ChangeSet, Period, PlannedCapacity
from clusters.saying import say as _
from ledger import closing_statements
from ledger import period_plans as comparison
from ledger.closing_statements import Correction
from ledger.exports.statement import statement_csv
from ledger.models import ClosingStatement
from ledger.period_plans import PlannedBudget
from ledger.standing import Figures
from ledger.standing import figures as figures_of

Status = Period.Status
DEEPEST = 5  # levels that are indented further; below that all stand alike
NEXT = {  # what an administrator may do with a period in a state
    Status.DRAFT: ("propose", "approve"),
    Status.PROPOSED: ("approve", "withdraw"),
    Status.APPROVED: ("withdraw",),
}


@dataclass(frozen=True)
class Line:
    """A period in the list; `days` are local ones, of 23 or 25 hours too."""

    period: Period
    days: int
    is_running: bool


@dataclass(frozen=True)
class Listing:
    lines: list[Line]
    running: Line | None
    following: Line | None  # the next that is approved
    may_administer: bool


@dataclass(frozen=True)
class PlanLine:
    """A budget now and at the period's start."""

    planned: PlannedBudget
    hue: Hue
    top: int  # depth of the highest budget that the reader sees

    @property
    def css(self) -> str:
        return f"l{min(self.planned.depth - self.top, DEEPEST)}"

    @property
    def change_mgpus(self) -> int | None:
        given = self.planned.granted_mgpus
        return None if given is None else self.planned.planned_mgpus - given


@dataclass(frozen=True)
class SetLine:
    """A change set of the plan, and whether the reader may decide on it."""

    change_set: ChangeSet
    is_open: bool
    may_decide: bool


@dataclass(frozen=True)
class StatementLine:
    """A budget's row of the statement; `corrected_mgpus` is what later entries add to settled."""

    row: ClosingStatement
    hue: Hue
    top: int
    corrected_mgpus: int

    @property
    def css(self) -> str:
        return f"l{min(self.row.path.count('/') - self.top, DEEPEST)}"


@dataclass(frozen=True)
class Page:
    """All that the page of one period says, of the budgets that its reader may see."""

    period: Period
    days: int
    capacities: list[PlannedCapacity]
    decisions: tuple[str, ...]
    concerns: list[str]
    plan: list[PlanLine]
    sets: list[SetLine]
    plannable: list[Budget]
    running: Period | None
    statement: list[StatementLine]
    corrections: list[Correction]
    first: Figures | None  # of the highest budget that the reader sees, while the period runs
    first_budget: Budget | None

    @property
    def is_ahead(self) -> bool:
        return self.period.status in period_plans.PLANNABLE


def listing(user: Person, *, now: datetime) -> Listing:
    """Return all periods, the newest first. Four queries."""
    lines = [
        Line(one, _days(one), one.status == Status.ACTIVE and one.starts_at <= now < one.ends_at)
        for one in Period.objects.order_by("-starts_at", "-pk")
    ]
    ahead = [line for line in lines if line.period.status == Status.APPROVED]
    return Listing(
        lines=lines,
        running=next((line for line in lines if line.is_running), None),
        following=ahead[-1] if ahead else None,
        may_administer=may_administer(user),
    )


def page(user: Person, *, pk: int, now: datetime) -> Page:
    """Return one period, or raise Http404. A constant number of queries for as many budgets."""
    period = find(pk)
    held, decides = standing(user), may_administer(user)
    painted, ahead = hues.of_budgets(), period.status in period_plans.PLANNABLE
    rows = comparison.compare(period=period, now=now) if ahead else []
    plan = _plan([row for row in rows if held.sees(row.budget.path)], painted)
    later = closing_statements.corrections(period) if period.status == Status.CLOSED else []
    first, its = _first(held, period, now)
    return Page(
        period=period,
        days=_days(period),
        capacities=list(period.capacities.select_related("pool").order_by("pool__position", "pk")),
        decisions=NEXT.get(Status(period.status), ()) if decides else (),
        concerns=periods.concerns(period) if decides else [],
        plan=plan,
        sets=_sets(held, period) if ahead else [],
        plannable=_plannable(held, plan),
        running=periods.active(now),
        statement=_statement(held, period, painted, later),
        corrections=[one for one in later if held.sees(one.entry.budget.path)],
        first=its,
        first_budget=first,
    )


def find(pk: int) -> Period:
    """Return a period, or raise Http404; that there are some everybody may know."""
    period = Period.objects.filter(pk=pk).first()
    if period is None:
        raise Http404(_("There is no such period."))
    return period


def planned_start(pk: str, *, now: datetime) -> datetime | None:
    """Return when a period begins whose shares may still be planned; None for any other."""
    if not pk.isascii() or not pk.isdigit() or len(pk) > 9:
        return None
    ahead = Period.objects.filter(status__in=period_plans.PLANNABLE, starts_at__gt=now)
    return ahead.filter(pk=int(pk)).values_list("starts_at", flat=True).first()


def _days(period: Period) -> int:
    return calendars.length_days(period.starts_at, period.ends_at, ZoneInfo(period.time_zone))


def _plan(rows: list[PlannedBudget], painted: Mapping[str, Hue]) -> list[PlanLine]:
    top = min((row.depth for row in rows), default=0)
    return [PlanLine(row, painted[row.budget.path], top) for row in rows]


def _plannable(held: Standing, plan: list[PlanLine]) -> list[Budget]:
    """Return the budgets whose children's shares the reader may propose."""
    budgets = [line.planned.budget for line in plan if line.planned.shares_version]
    return [one for one in budgets if held.can(Action.PROPOSE_SHARES, one.path)]


def _sets(held: Standing, period: Period) -> list[SetLine]:
    return [
        SetLine(one, is_open, is_open and held.can(Action.EDIT_SHARES, one.parent.path))
        for one in period_plans.sets_of(period)
        if held.sees(one.parent.path)
        for is_open in [one.status in period_plans.OPEN]
    ]


def _statement(
    held: Standing, period: Period, painted: Mapping[str, Hue], later: list[Correction]
) -> list[StatementLine]:
    found = closing_statements.statement(period).select_related("budget")
    rows = [row for row in found if held.sees(row.budget.path)]
    added = closing_statements.corrected(later)
    top = min((row.path.count("/") for row in rows), default=0)
    return [
        StatementLine(row, painted[row.budget.path], top, added.get(row.budget_id, 0))
        for row in rows
    ]


def _first(held: Standing, period: Period, now: datetime) -> tuple[Budget | None, Figures | None]:
    """Return the one budget that holds all others that the reader sees, with its figures."""
    if period.status != Status.ACTIVE:
        return None, None
    budgets = Budget.objects.filter(archived_at=None).order_by("path")
    seen = [one for one in budgets if held.sees(one.path)]
    if not seen or not all(one.path.startswith(f"{seen[0].path}/") for one in seen[1:]):
        return None, None
    return seen[0], figures_of(period=period, now=now).get(seen[0].pk)


def as_csv(page: Page) -> str:
    """Return the statement of a page as CSV; a period that isn't closed has none: Http404."""
    if not page.statement:
        raise Http404(_("There is no statement before a period is closed."))
    corrected = {line.row.budget_id: line.corrected_mgpus for line in page.statement}
    return statement_csv([line.row for line in page.statement], corrected)
