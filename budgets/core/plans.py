"""How much of a grant is planned to be used by when: whole seconds, thousandths of a percent.

A period is parted into months of its accounting time zone, or into quarters of three such months
counted from its start. A plan gives each of them a percent of what is granted; inside one it rises
in a straight line.
"""

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, tzinfo
from fractions import Fraction
from itertools import accumulate, pairwise

WHOLE = 100_000  # 100 % in thousandths of a percent
MONTHS_IN = {"month": 1, "quarter": 3}


@dataclass(frozen=True, slots=True)
class Span:
    """One month or quarter of a period: [start, end), in seconds since 1970."""

    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Curve:
    """What part of a grant is planned to be used by an instant; straight between the marks.

    ``marks`` are seconds since 1970, rising; ``planned`` thousandths of a percent at each mark,
    from 0 to 100,000: whole ones, but where a plan was cut and another goes on. Before the first
    mark nothing is planned, after the last one everything.
    """

    marks: tuple[int, ...]
    planned: tuple[int | Fraction, ...]

    def __post_init__(self) -> None:
        rising = all(a < b for a, b in pairwise(self.marks))
        kept = all(a <= b for a, b in pairwise(self.planned))
        ends = (self.planned[0], self.planned[-1]) == (0, WHOLE)
        if not (rising and kept and ends and len(self.marks) == len(self.planned)):
            raise ValueError("A curve rises from 0 to 100 % over marks in order.")

    def at(self, seconds: int) -> Fraction:
        """Return the planned part at an instant, 0 to 1, exact."""
        if seconds <= self.marks[0]:
            return Fraction(0)
        if seconds >= self.marks[-1]:
            return Fraction(1)
        after = bisect_right(self.marks, seconds)
        start, end = self.marks[after - 1 : after + 1]
        low, high = self.planned[after - 1 : after + 1]
        risen = Fraction((high - low) * (seconds - start), end - start)
        return (low + risen) / WHOLE


def spans(*, start: int, end: int, zone: tzinfo, by: str) -> list[Span]:
    """Return the months or quarters of a period [start, end), in order; ``by`` names which.

    Borders are the midnights on the zone's clocks that begin a month; the first and the last
    month are cut by the period.
    """
    borders = [start, *_month_starts(start, end, zone)]
    kept = [*borders[:: MONTHS_IN[by]], end]
    return [Span(a, b) for a, b in pairwise(kept)]


def even(*, start: int, end: int) -> Curve:
    """Return the curve of a budget without a plan: the same in every second."""
    return Curve((start, end), (0, WHOLE))


def stepped(parts: Sequence[int], over: Sequence[Span]) -> Curve:
    """Return the curve of a plan: thousandths of a percent for each span, 100,000 in all."""
    marks = (over[0].start, *(span.end for span in over))
    return Curve(marks, (0, *accumulate(parts)))


def spliced(before: Curve, after: Curve, at: int) -> Curve:
    """Return the one curve up to an instant, exactly, and the other from then on.

    ``after`` may lie below it there by less than a thousandth of a percent, since parts are
    rounded: what is planned never falls.
    """
    level = before.at(at) * WHOLE
    first = [(mark, part) for mark, part in _points(before) if mark < at]
    rest = [(mark, max(level, part)) for mark, part in _points(after) if mark > at]
    marks, planned = zip(*first, (at, level), *rest, strict=True)
    return Curve(marks, planned)


def parts_of(curve: Curve, over: Iterable[Span]) -> list[int]:
    """Return what a curve plans for each span, in thousandths of a percent.

    That is what is planned up to its end less what is up to its start, both rounded down.
    """
    return [int(curve.at(span.end) * WHOLE) - int(curve.at(span.start) * WHOLE) for span in over]


def span_at(over: Iterable[Span], at: int) -> Span | None:
    """Return the span that an instant lies in; None outside all of them."""
    return next((span for span in over if span.start <= at < span.end), None)


def planned_to_date(*, granted: int, curve: Curve, at: int) -> int:
    """Return how much of a grant is planned to be used by an instant, rounded down; never < 0."""
    return int(max(0, granted) * curve.at(at))


def _points(curve: Curve) -> Iterable[tuple[int, int | Fraction]]:
    return zip(curve.marks, curve.planned, strict=True)


def _month_starts(start: int, end: int, zone: tzinfo) -> list[int]:
    """Return the first seconds of the months inside (start, end)."""
    first = datetime.fromtimestamp(start, UTC).astimezone(zone)
    year, month = first.year, first.month
    found: list[int] = []
    while True:
        year, month = (year + 1, 1) if month == 12 else (year, month + 1)
        at = int(datetime(year, month, 1, tzinfo=zone).timestamp())
        if at >= end:
            return found
        if at > start:
            found.append(at)
