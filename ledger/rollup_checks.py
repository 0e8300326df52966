"""Sums against entries: every difference by name. Entries are right, whatever the sums say."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from heapq import merge
from itertools import groupby
from operator import itemgetter
from typing import Any, NamedTuple
from zoneinfo import ZoneInfo

from django.db import transaction
from django.db.models import QuerySet, Sum

from budgets.models import Budget, Period
from ledger.instants import from_seconds, iso
from ledger.kinds import HOLDS, SETTLES
from ledger.lock import lock_ledger
from ledger.models import Entry, JobRollup, JobSettled, Rollup, WholeRollup
from ledger.rankings import SIGNED
from ledger.rollups import (
    AMOUNTS,
    BY_TIME_SIZES,
    Sums,
    WholeCell,
    facts,
    of_all_budgets,
    pairs,
    periods,
    sums_of,
    whole_cell,
    zones,
)

NAMES = dict(zip(AMOUNTS, ("mGPU-s", "GPU-seconds", "parked", "mGPU-s parked"), strict=True))

OF_JOB = ("job_id", "attempt", "kind")  # of one budget in one period
CHUNK = 2000  # rows at a time
Unequal = tuple[Any, tuple[int, ...], tuple[int, ...]]  # whose, what is said, what is right
Missing = defaultdict[WholeCell, Sums]  # what sums of budgets have too little of their entries
ALL, OF_ALL = "all budgets", WholeCell._fields
NOTHING = (0, 0, 0, 0)


class WrongSum(NamedTuple):
    """A sum that isn't that of its entries: whose, of when, what it says and what they say."""

    budget: str
    when: str
    kind: str
    says: tuple[int, ...]
    entries: tuple[int, ...]

    def __str__(self) -> str:
        names = list(NAMES.values())[: len(self.says)]
        told = (
            f"{said:,} {name}, entries {right:,}"
            for name, said, right in zip(names, self.says, self.entries, strict=True)
            if said != right
        )
        return f"{self.budget}, {self.when}, {self.kind}: the sum says {'; '.join(told)}"


def wrong_sums() -> Iterator[WrongSum]:
    """Yield every sum that differs from its entries, budget by budget and period by period.

    Entries are read one after another: what is kept is the sums by hour of one of them. Those of
    all budgets come last, period by period and size by size.

    ``manage.py rebuild_rollups`` makes them right. Two sums of one budget, time and kind (busy and
    unfunded, say) are told apart by what they count.
    """
    paths = dict(Budget.objects.values_list("pk", "path"))
    by_id, every_zone = Period.objects.in_bulk(), zones()
    missing: Missing = defaultdict(lambda: NOTHING)
    for period_id, budget_id in pairs():
        path, period = paths[budget_id], by_id[period_id]
        mine = {"period_id": period_id, "budget_id": budget_id}
        with transaction.atomic():
            lock_ledger()  # so that nobody writes between the two
            right = sums_of(facts(period_id, budget_id), every_zone)
            said = _kept(Rollup.objects.filter(**mine), Rollup.KEY, AMOUNTS)
            of_jobs, settled = list(_jobs_unequal(mine)), list(_settled_unequal(mine))
        for cell, *both in _unequal(said, right):
            size, since, _, _, *what = cell
            less = [right - said for said, right in zip(*both, strict=True)]
            missing[whole_cell(cell)] = _plus(missing[whole_cell(cell)], less)
            yield WrongSum(path, _when(size, since, period), _named(*what), *both)
        for (job_id, attempt, kind), *both in of_jobs:
            yield WrongSum(path, f"{period.name}, job {job_id}, attempt {attempt}", kind, *both)
        for job_id, *both in settled:
            yield WrongSum(path, f"{period.name}, job {job_id}", "settled", *both)
    for period_id in periods():
        for size in BY_TIME_SIZES:
            for (_, since, _, *what), *both in _whole_unequal(period_id, size, missing):
                yield WrongSum(ALL, _when(size, since, by_id[period_id]), _named(*what), *both)


def _whole_unequal(period_id: int, size: int, missing: Missing) -> Iterator[Unequal]:
    """Yield the organisation's sums of a size that differ, by time.

    Right is what its budgets' come to, added up by the database, and what is missing in these.
    """
    of = {"period_id": period_id, "size": size}
    with transaction.atomic():
        lock_ledger()
        said = _kept(WholeRollup.objects.filter(**of), WholeRollup.KEY, AMOUNTS)
        right = {row[: len(OF_ALL)]: row[len(OF_ALL) :] for row in of_all_budgets(**of)}
    for cell, amounts in missing.items():
        if (cell.period_id, cell.size) == (period_id, size):
            right[cell] = _plus(right.get(cell, NOTHING), amounts)
    yield from _unequal(said, right)


def _plus(amounts: Sums, more: Iterable[int]) -> Sums:
    a, b, c, d = (one + other for one, other in zip(amounts, more, strict=True))
    return a, b, c, d


def _jobs_unequal(mine: Mapping[str, int]) -> Iterator[Unequal]:
    """Yield the sums of attempts that differ, added up by the database; job by job."""
    kept = JobRollup.objects.filter(**mine).values_list(*OF_JOB, *AMOUNTS[:2])
    entries = Entry.objects.filter(**mine, kind__in=HOLDS).exclude(job=None).values_list(*OF_JOB)
    right = entries.annotate(amount=Sum("amount_mgpus"), held=Sum("gpu_seconds"))
    whose = itemgetter(0, 1)
    told = merge(_told(kept, OF_JOB[:2], True), _told(right, OF_JOB[:2], False), key=whose)
    for _, rows in groupby(told, key=whose):
        sums: dict[bool, dict[tuple[Any, ...], tuple[int, ...]]] = {True: {}, False: {}}
        for row in rows:
            sums[row[-1]][row[:3]] = row[3:-1]
        yield from _unequal(sums[True], sums[False])


def _settled_unequal(mine: Mapping[str, int]) -> Iterator[Unequal]:
    """Yield the sums of what jobs settled that differ, added up by the database; job by job."""
    names, person = ("job_id", "person_id"), "job__submitted_by_id"
    kept = JobSettled.objects.filter(**mine).values_list(*names, "settled_mgpus", "gpu_seconds")
    entries = Entry.objects.filter(**mine, kind__in=SETTLES).exclude(job=None)
    by_job = entries.values_list("job_id", person)
    right = by_job.annotate(amount=Sum(SIGNED), held=Sum("gpu_seconds"))
    told = merge(_told(kept, names, True), _told(right, ("job_id", person), False))
    for whose, rows in groupby(told, key=itemgetter(0, 1)):
        sums = {row[-1]: {whose[0]: row[2:-1]} for row in rows}
        yield from _unequal(sums.get(True, {}), sums.get(False, {}))


def _told(
    rows: QuerySet[Any, Any], order: tuple[str, ...], told: bool
) -> Iterator[tuple[Any, ...]]:
    return ((*row, told) for row in rows.order_by(*order).iterator(CHUNK))


def _kept(
    rows: QuerySet[Any], key: tuple[str, ...], names: tuple[str, ...]
) -> dict[tuple[Any, ...], tuple[int, ...]]:
    values = rows.order_by().values_list(*key, *names)
    return {row[: len(key)]: row[len(key) :] for row in values}


def _unequal(
    said: Mapping[tuple[Any, ...], tuple[int, ...]], right: Mapping[Any, tuple[int, ...]]
) -> Iterator[Unequal]:
    for cell in sorted(said.keys() | right.keys()):
        nothing = (0,) * len(said.get(cell) or right[cell])
        if said.get(cell, nothing) != right.get(cell, nothing):
            yield cell, said.get(cell, nothing), right.get(cell, nothing)


def _when(size: int, since: int, period: Period) -> str:
    if size == Rollup.Size.PERIOD:
        return period.name
    if size == Rollup.Size.LOCAL_DAY:
        day = from_seconds(since).astimezone(ZoneInfo(period.time_zone))
        return f"{day:%Y-%m-%d} {period.time_zone}"
    at = from_seconds(since)
    if size == Rollup.Size.HOUR:
        return f"hour of {iso(at)}"
    return f"{at:%Y-%m-%d}" if size == Rollup.Size.DAY else f"week of {at:%Y-%m-%d}"


def _named(kind: str, funded: bool, realtime: bool) -> str:
    if kind != Entry.Kind.CHARGE:
        return kind
    return f"{'' if funded else 'unfunded '}{'real-time ' if realtime else ''}charge"
