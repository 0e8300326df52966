"""What a checkpoint takes of each budget: as things stand before it, exactly at it afterwards."""

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import cached_property

from django.db.models import Min

from budgets import checkpoints, plans, shares
from budgets.core.checkpoints import Case, Finding, Rule, Step, find, least_use
from budgets.models import Budget, Checkpoint, Exemption, Period
from budgets.plans import Plans
from budgets.shares import TreeNode
from ledger.awards import awards
from ledger.burn import per_day, rate_window
from ledger.divided import first_of, sources
from ledger.figures import GRANTED, Accounts, accounts
from ledger.instants import to_seconds, whole
from ledger.membership import Membership
from ledger.models import Entry
from ledger.spent import settled_between

DAY = 86_400


@dataclass(frozen=True)
class Loss:
    """What a checkpoint takes of one budget, in milli-GPU-seconds.

    ``granted`` is what it has, with what earlier checkpoints took gone; ``used`` is settled + in
    flight. ``due`` is by the rule, ``amount`` what of it is neither spent nor set aside; ``back``
    what it gets of what earlier ones took, as far as the reserve has it. ``least_use``: used at
    the checkpoint at which it takes nothing. ``spared``: why it takes nothing of this budget,
    whatever the rule says. ``rate_mgpus``: burn rate a day.
    """

    budget: Budget
    parent: Budget
    granted_mgpus: int
    rule: Rule
    case: Case
    used_mgpus: int
    found: Finding
    free: tuple[tuple[Budget, int], ...]  # where it lies: there or, once divided, below
    spared: str
    rate_mgpus: int
    seconds_left: int
    back_mgpus: int = 0

    @property
    def planned_mgpus(self) -> int:
        return self.found.planned

    @property
    def measured_mgpus(self) -> int:
        return self.found.measured

    @property
    def step(self) -> Step | None:
        return self.found.step

    @property
    def due_mgpus(self) -> int:
        return 0 if self.spared else self.found.due

    @property
    def amount_mgpus(self) -> int:
        return min(self.due_mgpus, sum(amount for _, amount in self.free))

    @property
    def unmoved(self) -> "Loss":
        """The same where nothing could be taken or given back: what is due stays due."""
        return replace(self, free=(), back_mgpus=0)

    @property
    def taken_from(self) -> list[tuple[Budget, int]]:
        """Out of which budgets the amount is taken, and how much of each."""
        return first_of(self.free, self.amount_mgpus)

    @cached_property
    def least_use_mgpus(self) -> int:
        return least_use(self.rule, self.case, used=self.used_mgpus)

    @property
    def missing_mgpus(self) -> int:
        """How much more must be used by the checkpoint for it to take nothing."""
        return self.least_use_mgpus - self.used_mgpus if self.due_mgpus else 0

    @property
    def missing_a_day_mgpus(self) -> int | None:
        """The same per day up to the checkpoint, rounded up; None within the last day."""
        if self.seconds_left < DAY:
            return None
        return -(-self.missing_mgpus * DAY // self.seconds_left)

    @property
    def due_at_rate_mgpus(self) -> int:
        """What is due if the budget goes on at its burn rate until the checkpoint."""
        if self.spared:
            return 0
        used = self.used_mgpus + self.rate_mgpus * self.seconds_left // DAY
        return find(self.rule, self.case, used=used).due


def losses(
    *, checkpoint: Checkpoint, now: datetime, only: Collection[int] | None = None
) -> list[Loss]:
    """Return what a checkpoint takes of every project, in order of path; spared ones included.

    Before the checkpoint: of what is used and granted by now. From then on: of what was used,
    granted and planned at its very instant, however late that is asked. A constant number of
    queries. ``only``: of those of some ids, as if there were no others.
    """
    reader = _Reader(checkpoint, whole(now, "now"))
    asked = [node for pk, node in reader.projects.items() if only is None or pk in only]
    return list(reader.with_backs([reader.loss(node) for node in asked]))


class _Reader:
    """Reads all that is asked of the budgets of one checkpoint, once."""

    def __init__(self, checkpoint: Checkpoint, now: datetime) -> None:
        self.checkpoint, self.now = checkpoint, now
        self.period: Period = checkpoint.period
        self.at = min(now, checkpoint.at)  # what is known up to
        self.rule = checkpoints.rule(checkpoint)
        self.tree: Mapping[int, TreeNode] = shares.tree(at=now)
        self.projects = checkpoints.projects(checkpoint, now=now)
        self.accounts: Accounts = accounts(period=self.period, at=now)
        self.plans = self._plans()
        self.used = self._used() if now >= checkpoint.at else self._used_by_now()
        self.awards = awards(checkpoint=checkpoint, budgets=self.tree, at=self.at)
        self.spared = self._spared()
        self.rates = self._rates()

    def loss(self, node: TreeNode) -> Loss:
        pk = node.budget.pk
        assert node.parent_id is not None
        award = self.awards[pk]
        case = Case(
            granted=award.counted - award.taken,
            taken=award.taken,
            planned=self.plans.planned(pk, self.checkpoint.at),
            returned=award.returned,
            initial=award.initial if self.checkpoint.initial_only else None,
        )
        used = max(0, self.used[pk])
        free = sources(self.accounts, pk, others=self.projects)
        return Loss(
            budget=node.budget,
            parent=self.tree[node.parent_id].budget,
            granted_mgpus=award.given - award.taken,
            rule=self.rule,
            case=case,
            used_mgpus=used,
            found=find(self.rule, case, used=used),
            free=tuple((self.tree[one].budget, amount) for one, amount in free if one in self.tree),
            spared=self.spared.get(pk, ""),
            rate_mgpus=self.rates[pk],
            seconds_left=to_seconds(self.checkpoint.at) - to_seconds(self.at),
        )

    def with_backs(self, found: Sequence[Loss]) -> Iterator[Loss]:
        """Yield what is found with what is given back, in order, out of what reserves have then."""
        parents = {loss.parent.pk for loss in found}
        reserves = {parent: self.accounts.reserve(parent) for parent in parents}
        for loss in found:
            reserves[loss.parent.pk] += loss.amount_mgpus
        for loss in found:
            back = min(loss.found.back, max(0, reserves[loss.parent.pk]))
            reserves[loss.parent.pk] -= back
            yield replace(loss, back_mgpus=back)

    def _plans(self) -> Plans:
        found = plans.load(period=self.period, at=self.at)
        return found if self.checkpoint.own_plans else Plans({}, found.even)

    def _used_by_now(self) -> Mapping[int, int]:
        settled, running = self.accounts.settled, self.accounts.in_flight
        return defaultdict(int, {pk: settled[pk] + running[pk] for pk in self.tree})

    def _used(self) -> Mapping[int, int]:
        """What was settled at the checkpoint; all that had run by then is, when it is taken."""
        return self._settled(self.period.starts_at, self.checkpoint.at)

    def _settled(self, start: datetime, end: datetime) -> dict[int, int]:
        tree, total = Membership.load(), defaultdict[int, int](int)
        for piece in settled_between(start, end, tree=tree):
            for node in tree.chain(piece.budget_id, piece.start):
                total[node] += piece.spent.settled_mgpus
        return total

    def _spared(self) -> dict[int, str]:
        spared: dict[int, str] = {}
        if days := self.checkpoint.spared_days:
            since = self.checkpoint.at - timedelta(days=days)
            words = f"first granted less than {days} days before"
            spared = {pk: words for pk, at in _first_grants() if at > since}
        exempt = Exemption.objects.filter(
            checkpoint=self.checkpoint, status=Exemption.Status.APPROVED
        )
        return spared | dict.fromkeys(exempt.values_list("budget_id", flat=True), "exempt")

    def _rates(self) -> Mapping[int, int]:
        window = rate_window(self.period, self.at)
        if window is None:
            return defaultdict(int)
        settled = self._settled(*window)
        return defaultdict(int, {pk: per_day(amount, window) for pk, amount in settled.items()})


def _first_grants() -> list[tuple[int, datetime]]:
    """Return when each budget was first granted anything, in any period."""
    entries = Entry.objects.filter(kind__in=GRANTED)
    rows = entries.values("budget_id").order_by("budget_id").annotate(first=Min("at"))
    return list(rows.values_list("budget_id", "first"))
