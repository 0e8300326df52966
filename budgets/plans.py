"""Leads' plans: what a budget means to use of its grant in each month or quarter of a period."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from fractions import Fraction
from zoneinfo import ZoneInfo

from django.contrib.auth.models import User
from django.db import transaction
from django.utils.translation import gettext_noop

from budgets import access, checkpoints, periods
from budgets.core import plans as core
from budgets.core.plans import WHOLE, Curve, Span
from budgets.models import Budget, BudgetPlan, Notice, Period
from budgets.notices import tell
from budgets.refusals import Refused, check_instant, percent
from clusters.saying import say as _
from clusters.saying import state

NOTE_MAX = 300
NEAR = gettext_noop("lies in a quarter that has begun, or before a checkpoint that is announced")


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

    @property
    def begins(self) -> datetime:
        """From when the period has GPU-time to plan, as ``periods.begins`` says."""
        return datetime.fromtimestamp(self.even.marks[0], UTC)


def load(*, period: Period, at: datetime) -> Plans:
    """Return what is planned in a period as it was planned at an instant. Two queries."""
    even = _even(period)
    found = {pk: _in_force(period, made, even) for pk, made in _versions(period, at).items()}
    return Plans({pk: own for pk, own in found.items() if own is not None}, even)


def planned_to_date(*, granted_mgpus: int, curve: Curve, at: datetime) -> int:
    """Return how much of a grant is planned to be used by an instant, rounded down."""
    return core.planned_to_date(granted=granted_mgpus, curve=curve, at=_seconds(at))


def newest(*, budget: Budget, period: Period, at: datetime) -> BudgetPlan | None:
    """Return the newest version that was made by an instant, if there was any.

    One without parts says that the budget has no plan from then on.
    """
    made = BudgetPlan.objects.filter(budget=budget, period=period, created_at__lte=at)
    return made.select_related("period", "author").order_by("-version").first()


def spans(period: Period, by: str) -> list[Span]:
    """Return the months or quarters of a period, on the clocks of its accounting time zone."""
    start, end = _seconds(period.starts_at), _seconds(period.ends_at)
    return core.spans(start=start, end=end, zone=ZoneInfo(period.time_zone), by=by)


def kept(*, budget: Budget, period: Period, by: str, at: datetime) -> list[int | None]:
    """Return the part of each month or quarter that stays as it is planned, None of the others.

    Once the period has begun, those stay that have begun, or begin before the end of the month or
    quarter that runs by the plan in force, or before a checkpoint of own plans of which leads are
    told already. So nobody plans away what was planned to date, nor a checkpoint that is near.
    """
    versions = _versions(period, at, budget=budget).get(budget.pk, [])
    even = _even(period)
    over, until = spans(period, by), _open_from(period, versions, at)
    parts = core.parts_of(_in_force(period, versions, even) or even, over)
    return [part if span.start < until else None for span, part in zip(over, parts, strict=True)]


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
    is over, on an outdated version, or where a month or quarter would change that stays (`kept`):
    up to the end of those, all that was planned stays exactly as it was.
    """
    check_instant(now, "now")
    if by not in BudgetPlan.By.values:
        raise Refused(
            "by", _("%(by)s is no part of a period: plan by month or by quarter.", by=repr(by))
        )
    if len(note := note.strip()) > NOTE_MAX:
        raise Refused(
            "note", _("The note is longer than %(most)s characters: shorten it.", most=NOTE_MAX)
        )
    with transaction.atomic():
        # One version after the other, and none by borders that a draft just left.
        period = Period.objects.select_for_update(no_key=True).get(pk=period.pk)
        if period.status == Period.Status.CLOSED or period.ends_at <= now:
            raise Refused(
                "period", _("%(period)s is over: plan for one that isn't.", period=period.name)
            )
        last = BudgetPlan.objects.filter(budget=budget, period=period).order_by("version").last()
        version = last.version if last else 0
        if base_version != version:
            raise _outdated(budget, version, base_version)
        return BudgetPlan.objects.create(
            budget=budget,
            period=period,
            version=version + 1,
            by=by,
            parts=list(parts),
            kept_until=_checked(budget, period, by, parts, now),
            note=note,
            author=author,
            created_at=now,
        )


def _outdated(budget: Budget, version: int, base_version: int) -> Refused:
    return Refused(
        "base_version",
        _(
            "The plan of %(budget)s is at version %(version)s now, yours is based on "
            "%(base_version)s: look at the present one and plan again.",
            budget=budget.path,
            version=version,
            base_version=base_version,
        ),
    )


def end_unfit(*, before: Period, period: Period, author: User, now: datetime) -> None:
    """End the plans of a draft whose borders change, but for those of the same months still.

    What leads planned for October is no plan of November: theirs end by a version without parts,
    and they are told to plan again. The caller holds the period's lock.
    """
    same = {by: _starts_in(before, by) == _starts_in(period, by) for by in BudgetPlan.By.values}
    made = BudgetPlan.objects.filter(period=period).order_by("version")
    last = {plan.budget_id: plan for plan in made}
    unfit = [plan for plan in last.values() if plan.parts and not same[plan.by]]
    budgets = Budget.objects.in_bulk([plan.budget_id for plan in unfit])
    for plan in unfit:
        _end(plan, budgets[plan.budget_id], period, author, now)


def _end(plan: BudgetPlan, budget: Budget, period: Period, author: User, now: datetime) -> None:
    text = _(
        "The dates of %(period)s have changed, so it has other %(parts)s than version %(version)s "
        "of the plan of %(budget)s: it counts no more, and time is its plan. Plan again.",
        period=period.name,
        parts=_parts(plan.by),
        version=plan.version,
        budget=budget.path,
    )
    ended = BudgetPlan.objects.create(
        budget=budget,
        period=period,
        version=plan.version + 1,
        by=plan.by,
        parts=[],
        note=f"The dates of {period.name} have changed, and with them its {plan.by}s.",
        author=author,
        created_at=max(now, plan.created_at),
    )
    tell(
        users=access.leads(budget).exclude(pk=author.pk),
        budget=budget,
        kind=Notice.Kind.ENDED,
        text=text,
        key=f"plan:{ended.pk}:ended",
        link=f"/budgets/{budget.path}/plan?period={period.pk}",
        now=now,
    )


def _parts(by: str) -> str:
    return _("months") if by == BudgetPlan.By.MONTH else _("quarters")


def _starts_in(period: Period, by: str) -> list[tuple[int, int]]:
    """Return the years and months on the period's clocks in which its parts begin."""
    zone = ZoneInfo(period.time_zone)
    first = [datetime.fromtimestamp(span.start, zone) for span in spans(period, by)]
    return [(at.year, at.month) for at in first]


def _checked(
    budget: Budget, period: Period, by: str, parts: Sequence[int], now: datetime
) -> datetime | None:
    """Refuse parts that make no plan or change what stays; return until when it does, if at all."""
    over = spans(period, by)
    if len(parts) != len(over):
        raise Refused(
            "parts",
            _(
                "%(period)s has %(count)s %(parts)s: give a percent for each.",
                period=period.name,
                count=len(over),
                parts=_parts(by),
            ),
        )
    if any(part < 0 for part in parts):
        raise Refused("parts", _("A part can't be below 0 %."))
    if sum(parts) != WHOLE:
        raise Refused(
            "parts", _("The parts total %(parts)s: make it 100.000 %%.", parts=percent(sum(parts)))
        )
    fixed = kept(budget=budget, period=period, by=by, at=now)
    for span, part, was in zip(over, parts, fixed, strict=True):
        if was is not None and part != was:
            why = _("has begun") if span.start <= _seconds(now) else _(NEAR)
            raise Refused(
                "parts",
                _(
                    "The %(part)s from %(day)s %(why)s, so its part stays %(was)s: change those "
                    "that lie ahead.",
                    part=state(BudgetPlan.By(by).label),
                    day=_day(period, span),
                    why=why,
                    was=percent(was),
                ),
            )
    ends = [span.end for span, was in zip(over, fixed, strict=True) if was is not None]
    return datetime.fromtimestamp(ends[-1], UTC) if ends else None


def _open_from(period: Period, versions: Sequence[BudgetPlan], at: datetime) -> int:
    """Return before which second months and quarters must begin to stay as they are planned."""
    now = _seconds(at)
    if at < period.starts_at:
        return now
    ahead = checkpoints.all_ahead(period, now=at).filter(own_plans=True)
    near = [one for one in ahead if checkpoints.told_from(one) <= at]
    found = [now + 1, *(_seconds(one.at) for one in near)]
    if versions and (plan := versions[-1]).parts:
        running = core.span_at(spans(period, plan.by), now)
        found += [running.end] if running else []
        found += [_seconds(plan.kept_until)] if plan.kept_until else []
    return max(found)


def _in_force(period: Period, versions: Sequence[BudgetPlan], even: Curve) -> Curve | None:
    """Return the curve of a budget's versions, the first one first; None: it has no plan.

    Each goes on where it may change something. One that was made for other months than the period
    has counts as none.
    """
    found: Curve | None = None
    over = {by: spans(period, by) for by in {plan.by for plan in versions}}
    for plan in versions:
        if len(plan.parts) != len(over[plan.by]):
            found = None
            continue
        mine = core.stepped(plan.parts, over[plan.by])
        until = plan.kept_until
        found = core.spliced(found or even, mine, _seconds(until)) if until else mine
    return found


def _versions(
    period: Period, at: datetime, *, budget: Budget | None = None
) -> dict[int, list[BudgetPlan]]:
    """Return each budget's versions that were made by an instant, in order, by budget id."""
    made = BudgetPlan.objects.filter(period=period, created_at__lte=at)
    found: dict[int, list[BudgetPlan]] = defaultdict(list)
    for plan in (made.filter(budget=budget) if budget else made).order_by("version"):
        found[plan.budget_id].append(plan)
    return found


def _even(period: Period) -> Curve:
    start, end = _seconds(periods.begins(period)), _seconds(period.ends_at)
    return core.even(start=start, end=end)


def _day(period: Period, span: Span) -> str:
    return f"{datetime.fromtimestamp(span.start, ZoneInfo(period.time_zone)):%-d %B %Y}"


def _seconds(at: datetime) -> int:
    return int(at.timestamp())
