"""Each budget's figures in a period, for the whole tree in one pass."""

from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime

from budgets.models import Budget, Period
from budgets.periods import active
from ledger.figures import Accounts, accounts, accounts_of
from ledger.instants import whole
from ledger.membership import Membership
from ledger.running import Uncharged
from ledger.spent import PeriodSpent, spent_in


@dataclass(frozen=True, slots=True)
class Figures:
    """One budget's figures in a period, its subtree included; granted and reserve are its own.

    The reserve is granted − Σ granted of the children; what a budget spent before it moved counts
    in it where it stood then.

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

    @classmethod
    def of(cls, funded: bool, held: int, parked: int, parked_mgpus: int) -> "GpuTime":
        return cls(held, parked, parked_mgpus) if funded else cls(unfunded=held)

    def add(self, other: "GpuTime") -> None:
        self.charged += other.charged
        self.parked += other.parked
        self.parked_mgpus += other.parked_mgpus
        self.unfunded += other.unfunded


def figures(
    *,
    period: Period,
    now: datetime,
    tree: Membership | None = None,
    only: Collection[int] | None = None,
    sums: Sequence[PeriodSpent] | None = None,
    uncharged: Uncharged | None = None,
) -> dict[int, Figures]:
    """Return the figures of every budget by id, or of some, in a constant number of queries.

    ``tree``: who stood under whom; ``sums``: the period's; ``uncharged``: what runs in it; where
    they have been read already.
    """
    tree = tree or Membership.load()
    sums = spent_in(period, tree) if sums is None else sums
    found = accounts_of(sums, tree, period=period, at=whole(now, "now"), uncharged=uncharged)
    time = _gpu_time(sums, tree)
    given = given_to_children(found)
    return {
        budget: Figures(
            granted_mgpus=found.granted[budget],
            settled_mgpus=found.settled[budget],
            in_flight_mgpus=found.in_flight[budget],
            held_mgpus=found.held[budget],
            spendable_mgpus=found.spendable(budget),
            reserve_mgpus=found.granted[budget] - given[budget] - found.strayed[budget],
            charged_gpu_seconds=time[budget].charged,
            parked_gpu_seconds=time[budget].parked,
            parked_mgpus=time[budget].parked_mgpus,
            unfunded_gpu_seconds=time[budget].unfunded,
        )
        for budget in found.tree
        if only is None or budget in only
    }


def spendable(*, budget: Budget, now: datetime) -> int:
    """Return what a budget may still set aside, in milli-GPU-seconds; 0 without a period."""
    now = whole(now, "now")
    period = active(now)
    return accounts(period=period, at=now).spendable(budget.pk) if period else 0


def _gpu_time(sums: Iterable[PeriodSpent], tree: Membership) -> dict[int, GpuTime]:
    """Return the GPU-seconds of charges by budget, each with what stood below it at the time."""
    total: dict[int, GpuTime] = defaultdict(GpuTime)
    for one in sums:
        spent = one.spent
        held = spent.busy_gpu_seconds + spent.parked_gpu_seconds + spent.realtime_gpu_seconds
        if held or spent.unfunded_gpu_seconds:
            time = GpuTime(
                held, spent.parked_gpu_seconds, spent.parked_mgpus, spent.unfunded_gpu_seconds
            )
            for node in tree.chain(one.budget_id, one.since):
                total[node].add(time)
    return total


def given_to_children(found: Accounts) -> dict[int, int]:
    """Return what the children of each budget have been granted, by its id: one pass for all."""
    given: dict[int, int] = defaultdict(int)
    for budget in found.tree:
        parent = found.tree.parent(budget, found.at)
        if parent is not None:
            given[parent] += found.granted[budget]
    return given
