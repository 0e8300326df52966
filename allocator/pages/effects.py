"""What a change of shares or of the tree would do: effective shares, credits, how long they last.

Nothing is written; the numbers are those that approving it would write: the ledger works them out
by the rules it writes by (`ledger.share_changes`).
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from fractions import Fraction
from typing import Any, NamedTuple

from allocator.pages import burning
from budgets import periods, shares
from budgets.access import Person, standing
from budgets.foreseeing import TreeChange
from budgets.models import WHOLE, Budget, Period, PlannedCapacity
from budgets.services import Does, foresee_place
from budgets.shares import TreeNode, Vector
from ledger import reports
from ledger.figures import Accounts
from ledger.services import Foreseen, foresee
from ledger.share_changes import Trees, due_by_shares
from ledger.standing import given_to_children

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
    """One budget concerned: effective shares in thousandths of a percent, credits.

    ``entitled_mgpus`` is what its share is worth for the rest of the period, in GPU-time
    ``entitled_gpu_seconds`` of all pools; ``change_mgpus`` is what its grant moves by. That stops
    where it would fall under what is spent or set aside, and ``kept_mgpus`` is by how much it stops
    short; a rise is less by what was kept so before. ``along_mgpus`` is the part of it that goes
    along with a budget that moves. ``under_burned_mgpus`` is by how much it would fall under what
    was burned alone. Runways in seconds. None: there is no period; what is granted, spent and
    spendable, too, in one that lies ahead.
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
    along_mgpus: int
    burned_mgpus: int | None
    under_burned_mgpus: int
    granted_before: int | None
    granted_after: int | None
    spendable_before: int | None
    spendable_after: int | None
    reserve_before: int | None
    reserve_after: int | None
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

    @property
    def place_css(self) -> str:
        """Class that indents it among all that a change of the tree touches."""
        return f"d{min(self.depth, DEEPEST)}"

    @property
    def is_touched(self) -> bool:
        """Whether any of its figures would change."""
        pairs = (
            (self.before, self.after),
            (self.entitled_before_gpu_seconds, self.entitled_gpu_seconds),
            (self.granted_before, self.granted_after),
            (self.spendable_before, self.spendable_after),
            (self.reserve_before, self.reserve_after),
        )
        return any(before != after for before, after in pairs)


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


@dataclass(frozen=True)
class Look:
    """What a change would do: from when on, in which period, and to whom."""

    parent: Budget
    period: Period | None
    at: datetime
    effects: list[Effect]

    @property
    def taken_along(self) -> int:
        """What a budget that moves would take along, in milli-GPU-seconds."""
        return taken_along(self.effects)

    @property
    def gains(self) -> list[Effect]:
        """Who gains GPU-time until the period ends, the most first."""
        rising = [one for one in self.effects if (one.change_gpu_seconds or 0) > 0]
        return sorted(rising, key=lambda one: one.change_gpu_seconds or 0)[::-1]

    @property
    def loses(self) -> list[Effect]:
        """Who loses GPU-time until the period ends, the most first."""
        falling = [one for one in self.effects if (one.change_gpu_seconds or 0) < 0]
        return sorted(falling, key=lambda one: one.change_gpu_seconds or 0)

    @property
    def under_burned(self) -> list[Effect]:
        """Who would fall under what it burned, by the most first."""
        under = [one for one in self.effects if one.under_burned_mgpus]
        return sorted(under, key=lambda one: -one.under_burned_mgpus)


def look_at_shares(
    *, parent: Budget, vector: Vector, effective_at: datetime | None, now: datetime
) -> Look:
    """Return what a vector of a parent's children would do from an instant on, or from now."""
    at = max(now, effective_at or now)
    period = period_of(at=at, now=now)
    found = effects(parent=parent, vector=vector, period=period, at=at, now=now)
    return Look(parent, period, at, found)


def look_at_place(
    person: Person,
    *,
    does: Does,
    budget: Budget,
    now: datetime,
    to: Budget | None = None,
    **asked: Any,
) -> Look:
    """Return what another place of a budget would do, as far as a person sees the budgets.

    Arguments and refusals as `budgets.services.foresee_place` has them.
    """
    change = foresee_place(does=does, budget=budget, to=to, now=now, **asked)
    period, held = period_of(at=now, now=now), standing(person)
    parent = to or budget.parent
    assert parent is not None, "the organisation has its place for good"
    found = tree_effects(change=change, period=period, now=now)
    return Look(parent, period, now, [one for one in found if held.sees(one.budget.path)])


def effects(
    *, parent: Budget, vector: Vector, period: Period | None, at: datetime, now: datetime
) -> list[Effect]:
    """Return what a vector of a parent's children would change below it, from `at` on.

    In the order of the tree; a constant number of queries.
    """
    books = _Books({parent.pk: vector}, {}, period=period, at=at, now=now)
    nodes = books.after[None]
    if parent.pk not in nodes:
        return []
    top = nodes[parent.pk].depth + 1
    return [
        books.effect(node, node.depth - top)
        for node in nodes.values()
        if _is_below(nodes, node, parent.pk)
    ]


def tree_effects(*, change: TreeChange, period: Period | None, now: datetime) -> list[Effect]:
    """Return what moving, archiving or re-activating a budget would change, from `now` on.

    Of the budget, the parents concerned, and whoever else would have other figures; in the order
    of the tree as it would be, or as it is if the budget leaves it. Constant queries.
    """
    books = _Books(change.vectors, change.moved, period=period, at=now, now=now)
    before, after = books.before[None], books.after[None]
    named = {change.budget.pk, *change.vectors}
    found = (
        books.effect(node, node.depth)
        for node in (after if before.keys() <= after.keys() else before).values()
    )
    return [one for one in found if one.is_touched or one.budget.pk in named]


def taken_along(effects: Iterable[Effect]) -> int:
    """Return what a budget that moves would take along, in milli-GPU-seconds."""
    return max((abs(one.along_mgpus) for one in effects), default=0)


def _is_below(nodes: Mapping[int, TreeNode], node: TreeNode, top: int) -> bool:
    above = [one.budget.pk for one in shares.path_to_root(nodes, node.budget.pk)]
    return top in above[1:]


class _Books:
    """The trees before and after, and what the ledger would make of it.

    In a period ahead nothing is granted yet: there a grant would be what the share is worth.
    """

    def __init__(
        self,
        vectors: Mapping[int, Vector],
        moved: Mapping[int, int],
        *,
        period: Period | None,
        at: datetime,
        now: datetime,
    ) -> None:
        self.known = worths(period=period, at=at)
        pools = [None, *(one.capacity.pool_id for one in self.known)]
        self.before: Trees = shares.trees(at=at, pools=pools)
        self.after: Trees = shares.trees(at=at, pools=pools, instead=vectors)
        self.ahead = period is not None and period.status in SURE
        self.foreseen: Foreseen | None = None
        wholes = {one.capacity.pool_id: one.whole_mgpus for one in self.known}
        self.due = due_by_shares(self.before, self.after, wholes)
        self.was: Mapping[int, _Has] = {}
        self.then: Mapping[int, _Has] = {}
        self.rates: Mapping[int, int] = {}
        if period is not None and not self.ahead:
            self.foreseen = foresee(period=period, vectors=vectors, moved=moved, at=at, now=now)
            self.was, self.then = _all(self.foreseen.before), _all(self.foreseen.after)
            self.rates = burning.daily_rates(period, now)

    def effect(self, node: TreeNode, depth: int) -> Effect:
        pk = node.budget.pk
        old, new = self.before[None].get(pk), self.after[None].get(pk)
        due = self._due(pk)
        money = self.ahead or self.foreseen is not None
        found, rate = self.foreseen, self.rates.get(pk, 0)
        was, then = self.was.get(pk, NOTHING), self.then.get(pk, NOTHING)
        along = found.along.get(pk, 0) if found else 0
        return Effect(
            budget=node.budget,
            depth=depth,
            before=int(old.effective * WHOLE) if old else 0,
            after=int(new.effective * WHOLE) if new else 0,
            entitled_before_gpu_seconds=self._gpu_seconds(self.before, pk) if money else None,
            entitled_gpu_seconds=self._gpu_seconds(self.after, pk) if money else None,
            entitled_mgpus=self._entitled(self.after, pk) if money else None,
            change_mgpus=_less(then.granted, was.granted) if found else due if money else None,
            kept_mgpus=max(0, found.kept.get(pk, 0)) if found else 0,
            along_mgpus=along,
            burned_mgpus=was.burned,
            under_burned_mgpus=_under(was, due + along),
            granted_before=was.granted,
            granted_after=then.granted,
            spendable_before=was.spendable,
            spendable_after=then.spendable,
            reserve_before=was.reserve,
            reserve_after=then.reserve,
            runway_before=_runway(was.spendable, rate),
            runway_after=_runway(then.spendable, rate),
        )

    def _due(self, pk: int) -> int:
        if self.ahead:  # each is granted by itself then, rounded down
            return self._entitled(self.after, pk) - self._entitled(self.before, pk)
        return self.due.get(pk, 0)

    def _entitled(self, trees: Trees, pk: int) -> int:
        pools = ((one, trees[one.capacity.pool_id].get(pk)) for one in self.known)
        return sum(one.of(node.effective) for one, node in pools if node)

    def _gpu_seconds(self, trees: Trees, pk: int) -> int:
        pools = ((one, trees[one.capacity.pool_id].get(pk)) for one in self.known)
        return int(sum(node.effective * one.whole_gpu_seconds for one, node in pools if node))


class _Has(NamedTuple):
    """What a budget has in a period that runs, in milli-GPU-seconds."""

    granted: int | None
    burned: int | None
    spendable: int | None
    reserve: int | None


NOTHING = _Has(None, None, None, None)


def _all(found: Accounts) -> dict[int, _Has]:
    given = given_to_children(found)
    return {
        pk: _Has(
            granted=found.granted[pk],
            burned=found.settled[pk] + found.in_flight[pk],
            spendable=found.spendable(pk),
            reserve=found.granted[pk] - given[pk] - found.strayed[pk],
        )
        for pk in found.tree
    }


def _less(after: int | None, before: int | None) -> int:
    return (after or 0) - (before or 0)


def _under(was: _Has, due: int) -> int:
    return max(0, (was.burned or 0) - (was.granted or 0) - due) if was.burned is not None else 0


def _runway(spendable: int | None, rate: int) -> int | None:
    if spendable is None:
        return None
    days = reports.runway_days(spendable_mgpus=spendable, burn_rate_mgpus=rate)
    return None if days is None else int(days * DAY)
