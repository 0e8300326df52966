"""What one job was charged, and what was parked in an interval, by budget."""

from collections import defaultdict
from dataclasses import dataclass
from datetime import datetime

from ledger.figures import HOLDS
from ledger.instants import from_seconds, span, to_seconds
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
    start, end = span(start, end)
    tree, total = Membership.load(), defaultdict[int, GpuTime](GpuTime)
    low, high = to_seconds(start), to_seconds(end)
    found = cover([low, *tree.moves_between(low, high), high])
    begun = [
        Entry.objects.filter(timestep__gte=from_seconds(a), timestep__lt=from_seconds(b)).order_by()
        for a, b in found.edges
    ]
    for sums in (*found.rollups(), *begun):
        mine = by_epoch(sums.filter(kind=Kind.CHARGE), tree.moves)
        rows = mine.values_list("budget_id", "epoch", "funded").annotate(**amounts(sums.model))
        for budget_id, epoch, funded, _, *spent in rows:
            for node in tree.chain(budget_id, tree.begin(epoch)):
                total[node].add(GpuTime.of(funded, *spent))
    return dict(total)
