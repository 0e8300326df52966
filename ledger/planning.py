"""A budget's plan of a period with what the ledger says to it: for its page and the API."""

from dataclasses import dataclass
from datetime import datetime
from fractions import Fraction
from zoneinfo import ZoneInfo

from budgets import periods, plans
from budgets.core.plans import parts_of, planned_to_date
from budgets.models import Budget, BudgetPlan, Period
from clusters.writing import dated
from ledger.burn import pace
from ledger.instants import from_seconds, to_seconds
from ledger.standing import figures


@dataclass(frozen=True)
class Part:
    """One month or quarter: [starts_at, ends_at), its thousandths of a percent, what that makes.

    ``begun``: it stays as it is. ``ahead``: it has not begun, and stays for what it begins in or
    before.
    """

    starts_at: datetime
    ends_at: datetime
    label: str
    thousandths: int
    begun: bool
    ahead: bool
    planned_mgpus: int


@dataclass(frozen=True)
class Planned:
    """A plan in force, or in its place the even one; milli-GPU-seconds.

    ``plan`` is the newest version; None, or one without parts: the budget has no plan.
    """

    budget: Budget
    period: Period
    plan: BudgetPlan | None
    by: str
    parts: tuple[Part, ...]
    granted_mgpus: int
    used_mgpus: int
    planned_to_date_mgpus: int
    pace: Fraction | None

    @property
    def has_plan(self) -> bool:
        return self.plan is not None and bool(self.plan.parts)

    @property
    def version(self) -> int:
        return self.plan.version if self.plan else 0

    @property
    def author(self) -> str | None:
        return self.plan.author.get_username() if self.plan else None

    @property
    def created_at(self) -> datetime | None:
        return self.plan.created_at if self.plan else None

    @property
    def note(self) -> str:
        return self.plan.note if self.plan else ""

    @property
    def pace_per_mille(self) -> int | None:
        return None if self.pace is None else int(self.pace * 1000)


def period_of(pk: int | None, *, now: datetime) -> Period | None:
    """Return a period by id, or without one the active one; None where there is none."""
    return periods.active(now) if pk is None else Period.objects.filter(pk=pk).first()


def planned(*, budget: Budget, period: Period, by: str | None = None, now: datetime) -> Planned:
    """Return a budget's plan by month or quarter; ``by`` left out: as it is planned.

    Asked for by the other, each part has what is planned from its start to its end.
    """
    plan = plans.newest(budget=budget, period=period, at=now)
    by = by or (plan.by if plan else BudgetPlan.By.MONTH)
    in_force = plans.load(period=period, at=now)
    curve = in_force.of(budget.pk)
    at = min(max(now, period.starts_at), period.ends_at)
    mine = figures(period=period, now=now).get(budget.pk)
    granted = mine.granted_mgpus if mine else 0
    used = mine.settled_mgpus + mine.in_flight_mgpus if mine else 0
    over = plans.spans(period, by)
    kept = plans.kept(budget=budget, period=period, by=by, at=now)
    amounts = [planned_to_date(granted=granted, curve=curve, at=span.end) for span in over]
    before = [0, *amounts]
    parts = (
        Part(
            starts_at=from_seconds(span.start),
            ends_at=from_seconds(span.end),
            label=_label(span.start, period, by),
            thousandths=part,
            begun=kept[number] is not None,
            ahead=span.start > to_seconds(now),
            planned_mgpus=amount - before[number],
        )
        for number, (span, part, amount) in enumerate(
            zip(over, parts_of(curve, over), amounts, strict=True)
        )
    )
    return Planned(
        budget=budget,
        period=period,
        plan=plan,
        by=by,
        parts=tuple(parts),
        granted_mgpus=granted,
        used_mgpus=used,
        planned_to_date_mgpus=plans.planned_to_date(granted_mgpus=granted, curve=curve, at=at),
        pace=pace(used_mgpus=used, granted_mgpus=granted, planned=in_force.planned(budget.pk, at)),
    )


def _label(start: int, period: Period, by: str) -> str:
    first = from_seconds(start).astimezone(ZoneInfo(period.time_zone))
    return dated(first, "F Y" if by == BudgetPlan.By.MONTH else "j F Y")
