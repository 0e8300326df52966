"""What a budget will have settled when its period ends, as a range, at the rate of its own days.

The days are whole ones of UTC, of 24 hours each; `ledger.ahead` says what further ones come to.
What is known counts beside it: in flight is spent, and what is set aside is likely to be.
docs/reports.md has the sources, worked tables and a backtest.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from fractions import Fraction
from typing import NamedTuple

from budgets.models import Budget, Period
from budgets.periods import elapsed
from ledger import ahead
from ledger.burn import DAY
from ledger.figures import closed_until
from ledger.instants import to_seconds
from ledger.membership import Membership
from ledger.spent import settled_by_day

FIRST_SHOWN = Fraction(1, 20)  # of the period: until then a single job decides


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
    return Outlook(max(begins, last - ahead.MOST_DAYS * DAY), last, end - until)


class Known(NamedTuple):
    """What is known of a budget's further spending, in milli-GPU-seconds.

    In flight has run since the last close; held is set aside for what runs and what waits.
    """

    in_flight_mgpus: int = 0
    held_mgpus: int = 0


UNKNOWN = Known()


def forecast(
    *, settled_mgpus: int, daily: Sequence[int], rest: int, known: Known = UNKNOWN
) -> Range | None:
    """Return the range; None with less than three days, the oldest of which comes first.

    Nothing is unspent again: no end falls below what is settled and in flight, nor do the likely
    and the high one below what is set aside besides. ``rest`` in seconds.
    """
    found = path(settled_mgpus=settled_mgpus, daily=daily, rests=[rest], known=known)
    return found[0] if found else None


def path(
    *, settled_mgpus: int, daily: Sequence[int], rests: Sequence[int], known: Known = UNKNOWN
) -> list[Range]:
    """Return the range after each of some seconds; none with less than three days."""
    if not any(rests):
        return [Range(settled_mgpus, settled_mgpus, settled_mgpus) for _ in rests]
    pace = ahead.pace(daily)
    if pace is None:
        return []
    found = []
    for rest in rests:
        low, likely, high = pace.sums(rest / DAY)
        spent, aside = known if rest else UNKNOWN
        likely = max(likely, spent + aside)
        ends = (max(low, spent), likely, max(high, likely))
        found.append(Range(*(settled_mgpus + end for end in ends)))
    return found


def ranges(
    *,
    view: Outlook,
    settled: dict[int, int],
    spent: Iterable[tuple[int, int, int]],
    known: Mapping[int, Known],
) -> dict[int, Range | None]:
    """Return the range of each row, by what is known of it.

    ``spent``: (row, instant, milli-GPU-seconds) from first on.
    """
    daily = days_of(view, settled=settled, spent=spent)
    return {
        row: forecast(
            settled_mgpus=amount,
            daily=daily[row],
            rest=view.rest,
            known=known.get(row, UNKNOWN),
        )
        for row, amount in settled.items()
    }


def days_of(
    view: Outlook, *, settled: Mapping[int, int], spent: Iterable[tuple[int, int, int]]
) -> dict[int, list[int]]:
    """Return what each row settled on each whole day that is looked at.

    A row's days count from the one after its first, which may have begun at any hour, unless it
    had spent something before the days that are looked at.
    """
    days = range(view.first, view.last, DAY)
    daily: dict[int, dict[int, int]] = defaultdict(lambda: defaultdict(int))
    late: dict[int, int] = defaultdict(int)
    for row, at, amount in spent:
        daily[row][at // DAY * DAY] += amount
        late[row] += amount
    found = {}
    for row, amount in settled.items():
        mine = daily[row]
        values = [mine[day] for day in days]
        if amount == late[row]:  # nothing before
            first = next((n for n, value in enumerate(values) if value), len(values))
            values = values[first + 1 :]
        found[row] = values
    return found


def spent_since(
    view: Outlook, *, tree: Membership, below: Budget
) -> Iterable[tuple[int, int, int]]:
    """Yield what `ranges` takes, by budget: the days looked at, and the part of one since."""
    tomorrow = view.last + DAY
    return settled_by_day(view.first, tomorrow, tree=tree, below=below)
