"""Delivered of owed: did each budget get the GPU-time it was entitled to and asked for?

Per budget, pool and timestep, in GPU-seconds, each budget at its own level:

- entitled: effective share × healthy GPU-seconds;
- demand: held by funded runs + asked by fundable jobs that waited, past their dependencies;
- owed: the lesser of the two; delivered: the lesser of what funded runs held and owed.

A job that accepts several pools asks where its leaf's entitlement isn't filled yet, pool by pool.
Demand and what was held add up from the leaves; owed does not: a program whose projects take turns
has got its due, though each of them, by itself, had more in one timestep and less in another. The
figure of the whole is that of the programs, the budgets right below the organisation.
"""

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import reduce
from operator import or_

from django.db.models import Case, Exists, F, OuterRef, Q, QuerySet, Subquery, Value, When
from django.db.models.functions import Least

from allocator import refusals
from allocator.models import Delivery, DeliveryDay
from budgets import shares
from clusters import services as clusters
from ledger.segments import Segment
from ledger.totals import Total
from workloads.models import Job, Run

Key = tuple[int, int]  # budget, pool
DAY = timedelta(days=1)
MOST_AT_ONCE = 31  # days summed by one tick; what is left comes with the next ones
OWED = Least(F("entitled_gpu_seconds"), F("demand_gpu_seconds"))
GOT = Least(F("funded_gpu_seconds"), OWED)


@dataclass(frozen=True)
class Delivered:
    """Owed and delivered GPU-seconds; the ratio is None where nothing was owed."""

    owed_gpu_seconds: int = 0
    delivered_gpu_seconds: int = 0

    @property
    def per_mille(self) -> int | None:
        if not self.owed_gpu_seconds:
            return None
        return self.delivered_gpu_seconds * 1000 // self.owed_gpu_seconds


def record(*, start: datetime, end: datetime, segments: Iterable[Segment]) -> None:
    """Write a closed timestep's rows; a budget that wanted nothing in a pool has none there."""
    sum_days(before=start)
    entitled = _entitled(start, end)
    funded: dict[Key, int] = defaultdict(int)
    for segment in segments:
        if segment.funded:
            funded[segment.budget_id, segment.pool_id] += segment.gpu_seconds
    demand = dict(funded)
    for job, seconds in _waited(start, end):
        _ask(demand, entitled, job, seconds * job.gpus)
    parents = shares.parent_map(at=start)
    demand, funded = _with_ancestors(demand, parents), _with_ancestors(funded, parents)
    Delivery.objects.bulk_create(
        (
            Delivery(
                timestep=start,
                budget_id=budget,
                pool_id=pool,
                entitled_gpu_seconds=entitled.get((budget, pool), 0),
                demand_gpu_seconds=wanted,
                funded_gpu_seconds=funded.get((budget, pool), 0),
            )
            for (budget, pool), wanted in sorted(demand.items())
        ),
        ignore_conflicts=True,
    )


def summary(*, start: datetime, end: datetime) -> dict[int, Delivered]:
    """Owed and delivered of every budget over the timesteps that start in [start, end).

    Each at its own level; the organisation's is that of its programs. Whole days are read from
    their sums, so that it takes no longer over a year.
    """
    owed, got = defaultdict[int, int](int), defaultdict[int, int](int)
    for rows in _sums(start, end):
        for budget, more_owed, more_got in rows:
            owed[budget] += more_owed
            got[budget] += more_got
    found = {budget: Delivered(owed[budget], got[budget]) for budget in owed}
    whole: dict[int, list[Delivered]] = defaultdict(list)
    places = shares.every_place()
    roots = {one.budget_id for one in places if one.parent_id is None}
    for program, root, _ in places:
        if root in roots and program in found:
            whole[root].append(found[program])
    return found | {
        root: Delivered(
            sum(one.owed_gpu_seconds for one in parts),
            sum(one.delivered_gpu_seconds for one in parts),
        )
        for root, parts in whole.items()
    }


def _sums(start: datetime, end: datetime) -> Iterator[Iterable[tuple[int, int, int]]]:
    """Rows of (budget, owed, delivered): of the days inside that are summed, and of the rest."""
    first = _midnight(start)
    first += DAY if first < start else timedelta(0)
    until = min(_midnight(end), _summed_until())
    if first >= until:
        yield _by_budget((start, end))
        return
    yield _by_day(first, until)
    yield _by_budget((start, first), (until, end))


def _by_day(first: datetime, until: datetime) -> Iterator[tuple[int, int, int]]:
    """Yield what was owed on the summed days in between: the later running total less the earlier.

    Where nothing was asked for in between there is the earlier one alone, so less than nothing.
    """
    sign = Case(When(day__lt=first, then=Value(-1)), default=Value(1))
    rows = DeliveryDay.objects.filter(_last_before(first) | _last_before(until)).order_by()
    sums = rows.values_list("budget_id").annotate(
        owed=Total(sign * F("owed_gpu_seconds")), got=Total(sign * F("delivered_gpu_seconds"))
    )
    return ((budget, owed, got) for budget, owed, got in sums if owed > 0)


def _last_before(until: datetime) -> Q:
    days = DeliveryDay.objects.filter(day__lt=until).order_by("-day")
    return Q(day=Subquery(days.values("day")[:1]))


def between(
    borders: Sequence[datetime], *, budget_ids: Collection[int]
) -> dict[int, list[Delivered]]:
    """Owed and delivered of some budgets between each border and the next, each at its own level.

    Inner borders are midnights of UTC. Five queries, however many borders there are.
    """
    start, end = borders[0], borders[-1]
    first = _midnight(start)
    first += DAY if first < start else timedelta(0)
    until = max(first, min(_midnight(end), _summed_until()))
    sums = {pk: [[0, 0] for _ in borders[1:]] for pk in budget_ids}

    def add(budget: int, at: datetime, owed: int, got: int) -> None:
        mine = sums[budget][bisect_right(borders, at) - 1]
        mine[0], mine[1] = mine[0] + owed, mine[1] + got

    before = _totals(first)
    days = DeliveryDay.objects.filter(day__gte=first, day__lt=until, budget_id__in=budget_ids)
    ordered = days.order_by("day").values_list(
        "budget_id", "day", "owed_gpu_seconds", "delivered_gpu_seconds"
    )
    for budget, day, owed, got in ordered:
        owed_before, got_before = before.get(budget, (0, 0))
        add(budget, day, owed - owed_before, got - got_before)
        before[budget] = owed, got
    mine = Delivery.objects.filter(budget_id__in=budget_ids).order_by()
    grouped = mine.values_list("budget_id", "timestep").annotate(owed=Total(OWED), got=Total(GOT))
    for low, high in ((start, min(first, end)), (until, end)):  # two ranges of the index
        for budget, at, owed, got in grouped.filter(timestep__gte=low, timestep__lt=high):
            add(budget, at, owed, got)
    return {pk: [Delivered(*mine) for mine in found] for pk, found in sums.items()}


def _totals(until: datetime) -> dict[int, tuple[int, int]]:
    """Every budget's (owed, delivered) of the summed days before an instant."""
    rows = DeliveryDay.objects.filter(_last_before(until)).order_by()
    found = rows.values_list("budget_id", "owed_gpu_seconds", "delivered_gpu_seconds")
    return {budget: (owed, got) for budget, owed, got in found}


def _by_budget(*spans: tuple[datetime, datetime]) -> QuerySet[Delivery, tuple[int, int, int]]:
    inside = [Q(timestep__gte=start, timestep__lt=end) for start, end in spans]
    rows = Delivery.objects.filter(reduce(or_, inside)).order_by()
    return rows.values_list("budget_id").annotate(owed=Total(OWED), got=Total(GOT))


def sum_days(*, before: datetime) -> None:
    """Sum the UTC days that are over at an instant and aren't summed yet, a month at most."""
    over = Delivery.objects.filter(timestep__lt=_midnight(before)).order_by("timestep")
    for _ in range(MOST_AT_ONCE):
        left = over.filter(timestep__gte=_summed_until())
        next_one = left.values_list("timestep", flat=True).first()
        if next_one is None:
            return
        day = _midnight(next_one)
        totals = _totals(day)
        for budget, owed, got in _by_budget((day, day + DAY)):
            owed_before, got_before = totals.get(budget, (0, 0))
            totals[budget] = (owed_before + owed, got_before + got)
        DeliveryDay.objects.bulk_create(
            DeliveryDay(day=day, budget_id=budget, owed_gpu_seconds=owed, delivered_gpu_seconds=got)
            for budget, (owed, got) in totals.items()
        )


def _summed_until() -> datetime:
    last = DeliveryDay.objects.order_by("-day").values_list("day", flat=True).first()
    return datetime.min.replace(tzinfo=UTC) if last is None else last + DAY


def _midnight(at: datetime) -> datetime:
    return at.astimezone(UTC).replace(hour=0, minute=0, second=0, microsecond=0)


def of_programs(rows: QuerySet[Delivery]) -> QuerySet[Delivery]:
    """The rows that the figure of the whole is made of: one level below the organisation."""
    return rows.filter(budget__parent__isnull=False, budget__parent__parent=None)


def _with_ancestors(leaves: Mapping[Key, int], parents: Mapping[int, int | None]) -> dict[Key, int]:
    """Leaves' GPU-seconds, and those of all that is above them."""
    sums: dict[Key, int] = defaultdict(int)
    for (leaf, pool), seconds in leaves.items():
        step: int | None = leaf
        while step is not None:
            sums[step, pool] += seconds
            step = parents.get(step)
    return dict(sums)


def _entitled(start: datetime, end: datetime) -> dict[Key, int]:
    healthy = clusters.healthy_gpu_seconds(start=start, end=end)
    return shares.entitled_gpu_seconds(
        slices=[shares.CapacitySlice(pool, start, end, gpus) for pool, gpus in healthy.items()]
    )


def _waited(start: datetime, end: datetime) -> list[tuple[Job, int]]:
    """Fundable jobs that waited in [start, end) → seconds of it.

    A job asks from when it was queued until its run was decided on; by choice unfunded, or not
    affordable, it asks for nothing that is owed. Real time asks what it holds.
    """
    waiting = Q(state=Job.State.QUEUED, funded=True, state_since__lt=end)
    decided = Run.objects.filter(decided_at__gte=start, decided_at__lt=end)
    started = Q(pk__in=decided.filter(holdings__funded=True).values("job"))
    jobs = Job.objects.filter(waiting | started, submitted_at__lt=end)
    jobs = jobs.exclude(kind=Job.Kind.REALTIME).exclude(Exists(_unfinished()))
    found = []
    for job in jobs.prefetch_related("pools", "runs"):
        seconds = sum(_overlap(a, b, start, end) for a, b in _waits(job, end))
        if seconds:
            found.append((job, seconds))
    return found


def _unfinished():  # type: ignore[no-untyped-def]
    """What a job depends on that has not completed."""
    needs = Job.dependencies.through.objects.filter(from_job=OuterRef("pk"))
    return needs.exclude(to_job__state=Job.State.COMPLETED)


def _waits(job: Job, end: datetime) -> list[tuple[datetime, datetime]]:
    """Spans in which a job was queued, from its runs: submission or the last run's end on.

    While it is left alone after a refusal it asks for nothing.
    """
    spans, since, in_a_row = [], job.submitted_at, 0
    for run in sorted(job.runs.all(), key=lambda run: run.number):
        spans.append((since, run.decided_at))
        since = run.ended_at or end
        in_a_row = 0 if run.started_at is not None else in_a_row
        if run.end_reason == Run.EndReason.REFUSED:
            in_a_row += 1
            since += refusals.pause(in_a_row)
    if job.state == Job.State.QUEUED:
        spans.append((since, end))
    return spans


def _overlap(a: datetime, b: datetime, start: datetime, end: datetime) -> int:
    return max(0, int((min(b, end) - max(a, start)).total_seconds()))


def _ask(demand: dict[Key, int], entitled: dict[Key, int], job: Job, gpu_seconds: int) -> None:
    """Add what a waiting job asked for to its leaf's demand: first where entitlement is left."""
    named = sorted(pool.pk for pool in job.pools.all())
    pools = named or sorted({pool for budget, pool in entitled if budget == job.budget_id})
    for pool in pools:
        key = (job.budget_id, pool)
        gap = max(0, entitled.get(key, 0) - demand.get(key, 0))
        part = min(gap, gpu_seconds)
        demand[key] = demand.get(key, 0) + part
        gpu_seconds -= part
    if gpu_seconds and pools:
        demand[job.budget_id, pools[0]] += gpu_seconds
