"""The burn-down of one budget, in the format that static/charts.js draws (docs/ui.md)."""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

from django.utils.translation import gettext as _

from allocator.pages import burn_fan, burning, changes
from allocator.pages.burn_fan import Fan
from allocator.pages.changes import Change
from budgets import hues, periods, plans
from budgets.access import Person, get_budget_or_404
from budgets.models import Budget, ChangeSet, Period
from clusters.reading import reading
from clusters.writing import dated
from ledger import curves
from ledger.curves import Step
from ledger.membership import Membership

FINE = timedelta(days=3)  # the last days are drawn by the hour
MARKS = 6
CREDIT = 3_600_000  # milli-GPU-seconds


@reading()
def burndown(user: Person, *, path: str, now: datetime) -> dict[str, Any] | None:
    """Return the chart's data for who may see the budget; None where no period is running."""
    budget = get_budget_or_404(user, path)
    period = periods.active(now)
    if period is None:
        return None
    tree, planned = Membership.load(), plans.load(period=period, at=now)
    begins = planned.begins
    steps = curves.granted_steps(budget=budget, period=period, until=now, begins=begins)
    instants = curves.daily_and_hourly(begins, now, fine_from=now - FINE)
    left = curves.left(budget=budget, steps=steps, instants=instants, tree=tree)
    mine = burning.burns(period=period, now=now, only={budget.pk}, tree=tree, planned=planned)[
        budget.pk
    ]
    marks = _marks(budget, period, now)
    chart: dict[str, Any] = {
        "hue": hues.of_budgets()[budget.path],
        "zone": period.time_zone,
        "from": _iso(begins),
        "to": _iso(period.ends_at),
        "now": _iso(now),
        # What runs since the last close is spent too, though not settled yet.
        "left_mgpus": _points([*left[:-1], (now, left[-1][1] - mine.figures.in_flight_mgpus)]),
        "plan_mgpus": _points(curves.plan(curve=planned.of(budget.pk), steps=steps)),
        "marks": [*marks, *_moves(steps, marks)],
    }
    forecast = burn_fan.fan(budget=budget, period=period, figures=mine.figures, now=now, tree=tree)
    if forecast is not None:
        chart["forecast_mgpus"] = _fan(forecast)
        if forecast.likely is not None:
            label = _range(forecast, ZoneInfo(period.time_zone))
            chart["runs_out"] = {"at": _iso(forecast.likely), "label": label}
    elif mine.runs_out and mine.judged:
        day = _day(mine.runs_out, ZoneInfo(period.time_zone))
        label = [_("runs out"), _("likely %(day)s") % {"day": day}]
        chart["runs_out"] = {"at": _iso(mine.runs_out), "label": label}
    return chart


def _fan(forecast: Fan) -> list[list[Any]]:
    """Return what will be left, nothing at least, until nothing is left at the low burn either."""
    found: list[list[Any]] = []
    for one in forecast.points:
        amounts = (one.low_mgpus, one.likely_mgpus, one.high_mgpus)
        found.append([_iso(one.at), *(max(0, amount) for amount in amounts)])
        if one.high_mgpus <= 0:
            break
    return found


def _range(forecast: Fan, zone: ZoneInfo) -> list[str]:
    """Say between which days the grant runs out, and on which it is likely to."""
    first, last = forecast.earliest or forecast.likely, forecast.latest
    assert first is not None
    assert forecast.likely is not None
    days = {"first": _day(first, zone), "last": _day(last, zone) if last else ""}
    words = _("runs out %(first)s – %(last)s") if last else _("runs out from %(first)s on")
    if last and days["first"] == days["last"]:
        return [_("runs out %(first)s") % days]
    return [words % days, _("likely %(day)s") % {"day": _day(forecast.likely, zone)}]


def _day(at: datetime, zone: ZoneInfo) -> str:
    return dated(at.astimezone(zone), "j M")


def _marks(budget: Budget, period: Period, now: datetime) -> list[dict[str, Any]]:
    """Return the changes of the budget's own share in the period, proposals dashed."""
    marks = []
    for change in changes.of_child(budget, limit=MARKS):
        one = change.change_set
        inside = period.starts_at < one.effective_at < period.ends_at
        if inside and one.status in (ChangeSet.Status.APPROVED, ChangeSet.Status.PROPOSED):
            at = max(one.effective_at, now) if change.is_open else one.effective_at
            marks += [
                {"at": _iso(at), "label": label, "draft": change.is_open}
                for label in _labels(change)
            ]
    return marks


def _moves(steps: Sequence[Step], marks: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return the grants and transfers that no change of the share explains."""
    known = {mark["at"] for mark in marks}
    return [
        {"at": _iso(step.at), "label": _signed(step.amount_mgpus)}
        for step in steps[1:]
        if _iso(step.at) not in known
    ]


def _signed(amount_mgpus: int) -> str:
    words = {"credits": f"{round(amount_mgpus / CREDIT):+,}".replace("-", "−")}
    return _("%(credits)s cr") % words


def _labels(change: Change) -> list[str]:
    return [
        f"#{change.change_set.pk} {_percent(move.before)} → {_percent(move.after)}"
        for move in change.moves
        if not move.pool
    ]


def _percent(thousandths: int | None) -> str:
    return "–" if thousandths is None else f"{thousandths / 1000:g}"


def _points(points: curves.Points) -> list[list[Any]]:
    return [[_iso(at), amount] for at, amount in points]


def _iso(at: datetime) -> str:
    return f"{at.astimezone(UTC):%Y-%m-%dT%H:%M:%SZ}"
