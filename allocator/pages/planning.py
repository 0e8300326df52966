"""A budget's plan and what the next checkpoint would take; a period's checkpoints."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.core.exceptions import PermissionDenied
from django.http import Http404
from django.utils.translation import gettext as _

from budgets import checkpoints, hues
from budgets.access import (
    Action,
    Person,
    Standing,
    get_budget_or_404,
    get_exemption_or_404,
    may_administer,
    may_decide,
    standing,
    visible_q,
)
from budgets.hues import Hue
from budgets.models import Budget, BudgetPlan, Checkpoint, CheckpointResult, Exemption, Period
from ledger import planning, takeback_rests
from ledger.losses import Loss, losses
from ledger.planning import Planned

VERSIONS = 6


@dataclass(frozen=True)
class Ahead:
    """The next checkpoint of a period, and what it would take of one budget as things stand."""

    checkpoint: Checkpoint
    loss: Loss
    exemption: Exemption | None  # the newest asked for

    @property
    def is_open(self) -> bool:
        """Whether one may ask that the budget be spared."""
        asked = self.exemption
        return asked is None or asked.status == Exemption.Status.DECLINED


@dataclass(frozen=True)
class PlanPage:
    """All that the page of a budget's plan says."""

    budget: Budget
    hue: Hue
    planned: Planned | None  # None: no period is running
    periods: list[Period]
    ahead: Ahead | None
    versions: list[BudgetPlan]
    can_plan: bool
    can_ask: bool


@dataclass(frozen=True)
class Taken:
    """What a checkpoint took of a budget: at once, and since, as jobs' holds came free."""

    result: CheckpointResult
    since_mgpus: int

    @property
    def total_mgpus(self) -> int:
        return self.result.taken_mgpus + self.since_mgpus

    @property
    def missing_mgpus(self) -> int:
        return self.result.due_mgpus - self.total_mgpus


@dataclass(frozen=True)
class Row:
    """One checkpoint of a period and what it took, of all and of whom the reader sees."""

    checkpoint: Checkpoint
    results: list[Taken]
    returned: list[CheckpointResult]
    taken_mgpus: int
    is_next: bool
    can_remove: bool


@dataclass(frozen=True)
class Line:
    """What the next checkpoint would take of one budget."""

    loss: Loss
    hue: Hue


@dataclass(frozen=True)
class CheckpointsPage:
    """All that the page of a period's checkpoints says; of budgets that the reader sees."""

    period: Period
    rows: list[Row]
    ahead: Checkpoint | None
    lines: list[Line]
    losing: int
    amount_mgpus: int
    to_decide: list[Exemption]
    asked: list[Exemption]
    can_add: bool


def plan_page(
    user: Person, *, path: str, period_id: str = "", by: str = "", now: datetime
) -> PlanPage:
    """Read a budget's plan as one person may see it; Http404 if they may not."""
    budget, held = get_budget_or_404(user, path), standing(user)
    pk = int(period_id) if period_id.isdecimal() and len(period_id) < 10 else None
    period = planning.period_of(pk, now=now)
    part = by if by in BudgetPlan.By.values else None
    open_ones = Period.objects.exclude(status=Period.Status.CLOSED).filter(ends_at__gt=now)
    made = BudgetPlan.objects.filter(budget=budget, period=period).select_related("author")
    over = period is None or period.status == Period.Status.CLOSED or period.ends_at <= now
    return PlanPage(
        budget=budget,
        hue=hues.of_budgets()[path],
        planned=planning.planned(budget=budget, period=period, by=part, now=now)
        if period
        else None,
        periods=list(open_ones),
        ahead=ahead(budget, period=period, now=now) if period else None,
        versions=list(made.order_by("-version")[:VERSIONS]),
        can_plan=not over and held.can(Action.PLAN, path),
        can_ask=held.can(Action.ASK, path),
    )


def ahead(budget: Budget, *, period: Period, now: datetime) -> Ahead | None:
    """Return what the next checkpoint of a period would take of a budget; None: it has no say."""
    checkpoint = checkpoints.upcoming(period, now=now)
    if checkpoint is None:
        return None
    found = losses(checkpoint=checkpoint, now=now)
    loss = next((one for one in found if one.budget == budget), None)
    asked = Exemption.objects.filter(checkpoint=checkpoint, budget=budget).order_by("-pk").first()
    return None if loss is None else Ahead(checkpoint, loss, asked)


def checkpoints_page(user: Person, *, pk: int, now: datetime) -> CheckpointsPage:
    """Read a period's checkpoints; what they take of budgets that one person may see."""
    period, held = Period.objects.filter(pk=pk).first(), standing(user)
    if period is None:
        raise Http404(_("There is no such period."))
    next_one = checkpoints.upcoming(period, now=now)
    lines = _lines(held, next_one, now) if next_one else []
    can_add = may_administer(user)
    to_decide, asked = _exemptions(user, held, period, now)
    return CheckpointsPage(
        period=period,
        rows=_rows(held, period, next_one, can_add, now),
        ahead=next_one,
        lines=lines,
        losing=sum(line.loss.amount_mgpus > 0 for line in lines),
        amount_mgpus=sum(line.loss.amount_mgpus for line in lines),
        to_decide=to_decide,
        asked=asked,
        can_add=can_add and period.status != Period.Status.CLOSED and period.ends_at > now,
    )


def exemption_to_decide(user: Person, *, pk: int) -> Exemption:
    """Return an exemption that a person decides on; refused to those who only see it."""
    found = get_exemption_or_404(user, pk)
    if not may_decide(standing(user), found):
        raise PermissionDenied(_("Who may decide requests for it decides on this."))
    return found


def checkpoint_to_remove(user: Person, *, pk: int) -> Checkpoint:
    """Return a checkpoint that a person may remove; refused to those who may not."""
    found = Checkpoint.objects.select_related("period").filter(pk=pk).first()
    if found is None:
        raise Http404(_("There is no such checkpoint."))
    if not may_administer(user):
        raise PermissionDenied(_("Checkpoints are set by the organisation's administrators."))
    return found


def _lines(held: Standing, checkpoint: Checkpoint, now: datetime) -> list[Line]:
    """The dearest first, then by path."""
    painted: Mapping[str, Any] = hues.of_budgets()
    found = losses(checkpoint=checkpoint, now=now)
    lines = [Line(one, painted[one.budget.path]) for one in found if held.sees(one.budget.path)]
    return sorted(lines, key=lambda line: (-line.loss.amount_mgpus, line.loss.budget.path))


def _rows(
    held: Standing, period: Period, next_one: Checkpoint | None, can_remove: bool, now: datetime
) -> list[Row]:
    rows = period.checkpoints.select_related("author").prefetch_related("results__budget")
    return [_row(held, one, next_one, can_remove and one.at > now) for one in rows]


def _row(held: Standing, one: Checkpoint, next_one: Checkpoint | None, removable: bool) -> Row:
    seen: Sequence[CheckpointResult] = [
        result for result in one.results.all() if held.sees(result.budget.path)
    ]
    since = takeback_rests.taken_since(one) if seen else {}
    taken = [Taken(result, since.get(result.budget_id, 0)) for result in seen if result.due_mgpus]
    return Row(
        checkpoint=one,
        results=taken,
        returned=[result for result in seen if result.returned_mgpus],
        taken_mgpus=sum(result.total_mgpus for result in taken),
        is_next=one == next_one,
        can_remove=removable,
    )


def _exemptions(
    user: Person, held: Standing, period: Period, now: datetime
) -> tuple[list[Exemption], list[Exemption]]:
    """Those that the reader decides on now, and all others that they see; the newest first."""
    rows = Exemption.objects.filter(visible_q(user, "budget__"), checkpoint__period=period)
    found = rows.select_related("checkpoint", "budget", "asked_by", "decided_by").order_by("-pk")
    open_ones = [
        one
        for one in found
        if one.status == Exemption.Status.ASKED
        and one.checkpoint.at > now
        and may_decide(held, one)
    ]
    return open_ones, [one for one in found if one not in open_ones]
