"""What one job was charged, and what was parked in an interval, by budget."""

from bisect import bisect_right
from collections import defaultdict
from dataclasses import dataclass
from datetime import date, datetime, timedelta, tzinfo

from ledger.figures import HOLDS
from ledger.instants import from_seconds, midnight, span, to_seconds
from ledger.membership import Membership
from ledger.models import Entry
from ledger.standing import GpuTime
from ledger.stretches import amounts, by_epoch, cover
from workloads.models import Job

Kind = Entry.Kind


@dataclass(frozen=True, slots=True)
class ChargeLine:
    """One charge of a job: what a run held in one segment, and what that cost."""

    run_number: int
    timestep: datetime
    start: datetime
    end: datetime
    funded: bool
    gpu_seconds: int
    parked_gpu_seconds: int
    amount_mgpus: int


# Where the fields of a line stand in an entry.
LINE = (
    *("run__number", "timestep", "at", "until", "funded"),
    *("gpu_seconds", "parked_gpu_seconds", "amount_mgpus"),
)


@dataclass(frozen=True, slots=True)
class JobCharges:
    """A job's ledger: totals in milli-GPU-seconds and GPU-seconds, and its charges in order."""

    charged_mgpus: int
    refunded_mgpus: int
    adjusted_mgpus: int  # below 0: given back
    held_mgpus: int  # left of its holds
    charged_gpu_seconds: int
    parked_gpu_seconds: int
    unfunded_gpu_seconds: int
    lines: tuple[ChargeLine, ...]


def job_charges(*, job: Job) -> JobCharges:
    """Return all that a job was charged, refunded and corrected by so far. One query."""
    lines: list[ChargeLine] = []
    sums: dict[str, int] = defaultdict(int)
    entries = Entry.objects.filter(job=job).order_by("at", "pk")
    # Columns, not rows: a service has thousands.
    for kind, *told in entries.values_list("kind", *LINE):
        sums[kind] += told[-1]
        if kind == Kind.CHARGE:
            lines.append(ChargeLine(*told))
    return JobCharges(
        charged_mgpus=sums[Kind.CHARGE],
        refunded_mgpus=sums[Kind.REFUND],
        adjusted_mgpus=sums[Kind.ADJUST],
        held_mgpus=sum(sign * sums[kind] for kind, sign in HOLDS.items()),
        charged_gpu_seconds=sum(line.gpu_seconds for line in lines if line.funded),
        parked_gpu_seconds=sum(line.parked_gpu_seconds for line in lines if line.funded),
        unfunded_gpu_seconds=sum(line.gpu_seconds for line in lines if not line.funded),
        lines=tuple(lines),
    )


def parked_by_budget(*, start: datetime, end: datetime) -> dict[int, GpuTime]:
    """Return the GPU-time of the timesteps that start in [start, end), by budget id.

    Each with what stood below it when it ran; budgets without charges have no key.
    """
    (found,) = _gpu_time(*span(start, end), [])
    return found


def parked_by_day(
    *, start: datetime, end: datetime, zone: tzinfo
) -> list[tuple[date, dict[int, GpuTime]]]:
    """Return the same for each local day that [start, end) touches, in order."""
    start, end = span(start, end)
    last = (end - timedelta(seconds=1)).astimezone(zone).date()
    days = [start.astimezone(zone).date()]
    while days[-1] < last:
        days.append(days[-1] + timedelta(days=1))
    midnights = [to_seconds(midnight(day, zone)) for day in days[1:]]
    return list(zip(days, _gpu_time(start, end, midnights), strict=True))


def _gpu_time(start: datetime, end: datetime, borders: list[int]) -> list[dict[int, GpuTime]]:
    """Sum what each budget held between borders inside [start, end), in seconds since 1970.

    The same number of queries with borders as without, as long as they are few.
    """
    tree, low, high = Membership.load(), to_seconds(start), to_seconds(end)
    totals = [defaultdict[int, GpuTime](GpuTime) for _ in range(len(borders) + 1)]
    cuts = sorted({*tree.moves, *borders})
    found = cover([low, *(cut for cut in cuts if low < cut < high), high])
    begun = [
        Entry.objects.filter(timestep__gte=from_seconds(a), timestep__lt=from_seconds(b)).order_by()
        for a, b in found.edges
    ]
    for sums in (*found.rollups(), *begun):
        mine = by_epoch(sums.filter(kind=Kind.CHARGE), cuts)
        rows = mine.values_list("budget_id", "epoch", "funded").annotate(**amounts(sums.model))
        for budget_id, epoch, funded, _, *spent in rows:
            at = cuts[epoch - 1] if epoch else 0
            for node in tree.chain(budget_id, at):
                totals[bisect_right(borders, at)][node].add(GpuTime.of(funded, *spent))
    return [dict(total) for total in totals]
