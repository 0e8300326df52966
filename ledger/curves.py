"""What was left of a budget's grant, and what it was planned to be, over a period."""

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from fractions import Fraction
from itertools import groupby

from budgets.core.plans import Curve
from budgets.models import Budget, Period
from ledger.figures import GRANTED
from ledger.instants import from_seconds, to_seconds
from ledger.membership import Membership
from ledger.models import Entry
from ledger.spent import settled_by_time


@dataclass(frozen=True, slots=True)
class Step:
    """What a budget's grant moved by at an instant, in milli-GPU-seconds."""

    at: datetime
    amount_mgpus: int


Points = list[tuple[datetime, int]]


def granted_steps(
    *, budget: Budget, period: Period, until: datetime, begins: datetime
) -> list[Step]:
    """Return the grants, carry-overs and transfers of a budget up to an instant. One query.

    What was granted before the period had GPUs, as it ``begins``, counts from when it had.
    """
    entries = Entry.objects.filter(budget=budget, period=period, kind__in=GRANTED, at__lte=until)
    rows = entries.exclude(amount_mgpus=0).order_by("at", "pk").values_list("at", "amount_mgpus")
    return [
        Step(at, sum(amount for _, amount in group))
        for at, group in groupby(rows, key=lambda row: max(row[0], begins))
    ]


def left(
    *, budget: Budget, steps: Sequence[Step], instants: Sequence[datetime], tree: Membership
) -> Points:
    """Return what was left (granted − settled) at each instant, and around each step.

    `instants` in order, inside the period. What stood below the budget at the time counts. A step
    gives two points, so that it is drawn upright. Three queries.
    """
    marks = sorted({*instants, *(step.at for step in steps if step.at <= instants[-1])})
    borders = [to_seconds(at) for at in marks]
    settled = _settled(budget, borders, tree) if len(marks) > 1 else [0]
    by_instant = {step.at: step.amount_mgpus for step in steps}
    points: Points = []
    granted = 0
    for at, spent in zip(marks, settled, strict=True):
        if at in by_instant:
            if points:
                points.append((at, granted - spent))
            granted += by_instant[at]
        points.append((at, granted - spent))
    return points


def _settled(budget: Budget, borders: list[int], tree: Membership) -> list[int]:
    """Return what was settled between the first mark and each mark."""
    totals = [0] * len(borders)
    for piece in settled_by_time(borders, tree=tree, below=budget, parts=False):
        end = max(piece.end, piece.start + 1)
        totals[min(bisect_right(borders, end - 1), len(borders) - 1)] += piece.spent.settled_mgpus
    running, sums = 0, []
    for total in totals:
        running += total
        sums.append(running)
    return sums


def plan(*, curve: Curve, steps: Sequence[Step]) -> Points:
    """Return what is planned to be left: of each step, what the curve plans for after it.

    Two points at each step, so that it is drawn upright, and one where the curve bends.
    """
    if not steps:
        return []
    bends = [from_seconds(mark) for mark in curve.marks if mark > to_seconds(steps[0].at)]
    points: Points = []
    for at in sorted({*bends, *(step.at for step in steps)}):
        before = [step for step in steps if step.at < at]
        upto = [step for step in steps if step.at <= at]
        if before:
            points.append((at, planned_left(curve=curve, steps=before, at=at)))
        if len(upto) > len(before):
            points.append((at, planned_left(curve=curve, steps=upto, at=at)))
    return points


def planned_left(*, curve: Curve, steps: Sequence[Step], at: datetime) -> int:
    """Return what is planned to be left at an instant, of the steps up to it.

    A step that comes when nothing is planned any more counts as used.
    """
    rest = 1 - curve.at(to_seconds(at))
    after = ((step.amount_mgpus, 1 - curve.at(to_seconds(step.at))) for step in steps)
    parts = (amount * rest / whole for amount, whole in after if whole)
    return int(sum(parts, Fraction(0)))


def daily_and_hourly(start: datetime, end: datetime, *, fine_from: datetime) -> list[datetime]:
    """Return instants to ask at: every day of UTC, every hour from `fine_from` on; both ends."""
    day, hour = 86_400, 3600
    first, last = to_seconds(start), to_seconds(end)
    fine = min(max(to_seconds(fine_from), first), last)
    days = range(first // day * day + day, fine, day)
    hours = range(fine // hour * hour + hour, last, hour)
    return [from_seconds(at) for at in dict.fromkeys((first, *days, *hours, last))]
