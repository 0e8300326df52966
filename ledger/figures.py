"""What every budget was granted and what of it is settled, in flight, held and spendable."""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from budgets.models import Period
from ledger.entries import Attempt
from ledger.hold_sums import OpenHolds as OpenHolds
from ledger.hold_sums import all_open_holds as all_open_holds
from ledger.hold_sums import holds_in
from ledger.hold_sums import open_holds as open_holds
from ledger.instants import to_seconds
from ledger.kinds import GRANTED as GRANTED
from ledger.kinds import HOLDS as HOLDS
from ledger.kinds import SETTLES as SETTLES
from ledger.membership import Membership
from ledger.running import InBudget, Uncharged
from ledger.running import closed_until as closed_until
from ledger.spent import PeriodSpent, spent_in
from ledger.stretches import segment_bounds as segment_bounds


@dataclass(slots=True)
class Accounts:
    """A period's amounts per budget at an instant, subtrees included, in milli-GPU-seconds.

    ``open_holds`` and ``running`` (not yet charged) stand per attempt, for the jobs asked for
    alone, ``running_of`` per budget and start of what it ran where it stood, as far as it can be
    paid for. ``strayed`` is what is
    settled and in flight of a budget, but for its own, and not of its children of now, or of more
    than one of them: a budget that moved has spent it where it stood before.
    """

    tree: Membership
    at: int  # seconds since 1970
    granted: dict[int, int] = field(default_factory=lambda: defaultdict(int))
    settled: dict[int, int] = field(default_factory=lambda: defaultdict(int))
    in_flight: dict[int, int] = field(default_factory=lambda: defaultdict(int))
    held: dict[int, int] = field(default_factory=lambda: defaultdict(int))
    strayed: dict[int, int] = field(default_factory=lambda: defaultdict(int))
    open_holds: dict[Attempt, int] = field(default_factory=lambda: defaultdict(int))
    running: dict[Attempt, int] = field(default_factory=lambda: defaultdict(int))
    running_of: dict[tuple[int, int], int] = field(default_factory=dict)

    def claimed(self, budget_id: int) -> int:
        """Return what granted may not fall below."""
        return self.settled[budget_id] + self.in_flight[budget_id] + self.held[budget_id]

    def free(self, budget_id: int) -> int:
        return self.granted[budget_id] - self.claimed(budget_id)

    def reserve(self, budget_id: int) -> int:
        """Return what of its grant a budget's children don't have, nor moved budgets have spent."""
        children = self.tree.children(budget_id, self.at)
        given = sum(self.granted[child] for child in children)
        return self.granted[budget_id] - given - self.strayed[budget_id]

    def own(self, budget_id: int) -> int:
        """Return what a budget itself may give: free, and with others below it, in its reserve."""
        free = self.free(budget_id)
        is_divided = bool(self.tree.children(budget_id, self.at))
        return min(free, self.reserve(budget_id)) if is_divided else free

    def spendable(self, budget_id: int) -> int:
        return self.free(self.binding(budget_id))

    def binding(self, budget_id: int) -> int:
        """Return which of the budget and its ancestors has the least; of equals, the lowest."""
        return min(self.tree.chain(budget_id, self.at), key=self.free)

    def set_aside(self, budget_id: int, amount: int) -> None:
        """Count one more hold, before its entry is written."""
        self._add(self.held, budget_id, self.at, amount)

    def put_by(self, attempt: Attempt) -> int:
        """Return the part of an attempt's hold that is for what has not run yet."""
        return max(0, self.open_holds[attempt] - self.running[attempt])

    def _add(self, figure: dict[int, int], budget_id: int, seconds: int, amount: int) -> None:
        for node in self.tree.chain(budget_id, seconds):
            figure[node] += amount

    def _spend(self, figure: dict[int, int], budget_id: int, seconds: int, amount: int) -> None:
        self._add(figure, budget_id, seconds, amount)
        then, today = (self.tree.chain(budget_id, at) for at in (seconds, self.at))
        if then != today:
            for node in then[1:]:
                self.strayed[node] += amount
            for node in then:
                parent = self.tree.parent(node, self.at)
                if parent is not None:
                    self.strayed[parent] -= amount


def accounts(
    *, period: Period, at: datetime, jobs: Iterable[int] = (), tree: Membership | None = None
) -> Accounts:
    """Return a period's amounts at an instant, in a constant number of queries.

    What ran since the last closed timestep is in flight, as far as its budget and all above it can
    pay for it: the rest turns unfunded as soon as the timestep is closed, and is no sibling's loss
    until then. Of each hold, only what has not run yet is held, so no second counts twice.
    ``tree``: who stood under whom, or would.
    """
    tree = tree or Membership.load()
    return accounts_of(spent_in(period, tree), tree, period=period, at=at, jobs=jobs)


def accounts_of(
    sums: Iterable[PeriodSpent],
    tree: Membership,
    *,
    period: Period,
    at: datetime,
    jobs: Iterable[int] = (),
    uncharged: Uncharged | None = None,
) -> Accounts:
    """Return the same of a period's sums, and of what runs, that have been read already."""
    found = Accounts(tree=tree, at=to_seconds(at))
    _add_sums(found, sums)
    uncharged = uncharged or uncharged_in(period, at=at, tree=tree)
    if jobs := set(jobs):
        mine = uncharged.by_attempt(period, jobs=jobs)
        found.running.update((one.attempt, one.amount_mgpus) for one in mine)
        found.open_holds.update(holds_in(period, jobs))
    for budget in sorted(uncharged.by_budget(period)):
        _add_running(found, budget, uncharged.starts)
    return found


def uncharged_in(period: Period, *, at: datetime, tree: Membership) -> Uncharged:
    """Return what ran in a period up to an instant, and is not charged."""
    return Uncharged(since=period.starts_at, until=min(at, period.ends_at), tree=tree)


def _add_running(found: Accounts, mine: InBudget, starts: Sequence[int]) -> None:
    """Count what a budget runs: what is set aside for it, and what of the rest it can pay for."""
    payable = mine.covered_mgpus
    if sum(mine.parts) > payable:
        payable += max(0, found.spendable(mine.budget_id))
    for start, amount in zip(starts, mine.parts, strict=True):
        if amount:
            found.running_of[mine.budget_id, start] = paid = min(amount, payable)
            found._spend(found.in_flight, mine.budget_id, start, paid)
            payable -= paid
    found._add(found.held, mine.budget_id, found.at, -mine.covered_mgpus)


def _add_sums(found: Accounts, sums: Iterable[PeriodSpent]) -> None:
    """Add the sums of a period: settled by where a budget stood then, held by where it stands."""
    for one in sums:
        found.granted[one.budget_id] += one.granted_mgpus
        if one.spent.settled_mgpus:
            found._spend(found.settled, one.budget_id, one.since, one.spent.settled_mgpus)
        if one.held_mgpus:
            found._add(found.held, one.budget_id, found.at, one.held_mgpus)
