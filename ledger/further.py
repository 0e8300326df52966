"""How far credits reach for a run that is to be held, and protected, for longer."""

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime

from budgets.models import Budget, Period
from budgets.periods import active
from ledger.carry_over import carried
from ledger.entries import Attempt
from ledger.figures import accounts, all_open_holds
from ledger.instants import from_seconds, to_seconds, whole
from ledger.membership import Membership
from ledger.period_plans import granted_by_shares
from ledger.rates import Rates
from workloads.models import Job, Run


@dataclass(frozen=True, slots=True)
class Short:
    """What is missing for a longer hold, and until when credits reach. Milli-GPU-seconds.

    ``binding`` is the budget that has too little, the run's own or an ancestor; None when no
    period is active, or none follows. ``period`` is the one that follows and has too little.
    """

    until: datetime
    needed_mgpus: int
    spendable_mgpus: int
    binding: Budget | None
    period: Period | None = None


def short_of(*, run: Run, until: datetime, now: datetime) -> Short | None:
    """Return what `cover` would lack to hold a run's funded GPUs until then; None if nothing.

    Nothing is written. Ask under the ledger's lock, or the answer is of a moment ago.
    """
    now, until = whole(now, "now"), whole(until, "until")
    period = active(now)
    if period is None:
        return Short(now, 0, 0, None)
    budget_id = run.job.budget_id
    found = accounts(period=period, at=now, jobs=[run.job_id])
    put_by = found.put_by(Attempt(run.job_id, run.number))
    spendable = found.spendable(budget_id)
    cost, begin, end = _Cost(run, Rates.load()), to_seconds(now), to_seconds(until)
    needed = cost.of(begin, end) - put_by
    if needed <= max(0, spendable):
        return None
    reach = cost.reach(begin, end, put_by + max(0, spendable))
    binding = Budget.objects.get(pk=found.binding(budget_id))
    return Short(reach, needed, spendable, binding)


def short_beyond(*, run: Run, until: datetime, now: datetime) -> Short | None:
    """Return what the next period would lack for a run that is held over the border; else None.

    All of it is set aside in the period that runs now. At the border what is left is set aside
    again in the next, or else the run turns unfunded there. The next has what its shares grant,
    and what it would take along if nothing more were spent, less what is set aside for others
    beyond the border. Ask under the ledger's lock.
    """
    period = active(now)
    if period is None or until <= period.ends_at:
        return None
    following = _following(period)
    if following is None:
        return Short(period.ends_at, 0, 0, None)
    cost, border, end = _Cost(run, Rates.load()), to_seconds(period.ends_at), to_seconds(until)
    needed, tree = cost.of(border, end), Membership.load()
    ahead = _ahead(period, following, tree)
    for budget_id, amount in _held_beyond(period, but=run):
        for node in tree.chain(budget_id, border):
            ahead[node] -= amount
    least = min(tree.chain(run.job.budget_id, border), key=lambda node: ahead[node])
    if needed <= max(0, ahead[least]):
        return None
    reach = cost.reach(border, end, max(0, ahead[least]))
    return Short(reach, needed, ahead[least], Budget.objects.get(pk=least), following)


class _Cost:
    """What a run's funded GPUs cost, in milli-GPU-seconds, and how far an amount reaches."""

    def __init__(self, run: Run, rates: Rates) -> None:
        self._gpus = sum(one.gpus for one in run.holdings.all() if not one.ended_at and one.funded)
        self._pool_id, self._rates = run.pool_id, rates

    def of(self, begin: int, end: int) -> int:
        return self._gpus * self._rates.price(self._pool_id, begin, end)

    def reach(self, begin: int, end: int, amount_mgpus: int) -> datetime:
        """Return the last second up to which too small an amount for [begin, end) pays."""
        low, high = begin, end  # it reaches to the first, not to the second
        while low + 1 < high:
            middle = (low + high) // 2
            pays = self.of(begin, middle) <= amount_mgpus
            low, high = (middle, high) if pays else (low, middle)
        return from_seconds(low)


def _following(period: Period) -> Period | None:
    """Return the period that is to begin where another ends, and can."""
    rows = Period.objects.filter(status=Period.Status.APPROVED, starts_at=period.ends_at)
    return rows.filter(capacities__isnull=False).first()


def _ahead(period: Period, following: Period, tree: Membership) -> dict[int, int]:
    """Return what each budget would be granted and take along, in milli-GPU-seconds by id."""
    found: dict[int, int] = defaultdict(int)
    for (_, budget_id), amount in granted_by_shares(period=following).items():
        found[budget_id] += amount
    for budget_id, amount in carried(period=following, previous=period, tree=tree).items():
        found[budget_id] += amount
    return found


def _held_beyond(period: Period, *, but: Run) -> Iterator[tuple[int, int]]:
    """Yield what is set aside for others beyond a period's end, each with its budget's id.

    Of a run what its protection costs from then on, of a job that waits all of its hold.
    """
    live = Run.objects.filter(state__in=Run.LIVE).select_related("job")
    runs = list(live.prefetch_related("holdings"))
    rates, border = Rates.load(), to_seconds(period.ends_at)
    for run in runs:
        if run.pk != but.pk and run.protected_until and run.protected_until > period.ends_at:
            yield run.job.budget_id, _Cost(run, rates).of(border, to_seconds(run.protected_until))
    running = {Attempt(run.job_id, run.number) for run in runs}
    left = {mine: by for mine, by in all_open_holds(period=period).items() if mine not in running}
    jobs = Job.objects.filter(pk__in={mine.job_id for mine in left})
    budgets = dict(jobs.values_list("pk", "budget_id"))
    for mine, by_period in left.items():
        yield budgets[mine.job_id], by_period[period.pk]
