"""Reading sums: an interval as whole weeks, days and hours, and the entries at its edges.

Whatever is read this way equals the entries' own sums to the last unit.
"""

from collections.abc import Container, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import reduce
from itertools import pairwise
from operator import or_
from typing import Any, NamedTuple

from django.db.models import Case, F, IntegerField, Q, QuerySet, Sum, Value, When
from django.db.models.functions import Cast

from budgets.models import Period
from clusters.reading import once
from ledger.instants import from_seconds, to_seconds
from ledger.membership import Membership
from ledger.models import ClosedTimestep, Entry, Rollup, WholeRollup
from ledger.rollups import AMOUNTS
from ledger.running import closed_until

Kind, Size = Entry.Kind, Rollup.Size
LARGEST_FIRST = (int(Size.WEEK), int(Size.DAY), int(Size.HOUR))
SIZES = (*LARGEST_FIRST, int(Size.LOCAL_DAY))
CORRECTIONS = (Kind.REFUND, Kind.ADJUST)
FOREVER = 2**36 // Size.WEEK * Size.WEEK  # beyond any instant
NEVER = datetime.max.replace(tzinfo=UTC)
RANGES = 200  # in one query
LONGEST_TIMESTEP = timedelta(hours=24)
Span = tuple[int, int]  # [start, end) in seconds since 1970

# What a charge's parked part cost: amount = GPU-seconds × rate, so the division is exact.
PARKED_COST = F("amount_mgpus") / F("gpu_seconds") * F("parked_gpu_seconds")


@dataclass(slots=True)
class Cover:
    """Spans made of whole stretches, by size, and those shorter than an hour; all in order."""

    whole: dict[int, list[Span]] = field(default_factory=lambda: {size: [] for size in SIZES})
    edges: list[Span] = field(default_factory=list)

    def rollups(self, of: type[Rollup | WholeRollup] = Rollup) -> Iterator[QuerySet[Any]]:
        """Yield the sums of the whole stretches, of each budget or of all of them together.

        One query, or a few for hundreds of spans: of sums of any size, so that asking takes no
        longer than what is asked for.
        """
        every = [(size, low, high) for size, mine in self.whole.items() for low, high in mine]
        for batch in _batches(every):
            spans = (Q(size=size, since__gte=low, since__lt=high) for size, low, high in batch)
            yield of._default_manager.filter(reduce(or_, spans)).order_by()

    def entries(self) -> Iterator[QuerySet[Entry]]:
        """Yield what settles at the edges: charges that overlap them, corrections inside them."""
        yield from self.charges()
        yield from self.corrections()

    def charges(self) -> Iterator[QuerySet[Entry]]:
        closed = closed_until()
        charged = [one for one in self.edges if closed and one[0] < to_seconds(closed)]
        for batch in _batches(charged):
            overlap = {"until__gt": from_seconds(batch[0][0]), "at__lt": from_seconds(batch[-1][1])}
            at_edge = Entry.objects.filter(timestep__in=_timesteps(batch), **overlap)
            yield at_edge.filter(kind=Kind.CHARGE).order_by()

    def corrections(self) -> Iterator[QuerySet[Entry]]:
        for batch in _batches(self._corrected()):
            inside = reduce(or_, (_at(span) for span in batch))
            yield Entry.objects.filter(inside, kind__in=CORRECTIONS).order_by()

    def _corrected(self) -> list[Span]:
        """Return the edges but for the last, where it is of the present and nothing is corrected.

        Pages end now, and ask so of its hour for other parts too.
        """
        if not self.edges or self.edges[-1][1] < to_seconds(closed_until() or NEVER):
            return self.edges
        return self.edges if corrected_from(self.edges[-1][0]) else self.edges[:-1]


def corrected_from(seconds: int) -> bool:
    """Say whether anything is corrected in an instant's hour, or after it.

    Sums know the hours that have any, of which there are none in almost all cases.
    """
    return _corrected_from(seconds // Size.HOUR * Size.HOUR)


@once
def _corrected_from(hour: int) -> bool:
    hours = WholeRollup.objects.filter(size=Size.HOUR, since__gte=hour, kind__in=CORRECTIONS)
    return hours.exists()


def cover(marks: Sequence[int], days: Container[Span] = ()) -> Cover:
    """Cover the time from the first mark to the last; no stretch crosses a mark. Pure.

    Marks are sorted seconds since 1970. Two that follow each other and are one of ``days`` bound
    a local day. An edge between two others of the same hour is part of that whole hour, so only
    the first and the last may begin or end inside one.
    """
    found = Cover()
    for start, end in pairwise(marks):
        day = ((int(Size.LOCAL_DAY), start, end),)
        parts = day if (start, end) in days else _parts(start, end, LARGEST_FIRST)
        for size, low, high in parts:
            spans = found.whole[size] if size else found.edges
            if spans and spans[-1][1] == low:
                low = spans.pop()[0]
            spans.append((low, high))
    return found


def _parts(start: int, end: int, sizes: tuple[int, ...]) -> Iterator[tuple[int, int, int]]:
    if start >= end:
        return
    if not sizes:
        yield 0, start, end
        return
    size, smaller = sizes[0], sizes[1:]
    low, high = -(-start // size) * size, end // size * size
    if low >= high:
        yield from _parts(start, end, smaller)
        return
    yield from _parts(start, low, smaller)
    yield size, low, high
    yield from _parts(high, end, smaller)


def _batches(spans: list[Any]) -> Iterator[list[Any]]:
    for first in range(0, len(spans), RANGES):
        yield spans[first : first + RANGES]


def _timesteps(edges: Sequence[Span]) -> list[datetime]:
    """Return the closed timesteps that overlap any of some edges."""
    overlap = (
        Q(end__gt=low, start__lt=high, start__gt=low - LONGEST_TIMESTEP)
        for low, high in ((from_seconds(low), from_seconds(high)) for low, high in edges)
    )
    closed = ClosedTimestep.objects.filter(reduce(or_, overlap))
    return list(closed.order_by().values_list("start", flat=True))


def _at(span: Span) -> Q:
    return Q(at__gte=from_seconds(span[0]), at__lt=from_seconds(span[1]))


def by_epoch(entries: QuerySet[Any], moves: Sequence[int]) -> QuerySet[Any]:
    """Annotate ``epoch``: how many of the moves in the tree came before the entry, or sum."""
    by_seconds = entries.model is Rollup
    cases = [
        When(since__lt=move, then=Value(n))
        if by_seconds
        else When(at__lt=from_seconds(move), then=Value(n))
        for n, move in enumerate(moves)
    ]
    if not cases:
        return entries.annotate(epoch=Value(0, output_field=IntegerField()))
    return entries.annotate(
        epoch=Case(*cases, default=Value(len(moves)), output_field=IntegerField())
    )


class PeriodSum(NamedTuple):
    """A budget's entries of one kind in a period, while it stood where it did at ``since``."""

    budget_id: int
    kind: str
    funded: bool
    since: int
    amount_mgpus: int
    gpu_seconds: int
    parked_gpu_seconds: int
    parked_mgpus: int


GROUP = ("budget_id", "kind", "funded")


def period_sums(period: Period, tree: Membership) -> Iterator[PeriodSum]:
    """Yield all of a period's sums. One query where no budget ever moved, else a few."""
    moved = tree.wanderers() if tree.moves else set()
    totals = Rollup.objects.filter(size=Size.PERIOD, since=0, period=period).order_by()
    # As a number, which needs no converting row by row.
    paid = totals.annotate(paid=Cast("funded", IntegerField()))
    rows = paid.values_list("budget_id", "kind", "paid").annotate(**amounts(Rollup))
    for budget_id, kind, funded, *values in rows:
        if budget_id not in moved or kind not in (Kind.CHARGE, *CORRECTIONS):
            yield PeriodSum(budget_id, kind, bool(funded), 0, *values)
    if moved:
        yield from _sums_of_the_moved(period, tree, moved)


def _sums_of_the_moved(period: Period, tree: Membership, moved: set[int]) -> Iterator[PeriodSum]:
    """Yield what budgets settled that did not stand still, apart for each place they had."""
    found = cover([0, *tree.moves, FOREVER])
    for sums in (*found.rollups(), *found.entries()):
        mine = by_epoch(sums.filter(period=period, budget_id__in=moved), tree.moves)
        rows = mine.values_list(*GROUP, "epoch").annotate(**amounts(sums.model))
        for budget_id, kind, funded, epoch, *values in rows:
            yield PeriodSum(budget_id, kind, funded, tree.begin(epoch), *values)


def amounts(model: type[Any]) -> dict[str, Sum]:
    """Return the sums of AMOUNTS over rollups, or over entries, as ``sum_...``, in that order."""
    paid = Q(funded=True, gpu_seconds__gt=0)
    cost = Sum(PARKED_COST, filter=paid, default=0) if model is Entry else Sum(AMOUNTS[-1])
    return {f"sum_{name}": Sum(name) for name in AMOUNTS[:-1]} | {f"sum_{AMOUNTS[-1]}": cost}


def segment_bounds(charge: Entry) -> tuple[int, int]:
    """Return the start and end of a charge's segment, in seconds since 1970."""
    assert charge.until is not None, "a charge has an end"
    return to_seconds(charge.at), to_seconds(charge.until)


def standing_below(tree: Membership, budget_id: int, marks: Sequence[int]) -> tuple[Q, Q]:
    """Return what picks rollups of all that stood below a budget at their time, and entries of
    all that ever did between the first mark and the last.
    """
    spells = tree.below(budget_id, marks[0], marks[-1])
    ever = set().union(*(ids for _, _, ids in spells))
    anybody = Q() if len(ever) == len(list(tree)) else Q(budget_id__in=ever)
    if len(spells) == 1:
        return anybody, anybody
    spans = (Q(since__gte=low, since__lt=high, budget_id__in=ids) for low, high, ids in spells)
    return reduce(or_, spans), anybody
