"""Each budget's figures in a period, for the whole tree in one pass."""

from collections import defaultdict
from dataclasses import dataclass
from datetime import datetime

from django.db.models import F, Q, QuerySet, Sum

from budgets.models import Budget, Period
from budgets.periods import active
from ledger.figures import Accounts, accounts, by_epoch
from ledger.instants import whole
from ledger.membership import Membership
from ledger.models import Entry


@dataclass(frozen=True, slots=True)
class Figures:
    """One budget's figures in a period, its subtree included; granted and reserve are its own.

    Amounts in milli-GPU-seconds, time in GPU-seconds. ``spendable_mgpus`` is the least of
    granted − settled − in flight − held over the budget and its ancestors, and may be negative
    after a correction. GPU-seconds are those of closed timesteps.
    """

    granted_mgpus: int
    settled_mgpus: int
    in_flight_mgpus: int
    held_mgpus: int
    spendable_mgpus: int
    reserve_mgpus: int
    charged_gpu_seconds: int
    parked_gpu_seconds: int
    parked_mgpus: int
    unfunded_gpu_seconds: int


@dataclass(slots=True)
class GpuTime:
    """GPU-seconds of charges, and what the parked ones cost."""

    charged: int = 0
    parked: int = 0
    parked_mgpus: int = 0
    unfunded: int = 0

    def add(self, other: "GpuTime") -> None:
        self.charged += other.charged
        self.parked += other.parked
        self.parked_mgpus += other.parked_mgpus
        self.unfunded += other.unfunded


# What a charge's parked part cost: amount = GPU-seconds × rate, so the division is exact.
PARKED_COST = F("amount_mgpus") / F("gpu_seconds") * F("parked_gpu_seconds")


def figures(*, period: Period, now: datetime) -> dict[int, Figures]:
    """Return the figures of every budget by id, in a constant number of queries."""
    found = accounts(period=period, at=whole(now, "now"))
    time = gpu_time(Entry.objects.filter(period=period), found.tree)
    given = _given_to_children(found)
    return {
        budget: Figures(
            granted_mgpus=found.granted[budget],
            settled_mgpus=found.settled[budget],
            in_flight_mgpus=found.in_flight[budget],
            held_mgpus=found.held[budget],
            spendable_mgpus=found.spendable(budget),
            reserve_mgpus=found.granted[budget] - given[budget],
            charged_gpu_seconds=time[budget].charged,
            parked_gpu_seconds=time[budget].parked,
            parked_mgpus=time[budget].parked_mgpus,
            unfunded_gpu_seconds=time[budget].unfunded,
        )
        for budget in found.tree
    }


def spendable(*, budget: Budget, now: datetime) -> int:
    """Return what a budget may still set aside, in milli-GPU-seconds; 0 without a period."""
    now = whole(now, "now")
    period = active(now)
    return accounts(period=period, at=now).spendable(budget.pk) if period else 0


def gpu_time(entries: QuerySet[Entry], tree: Membership) -> dict[int, GpuTime]:
    """Return the GPU-seconds of charges by budget, each with what stood below it at the time."""
    rows = (
        by_epoch(entries.filter(kind=Entry.Kind.CHARGE).order_by(), tree.moves)
        .values_list("budget_id", "epoch")
        .annotate(
            charged=Sum("gpu_seconds", filter=Q(funded=True), default=0),
            parked=Sum("parked_gpu_seconds", filter=Q(funded=True), default=0),
            parked_mgpus=Sum(PARKED_COST, filter=Q(funded=True, gpu_seconds__gt=0), default=0),
            unfunded=Sum("gpu_seconds", filter=Q(funded=False), default=0),
        )
    )
    total: dict[int, GpuTime] = defaultdict(GpuTime)
    for budget_id, epoch, *sums in rows:
        since = tree.moves[epoch - 1] if epoch else 0
        for node in tree.chain(budget_id, since):
            total[node].add(GpuTime(*sums))
    return total


def _given_to_children(found: Accounts) -> dict[int, int]:
    given: dict[int, int] = defaultdict(int)
    for budget in found.tree:
        parent = found.tree.parent(budget, found.at)
        if parent is not None:
            given[parent] += found.granted[budget]
    return given
