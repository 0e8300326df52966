"""Sums against entries: every difference by name. Entries are right, whatever the sums say."""

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple
from zoneinfo import ZoneInfo

from django.db import transaction
from django.db.models import QuerySet

from budgets.models import Budget, Period
from ledger.instants import from_seconds, iso
from ledger.lock import lock_ledger
from ledger.models import Entry, JobRollup, Rollup
from ledger.rollups import facts, job_sums_of, pairs, sums_of, zones
from ledger.stretches import AMOUNTS

NAMES = dict(zip(AMOUNTS, ("mGPU-s", "GPU-seconds", "parked", "mGPU-s parked"), strict=True))


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

    ``manage.py rebuild_rollups`` makes them right. Two sums of one budget, time and kind (busy and
    unfunded, say) are told apart by what they count.
    """
    paths = dict(Budget.objects.values_list("pk", "path"))
    periods, every_zone = Period.objects.in_bulk(), zones()
    for period_id, budget_id in pairs():
        path, period = paths[budget_id], periods[period_id]
        mine = {"period_id": period_id, "budget_id": budget_id}
        with transaction.atomic():
            lock_ledger()  # so that nobody writes between the two
            made = list(facts(period_id, budget_id))
            said = _kept(Rollup.objects.filter(**mine), Rollup.KEY, AMOUNTS)
            of_jobs = _kept(JobRollup.objects.filter(**mine), JobRollup.KEY, AMOUNTS[:2])
        for cell, *both in _unequal(said, sums_of(made, every_zone)):
            size, since, _, _, *what = cell
            yield WrongSum(path, _when(size, since, period), _named(*what), *both)
        for cell, *both in _unequal(of_jobs, job_sums_of(made)):
            when = f"{period.name}, job {cell[0]}, attempt {cell[1]}"
            yield WrongSum(path, when, cell[4], *both)


def _kept(
    rows: QuerySet[Any], key: tuple[str, ...], names: tuple[str, ...]
) -> dict[tuple[Any, ...], tuple[int, ...]]:
    values = rows.order_by().values_list(*key, *names)
    return {row[: len(key)]: row[len(key) :] for row in values}


def _unequal(
    said: Mapping[tuple[Any, ...], tuple[int, ...]], right: Mapping[Any, tuple[int, ...]]
) -> Iterator[tuple[Any, tuple[int, ...], tuple[int, ...]]]:
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
