"""Writing the sums of entries: with the entries, in their transaction, and all of them anew."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import tzinfo
from functools import cache
from typing import Any, NamedTuple
from zoneinfo import ZoneInfo

from django.db import connection, models, transaction
from django.db.models import QuerySet

from budgets.models import Period
from ledger.bulk import among, insert
from ledger.instants import local_day, to_seconds
from ledger.kinds import HOLDS, SETTLES
from ledger.lock import lock_ledger
from ledger.models import Entry, JobRollup, JobSettled, Rollup, WholeRollup
from ledger.totals import Total
from workloads.models import Job

Kind, Size = Entry.Kind, Rollup.Size
BY_TIME = (Kind.CHARGE, Kind.REFUND, Kind.ADJUST)  # what is summed by time too
STRETCHES = (Size.HOUR, Size.DAY, Size.WEEK)
BY_TIME_SIZES = (*STRETCHES, Size.LOCAL_DAY)
AMOUNTS = ("amount_mgpus", "gpu_seconds", "parked_gpu_seconds", "parked_mgpus")
SUMS = (Rollup, JobRollup, JobSettled)
Pair = tuple[int, int]  # ids of a period and a budget
Zones = Mapping[int, tzinfo]  # of periods, by id
NO_JOB = ("", None)
NOBODY = 0  # in place of a budget's id


class Fact(NamedTuple):
    """What sums need of an entry; ``at`` in seconds since 1970."""

    period_id: int
    budget_id: int
    kind: str
    funded: bool
    is_realtime: bool
    job_id: int | None
    person_id: int | None  # who submitted the job, where the entry counts towards settled
    attempt: int
    at: int
    amount_mgpus: int
    gpu_seconds: int
    parked_gpu_seconds: int


class Cell(NamedTuple):
    """Whose sum it is: ``Rollup.KEY``."""

    size: int
    since: int
    period_id: int
    budget_id: int
    kind: str
    funded: bool
    is_realtime: bool


class WholeCell(NamedTuple):
    """Whose sum it is: ``WholeRollup.KEY``."""

    size: int
    since: int
    period_id: int
    kind: str
    funded: bool
    is_realtime: bool


class JobCell(NamedTuple):
    """Whose sum it is: ``JobRollup.KEY``."""

    job_id: int
    attempt: int
    period_id: int
    budget_id: int
    kind: str


class SettledCell(NamedTuple):
    """Whose sum it is: ``JobSettled.KEY``, and ``OF_KEY``."""

    job_id: int
    period_id: int
    budget_id: int
    person_id: int


# Milli-GPU-seconds, GPU-seconds, parked GPU-seconds, milli-GPU-seconds of the parked ones.
Sums = tuple[int, int, int, int]
JobSums = tuple[int, int]  # milli-GPU-seconds, GPU-seconds
Summed = type[Rollup] | type[WholeRollup] | type[JobRollup] | type[JobSettled]


def add(entries: Sequence[Entry]) -> None:
    """Count entries that have just been written, in the same transaction.

    What takes an entry back takes its sums back too. One statement for a thousand sums.
    """
    assert connection.in_atomic_block, "an entry and its sums are written together or not at all"
    jobs = {entry.job_id for entry in entries if entry.job_id and entry.kind in BY_TIME}
    known = Job.objects.filter(among("pk", jobs)).order_by() if jobs else Job.objects.none()
    rows = known.values_list("pk", "kind", "submitted_by_id")
    of_jobs = {pk: (kind, person_id) for pk, kind, person_id in rows}
    made = [_fact(entry, of_jobs) for entry in entries]
    timed = any(fact.kind in BY_TIME for fact in made)
    every_zone = zones() if timed else {}
    sums = sums_of(made, every_zone)
    upsert(Rollup, sums)
    upsert(WholeRollup, whole_of(sums, every_zone))
    upsert(JobRollup, job_sums_of(made))
    upsert(JobSettled, settled_of(made))


def zones() -> Zones:
    return {pk: ZoneInfo(name) for pk, name in Period.objects.values_list("pk", "time_zone")}


def _fact(entry: Entry, of_jobs: Mapping[int, tuple[str, int]]) -> Fact:
    kind, job_id = str(entry.kind), entry.job_id
    of, person_id = of_jobs.get(job_id, NO_JOB) if job_id else NO_JOB
    return Fact(
        entry.period_id,
        entry.budget_id,
        kind,
        entry.funded,
        of == Job.Kind.REALTIME and kind == Kind.CHARGE,
        job_id,
        person_id,
        entry.attempt,
        to_seconds(entry.at),
        entry.amount_mgpus,
        entry.gpu_seconds,
        entry.parked_gpu_seconds,
    )


def sums_of(facts: Iterable[Fact], zones: Zones) -> dict[Cell, Sums]:
    """Return all the sums that some entries are part of. Pure."""
    size = int(Size.HOUR)
    by_hour: dict[tuple[Any, ...], Sums] = {}  # plain tuples: thousands come down to hundreds
    for fact in facts:
        _count(by_hour, (fact.at - fact.at % size, *fact[:5]), _amounts(fact))
    found: dict[Cell, Sums] = {}
    for hour, sums in by_hour.items():
        for cell in _cells(Cell(size, *hour), zones):
            _count(found, cell, sums)
    return found


def _count(found: dict[Any, Sums], cell: tuple[Any, ...], more: Sums) -> None:
    known = found.get(cell)
    if known is not None:
        more = (known[0] + more[0], known[1] + more[1], known[2] + more[2], known[3] + more[3])
    found[cell] = more


def _amounts(fact: Fact) -> Sums:
    parked = 0
    if fact.funded and fact.parked_gpu_seconds:
        # Amount = GPU-seconds × rate, so the division is exact.
        parked = fact.amount_mgpus // fact.gpu_seconds * fact.parked_gpu_seconds
    return fact.amount_mgpus, fact.gpu_seconds, fact.parked_gpu_seconds, parked


def _cells(hour: Cell, zones: Zones) -> Iterator[Cell]:
    yield Cell(int(Size.PERIOD), 0, *hour[2:])
    if hour.kind not in BY_TIME:
        return
    for size in STRETCHES:
        yield Cell(int(size), hour.since - hour.since % size, *hour[2:])
    day = local_day(hour.since, zones[hour.period_id])
    if day % Size.HOUR == 0:
        yield Cell(int(Size.LOCAL_DAY), day, *hour[2:])


def whole_of(sums: Mapping[Cell, Sums], zones: Zones) -> dict[WholeCell, Sums]:
    """Return the organisation's sums that the sums of budgets are part of. Pure."""
    by_hour: dict[tuple[Any, ...], Sums] = {}
    for cell, amounts in sums.items():
        if cell[0] == Size.HOUR:
            _count(by_hour, (*cell[:3], NOBODY, *cell[4:]), amounts)
    found: dict[WholeCell, Sums] = {}
    for hour, amounts in by_hour.items():
        for cell in _cells(Cell(*hour), zones):
            if cell.size != Size.PERIOD:
                _count(found, whole_cell(cell), amounts)
    return found


def whole_cell(cell: Cell) -> WholeCell:
    """Return whose sum a budget's is part of."""
    return WholeCell(*cell[:3], *cell[4:])


def job_sums_of(facts: Iterable[Fact]) -> dict[JobCell, JobSums]:
    """Return all the sums of what attempts set aside that some entries are part of. Pure."""
    found: dict[JobCell, JobSums] = {}
    for period_id, budget_id, kind, _, _, job_id, _, attempt, _, amount, held, _ in facts:
        if job_id is not None and kind in HOLDS:
            cell = JobCell(job_id, attempt, period_id, budget_id, kind)
            known = found.get(cell)
            found[cell] = (known[0] + amount, known[1] + held) if known else (amount, held)
    return found


def settled_of(facts: Iterable[Fact]) -> dict[SettledCell, JobSums]:
    """Return all the sums of what jobs settled that some entries are part of. Pure."""
    found: dict[SettledCell, JobSums] = {}
    for period_id, budget_id, kind, _, _, job_id, person_id, _, _, amount, held, _ in facts:
        if job_id is not None and person_id is not None and kind in SETTLES:
            cell = SettledCell(job_id, period_id, budget_id, person_id)
            settled, seconds = found.get(cell, (0, 0))
            found[cell] = (settled + SETTLES[Kind(kind)] * amount, seconds + held)
    return found


def upsert(
    model: Summed,
    sums: Mapping[Cell, Sums]
    | Mapping[WholeCell, Sums]
    | Mapping[JobCell, JobSums]
    | Mapping[SettledCell, JobSums],
) -> None:
    """Add sums to those there are. In order of their keys, so that two writers can't deadlock."""
    columns, then = _upsert(model)
    insert(model, columns, sorted((*cell, *amounts) for cell, amounts in sums.items()), then=then)


@cache
def _upsert(model: Summed) -> tuple[tuple[str, ...], str]:
    """Return the columns of a row, the key's first, and what becomes of one that is there."""
    fields: list[models.Field] = [f for f in model._meta.concrete_fields if not f.primary_key]
    whose = (*model.KEY, *model.OF_KEY)
    fields.sort(key=lambda one: whose.index(one.name) if one.name in whose else 99)
    columns = tuple(str(one.column) for one in fields)
    names = [connection.ops.quote_name(column) for column in columns]
    table, keys = connection.ops.quote_name(model._meta.db_table), len(model.KEY)
    added = ", ".join(f"{name} = {table}.{name} + excluded.{name}" for name in names[len(whose) :])
    return columns, f"ON CONFLICT ({', '.join(names[:keys])}) DO UPDATE SET {added}"


# --- All of them anew ----------------------------------------------------------------------------


def pairs() -> list[Pair]:
    """Return every period and budget that has entries or sums."""
    found: set[Pair] = set()
    for model in (Entry, *SUMS):
        rows = model._default_manager.order_by().values_list("period_id", "budget_id")
        found |= set(rows.distinct())
    return sorted(found)


def rebuild(*, on_progress: Callable[[int, int], None] | None = None) -> tuple[int, int]:
    """Write every sum anew; return how many entries were read and how many sums written.

    Budget by budget and period by period, each in a transaction under the lock of all writers:
    nobody waits longer than for one of them, and what is read meanwhile is right. Then the
    organisation's, size by size, from those of its budgets.
    """
    entries = rows = 0
    every = pairs()
    for number, pair in enumerate(every, 1):
        read, written = rebuild_one(*pair)
        entries, rows = entries + read, rows + written
        if on_progress:
            on_progress(number, len(every))
    for period_id in periods():
        rows += sum(rebuild_whole(period_id, size) for size in BY_TIME_SIZES)
    return entries, rows


@transaction.atomic
def rebuild_one(period_id: int, budget_id: int) -> tuple[int, int]:
    """Write the sums of one budget in one period anew."""
    lock_ledger()
    for model in SUMS:
        model._default_manager.filter(period_id=period_id, budget_id=budget_id).delete()
    made = list(facts(period_id, budget_id))
    sums, job_sums, settled = sums_of(made, zones()), job_sums_of(made), settled_of(made)
    upsert(Rollup, sums)
    upsert(JobRollup, job_sums)
    upsert(JobSettled, settled)
    return len(made), len(sums) + len(job_sums) + len(settled)


def periods() -> list[int]:
    """Return every period of which there are sums by time."""
    rows = (model._default_manager.order_by() for model in (Rollup, WholeRollup))
    return sorted({pk for one in rows for pk in one.values_list("period_id", flat=True).distinct()})


@transaction.atomic
def rebuild_whole(period_id: int, size: int) -> int:
    """Write the organisation's sums of a size in a period anew; return how many there are."""
    lock_ledger()
    WholeRollup.objects.filter(period_id=period_id, size=size).delete()
    made = {WholeCell(*row[:6]): row[6:] for row in of_all_budgets(period_id, size).iterator(5000)}
    upsert(WholeRollup, made)
    return len(made)


def of_all_budgets(period_id: int, size: int) -> QuerySet[Rollup, tuple[Any, ...]]:
    """Return the budgets' sums of a size in a period, added up: a key's values, then the sums."""
    sums = Rollup.objects.filter(period_id=period_id, size=size).order_by()
    cells = sums.values_list(*WholeCell._fields)
    return cells.annotate(**{f"all_{name}": Total(name) for name in AMOUNTS})


def facts(period_id: int, budget_id: int) -> Iterator[Fact]:
    """Yield what sums need of the entries of one budget in one period. One query."""
    entries = Entry.objects.filter(period_id=period_id, budget_id=budget_id).order_by()
    rows = entries.values_list(
        *("kind", "funded", "job__kind", "job_id", "job__submitted_by_id", "attempt", "at"),
        *("amount_mgpus", "gpu_seconds", "parked_gpu_seconds"),
    )
    for kind, funded, of, job_id, person, attempt, at, *amounts in rows.iterator(chunk_size=5000):
        realtime = kind == Kind.CHARGE and of == Job.Kind.REALTIME
        place = (period_id, budget_id, kind, funded, realtime, job_id, person, attempt)
        yield Fact(*place, to_seconds(at), *amounts)
