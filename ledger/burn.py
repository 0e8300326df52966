"""How fast a budget spends: by day, as a rate, against time, and how long the rest will last."""

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields
from datetime import UTC, date, datetime, time, timedelta, tzinfo
from fractions import Fraction
from itertools import pairwise
from typing import Any, NamedTuple

from django.db.models import Max, Min, Q, QuerySet, Sum

from budgets.models import Budget, Period
from budgets.periods import active
from ledger.figures import SETTLES, by_epoch, closed_until, segment_bounds
from ledger.instants import span, to_seconds, whole
from ledger.membership import Membership
from ledger.models import ClosedTimestep, Entry
from ledger.usage import LONGEST_TIMESTEP
from workloads.models import Job

Kind = Entry.Kind
DAY = 24 * 3600
SMOOTHING = timedelta(days=7)


@dataclass(slots=True)
class Spent:
    """Settled milli-GPU-seconds, and GPU-seconds of four kinds that exclude each other.

    Funded and busy; funded and parked (real time too); funded real time; unfunded.
    """

    settled_mgpus: int = 0
    busy_gpu_seconds: int = 0
    parked_gpu_seconds: int = 0
    realtime_gpu_seconds: int = 0
    unfunded_gpu_seconds: int = 0

    def add(self, other: "Spent") -> None:
        for one in fields(self):
            setattr(self, one.name, getattr(self, one.name) + getattr(other, one.name))


@dataclass(frozen=True, slots=True)
class DayBurn:
    """What a budget and all below it settled on one local day: milli-GPU-seconds, GPU-seconds."""

    day: date
    settled_mgpus: int
    busy_gpu_seconds: int
    parked_gpu_seconds: int
    realtime_gpu_seconds: int
    unfunded_gpu_seconds: int


class Settled(NamedTuple):
    """What was spent in [start, end) (seconds since 1970) by jobs of one budget."""

    budget_id: int
    start: int
    end: int
    spent: Spent


def burn_by_day(
    *, budget: Budget, start: datetime, end: datetime, zone: tzinfo = UTC
) -> list[DayBurn]:
    """Return a row for each day of a time zone that [start, end) touches, in order.

    A day runs from midnight to midnight on that zone's clocks, so it may last 23 or 25 hours.
    A charge over midnight is split by whole seconds; refunds and adjustments count on the day they
    were written. What stood below the budget when it ran counts.
    """
    start, end = span(start, end)
    days = list(_days(start, end, zone))
    edges = [first for _, first in days]
    totals = [Spent() for _ in days]
    if days:
        tree = Membership.load()
        borders = [*edges, to_seconds(end)]
        for piece in settled_between(start, end, tree=tree, below=budget, borders=borders):
            totals[bisect_right(edges, piece.start) - 1].add(piece.spent)
    return [
        DayBurn(
            day,
            spent.settled_mgpus,
            spent.busy_gpu_seconds,
            spent.parked_gpu_seconds,
            spent.realtime_gpu_seconds,
            spent.unfunded_gpu_seconds,
        )
        for (day, _), spent in zip(days, totals, strict=True)
    ]


def _days(start: datetime, end: datetime, zone: tzinfo) -> Iterable[tuple[date, int]]:
    """Yield each local day that [start, end) touches, with its first second inside."""
    day = start.astimezone(zone).date()
    while True:
        midnight = datetime.combine(day, time(), tzinfo=zone).astimezone(UTC)
        if midnight >= end:
            return
        yield day, to_seconds(max(midnight, start))
        day += timedelta(days=1)


def settled_between(
    start: datetime,
    end: datetime,
    *,
    tree: Membership,
    below: Budget | None = None,
    borders: Sequence[int] = (),
    fine: bool = True,
) -> list[Settled]:
    """Return what was settled in [start, end), in pieces that cross no border.

    ``below``: only what stood under that budget at the time, it included. ``fine``: pieces per
    timestep; else one sum per budget (then give no borders but the interval's own).
    """
    borders = borders or [to_seconds(start), to_seconds(end)]
    entries = by_epoch(_touching(start, end), tree.moves)
    inside = Q(kind=Kind.CHARGE, at__gte=start, until__lte=end)
    pieces: list[Settled] = []
    crossing = ~inside & Q(kind=Kind.CHARGE)
    by = ["budget_id", "epoch", "funded", "job__kind", *(["timestep"] if fine else [])]
    for row in _grouped(entries.filter(inside), by):
        piece = _piece(row)
        if fine and _crosses(piece, borders):
            crossing |= Q(kind=Kind.CHARGE, budget_id=piece.budget_id, timestep=row["timestep"])
        else:
            pieces.append(piece)
    charges = entries.filter(crossing).select_related("job")
    for charge in charges:
        pieces += _cut(charge, borders)
    for entry in entries.exclude(kind=Kind.CHARGE):
        amount = SETTLES[Kind(entry.kind)] * entry.amount_mgpus
        at = to_seconds(entry.at)
        pieces.append(Settled(entry.budget_id, at, at, Spent(settled_mgpus=amount)))
    return [one for one in pieces if below is None or _is_below(tree, one, below)]


def _touching(start: datetime, end: datetime) -> QuerySet[Entry]:
    """Return what settles in [start, end): charges that overlap it, corrections inside it."""
    charges = Q(kind=Kind.CHARGE, timestep__gt=start - LONGEST_TIMESTEP, timestep__lt=end)
    charges &= Q(until__gt=start, at__lt=end)
    corrections = Q(kind__in=(Kind.REFUND, Kind.ADJUST), at__gte=start, at__lt=end)
    return Entry.objects.filter(charges | corrections).order_by()


def _grouped(entries: QuerySet[Any], by: list[str]) -> QuerySet[Any, dict[str, Any]]:
    return entries.values(*by).annotate(
        first=Min("at"),
        last=Max("until"),
        amount=Sum("amount_mgpus"),
        held=Sum("gpu_seconds"),
        parked=Sum("parked_gpu_seconds"),
    )


def _piece(row: dict[str, Any]) -> Settled:
    spent = _spent(row["funded"], row["job__kind"], row["amount"], row["held"], row["parked"])
    return Settled(row["budget_id"], to_seconds(row["first"]), to_seconds(row["last"]), spent)


def _spent(funded: bool, kind: str, amount: int, held: int, parked: int) -> Spent:
    if not funded:
        return Spent(unfunded_gpu_seconds=held)
    if kind == Job.Kind.REALTIME:
        return Spent(amount, parked_gpu_seconds=parked, realtime_gpu_seconds=held - parked)
    return Spent(amount, busy_gpu_seconds=held - parked, parked_gpu_seconds=parked)


def _crosses(piece: Settled, borders: Sequence[int]) -> bool:
    return bisect_right(borders, piece.start) != bisect_right(borders, piece.end - 1)


def _cut(charge: Entry, borders: Sequence[int]) -> list[Settled]:
    """Split one charge at the borders, by whole seconds; the pieces add up to what is inside."""
    start, end = segment_bounds(charge)
    marks = [max(start, borders[0])]
    marks += [border for border in borders if marks[0] < border < end]
    marks += [min(end, borders[-1])] if marks[-1] < min(end, borders[-1]) else []
    job_kind = charge.job.kind if charge.job else ""

    def part(total: int, a: int, b: int) -> int:
        return total * (b - start) // (end - start) - total * (a - start) // (end - start)

    return [
        Settled(
            charge.budget_id,
            a,
            b,
            _spent(
                charge.funded,
                job_kind,
                part(charge.amount_mgpus, a, b),
                part(charge.gpu_seconds, a, b),
                part(charge.parked_gpu_seconds, a, b),
            ),
        )
        for a, b in pairwise(marks)
    ]


def _is_below(tree: Membership, piece: Settled, budget: Budget) -> bool:
    return budget.pk in tree.chain(piece.budget_id, piece.start)


def burn_rate(*, budget: Budget, now: datetime) -> int:
    """Return what a budget and all below it are charged per day, in milli-GPU-seconds.

    Smoothed: the mean over the last seven days up to the last closed timestep, or over what the
    active period has of closed timesteps if that is less; 0 before anything was charged.
    """
    period = active(whole(now, "now"))
    window = rate_window(period, now) if period else None
    if window is None:
        return 0
    pieces = settled_between(*window, tree=Membership.load(), below=budget, fine=False)
    return per_day(sum(piece.spent.settled_mgpus for piece in pieces), window)


def rate_window(period: Period, now: datetime) -> tuple[datetime, datetime] | None:
    """Return the interval that burn rates are taken over; None if nothing is closed yet."""
    first = ClosedTimestep.objects.order_by("start").first()
    if first is None:
        return None
    end = min(closed_until() or now, now, period.ends_at)
    start = max(period.starts_at, end - SMOOTHING, first.start)
    return (start, end) if start < end else None


def per_day(amount: int, window: tuple[datetime, datetime]) -> int:
    seconds = to_seconds(window[1]) - to_seconds(window[0])
    return max(0, amount) * DAY // seconds


def runway_days(*, spendable_mgpus: int, burn_rate_mgpus: int) -> Fraction | None:
    """Return how many days the spendable credits last at a burn rate; None if nothing is spent."""
    if burn_rate_mgpus <= 0:
        return None
    return Fraction(max(0, spendable_mgpus), burn_rate_mgpus)


def pace(*, used_mgpus: int, granted_mgpus: int, elapsed: Fraction) -> Fraction | None:
    """Return used ÷ (granted × elapsed share of the period); None where nothing was planned.

    1 is on time: at a quarter of the period a quarter is used. Used is settled + in flight.
    """
    planned = granted_mgpus * elapsed
    return Fraction(used_mgpus) / planned if planned > 0 else None
