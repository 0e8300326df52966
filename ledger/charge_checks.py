"""What must be true of charges, whoever wrote them: each breach names run, budget and timestep.

The database compares, or hands out sums by run in order, so that what is kept here at a time is
one run's.
"""

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Iterator
from datetime import datetime
from heapq import merge
from itertools import groupby, islice
from operator import itemgetter
from typing import Any

from django.db.models import (
    Case,
    Exists,
    F,
    Max,
    OuterRef,
    Q,
    QuerySet,
    Subquery,
    Sum,
    Value,
    When,
    Window,
)
from django.db.models.expressions import RowRange
from django.db.models.functions import Coalesce, Concat, Substr

from budgets.models import ChangeSet, Share
from clusters.models import PoolRate
from ledger.figures import segment_bounds
from ledger.instants import from_seconds, iso, to_seconds
from ledger.models import ClosedTimestep, Entry, JobRollup, JobSettled
from ledger.problems import EntryProblem, Kind, Problems
from ledger.rates import REFERENCE
from ledger.refunds import LATE_END, past_end
from ledger.segments import held_in
from workloads.models import Run

CHUNK = 2000  # rows at a time
BEFORE = RowRange(end=-1)  # all rows of the partition before the row
Seconds = dict[int, list[int]]  # unfunded and funded GPU-seconds, by start of a timestep
Part = tuple[int, bool, int, bool, int]  # run's id, charged or held, timestep, funded, GPU-seconds


def charge_problems(start: datetime, end: datetime) -> Problems:
    """Yield every breach of charges whose timestep is in [start, end)."""
    yield from on_another_budget()
    yield from on_a_divided_budget()
    yield from in_another_period(start, end)
    yield from seconds_charged_twice(start, end)
    yield from seconds_unlike_holdings(start, end)
    yield from amounts_unlike_rates(start, end)
    yield from over_a_change_of_rate(start, end)
    yield from parked_above_held(start, end)
    yield from late_ends_unlike_given_back(start, end)
    yield from without_a_run()


def charges(start: datetime, end: datetime) -> QuerySet[Entry]:
    return Entry.objects.filter(kind=Kind.CHARGE, timestep__gte=start, timestep__lt=end).order_by()


def on_another_budget() -> Problems:
    """Whatever is about a job stands on that job's budget. Read from the sums of jobs."""
    names = ("job_id", "period_id", "budget_id")
    found = [
        model._default_manager.exclude(budget_id=F("job__budget_id")).order_by()
        for model in (JobRollup, JobSettled)
    ]
    for whose in sorted({one for rows in found for one in rows.values_list(*names)}):
        rows = Entry.objects.filter(**dict(zip(names, whose, strict=True)))
        of = rows.values("attempt", "kind", "period__name", "budget__path", "job__budget__path")
        for one in of.annotate(total=Sum("amount_mgpus")).order_by("attempt", "kind"):
            yield EntryProblem(
                "budget",
                f"job {whose[0]}, attempt {one['attempt']}: {one['kind']} of {one['total']} mGPU-s "
                f"in {one['period__name']} stands on {one['budget__path']}, not on "
                f"{one['job__budget__path']}",
            )


def on_a_divided_budget() -> Problems:
    """Work belongs to leaves: nothing is charged to a budget while it has others below it."""
    for parent_id, since, until in _divided():
        mine = Entry.objects.filter(kind=Kind.CHARGE, budget_id=parent_id, at__gte=since)
        for charge in _named(mine.filter(at__lt=until) if until else mine):
            yield EntryProblem(
                "leaf",
                f"{_where(charge)}: {charge.amount_mgpus} mGPU-s are charged to a budget that has "
                "others below it",
            )


def _divided() -> Iterator[tuple[int, datetime, datetime | None]]:
    """Yield when budgets had others below them, by the vector in force: whose, since, until."""
    divides = Share.objects.filter(change_set=OuterRef("pk"), pool=None)
    sets = ChangeSet.objects.filter(status=ChangeSet.Status.APPROVED)
    rows = sets.annotate(divides=Exists(divides)).order_by("parent_id", "effective_at", "version")
    values = rows.values_list("parent_id", "effective_at", "version", "divides")
    for parent_id, group in groupby(values, key=itemgetter(0)):
        since, newest = None, -1
        for _, at, version, divides_it in group:
            if version < newest:
                continue  # a later version stood in for it by then
            newest = version
            if since is not None and not divides_it:
                yield parent_id, since, at
            since = (since or at) if divides_it else None
        if since is not None:
            yield parent_id, since, None


def in_another_period(start: datetime, end: datetime) -> Problems:
    """A charge lies in the period that it stands in, to its end."""
    outside = Q(at__lt=F("period__starts_at")) | Q(at__gte=F("period__ends_at"))
    beyond = Q(until__gt=F("period__ends_at"))
    for charge in _named(charges(start, end).filter(outside | beyond).select_related("period")):
        yield EntryProblem(
            "period",
            f"run {charge.run_id}: its charge of {charge.amount_mgpus} mGPU-s from "
            f"{iso(charge.at)} on, to {charge.budget.path}, stands in {charge.period.name}",
        )


def seconds_charged_twice(start: datetime, end: datetime) -> Problems:
    """A run's funded charges may not overlap one another, nor its unfunded ones."""
    before = Window(
        Max("until"),
        partition_by=[F("run_id"), F("funded")],
        order_by=[F("at").asc(), F("pk").asc()],
        frame=BEFORE,
    )
    again = charges(start, end).annotate(reached=before).filter(reached__gt=F("at"))
    for charge in _named(again):
        earlier = _over(charge)
        yield EntryProblem(
            "charged twice",
            f"{_where(charge)}: from {iso(charge.at)} on {charge.amount_mgpus} mGPU-s for "
            f"{charge.gpu_seconds} GPU-seconds are charged, from {iso(earlier.at)} on "
            f"{earlier.amount_mgpus} for {earlier.gpu_seconds}",
        )


def _over(charge: Entry) -> Entry:
    """Return the earliest charge of the same run that a charge lies over."""
    others = Entry.objects.filter(kind=Kind.CHARGE, run=charge.run_id, funded=charge.funded)
    over = others.filter(until__gt=charge.at, at__lte=charge.at).exclude(pk=charge.pk)
    return over.order_by("at", "pk")[0]


def seconds_unlike_holdings(start: datetime, end: datetime) -> Problems:
    """In each timestep a run is charged for what it held, funded or not, once what lies past its
    end is left out; in one that isn't closed, for nothing.

    Where seconds are charged twice, that alone is said.
    """
    parts = merge(_held(start, end), _charged(start, end), _beyond(start, end), key=itemgetter(0))
    for run_id, mine in groupby(parts, key=itemgetter(0)):
        held: Seconds = defaultdict(lambda: [0, 0])
        paid: Seconds = defaultdict(lambda: [0, 0])
        for _, is_charge, step, funded, seconds in mine:
            (paid if is_charge else held)[step][funded] += seconds
        wrong = [step for step in sorted({*held, *paid}) if held[step] != paid[step]]
        if not wrong:
            continue
        twice, path = _twice(run_id, wrong), _path(run_id)
        for step in wrong:
            if step not in twice:
                where = f"run {run_id} of {path}, timestep {iso(from_seconds(step))}"
                yield EntryProblem("charge", f"{where}, {_unlike(held[step], paid[step])}")


def _held(start: datetime, end: datetime) -> Iterator[Part]:
    """Yield what each holding was in each closed timestep, by run."""
    closed = ClosedTimestep.objects.filter(start__gte=start, start__lt=end).order_by("start")
    steps = [
        (to_seconds(low), to_seconds(high)) for low, high in closed.values_list("start", "end")
    ]
    if not steps:
        return
    starts, last = [low for low, _ in steps], steps[-1][1]
    held = held_in(from_seconds(starts[0]), from_seconds(last)).order_by("run_id")
    values = held.values_list("run_id", "mask", "funded", "started_at", "ended_at")
    for run_id, mask, funded, since, until in values.iterator(CHUNK):
        assert since is not None, "it overlaps an interval"
        begin, over = to_seconds(since), to_seconds(until) if until else last
        for low, high in islice(steps, max(0, bisect_right(starts, begin) - 1), None):
            if low >= over:
                break
            if (seconds := min(high, over) - max(low, begin)) > 0:
                yield run_id, False, low, funded, mask.bit_count() * seconds


def _charged(start: datetime, end: datetime) -> Iterator[Part]:
    """Yield what each run is charged in each timestep, by run."""
    rows = charges(start, end).exclude(run=None).values_list("run_id", "timestep", "funded")
    sums = rows.annotate(total=Sum("gpu_seconds")).order_by("run_id", "timestep")
    for run_id, step, funded, total in sums.iterator(CHUNK):
        yield run_id, True, to_seconds(step), funded, total


def _beyond(start: datetime, end: datetime) -> Iterator[Part]:
    """Yield, below 0, what of charges lies past their run's end, by run."""
    for charge, seconds, _ in _late(start, end):
        assert charge.run_id is not None
        assert charge.timestep is not None
        yield charge.run_id, True, to_seconds(charge.timestep), charge.funded, -seconds


def _late(start: datetime, end: datetime) -> Iterator[tuple[Any, int, int]]:
    """Yield charges that reach past their run's end, and what is beyond it: seconds, amount."""
    late = charges(start, end).filter(until__gt=F("run__ended_at")).order_by("run_id", "at", "pk")
    key = Concat(Value(LATE_END), Substr(OuterRef("key"), len("charge:") + 1))
    back = Entry.objects.filter(kind=Kind.ADJUST, key=key).values("amount_mgpus")
    found = late.annotate(back=Subquery(back)).select_related("run", "budget")
    for charge in found.iterator(CHUNK):
        assert charge.run is not None
        assert charge.run.ended_at is not None
        yield charge, *past_end(charge, charge.run.ended_at)


def _twice(run_id: int, steps: Iterable[int]) -> set[int]:
    """Return the timesteps of a run in which seconds are charged that were charged before."""
    mine = Entry.objects.filter(kind=Kind.CHARGE, run=run_id, timestep__in=map(from_seconds, steps))
    reached: dict[bool, int] = {}
    found = set()
    for charge in mine.order_by("at", "pk"):
        since, until = segment_bounds(charge)
        assert charge.timestep is not None
        if since < reached.get(charge.funded, since):
            found.add(to_seconds(charge.timestep))
        reached[charge.funded] = max(until, reached.get(charge.funded, until))
    return found


def _path(run_id: int) -> str:
    return Run.objects.values_list("job__budget__path", flat=True).get(pk=run_id)


def _unlike(held: list[int], paid: list[int]) -> str:
    return ", ".join(
        f"{word}: held {was} GPU-seconds, charged {charged}"
        for word, was, charged in zip(("unfunded", "funded"), held, paid, strict=True)
        if was != charged
    )


def amounts_unlike_rates(start: datetime, end: datetime) -> Problems:
    """A funded charge is its GPU-seconds × the rate at its start; an unfunded one is free."""
    then = PoolRate.objects.filter(pool=OuterRef("pool"), effective_at__lte=OuterRef("at"))
    rate = Subquery(then.order_by("-effective_at").values("rate_per_mille")[:1])
    priced = charges(start, end).annotate(rate=Coalesce(rate, REFERENCE))
    worth = Case(When(funded=True, then=F("gpu_seconds") * F("rate")), default=Value(0))
    for charge in _named(priced.annotate(worth=worth).exclude(amount_mgpus=F("worth"))):
        yield EntryProblem(
            "rate",
            f"{_where(charge)}: {charge.gpu_seconds} GPU-seconds at rate {charge.rate} are "
            f"{charge.worth} mGPU-s, charged {charge.amount_mgpus}",
        )


def over_a_change_of_rate(start: datetime, end: datetime) -> Problems:
    """A charge has one rate: it is cut where its pool's changes."""
    inside = Q(effective_at__gt=OuterRef("at"), effective_at__lt=OuterRef("until"))
    changed = PoolRate.objects.filter(inside, pool=OuterRef("pool")).order_by("effective_at")
    at = Subquery(changed.values("effective_at")[:1])
    uncut = charges(start, end).filter(funded=True).annotate(changed=at)
    for charge in _named(uncut.exclude(changed=None)):
        yield EntryProblem(
            "rate",
            f"{_where(charge)}: the {charge.amount_mgpus} mGPU-s from {iso(charge.at)} on are not "
            f"cut at {iso(charge.changed)}, where the rate changes",
        )


def parked_above_held(start: datetime, end: datetime) -> Problems:
    """Of what was held some was idle, and never more."""
    for charge in _named(charges(start, end).filter(parked_gpu_seconds__gt=F("gpu_seconds"))):
        yield EntryProblem(
            "parked",
            f"{_where(charge)}: {charge.parked_gpu_seconds} GPU-seconds parked of "
            f"{charge.gpu_seconds} held",
        )


def late_ends_unlike_given_back(start: datetime, end: datetime) -> Problems:
    """What a funded charge has past its run's end is given back, exactly."""
    for charge, _, amount in _late(start, end):
        back = -(charge.back or 0)
        if charge.funded and amount != back:
            assert charge.run is not None
            assert charge.run.ended_at is not None
            yield EntryProblem(
                "late end",
                f"{_where(charge)}: {amount} mGPU-s are charged past its end at "
                f"{iso(charge.run.ended_at)}, {back} given back",
            )


def without_a_run() -> Problems:
    """A charge says which run it is of, and which timestep."""
    whose = Q(run=None) | Q(job=None) | Q(timestep=None) | Q(until=None)
    for charge in _named(Entry.objects.filter(whose, kind=Kind.CHARGE)):
        yield EntryProblem(
            "run",
            f"{charge.key}, of {charge.budget.path}: {charge.amount_mgpus} mGPU-s for "
            f"{charge.gpu_seconds} GPU-seconds without a run or a timestep",
        )


def _named(found: QuerySet[Entry]) -> Iterator[Any]:
    """Yield breaches in order, each with what names it."""
    return found.select_related("budget").order_by("run_id", "at", "pk").iterator(CHUNK)


def _where(charge: Entry) -> str:
    step = charge.timestep or charge.at
    return f"run {charge.run_id} of {charge.budget.path}, timestep {iso(step)}"
