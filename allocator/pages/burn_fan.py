"""What will be left of a budget's grant until its period ends, as a range, and when it runs out."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from budgets.models import Budget, Period
from ledger import period_end
from ledger.burn import DAY
from ledger.instants import from_seconds, to_seconds
from ledger.membership import Membership
from ledger.period_end import Known
from ledger.standing import Figures


@dataclass(frozen=True)
class Left:
    """Milli-GPU-seconds left at an instant, four times out of five between low and high."""

    at: datetime
    low_mgpus: int
    likely_mgpus: int
    high_mgpus: int


@dataclass(frozen=True)
class Fan:
    """From now to the period's end. When it runs out at the high, likely and low burn; None: later
    than the period."""

    points: tuple[Left, ...]
    earliest: datetime | None
    likely: datetime | None
    latest: datetime | None


def fan(
    *, budget: Budget, period: Period, figures: Figures, now: datetime, tree: Membership
) -> Fan | None:
    """Return what is forecast of a budget and all below it; None while it is too early.

    The same forecast as the burn report's, which it ends at. At most four queries.
    """
    view = period_end.outlook(period, now)
    if view is None or view.rest <= 0:
        return None
    spent = period_end.spent_since(view, tree=tree, below=budget)
    every = [(0, at, amount) for _, at, amount in spent]
    days = period_end.days_of(view, settled={0: figures.settled_mgpus}, spent=every)[0]
    rests = [*range(DAY, view.rest, DAY), view.rest]
    known = Known(figures.in_flight_mgpus, figures.held_mgpus)
    ranges = period_end.path(
        settled_mgpus=figures.settled_mgpus, daily=days, rests=rests, known=known
    )
    if not ranges:
        return None
    left = figures.granted_mgpus - figures.settled_mgpus - figures.in_flight_mgpus
    until = to_seconds(period.ends_at) - view.rest
    points = [Left(now, left, left, left)]
    for rest, one in zip(rests, ranges, strict=True):
        ends = (one.high_mgpus, one.likely_mgpus, one.low_mgpus)
        amounts = (figures.granted_mgpus - amount for amount in ends)
        points.append(Left(from_seconds(until + rest), *amounts))
    return Fan(
        points=tuple(points),
        earliest=_runs_out([(one.at, one.low_mgpus) for one in points]),
        likely=_runs_out([(one.at, one.likely_mgpus) for one in points]),
        latest=_runs_out([(one.at, one.high_mgpus) for one in points]),
    )


def _runs_out(points: Sequence[tuple[datetime, int]]) -> datetime | None:
    """Where a line through the points first reaches nothing; at the first, if nothing is left."""
    before: tuple[datetime, int] | None = None
    for at, left in points:
        if left <= 0:
            if before is None:
                return at
            begun, had = before
            seconds = int((at - begun).total_seconds())
            return from_seconds(to_seconds(begun) + seconds * had // (had - left))
        before = (at, left)
    return None
