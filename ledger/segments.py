"""What every run held, cut into the segments that charges are made of."""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from itertools import groupby, pairwise
from operator import attrgetter, itemgetter
from typing import NamedTuple

from django.db.models import Case, F, Q, QuerySet, When

from budgets.models import ChangeSet, Period
from clusters.reading import once
from ledger.instants import from_seconds, iso, span, timestep_seconds, to_seconds
from ledger.membership import Membership
from ledger.rates import Rates
from workloads.models import Holding

STARTED = (Period.Status.ACTIVE, Period.Status.CLOSED)
IN_FORCE = (Period.Status.APPROVED, *STARTED)


@once
def periods_in_force() -> Sequence[Period]:
    """Return the periods that entries may stand in, the first one first. One query."""
    return list(Period.objects.filter(status__in=IN_FORCE).order_by("starts_at", "pk"))


class Segment(NamedTuple):
    """GPUs that a run held, funded or not, over whole seconds [start, end) at one rate.

    ``attempt`` is the run's number: each run of a job is one attempt, with a hold of its own.
    """

    run_id: int
    job_id: int
    attempt: int
    budget_id: int
    pool_id: int
    start: datetime
    end: datetime
    funded: bool
    gpu_seconds: int
    rate: int  # per mille

    @property
    def amount_mgpus(self) -> int:
        return self.gpu_seconds * self.rate if self.funded else 0

    @property
    def key(self) -> str:
        """The charge's unique key."""
        tail = "" if self.funded else ":unfunded"
        return f"charge:{self.run_id}:{iso(self.start)}{tail}"


class Stay(NamedTuple):
    """One holding of a run inside the interval asked for, in seconds since 1970."""

    run_id: int
    job_id: int
    attempt: int
    budget_id: int
    pool_id: int  # so far as in a Segment
    gpus: int
    funded: bool
    start: int
    end: int


def segments(*, start: datetime, end: datetime) -> list[Segment]:
    """Return the segments of everything held in [start, end), by run and start.

    A holding counts where it overlaps the interval (half-open); an open one to ``end``; one whose
    start isn't confirmed not at all. Cut at timesteps, borders of periods, changes of rate, where
    its budget moves, and wherever the run's set of GPUs or its funding changes. A constant number
    of queries.
    """
    start, end = span(start, end)
    stays = load_stays(start, end)
    borders = _borders(stays, [to_seconds(at) for at in _period_borders()])
    rates, tree = Rates.load(), _tree_of(start, end)
    found: list[Segment] = []
    for _, group in groupby(stays, key=attrgetter("run_id")):
        mine = list(group)
        moves = tree.moves_of(mine[0].budget_id, *map(to_seconds, (start, end))) if tree else []
        cuts = sorted({*borders, *moves}) if moves else borders
        found += cut_run(mine, borders=cuts, rates=rates)
    return found


def _tree_of(start: datetime, end: datetime) -> Membership | None:
    """Return who stood under whom, if somebody may have moved inside the interval."""
    changed = ChangeSet.objects.filter(
        status=ChangeSet.Status.APPROVED, effective_at__gt=start, effective_at__lt=end
    )
    return Membership.load() if changed.exists() else None


def cut_run(stays: Sequence[Stay], *, borders: Sequence[int], rates: Rates) -> list[Segment]:
    """Cut one run's stays. Pure. ``borders`` are instants (seconds), sorted."""
    first = stays[0]
    marks = _marks(stays, borders, rates.changes(first.pool_id))
    whose = first[:5]  # the same fields of a segment
    return [
        Segment(
            *whose,
            start=from_seconds(a),
            end=from_seconds(b),
            funded=funded,
            gpu_seconds=gpus * (b - a),
            rate=rates.at(first.pool_id, a),
        )
        for a, b, funded, gpus in _held(stays, marks)
    ]


def _held(stays: Sequence[Stay], marks: Sequence[int]) -> Iterator[tuple[int, int, bool, int]]:
    """Yield start, end, whether it was funded, and how many GPUs, mark by mark."""
    # A single one, as most runs have, lasts from the first mark to the last.
    fundings = (True, False) if len(stays) > 1 else (stays[0].funded,)
    for a, b in pairwise(marks):
        for funded in fundings:
            gpus = _gpus(stays, funded, a, b) if len(stays) > 1 else stays[0].gpus
            if gpus:
                yield a, b, funded, gpus


def _marks(stays: Sequence[Stay], *borders: Sequence[int]) -> list[int]:
    low, high = min(stay.start for stay in stays), max(stay.end for stay in stays)
    marks = {stay.start for stay in stays} | {stay.end for stay in stays}
    for row in borders:
        marks.update(row[bisect_right(row, low) : bisect_left(row, high)])
    return sorted(marks)


def _gpus(stays: Sequence[Stay], funded: bool, start: int, end: int) -> int:
    return sum(
        stay.gpus
        for stay in stays
        if stay.funded == funded and stay.start <= start and end <= stay.end
    )


def held_in(start: datetime, end: datetime) -> QuerySet[Holding]:
    """Return the holdings that overlap [start, end), in no order."""
    overlap = Q(ended_at=None) | Q(ended_at__gt=start)
    return Holding.objects.filter(overlap, started_at__lt=end).order_by()


def load_stays(start: datetime, end: datetime) -> list[Stay]:
    """Return every holding's part inside [start, end), by run. One query."""
    # Only instants inside are read: thousands began before. Sorted here: asked for in this order,
    # SQLite goes through all there ever were.
    began = Case(When(started_at__gt=start, then=F("started_at")))
    ended = Case(When(ended_at__lt=end, then=F("ended_at")))
    stays = held_in(start, end).annotate(began=began, ended=ended)
    rows = stays.values_list(
        *("run_id", "id", "run__job_id", "run__number", "run__job__budget_id", "run__pool_id"),
        *("mask", "funded", "began", "ended"),
    )
    low, high = to_seconds(start), to_seconds(end)
    return [
        Stay(
            *(run_id, job_id, number, budget_id, pool_id, mask.bit_count(), funded),
            start=low if since is None else to_seconds(since),
            end=high if until is None else to_seconds(until),
        )
        for run_id, _, job_id, number, budget_id, pool_id, mask, funded, since, until in sorted(
            rows, key=itemgetter(0, 1)
        )
    ]


def _borders(stays: Sequence[Stay], period_borders: Iterable[int]) -> list[int]:
    """Return all timestep bounds and period borders between the first start and the last end."""
    if not stays:
        return []
    low, high = min(stay.start for stay in stays), max(stay.end for stay in stays)
    step = timestep_seconds()
    return sorted({*range(low - low % step, high, step), *period_borders})


def _period_borders() -> list[datetime]:
    rows = Period.objects.filter(status__in=IN_FORCE).values_list("starts_at", "ends_at")
    return [at for row in rows for at in row]
