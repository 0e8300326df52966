"""Credits set aside before they are spent: holds, their top-ups and their releases."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import NamedTuple, Protocol

from django.db import transaction
from django.db.models import Q

from budgets.models import Budget
from budgets.periods import active
from clusters.models import Pool
from clusters.saying import say as _
from ledger.bulk import among
from ledger.entries import Attempt, free_key, hold_entry, write
from ledger.figures import (
    Accounts,
    OpenHolds,
    accounts,
    all_open_holds,
    closed_until,
    open_holds,
)
from ledger.instants import LedgerError, iso, span, to_seconds, whole
from ledger.lock import lock_ledger
from ledger.models import Entry
from ledger.rates import Rates
from workloads.models import Holding, Job, Run

Kind = Entry.Kind


@dataclass(frozen=True, slots=True)
class HoldResult:
    """Whether a hold was written; if not, how much is missing where. Milli-GPU-seconds.

    ``spendable_mgpus`` is what the budget has left after it. ``binding`` is the budget that has
    too little: the job's own or an ancestor. None when the job is funded, when nothing was asked
    for, and when no period is active.
    """

    funded: bool
    needed_mgpus: int
    spendable_mgpus: int
    binding: Budget | None = None


@dataclass(frozen=True, slots=True)
class Orphan:
    """A hold that nobody will spend any more, and that was released."""

    job_id: int
    attempt: int
    budget_path: str
    amount_mgpus: int


class Funded(NamedTuple):
    """What a live run holds funded now: GPUs of one pool."""

    run_id: int
    attempt: Attempt
    budget_id: int
    pool_id: int
    gpus: int


def hold_amount(*, job: Job, at: datetime) -> int:
    """Return what a job must have set aside before it is funded, in milli-GPU-seconds.

    Minimum runtime × GPUs × the highest rate among the pools it accepts. 0 where the minimum
    runtime is 0: unfunded by choice.
    """
    return hold_amounts(jobs=[job], at=at)[job.pk]


def hold_amounts(*, jobs: Sequence[Job], at: datetime) -> dict[int, int]:
    """Return what each of several jobs must have set aside, by job id.

    Two queries where the jobs' pools are prefetched.
    """
    every = list(Pool.objects.order_by("pk").values_list("pk", flat=True))
    if not every:
        raise LedgerError(_("There is no pool yet: add one before jobs are funded."))
    rates = Rates.load()
    return {
        job.pk: job.minimum_runtime_s
        * job.gpus
        * rates.highest([pool.pk for pool in job.pools.all()] or every, at)
        for job in jobs
    }


def place_hold(*, job: Job, amount_mgpus: int, now: datetime, note: str = "") -> HoldResult:
    """Set credits aside for the job's present attempt, if its budget has them; else nothing.

    Repeated for the same attempt it writes nothing more and says funded.
    """
    return place_holds(wanted=[(job, amount_mgpus)], now=now, note=note)[0]


@transaction.atomic
def place_holds(
    *, wanted: Sequence[tuple[Job, int]], now: datetime, note: str = ""
) -> list[HoldResult]:
    """Place several holds in their order, each against what those before have left.

    One lock and one look at the figures for all of them; the answers come in the same order.
    """
    now = whole(now, "now")
    if any(amount < 0 for _, amount in wanted):
        raise LedgerError(_("A hold can't be negative."))
    lock_ledger()
    period = active(now)
    if period is None:
        return [HoldResult(False, amount, 0) for _, amount in wanted]
    found = accounts(period=period, at=now)
    keys = {f"hold:{job.pk}:{job.attempt}" for job, _ in wanted}
    there = set(Entry.objects.filter(key__in=keys).values_list("key", flat=True))
    budgets = Budget.objects.in_bulk(found.tree)
    results, entries = [], []
    for job, amount in wanted:
        key = f"hold:{job.pk}:{job.attempt}"
        results.append(_answer(found, budgets, job, amount, known=key in there))
        if results[-1].funded and key not in there:
            there.add(key)
            mine = Attempt(job.pk, job.attempt)
            entry = hold_entry(
                Kind.HOLD, mine, job.budget_id, period.pk, amount, key, at=now, now=now
            )
            entries.append(entry)
            entries[-1].note = note
    write(entries)
    return results


def _answer(
    found: Accounts, budgets: Mapping[int, Budget], job: Job, amount: int, *, known: bool
) -> HoldResult:
    """Decide on one hold and count it, unless it was written before."""
    spendable = found.spendable(job.budget_id)
    if known:
        return HoldResult(True, amount, spendable)
    if amount == 0:
        return HoldResult(False, 0, spendable)
    if amount > spendable:
        return HoldResult(False, amount, spendable, budgets[found.binding(job.budget_id)])
    found.set_aside(job.budget_id, amount)
    return HoldResult(True, amount, spendable - amount)


class Keyed(Protocol):
    """A run, or what was read of one."""

    @property
    def pk(self) -> int: ...


@transaction.atomic
def cover(*, runs: Iterable[Keyed], start: datetime, end: datetime, now: datetime) -> set[int]:
    """Top up the holds of what ran funded at ``start``, so that each covers its cost to ``end``.

    A run that has ended since counts too: missed timesteps are decided on as they would have
    been then. In order of run id, each against what the ones before have left. Returns the ids of
    the runs that could not be covered: from ``start`` on they are to be unfunded. Without an
    active period that is all of them.
    """
    start, end = span(start, end)
    now = whole(now, "now")
    lock_ledger()
    funded = _funded(runs, start)
    period = active(start)
    if period is None:
        return {one.run_id for one in funded}
    found = accounts(period=period, at=start, jobs=[one.attempt.job_id for one in funded])
    keys = _keys_at(funded, start)
    rates, uncovered, entries = Rates.load(), set(), []
    for one in funded:
        cost = one.gpus * rates.price(one.pool_id, to_seconds(start), to_seconds(end))
        missing = cost - found.put_by(one.attempt)
        if missing <= 0:
            continue
        if missing > found.spendable(one.budget_id):
            uncovered.add(one.run_id)
            continue
        found.set_aside(one.budget_id, missing)
        # What has run beyond the hold is made good too, or the next charge would use up this.
        amount = cost + found.running[one.attempt] - found.open_holds[one.attempt]
        key = free_key(keys, _key_at(one.attempt, start))
        entries.append(
            hold_entry(
                Kind.HOLD, one.attempt, one.budget_id, period.pk, amount, key, at=start, now=now
            )
        )
        entries[-1].run_id = one.run_id
    write(entries)
    return uncovered


def _funded(runs: Iterable[Keyed], at: datetime) -> list[Funded]:
    """Return what each run holds funded at an instant, by run id; without any it drops out.

    A holding whose start isn't confirmed yet counts.
    """
    begun = Q(started_at=None) | Q(started_at__lte=at)
    rows = (
        Holding.objects.filter(begun, Q(ended_at=None) | Q(ended_at__gt=at), funded=True)
        .filter(among("run_id", sorted(run.pk for run in runs)))
        .order_by("run_id")
        .values_list(
            *("run_id", "run__job_id", "run__number", "run__job__budget_id"),
            *("run__pool_id", "mask"),
        )
    )
    found: dict[int, Funded] = {}
    for run_id, job_id, number, budget_id, pool_id, mask in rows:
        gpus = mask.bit_count() + (found[run_id].gpus if run_id in found else 0)
        found[run_id] = Funded(run_id, Attempt(job_id, number), budget_id, pool_id, gpus)
    return list(found.values())


def _key_at(attempt: Attempt, start: datetime) -> str:
    return f"hold:{attempt.job_id}:{attempt.number}:{iso(start)}"


def _keys_at(funded: list[Funded], start: datetime) -> set[str]:
    """Return the keys of an instant's top-ups. Numbered ones follow only a key that is there."""
    jobs = {_key_at(one.attempt, start): one.attempt.job_id for one in funded}
    known = set(Entry.objects.filter(among("key", list(jobs))).values_list("key", flat=True))
    if not known:
        return known
    again = [jobs[key] for key in known]
    rows = Entry.objects.filter(kind=Entry.Kind.HOLD, at=start, job_id__in=again)
    return set(rows.values_list("key", flat=True))


@transaction.atomic
def release_rest(*, job: Job, attempt: int, at: datetime, now: datetime) -> int:
    """Release what is left of an attempt's hold; return how much. Call it where the run ends.

    What ran since the last close needs no hold any more: it is in flight until it is charged.
    """
    at, now = whole(at, "at"), whole(now, "now")
    lock_ledger()
    mine = Attempt(job.pk, attempt)
    left = open_holds([job.pk]).get(mine, {})
    return release_all({mine: left}, {job.pk: job.budget_id}, "end", at=at, now=now)


@transaction.atomic
def sweep_holds(*, now: datetime) -> list[Orphan]:
    """Release the holds of attempts whose job has ended or moved on; name them."""
    now = whole(now, "now")
    lock_ledger()
    orphans = orphan_holds()
    jobs = Job.objects.select_related("budget").in_bulk({mine.job_id for mine in orphans})
    budgets = {pk: job.budget_id for pk, job in jobs.items()}
    release_all(orphans, budgets, f"swept:{iso(now)}", at=now, now=now)
    return [
        Orphan(mine.job_id, mine.number, jobs[mine.job_id].budget.path, sum(left.values()))
        for mine, left in orphans.items()
    ]


def orphan_holds() -> OpenHolds:
    """Return the open holds that no run, live or yet to be charged, and no waiting job needs.

    Where timesteps wait to be closed, what ended in them is still paid out of its hold; closing
    them releases the rest.
    """
    found = all_open_holds()
    jobs = Job.objects.in_bulk({mine.job_id for mine in found})
    counts = ~Q(state=Run.State.ENDED)
    if (closed := closed_until()) is not None:
        counts |= Q(started_at__isnull=False, ended_at__gt=closed)
    runs = Run.objects.filter(counts, job_id__in=jobs)
    needed = {Attempt(*row) for row in runs.values_list("job_id", "number")}
    needed |= {Attempt(pk, job.attempt) for pk, job in jobs.items() if not job.has_ended}
    return {mine: left for mine, left in found.items() if mine not in needed}


def release_all(
    holds: OpenHolds, budgets: Mapping[int, int], reason: str, *, at: datetime, now: datetime
) -> int:
    """Release what is left of some attempts' holds; return how much. ``budgets``: by job id."""
    jobs = {mine.job_id for mine in holds}
    released = Entry.objects.filter(kind=Entry.Kind.RELEASE, job_id__in=jobs)
    keys = set(released.filter(key__contains=f":{reason}").values_list("key", flat=True))
    entries = list(_releases(holds, budgets, reason, keys, at=at, now=now))
    write(entries)
    return sum(entry.amount_mgpus for entry in entries)


def _releases(
    holds: OpenHolds,
    budgets: Mapping[int, int],
    reason: str,
    taken: set[str],
    *,
    at: datetime,
    now: datetime,
) -> Iterator[Entry]:
    """Yield one release per attempt and period; keys are numbered where an attempt has several."""
    for mine, left in sorted(holds.items()):
        for period_id, amount in sorted(left.items()):
            if amount > 0:
                key = free_key(taken, f"release:{mine.job_id}:{mine.number}:{reason}")
                budget_id = budgets[mine.job_id]
                yield hold_entry(
                    Kind.RELEASE, mine, budget_id, period_id, amount, key, at=at, now=now
                )
