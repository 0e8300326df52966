"""What every budget was granted and what of it is settled, in flight, held and spendable."""

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from datetime import datetime
from itertools import pairwise
from typing import NamedTuple

from django.db.models import Case, F, QuerySet, Sum, When

from budgets.models import Period
from ledger.entries import Attempt
from ledger.instants import to_seconds
from ledger.membership import Membership
from ledger.models import ClosedTimestep, Entry, JobRollup
from ledger.rates import Rates
from ledger.segments import Stay, load_stays
from ledger.stretches import PeriodSum, period_sums

Kind = Entry.Kind
GRANTED = (Kind.GRANT, Kind.CARRY, Kind.TRANSFER)
# What each kind adds to what is settled, and to what is set aside.
SETTLES = {Kind.CHARGE: 1, Kind.REFUND: -1, Kind.ADJUST: 1}
HOLDS = {Kind.HOLD: 1, Kind.RELEASE: -1}
SIGNED_HOLD = Case(When(kind=Kind.HOLD, then=F("amount_mgpus")), default=-F("amount_mgpus"))


# What is left of each attempt's hold, by period.
OpenHolds = dict[Attempt, dict[int, int]]


@dataclass(slots=True)
class Accounts:
    """A period's amounts per budget at an instant, subtrees included, in milli-GPU-seconds.

    ``open_holds`` and ``running`` (not yet charged) stand per attempt, for the attempts that
    have something in flight and those of the jobs asked for, ``running_of`` per budget and start of
    what it ran where it stood, as far as it can be paid for. ``strayed`` is what is
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
    return accounts_of(period_sums(period, tree), tree, period=period, at=at, jobs=jobs)


def accounts_of(
    sums: Iterable[PeriodSum],
    tree: Membership,
    *,
    period: Period,
    at: datetime,
    jobs: Iterable[int] = (),
) -> Accounts:
    """Return the same of a period's sums that have been read already."""
    found = Accounts(tree=tree, at=to_seconds(at))
    _add_sums(found, sums)
    # Thousands run, in hundreds of budgets: summed first, so that each chain is walked once.
    in_flight: dict[int, dict[int, int]] = defaultdict(lambda: defaultdict(int))  # by start
    budgets: dict[Attempt, int] = {}
    for part in uncharged(since=period.starts_at, until=min(at, period.ends_at), tree=tree):
        found.running[part.attempt] += part.amount_mgpus
        in_flight[part.budget_id][part.start] += part.amount_mgpus
        budgets[part.attempt] = part.budget_id
    found.open_holds.update(holds_in(period, {mine.job_id for mine in budgets} | set(jobs)))
    under_way: dict[int, int] = defaultdict(int)
    for attempt, budget_id in budgets.items():
        under_way[budget_id] += min(found.open_holds[attempt], found.running[attempt])
    for budget_id, by_start in sorted(in_flight.items()):
        set_aside = under_way[budget_id]
        payable = set_aside + max(0, found.spendable(budget_id))
        for start, amount in sorted(by_start.items()):
            found.running_of[budget_id, start] = paid = min(amount, payable)
            found._spend(found.in_flight, budget_id, start, paid)
            payable -= paid
        found._add(found.held, budget_id, found.at, -set_aside)
    return found


def _add_sums(found: Accounts, sums: Iterable[PeriodSum]) -> None:
    """Add the sums of a period: settled by where a budget stood then, held by where it stands.

    Of each budget first, so that its chain is walked once and not for each kind of entry.
    """
    settled: dict[tuple[int, int], int] = defaultdict(int)
    held: dict[int, int] = defaultdict(int)
    for one in sums:
        kind = Kind(one.kind)
        if kind in GRANTED:
            found.granted[one.budget_id] += one.amount_mgpus
        elif kind in HOLDS:
            held[one.budget_id] += HOLDS[kind] * one.amount_mgpus
        else:
            settled[one.budget_id, one.since] += SETTLES[kind] * one.amount_mgpus
    for (budget_id, since), amount in settled.items():
        found._spend(found.settled, budget_id, since, amount)
    for budget_id, amount in held.items():
        found._add(found.held, budget_id, found.at, amount)


def segment_bounds(charge: Entry) -> tuple[int, int]:
    """Return the start and end of a charge's segment, in seconds since 1970."""
    assert charge.until is not None, "a charge has an end"
    return to_seconds(charge.at), to_seconds(charge.until)


def closed_until() -> datetime | None:
    """Return the end of the last closed timestep; None before the first."""
    return ClosedTimestep.objects.order_by("-start").values_list("end", flat=True).first()


class Running(NamedTuple):
    """Funded GPU-time of one holding that no charge covers yet; ``start`` in seconds."""

    attempt: Attempt
    budget_id: int
    start: int
    amount_mgpus: int


def uncharged(*, since: datetime, until: datetime, tree: Membership | None = None) -> list[Running]:
    """Return what ran funded in [since, until) and after the last close, ended runs included.

    With ``tree``, apart for each place that its budget had.
    """
    since = max(since, closed_until() or since)
    if since >= until:
        return []
    rates = Rates.load()
    return [
        Running(
            Attempt(stay.job_id, stay.attempt),
            *(stay.budget_id, start),
            stay.gpus * rates.price(stay.pool_id, start, end),
        )
        for stay in load_stays(since, until)
        if stay.funded
        for start, end in _places(stay, tree)
    ]


def _places(stay: Stay, tree: Membership | None) -> Iterable[tuple[int, int]]:
    if tree is None or not tree.moves:
        return ((stay.start, stay.end),)
    moves = tree.moves_of(stay.budget_id, stay.start, stay.end)
    return pairwise([stay.start, *moves, stay.end])


def holds_in(period: Period, job_ids: Iterable[int]) -> Iterator[tuple[Attempt, int]]:
    """Yield what is left of each attempt's hold in a period, also where that is 0."""
    sums = JobRollup.objects.filter(period=period, job_id__in=sorted(job_ids), kind__in=HOLDS)
    rows = sums.order_by().values_list("job_id", "attempt").annotate(left=Sum(SIGNED_HOLD))
    return ((Attempt(job_id, number), left) for job_id, number, left in rows)


def open_holds(job_ids: Iterable[int]) -> OpenHolds:
    """Return Σ hold − Σ release of the jobs' attempts, where it isn't 0."""
    return _open(JobRollup.objects.filter(job_id__in=sorted(job_ids)))


def all_open_holds(*, period: Period | None = None) -> OpenHolds:
    """Return every open hold, of one period or of all."""
    return _open(JobRollup.objects.filter(period=period) if period else JobRollup.objects.all())


def _open(sums: QuerySet[JobRollup]) -> OpenHolds:
    rows = sums.filter(kind__in=HOLDS).order_by().values_list("job_id", "attempt", "period_id")
    found: OpenHolds = {}
    # What is over by now, which is almost all there ever was, stays in the database.
    for job_id, number, period_id, left in sorted(
        rows.annotate(left=Sum(SIGNED_HOLD)).exclude(left=0)
    ):
        found.setdefault(Attempt(job_id, number), {})[period_id] = left
    return found
