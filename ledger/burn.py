"""How fast a budget spends: by day, as a rate, against time, and how long the rest will last."""

from bisect import bisect_right
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta, tzinfo
from fractions import Fraction

from budgets.models import Budget, Period
from budgets.periods import active
from ledger.instants import midnight, span, to_seconds, whole
from ledger.membership import Membership
from ledger.running import closed_span
from ledger.spent import PeriodSpent, Spent, amounts_between, settled_by_time, settled_over

DAY = 24 * 3600
SMOOTHING = timedelta(days=7)


@dataclass(frozen=True, slots=True)
class DayBurn:
    """What a budget and all below it settled on one local day: milli-GPU-seconds, GPU-seconds.

    Settled is what was spent on busy, parked and real-time GPUs, and the day's corrections.
    """

    day: date
    settled_mgpus: int
    busy_mgpus: int
    parked_mgpus: int
    realtime_mgpus: int
    corrected_mgpus: int
    busy_gpu_seconds: int
    parked_gpu_seconds: int
    realtime_gpu_seconds: int
    unfunded_gpu_seconds: int


def burn_by_day(
    *,
    budget: Budget,
    start: datetime,
    end: datetime,
    zone: tzinfo = UTC,
    tree: Membership | None = None,
) -> list[DayBurn]:
    """Return a row for each day of a time zone that [start, end) touches, in order.

    A day runs from midnight to midnight on that zone's clocks, so it may last 23 or 25 hours.
    A charge over midnight is split by whole seconds; refunds and adjustments count on the day they
    were written. What stood below the budget when it ran counts. ``tree``: who stood under whom,
    where it is loaded already.
    """
    start, end = span(start, end)
    days = list(_days(start, end, zone))
    edges = [first for _, first in days]
    totals = [Spent() for _ in days]
    if days:
        tree = tree or Membership.load()
        borders = [*edges, to_seconds(end)]
        for piece in settled_by_time(borders, tree=tree, below=budget, zone=zone):
            totals[bisect_right(edges, piece.start) - 1].add(piece.spent)
    return [
        DayBurn(
            day,
            spent.settled_mgpus,
            spent.busy_mgpus,
            spent.parked_mgpus,
            spent.realtime_mgpus,
            spent.corrected_mgpus,
            spent.busy_gpu_seconds,
            spent.parked_gpu_seconds,
            spent.realtime_gpu_seconds,
            spent.unfunded_gpu_seconds,
        )
        for (day, _), spent in zip(days, totals, strict=True)
    ]


def burned(
    *,
    budget: Budget,
    start: datetime,
    end: datetime,
    now: datetime,
    tree: Membership,
    read: Mapping[int, Iterable[PeriodSpent]] | None = None,
) -> Spent:
    """Return what a budget and all below it settled in [start, end), as of now.

    ``read``: the sums of periods that have been read already, by their id.
    """
    total = Spent()
    for piece in settled_over(*span(start, end), now=now, tree=tree, below=budget, read=read):
        total.add(piece.spent)
    return total


def _days(start: datetime, end: datetime, zone: tzinfo) -> Iterable[tuple[date, int]]:
    """Yield each local day that [start, end) touches, with its first second inside."""
    day = start.astimezone(zone).date()
    while True:
        begins = midnight(day, zone)
        if begins >= end:
            return
        yield day, to_seconds(max(begins, start))
        day += timedelta(days=1)


def burn_rate(*, budget: Budget, now: datetime) -> int:
    """Return what a budget and all below it are charged per day, in milli-GPU-seconds.

    Smoothed: the mean over the last seven days up to the last closed timestep, or over what the
    active period has of closed timesteps if that is less; 0 before anything was charged.
    """
    period = active(whole(now, "now"))
    window = rate_window(period, now) if period else None
    if window is None:
        return 0
    spent = amounts_between(*window, tree=Membership.load(), below=budget)
    return per_day(sum(amount for _, _, amount in spent), window)


def rate_window(period: Period, now: datetime) -> tuple[datetime, datetime] | None:
    """Return the interval that burn rates are taken over; None if nothing is closed yet."""
    closed = closed_span()
    if closed is None:
        return None
    first, last = closed
    end = min(last, now, period.ends_at)
    start = max(period.starts_at, end - SMOOTHING, first)
    return (start, end) if start < end else None


def per_day(amount: int, window: tuple[datetime, datetime]) -> int:
    seconds = to_seconds(window[1]) - to_seconds(window[0])
    return max(0, amount) * DAY // seconds


def runway_days(*, spendable_mgpus: int, burn_rate_mgpus: int) -> Fraction | None:
    """Return how many days the spendable credits last at a burn rate; None if nothing is spent."""
    if burn_rate_mgpus <= 0:
        return None
    return Fraction(max(0, spendable_mgpus), burn_rate_mgpus)


def pace(*, used_mgpus: int, granted_mgpus: int, planned: Fraction) -> Fraction | None:
    """Return used ÷ (granted × what part of it is planned to date); None where nothing is.

    The part is the budget's plan's, else the elapsed share of the period (`budgets.plans`). 1 is
    on time: at a quarter of the period a quarter is used. Used is settled + in flight.
    """
    to_date = granted_mgpus * planned
    return Fraction(used_mgpus) / to_date if to_date > 0 else None
