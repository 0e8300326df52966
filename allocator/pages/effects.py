"""What a change of shares would do: effective shares, credits, how long they last. Nothing is
written; the numbers are those that approving it would write (`ledger.share_changes`)."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from fractions import Fraction

from allocator.pages import burning
from budgets import periods, shares
from budgets.models import WHOLE, Budget, Period, PlannedCapacity
from budgets.shares import TreeNode, Vector
from ledger import reports
from ledger.kept import kept_in, step
from ledger.reports import Figures
from ledger.share_changes import Trees, due_by_shares

DAY = 86_400
DEEPEST = 3
Status = Period.Status
SURE = (Status.APPROVED, Status.PROPOSED, Status.DRAFT)  # of periods ahead, the surest first


@dataclass(frozen=True)
class Worth:
    """What 100 % of a pool is worth from an instant to the period's end."""

    capacity: PlannedCapacity
    whole_gpu_seconds: Fraction

    def of(self, share: Fraction) -> int:
        """Return what a share of it is worth in milli-GPU-seconds, rounded down."""
        return int(share * self.whole_mgpus)

    @property
    def whole_mgpus(self) -> Fraction:
        return self.whole_gpu_seconds * self.capacity.rate_per_mille


@dataclass(frozen=True)
class Effect:
    """One budget below the parent: effective shares in thousandths of a percent, credits.

    ``entitled_mgpus`` is what its share is worth for the rest of the period, in GPU-time
    ``entitled_gpu_seconds`` of all pools; ``change_mgpus`` is what its grant moves by. That stops
    where it would fall under what is spent or set aside, and ``kept_mgpus`` is by how much it stops
    short; a rise is less by what was kept so before. ``under_burned_mgpus`` is by how much it would
    fall under what was burned alone. Runways in seconds. None: there is no period; what is spent
    and spendable, too, in one that lies ahead.
    """

    budget: Budget
    depth: int  # 0 = a child of the parent
    before: int
    after: int
    entitled_before_gpu_seconds: int | None
    entitled_gpu_seconds: int | None
    entitled_mgpus: int | None
    change_mgpus: int | None
    kept_mgpus: int
    burned_mgpus: int | None
    under_burned_mgpus: int
    spendable_before: int | None
    spendable_after: int | None
    runway_before: int | None
    runway_after: int | None

    @property
    def change_gpu_seconds(self) -> int | None:
        """What it gains in GPU-time until the period ends, below 0 what it loses."""
        if self.entitled_gpu_seconds is None or self.entitled_before_gpu_seconds is None:
            return None
        return self.entitled_gpu_seconds - self.entitled_before_gpu_seconds

    @property
    def css(self) -> str:
        """Class that indents it among what is below the parent."""
        return f"d{min(self.depth - 1, DEEPEST)}"


def period_of(*, at: datetime, now: datetime) -> Period | None:
    """Return the period whose grants a change from `at` on moves: the running one up to its end.

    From then on it is the one ahead that `at` lies in, else the first after it; one that is
    approved rather than a draft. None where none is there, or where none runs now.
    """
    running = periods.active(now)
    if running is not None and at < running.ends_at:
        return running
    if at <= now:
        return None
    ahead = Period.objects.filter(status__in=SURE, ends_at__gt=at)
    return min(
        ahead,
        key=lambda one: (max(one.starts_at, at), SURE.index(Status(one.status)), one.starts_at),
        default=None,
    )


def worths(*, period: Period | None, at: datetime) -> list[Worth]:
    """Return what each pool is worth from an instant on; nothing without a period."""
    if period is None:
        return []
    total = int((period.ends_at - period.starts_at).total_seconds())
    left = int((period.ends_at - max(at, period.starts_at)).total_seconds())
    rest = Fraction(max(0, left), total)
    return [
        Worth(one, rest * one.gpu_seconds)
        for one in period.capacities.select_related("pool").order_by("pool__position", "pool_id")
    ]


def of_parent(*, parent: Budget, period: Period | None, at: datetime) -> dict[int, int]:
    """Return what 100 % of a parent is worth from an instant on, by pool id; milli-GPU-seconds."""
    known = worths(period=period, at=at)
    trees = shares.trees(at=at, pools=[one.capacity.pool_id for one in known])
    return {
        one.capacity.pool_id: one.of(trees[one.capacity.pool_id][parent.pk].effective)
        for one in known
        if parent.pk in trees[one.capacity.pool_id]
    }


def effects(
    *, parent: Budget, vector: Vector, period: Period | None, at: datetime, now: datetime
) -> list[Effect]:
    """Return what a vector of a parent's children would change below it, from `at` on.

    In the order of the tree; a constant number of queries.
    """
    known = worths(period=period, at=at)
    pools = [None, *(one.capacity.pool_id for one in known)]
    before = shares.trees(at=at, pools=pools)
    after = shares.trees(at=at, pools=pools, instead={parent.pk: vector})
    begun = period is not None and period.status not in SURE
    figures = reports.figures(period=period, now=now) if period and begun else {}
    rates = burning.daily_rates(period, now) if period and begun else {}
    if parent.pk not in after[None]:
        return []
    kept = kept_in(period) if period and begun else {}
    ahead = period is not None and not begun
    moves = _Moves(known, before, after, figures, kept, ahead=ahead)
    top = after[None][parent.pk].depth + 1
    below = [node for node in after[None].values() if _is_below(after[None], node, parent.pk)]
    return [moves.effect(node, node.depth - top, rates) for node in below]


def _is_below(nodes: Mapping[int, TreeNode], node: TreeNode, top: int) -> bool:
    above = [one.budget.pk for one in shares.path_to_root(nodes, node.budget.pk)]
    return top in above[1:]


class _Moves:
    """The same sums as the ledger's, on trees before and after.

    Of a period ``ahead`` nothing is granted yet, so nothing keeps a grant from falling.
    """

    def __init__(
        self,
        known: list[Worth],
        before: Trees,
        after: Trees,
        figures: Mapping[int, Figures],
        kept: Mapping[int, int],
        *,
        ahead: bool,
    ) -> None:
        self.known, self.before, self.after, self.figures = known, before, after, figures
        self.kept, self.ahead = kept, ahead
        wholes = {one.capacity.pool_id: one.whole_mgpus for one in known}
        self.due = due_by_shares(before, after, wholes)

    def effect(self, node: TreeNode, depth: int, rates: Mapping[int, int]) -> Effect:
        pk = node.budget.pk
        old = self.before[None].get(pk)
        mine = self.figures.get(pk)
        money = mine is not None or self.ahead
        spendable = self._spendable_after(pk) if mine else None
        rate = rates.get(pk, 0)
        return Effect(
            budget=node.budget,
            depth=depth,
            before=int(old.effective * WHOLE) if old else 0,
            after=int(node.effective * WHOLE),
            entitled_before_gpu_seconds=self._gpu_seconds(self.before, pk) if money else None,
            entitled_gpu_seconds=self._gpu_seconds(self.after, pk) if money else None,
            entitled_mgpus=self._entitled(self.after, pk) if money else None,
            change_mgpus=self._change(pk) if money else None,
            kept_mgpus=max(0, self._change(pk) - self._due(pk)) if money else 0,
            burned_mgpus=_burned(mine) if mine else None,
            under_burned_mgpus=self._under_burned(pk, mine) if mine else 0,
            spendable_before=mine.spendable_mgpus if mine else None,
            spendable_after=spendable,
            runway_before=_runway(mine.spendable_mgpus, rate) if mine else None,
            runway_after=_runway(spendable, rate) if spendable is not None else None,
        )

    def _entitled(self, trees: Trees, pk: int) -> int:
        pools = ((one, trees[one.capacity.pool_id].get(pk)) for one in self.known)
        return sum(one.of(node.effective) for one, node in pools if node)

    def _gpu_seconds(self, trees: Trees, pk: int) -> int:
        pools = ((one, trees[one.capacity.pool_id].get(pk)) for one in self.known)
        return int(sum(node.effective * one.whole_gpu_seconds for one, node in pools if node))

    def _under_burned(self, pk: int, mine: Figures) -> int:
        return max(0, _burned(mine) - mine.granted_mgpus - self._due(pk))

    def _due(self, pk: int) -> int:
        if self.ahead:  # each is granted by itself then, rounded down
            return self._entitled(self.after, pk) - self._entitled(self.before, pk)
        return self.due.get(pk, 0)

    def _change(self, pk: int) -> int:
        due = self._due(pk)
        if self.ahead:
            return due
        return step(due=due, free=self._free(pk), kept=self.kept.get(pk, 0)).written

    def _free(self, pk: int) -> int:
        one = self.figures.get(pk)
        if one is None:
            return 0
        return one.granted_mgpus - one.settled_mgpus - one.in_flight_mgpus - one.held_mgpus

    def _spendable_after(self, pk: int) -> int:
        chain = shares.path_to_root(self.after[None], pk)
        return min(self._free(one.budget.pk) + self._change(one.budget.pk) for one in chain)


def _burned(mine: Figures) -> int:
    return mine.settled_mgpus + mine.in_flight_mgpus


def _runway(spendable: int, rate: int) -> int | None:
    days = reports.runway_days(spendable_mgpus=spendable, burn_rate_mgpus=rate)
    return None if days is None else int(days * DAY)
