"""What was settled in an interval, and on what: read from sums, and at the edges from entries.

Whatever is asked for, parts add up to the whole, to the last unit.
"""

from bisect import bisect_right
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, tzinfo
from itertools import pairwise
from typing import Any, NamedTuple

from django.db.models import F, Max, Min, Q, QuerySet
from django.db.models.expressions import Combinable

from budgets.models import Budget, Period
from clusters.reading import once
from ledger.instants import from_seconds, local_day, to_seconds
from ledger.kinds import GRANTED, HOLDS, SETTLES
from ledger.membership import Membership
from ledger.models import Entry, Rollup, WholeRollup
from ledger.running import closed_until
from ledger.segments import periods_in_force
from ledger.stretches import (
    CORRECTIONS,
    FOREVER,
    PARKED_COST,
    Cover,
    by_epoch,
    corrected_from,
    cover,
    segment_bounds,
    standing_below,
)
from ledger.totals import Signed, Total
from workloads.models import Job

Kind = Entry.Kind
HOUR, DAY = 3600, 24 * 3600
# Only charges carry GPU-seconds or are real time, and only funded ones cost, so that no sum need
# ask for its kind again: that is most of what reading a year's sums takes.
PAID, SERVED = Q(funded=True), Q(is_realtime=True)
CORRECTED = {kind: SETTLES[kind] for kind in CORRECTIONS}
BUSY_COST = F("amount_mgpus") - F("parked_mgpus")
BUSY_TIME = F("gpu_seconds") - F("parked_gpu_seconds")


@dataclass(slots=True)
class Spent:
    """Settled milli-GPU-seconds, and GPU-seconds of four kinds that exclude each other.

    Funded and busy; funded and parked (real time too); funded real time; unfunded. What is settled
    was spent on the first three, the unfunded being free, or is a correction: refunds (below 0)
    and adjustments, which carry no time.
    """

    settled_mgpus: int = 0
    parked_mgpus: int = 0
    realtime_mgpus: int = 0
    corrected_mgpus: int = 0
    busy_gpu_seconds: int = 0
    parked_gpu_seconds: int = 0
    realtime_gpu_seconds: int = 0
    unfunded_gpu_seconds: int = 0

    @property
    def busy_mgpus(self) -> int:
        return self.settled_mgpus - self.parked_mgpus - self.realtime_mgpus - self.corrected_mgpus

    def add(self, other: "Spent") -> None:
        self.settled_mgpus += other.settled_mgpus
        self.parked_mgpus += other.parked_mgpus
        self.realtime_mgpus += other.realtime_mgpus
        self.corrected_mgpus += other.corrected_mgpus
        self.busy_gpu_seconds += other.busy_gpu_seconds
        self.parked_gpu_seconds += other.parked_gpu_seconds
        self.realtime_gpu_seconds += other.realtime_gpu_seconds
        self.unfunded_gpu_seconds += other.unfunded_gpu_seconds


class Settled(NamedTuple):
    """What was spent in [start, end), in seconds since 1970, by jobs of one budget."""

    budget_id: int
    start: int
    end: int
    spent: Spent


class PeriodSpent(NamedTuple):
    """A budget in a period: granted and held in all, and what it settled in its place of then.

    ``since``: an instant of that place, in seconds since 1970. A budget that moved has a row for
    each of its places, with granted and held in the first.
    """

    budget_id: int
    since: int
    granted_mgpus: int
    held_mgpus: int
    spent: Spent


def spent_in(period: Period, tree: Membership) -> list[PeriodSpent]:
    """Return all of a period's sums, by budget. One query where nobody ever moved, else a few."""
    moved = tree.wanderers() if tree.moves else set()
    given = {"granted": _signed(dict.fromkeys(GRANTED, 1)), "held": _signed(HOLDS)}
    rows = _summed(_whole([period]).values_list("budget_id").annotate(**given))
    found = [
        PeriodSpent(pk, 0, granted, held, Spent() if pk in moved else Spent(*sums))
        for pk, granted, held, *sums in rows
    ]
    return found + (list(_of_the_moved(period, tree, moved)) if moved else [])


def _whole(periods: Iterable[Period]) -> QuerySet[Rollup]:
    sums = Rollup.objects.filter(size=Rollup.Size.PERIOD, since=0, period__in=periods)
    return sums.order_by()


def _of_the_moved(period: Period, tree: Membership, moved: set[int]) -> Iterator[PeriodSpent]:
    mine = Q(period=period, budget_id__in=moved)
    found = cover([0, *tree.moves, FOREVER])
    for sums in found.rollups():
        rows = by_epoch(sums.filter(mine), tree.moves).values_list("budget_id", "epoch")
        for pk, epoch, *amounts in _summed(rows):
            yield PeriodSpent(pk, tree.begin(epoch), 0, 0, Spent(*amounts))
    for piece in _at_edges(found, tree, mine, [0, FOREVER], by=()):
        yield PeriodSpent(piece.budget_id, piece.start, 0, 0, piece.spent)


@once
def whole_periods(start: datetime, end: datetime, now: datetime) -> Sequence[Period] | None:
    """Return the periods that the interval holds all entries of, if it holds no part of another."""
    known = max(now, closed_until() or now)
    periods = _periods_in(start, end)
    if any(start > one.starts_at or end < min(one.ends_at, known) for one in periods):
        return None
    return None if _corrected_since(end, periods) else periods


def _periods_in(start: datetime, end: datetime) -> list[Period]:
    return [one for one in periods_in_force() if one.starts_at < end and one.ends_at > start]


def _corrected_since(end: datetime, periods: Collection[Period]) -> bool:
    """Say whether any correction comes after an interval: of its very second, or a clock ahead."""
    if not corrected_from(to_seconds(end)):
        return False
    later = Entry.objects.filter(kind__in=CORRECTIONS, at__gte=end, period__in=periods)
    return later.exists()


def settled_over(
    start: datetime,
    end: datetime,
    *,
    now: datetime,
    tree: Membership,
    below: Budget,
    read: Mapping[int, Iterable[PeriodSpent]] | None = None,
) -> list[Settled]:
    """Return what each budget settled in [start, end): from the periods' own sums where they are
    whole and nobody ever moved (then at no instant), else as `settled_between`.

    ``read``: the sums of periods that have been read already, by their id.
    """
    periods = None if tree.moves else whole_periods(start, end, now)
    if not periods:
        return settled_between(start, end, tree=tree, below=below)
    ids, known = tree.below(below.pk, 0, 1)[0][2], read or {}
    found = [(row.budget_id, row.spent) for one in periods for row in known.get(one.pk, ())]
    if others := [one for one in periods if one.pk not in known]:
        rows = _summed(_whole(others).values_list("budget_id"))
        found += [(pk, Spent(*sums)) for pk, *sums in rows]
    return [Settled(pk, 0, 0, spent) for pk, spent in found if pk in ids and spent != Spent()]


def settled_between(
    start: datetime, end: datetime, *, tree: Membership, below: Budget | None = None
) -> list[Settled]:
    """Return what each budget settled in [start, end), apart for each place it had.

    ``below``: only what stood under that budget at the time, it included.
    """
    low, high = to_seconds(start), to_seconds(end)
    found = cover([low, *tree.moves_between(low, high), high])
    rollups, entries = standing_below(tree, below.pk, (low, high)) if below else (Q(), Q())
    pieces: list[Settled] = []
    for sums in found.rollups():
        rows = by_epoch(sums.filter(rollups), tree.moves).values_list("budget_id", "epoch")
        for budget_id, _, first, *sums_of in _summed(rows.annotate(first=Min("since"))):
            pieces.append(Settled(budget_id, first, first, Spent(*sums_of)))
    edges = _at_edges(found, tree, entries, [low, high], by=())
    return pieces + [one for one in edges if below is None or _is_below(tree, one, below)]


def amounts_between(
    start: datetime, end: datetime, *, tree: Membership, below: Budget | None = None
) -> Iterator[tuple[int, int, int]]:
    """Yield the same as (budget id, an instant of the place it had, milli-GPU-seconds) alone."""
    low, high = to_seconds(start), to_seconds(end)
    found = cover([low, *tree.moves_between(low, high), high])
    rollups, entries = standing_below(tree, below.pk, (low, high)) if below else (Q(), Q())
    for sums in found.rollups():
        rows = by_epoch(sums.filter(rollups), tree.moves).values_list("budget_id", "epoch")
        for pk, _, first, total in rows.annotate(first=Min("since"), total=_signed()):
            yield pk, first, total
    for piece in _at_edges(found, tree, entries, [low, high], by=()):
        if below is None or _is_below(tree, piece, below):
            yield piece.budget_id, piece.start, piece.spent.settled_mgpus


def settled_by_time(
    borders: Sequence[int],
    *,
    tree: Membership,
    below: Budget,
    zone: tzinfo | None = None,
    parts: bool = True,
) -> list[Settled]:
    """Return what a budget and all below it settled, in pieces that cross no border.

    From the first to the last border (sorted seconds since 1970). Pieces are of any budget: what
    was settled in the same hour, day or week is one. ``zone``: borders are its midnights. Without
    ``parts`` only all that was settled is read, not what it was spent on.
    """
    low, high = borders[0], borders[-1]
    days = _local_days(borders, zone) if zone else set()
    found = cover(sorted({*borders, *tree.moves_between(low, high)}), days)
    rollups, entries = standing_below(tree, below.pk, (low, high))
    pieces: list[Settled] = []
    everybody = not rollups  # nothing is picked: that sum is kept
    for sums in found.rollups(WholeRollup) if everybody else found.rollups():
        rows = sums.filter(rollups).values_list("size", "since")
        for size, since, *sums_of in _summed(rows) if parts else rows.annotate(total=_signed()):
            pieces.append(Settled(below.pk, since, since + size, Spent(*sums_of)))
    edges = _at_edges(found, tree, entries, borders, by=("timestep",))
    return pieces + [one for one in edges if _is_below(tree, one, below)]


def settled_by_day(
    first: int, last: int, *, tree: Membership, below: Budget
) -> Iterator[tuple[int, int, int]]:
    """Yield what each budget settled as (budget id, an instant of the day, milli-GPU-seconds).

    From one midnight of UTC to another (seconds since 1970); a budget's day may come in parts.
    """
    marks = {*range(first, last + 1, DAY), *tree.moves_between(first, last)}
    found = cover(sorted(marks))
    rollups, entries = standing_below(tree, below.pk, (first, last))
    for sums in found.rollups():
        rows = sums.filter(rollups).values_list("budget_id", "since")
        yield from rows.annotate(total=_signed())
    for piece in _at_edges(found, tree, entries, sorted(marks), by=("timestep",)):
        if _is_below(tree, piece, below):
            yield piece.budget_id, piece.start, piece.spent.settled_mgpus


def _local_days(borders: Sequence[int], zone: tzinfo) -> set[tuple[int, int]]:
    """Return the days that there are sums of: of a zone that all periods have at the time."""
    there = _periods_in(from_seconds(borders[0]), from_seconds(borders[-1]))
    if {one.time_zone for one in there} != {str(zone)}:
        return set()
    days = {(a, b) for a, b in pairwise(borders) if not (a % HOUR or b % HOUR)}
    return {(a, b) for a, b in days if local_day(b - 1, zone) == a and local_day(b, zone) == b}


def _summed(groups: QuerySet[Any, Any]) -> QuerySet[Any, Any]:
    """Add to groups of rollups the fields of ``Spent``, in their order.

    One row a group, and nothing in it that a database has to convert: hundreds of budgets in
    hundreds of days are read by each report.
    """
    return groups.annotate(
        spent_settled=_signed(),
        spent_parked=Total("parked_mgpus"),
        spent_realtime=_sum(BUSY_COST, SERVED),
        spent_corrected=_signed(CORRECTED),
        time_busy=_sum(BUSY_TIME, PAID & ~SERVED),
        time_parked=_sum("parked_gpu_seconds", PAID),
        time_realtime=_sum(BUSY_TIME, PAID & SERVED),
        time_unfunded=_sum("gpu_seconds", ~PAID),
    )


def _sum(what: str | Combinable, where: Q) -> Total:
    return Total(what, filter=where)


def _signed(signs: Mapping[Kind, int] = SETTLES) -> Total:
    """Return the sum of what entries of some kinds add to a figure."""
    return Total(Signed("kind", "amount_mgpus", signs=tuple(signs.items())))


def _at_edges(
    found: Cover, tree: Membership, only: Q, borders: Sequence[int], *, by: Sequence[str]
) -> Iterator[Settled]:
    """Yield what entries at the edges settled inside the borders; charges also ``by`` timestep."""
    for charges in found.charges():
        yield from _charged(by_epoch(charges.filter(only), tree.moves), by, borders)
    for corrections in found.corrections():
        for entry in corrections.filter(only):
            at = to_seconds(entry.at)
            yield Settled(entry.budget_id, at, at, _corrected(entry.kind, entry.amount_mgpus))


def _charged(
    charges: QuerySet[Any], by: Sequence[str], borders: Sequence[int]
) -> Iterator[Settled]:
    start, end = from_seconds(borders[0]), from_seconds(borders[-1])
    inside = Q(at__gte=start, until__lte=end)
    crossing = ~inside
    group = ("budget_id", "epoch", "funded", "job__kind", *by)
    for row in _grouped(charges.filter(inside), group):
        piece = _piece(row)
        if by and _crosses(piece, borders):
            crossing |= Q(**{name: row[name] for name in group})  # no other group's: each once
        else:
            yield piece
    for charge in charges.filter(crossing).select_related("job"):
        yield from cut(charge, borders)


def _grouped(entries: QuerySet[Any], by: Sequence[str]) -> QuerySet[Any, dict[str, Any]]:
    return entries.values(*by).annotate(
        first=Min("at"),
        last=Max("until"),
        amount=Total("amount_mgpus"),
        held=Total("gpu_seconds"),
        parked=Total("parked_gpu_seconds"),
        idle=Total(PARKED_COST, filter=Q(funded=True, gpu_seconds__gt=0)),
    )


def _piece(row: dict[str, Any]) -> Settled:
    amounts = (row["amount"], row["idle"], row["held"], row["parked"])
    spent = _spent(row["funded"], row["job__kind"] == Job.Kind.REALTIME, *amounts)
    return Settled(row["budget_id"], to_seconds(row["first"]), to_seconds(row["last"]), spent)


def _spent(
    funded: bool, is_realtime: bool, amount: int, parked_mgpus: int, held: int, parked: int
) -> Spent:
    """Sort what charges cost and held; ``parked_mgpus`` is what the parked part cost."""
    if not funded:
        return Spent(unfunded_gpu_seconds=held)
    spent = Spent(amount, parked_mgpus, parked_gpu_seconds=parked)
    if is_realtime:
        spent.realtime_mgpus, spent.realtime_gpu_seconds = amount - parked_mgpus, held - parked
    else:
        spent.busy_gpu_seconds = held - parked
    return spent


def _corrected(kind: str, amount: int) -> Spent:
    settled = SETTLES[Kind(kind)] * amount
    return Spent(settled, corrected_mgpus=settled)


def _crosses(piece: Settled, borders: Sequence[int]) -> bool:
    return bisect_right(borders, piece.start) != bisect_right(borders, piece.end - 1)


def cut(charge: Entry, borders: Sequence[int]) -> list[Settled]:
    """Split one charge at the borders, by whole seconds; the pieces add up to what is inside."""
    start, end = segment_bounds(charge)
    marks = [max(start, borders[0])]
    marks += [border for border in borders if marks[0] < border < end]
    marks += [min(end, borders[-1])] if marks[-1] < min(end, borders[-1]) else []
    is_realtime = charge.job is not None and charge.job.kind == Job.Kind.REALTIME
    rate = charge.amount_mgpus // charge.gpu_seconds if charge.gpu_seconds else 0

    def part(total: int, a: int, b: int) -> int:
        return total * (b - start) // (end - start) - total * (a - start) // (end - start)

    def spent(a: int, b: int) -> Spent:
        parked = part(charge.parked_gpu_seconds, a, b)
        amount, held = part(charge.amount_mgpus, a, b), part(charge.gpu_seconds, a, b)
        return _spent(charge.funded, is_realtime, amount, rate * parked, held, parked)

    return [Settled(charge.budget_id, a, b, spent(a, b)) for a, b in pairwise(marks)]


def _is_below(tree: Membership, piece: Settled, budget: Budget) -> bool:
    return budget.pk in tree.chain(piece.budget_id, piece.start)
