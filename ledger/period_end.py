"""What a budget will have settled when its period ends, as a range, at the rate of its own days.

The days are whole ones of UTC, of 24 hours each. With n of them, of mean m and variance s² (n − 1),
and D days (and parts of one) to go:

    likely = settled + m·D        low, high = likely ∓ t·s·√(D·(1 + D÷n))

That is the interval in which the sum of D further days lies four times out of five, if they come
from where these n came (Student's t, n − 1 degrees of freedom; one day's scatter, D times over, and
what n days can't tell of the mean). docs/reports.md has the sources and a worked table.
"""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from fractions import Fraction
from math import isqrt

from budgets.models import Budget, Period
from budgets.periods import elapsed
from ledger.burn import DAY
from ledger.figures import closed_until
from ledger.instants import to_seconds
from ledger.membership import Membership
from ledger.spent import settled_by_day

FIRST_SHOWN = Fraction(1, 20)  # of the period: until then a single job decides
LEAST_DAYS, MOST_DAYS, WEEK = 3, 28, 7
# 0.9 quantile of Student's t by degrees of freedom, per mille; for the numbers of days there are.
T_PER_MILLE = {2: 1886, 3: 1638, 4: 1533, 5: 1476, 6: 1440, 13: 1350, 20: 1325, 27: 1314}


@dataclass(frozen=True, slots=True)
class Range:
    """Milli-GPU-seconds settled at a period's end: four times out of five between low and high."""

    low_mgpus: int
    likely_mgpus: int
    high_mgpus: int


@dataclass(frozen=True, slots=True)
class Outlook:
    """What is left of a period: whole days of UTC that rates are taken from, and seconds to go.

    ``first`` and ``last`` are midnights, in seconds since 1970.
    """

    first: int
    last: int
    rest: int


def outlook(period: Period, now: datetime) -> Outlook | None:
    """Return what forecasts of a period are made from; None while it is too early for any."""
    closed = closed_until()
    if closed is None or elapsed(period, now) < FIRST_SHOWN:
        return None
    end = to_seconds(period.ends_at)
    until = min(to_seconds(closed), end)
    last = until // DAY * DAY
    begins = -(-to_seconds(period.starts_at) // DAY) * DAY
    return Outlook(max(begins, last - MOST_DAYS * DAY), last, end - until)


def forecast(*, settled_mgpus: int, daily: Sequence[int], rest: int) -> Range | None:
    """Return the range; None with less than three days, the oldest of which comes first.

    Whole weeks where there are any, so that a weekend more or less doesn't tilt the mean. Nothing
    is unspent again: neither the mean nor the low end falls below what is settled. ``rest`` in
    seconds.
    """
    if not rest:
        return Range(settled_mgpus, settled_mgpus, settled_mgpus)
    number = min(len(daily), MOST_DAYS)
    number -= number % WEEK if number > WEEK else 0
    if number < LEAST_DAYS:
        return None
    days = daily[-number:]
    total, squares = sum(days), sum(day * day for day in days)
    likely = settled_mgpus + max(0, total) * rest // (number * DAY)
    to_go = Fraction(rest, DAY)
    variance = Fraction(number * squares - total * total, number * (number - 1))
    t = Fraction(T_PER_MILLE[number - 1], 1000)
    width = isqrt(int(t * t * variance * to_go * (1 + to_go / number)))
    return Range(max(settled_mgpus, likely - width), likely, likely + width)


def ranges(
    *,
    view: Outlook,
    settled: dict[int, int],
    spent: Iterable[tuple[int, int, int]],
) -> dict[int, Range | None]:
    """Return the range of each row. ``spent``: (row, instant, milli-GPU-seconds) from first on.

    A row's days count from the one after its first, which may have begun at any hour, unless it
    had spent something before the days that are looked at.
    """
    days = range(view.first, view.last, DAY)
    daily: dict[int, dict[int, int]] = defaultdict(lambda: defaultdict(int))
    late: dict[int, int] = defaultdict(int)
    for row, at, amount in spent:
        daily[row][at // DAY * DAY] += amount
        late[row] += amount
    found: dict[int, Range | None] = {}
    for row, amount in settled.items():
        mine = daily[row]
        values = [mine[day] for day in days]
        if amount == late[row]:  # nothing before
            first = next((n for n, value in enumerate(values) if value), len(values))
            values = values[first + 1 :]
        found[row] = forecast(settled_mgpus=amount, daily=values, rest=view.rest)
    return found


def spent_since(
    view: Outlook, *, tree: Membership, below: Budget
) -> Iterable[tuple[int, int, int]]:
    """Yield what `ranges` takes, by budget: the days looked at, and the part of one since."""
    tomorrow = view.last + DAY
    return settled_by_day(view.first, tomorrow, tree=tree, below=below)
