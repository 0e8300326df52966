"""Leads' plans: what a budget means to use of its grant in each month or quarter of a period."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from fractions import Fraction
from zoneinfo import ZoneInfo

from django.contrib.auth.models import User
from django.db import transaction

from budgets import periods
from budgets.core import plans as core
from budgets.core.plans import WHOLE, Curve, Span
from budgets.models import Budget, BudgetPlan, Period
from budgets.refusals import Refused, check_instant, percent

NOTE_MAX = 300


@dataclass(frozen=True)
class Plans:
    """The curves in force in a period at an instant: of budgets with a plan, and all others'."""

    own: Mapping[int, Curve]  # by budget id
    even: Curve

    def of(self, budget_id: int) -> Curve:
        return self.own.get(budget_id, self.even)

    def planned(self, budget_id: int, at: datetime) -> Fraction:
        """Return which part of a budget's grant is planned to be used by an instant, 0 to 1.

        Without a plan that is the elapsed part of the period's time with GPUs.
        """
        return self.of(budget_id).at(_seconds(at))

    def elapsed(self, at: datetime) -> Fraction:
        """Return how much of the period's time with GPUs has passed at an instant, 0 to 1."""
        return self.even.at(_seconds(at))


def load(*, period: Period, at: datetime) -> Plans:
    """Return what is planned in a period as it was planned at an instant. Two queries."""
    found = {pk: curve(plan) for pk, plan in _newest(period, at).items()}
    return Plans({pk: own for pk, own in found.items() if own is not None}, _even(period))


def planned_to_date(*, granted_mgpus: int, curve: Curve, at: datetime) -> int:
    """Return how much of a grant is planned to be used by an instant, rounded down."""
    return core.planned_to_date(granted=granted_mgpus, curve=curve, at=_seconds(at))


def in_force(*, budget: Budget, period: Period, at: datetime) -> BudgetPlan | None:
    """Return the plan of a budget that was the newest at an instant, if it had any."""
    made = BudgetPlan.objects.filter(budget=budget, period=period, created_at__lte=at)
    return made.select_related("period", "author").order_by("-version").first()


def spans(period: Period, by: str) -> list[Span]:
    """Return the months or quarters of a period, on the clocks of its accounting time zone."""
    start, end = _seconds(period.starts_at), _seconds(period.ends_at)
    return core.spans(start=start, end=end, zone=ZoneInfo(period.time_zone), by=by)


def curve(plan: BudgetPlan) -> Curve | None:
    """Return the curve of a plan, None of one that was made for other months than its period's."""
    over = spans(plan.period, plan.by)
    return core.stepped(plan.parts, over) if len(plan.parts) == len(over) else None


def begun(*, budget: Budget, period: Period, by: str, at: datetime) -> list[int | None]:
    """Return the part of each month or quarter that has begun, None of those ahead.

    What has begun stays as it was planned: evenly, where nothing was.
    """
    plan = in_force(budget=budget, period=period, at=at)
    now = (curve(plan) if plan else None) or _even(period)
    return core.begun(now, spans(period, by), _seconds(at))


def write_plan(
    *,
    budget: Budget,
    period: Period,
    by: str,
    parts: Sequence[int],
    note: str = "",
    author: User,
    base_version: int,
    now: datetime,
) -> BudgetPlan:
    """Write the next version of a budget's plan; it is in force from now on.

    `parts` are thousandths of a percent, one for each month or quarter of the period, 100,000 in
    all. `base_version` is the version that the author saw, 0 for none. Refused for a period that
    is closed, on an outdated version, or where a month or quarter that has begun would change.
    """
    check_instant(now, "now")
    if by not in BudgetPlan.By.values:
        raise Refused("by", f"{by!r} is no part of a period: plan by month or by quarter.")
    if len(note := note.strip()) > NOTE_MAX:
        raise Refused("note", f"The note is longer than {NOTE_MAX} characters: shorten it.")
    if period.status == Period.Status.CLOSED or period.ends_at <= now:
        raise Refused("period", f"{period.name} is over: plan for one that isn't.")
    with transaction.atomic():
        Budget.objects.select_for_update(no_key=True).get(pk=budget.pk)
        newest = BudgetPlan.objects.filter(budget=budget, period=period).order_by("version").last()
        version = newest.version if newest else 0
        if base_version != version:
            raise Refused(
                "base_version",
                f"The plan of {budget.path} is at version {version} now, yours is based on "
                f"{base_version}: look at the present one and plan again.",
            )
        _check_parts(budget, period, by, parts, now)
        return BudgetPlan.objects.create(
            budget=budget,
            period=period,
            version=version + 1,
            by=by,
            parts=list(parts),
            note=note,
            author=author,
            created_at=now,
        )


def _check_parts(
    budget: Budget, period: Period, by: str, parts: Sequence[int], now: datetime
) -> None:
    over = spans(period, by)
    if len(parts) != len(over):
        raise Refused("parts", f"{period.name} has {len(over)} {by}s: give a percent for each.")
    if any(part < 0 for part in parts):
        raise Refused("parts", "A part can't be below 0 %.")
    if sum(parts) != WHOLE:
        raise Refused("parts", f"The parts total {percent(sum(parts))}: make it 100.000 %.")
    fixed = begun(budget=budget, period=period, by=by, at=now)
    for span, part, was in zip(over, parts, fixed, strict=True):
        if was is not None and part != was:
            raise Refused(
                "parts",
                f"The {by} from {_day(period, span)} has begun, so its part stays "
                f"{percent(was)}: change those that lie ahead.",
            )


def _newest(period: Period, at: datetime) -> dict[int, BudgetPlan]:
    """Return each budget's plan in force, by budget id."""
    made = BudgetPlan.objects.filter(period=period, created_at__lte=at).select_related("period")
    return {plan.budget_id: plan for plan in made.order_by("version")}


def _even(period: Period) -> Curve:
    start, end = _seconds(periods.begins(period)), _seconds(period.ends_at)
    return core.even(start=start, end=end)


def _day(period: Period, span: Span) -> str:
    return f"{datetime.fromtimestamp(span.start, ZoneInfo(period.time_zone)):%-d %B %Y}"


def _seconds(at: datetime) -> int:
    return int(at.timestamp())
