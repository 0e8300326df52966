"""Credits set aside before they are spent: holds, their top-ups and their releases."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime

from django.db import transaction

from budgets.models import Budget, Period
from clusters.models import Pool
from ledger.figures import Accounts, Attempt, accounts, all_open_holds, open_holds
from ledger.instants import LedgerError, iso, span, to_seconds, whole
from ledger.lock import lock_ledger
from ledger.models import Entry
from ledger.rates import Rates
from workloads.models import Holding, Job, Run


@dataclass(frozen=True, slots=True)
class HoldResult:
    """Whether a hold was written; if not, how much is missing where. Milli-GPU-seconds.

    ``binding`` is the budget that has too little: the job's own or an ancestor. None when the
    job is funded, when nothing was asked for, and when no period is active.
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


def active_period(at: datetime) -> Period | None:
    """Return the active period that an instant falls in."""
    active = Period.objects.filter(status=Period.Status.ACTIVE)
    return active.filter(starts_at__lte=at, ends_at__gt=at).order_by("pk").first()


def hold_amount(*, job: Job, at: datetime) -> int:
    """Return what a job must have set aside before it is funded, in milli-GPU-seconds.

    Minimum runtime × GPUs × the highest rate among the pools it accepts. 0 where the minimum
    runtime is 0: unfunded by choice.
    """
    named = list(job.pools.order_by("pk").values_list("pk", flat=True))
    pool_ids = named or list(Pool.objects.order_by("pk").values_list("pk", flat=True))
    if not pool_ids:
        raise LedgerError("There is no pool yet: add one before jobs are funded.")
    return job.minimum_runtime_s * job.gpus * Rates.load().highest(pool_ids, at)


@transaction.atomic
def place_hold(*, job: Job, amount_mgpus: int, now: datetime, note: str = "") -> HoldResult:
    """Set credits aside for the job's present attempt, if its budget has them; else nothing.

    Repeated for the same attempt it writes nothing more and says funded.
    """
    now = whole(now, "now")
    if amount_mgpus < 0:
        raise LedgerError("A hold can't be negative.")
    lock_ledger()
    period = active_period(now)
    if period is None or amount_mgpus == 0:
        return HoldResult(False, amount_mgpus, 0)
    found = accounts(period=period, at=now)
    spendable = found.spendable(job.budget_id)
    key = f"hold:{job.pk}:{job.attempt}"
    if Entry.objects.filter(key=key).exists():
        return HoldResult(True, amount_mgpus, spendable)
    if amount_mgpus > spendable:
        binding = Budget.objects.get(pk=found.binding(job.budget_id))
        return HoldResult(False, amount_mgpus, spendable, binding)
    _hold(_Need.of(job), period.pk, amount_mgpus, key, at=now, now=now, note=note).save()
    return HoldResult(True, amount_mgpus, spendable - amount_mgpus)


@dataclass(frozen=True, slots=True)
class _Need:
    """A funded live run: whose hold must cover what, per second and GPU, of which pool."""

    run_id: int
    attempt: Attempt
    budget_id: int
    pool_id: int
    gpus: int

    @classmethod
    def of(cls, job: Job) -> "_Need":
        return cls(0, Attempt(job.pk, job.attempt), job.budget_id, 0, job.gpus)


@transaction.atomic
def cover(*, runs: Iterable[Run], start: datetime, end: datetime, now: datetime) -> set[int]:
    """Top up the holds of funded live runs so that each covers its cost on [start, end).

    In order of run id, each against what the ones before have left. Returns the ids of the runs
    that could not be covered: from ``start`` on they are to be unfunded. Without an active
    period that is all of them.
    """
    start, end = span(start, end)
    now = whole(now, "now")
    lock_ledger()
    needs = _needs(runs)
    period = active_period(start)
    if period is None:
        return {need.run_id for need in needs}
    found = accounts(period=period, at=start, jobs=[need.attempt.job_id for need in needs])
    rates, uncovered, entries = Rates.load(), set(), []
    keys = _keys_at(needs, start)
    for need in needs:
        cost = need.gpus * rates.price(need.pool_id, to_seconds(start), to_seconds(end))
        missing = cost - found.put_by(need.attempt)
        if missing <= 0:
            continue
        if missing > found.spendable(need.budget_id):
            uncovered.add(need.run_id)
            continue
        amount = _set_aside(found, need, cost, missing)
        key = _free_key(keys, f"hold:{need.attempt.job_id}:{need.attempt.number}:{iso(start)}")
        entries.append(_hold(need, period.pk, amount, key, at=start, now=now))
    Entry.objects.bulk_create(entries)
    return uncovered


def _set_aside(found: Accounts, need: _Need, cost: int, missing: int) -> int:
    """Count a top-up; return its amount, which makes good what has run beyond the hold too."""
    amount = cost + found.running[need.attempt] - found.open_holds[need.attempt]
    found.set_aside(need.budget_id, missing)
    found.open_holds[need.attempt] += amount
    return amount


def _needs(runs: Iterable[Run]) -> list[_Need]:
    """Return what each run holds funded now, by run id; runs that hold nothing funded drop out."""
    rows = (
        Holding.objects.filter(run_id__in=sorted(run.pk for run in runs))
        .filter(ended_at=None, funded=True)
        .exclude(run__state=Run.State.ENDED)
        .order_by("run_id")
        .values_list(
            *("run_id", "run__job_id", "run__number", "run__job__budget_id"),
            *("run__pool_id", "mask"),
        )
    )
    gpus: dict[tuple[int, ...], int] = {}
    for *ids, mask in rows:
        gpus[tuple(ids)] = gpus.get(tuple(ids), 0) + mask.bit_count()
    return [
        _Need(run_id, Attempt(job_id, number), budget_id, pool_id, total)
        for (run_id, job_id, number, budget_id, pool_id), total in gpus.items()
    ]


def _keys_at(needs: list[_Need], start: datetime) -> set[str]:
    jobs = [need.attempt.job_id for need in needs]
    rows = Entry.objects.filter(kind=Entry.Kind.HOLD, at=start, job_id__in=jobs)
    return set(rows.values_list("key", flat=True))


def _free_key(taken: set[str], key: str) -> str:
    """Return the key, or its next number: a run may grow twice at one instant."""
    free, number = key, 1
    while free in taken:
        number += 1
        free = f"{key}:{number}"
    taken.add(free)
    return free


@transaction.atomic
def release_rest(*, job: Job, attempt: int, at: datetime, now: datetime) -> int:
    """Release what is left of an attempt's hold; return how much. Call it where the run ends.

    What ran since the last close needs no hold any more: it is in flight until it is charged.
    """
    at, now = whole(at, "at"), whole(now, "now")
    lock_ledger()
    mine = Attempt(job.pk, attempt)
    left = {key: amount for key, amount in open_holds([job.pk]).items() if key[0] == mine}
    return _release(left, {mine: job.budget_id}, "end", at=at, now=now)


@transaction.atomic
def sweep_holds(*, now: datetime) -> list[Orphan]:
    """Release the holds of attempts whose job has ended or moved on; name them."""
    now = whole(now, "now")
    lock_ledger()
    orphans = orphan_holds()
    jobs = Job.objects.select_related("budget").in_bulk({mine.job_id for mine, _ in orphans})
    budgets = {mine: jobs[mine.job_id].budget_id for mine, _ in orphans}
    _release(orphans, budgets, f"swept:{iso(now)}", at=now, now=now)
    return [
        Orphan(mine.job_id, mine.number, jobs[mine.job_id].budget.path, amount)
        for (mine, _), amount in orphans.items()
    ]


def orphan_holds() -> dict[tuple[Attempt, int], int]:
    """Return the open holds, by (attempt, period id), that no live run or waiting job needs."""
    found = all_open_holds()
    jobs = Job.objects.in_bulk({mine.job_id for mine, _ in found})
    live = set(
        Run.objects.exclude(state=Run.State.ENDED)
        .filter(job_id__in=jobs)
        .values_list("job_id", "number")
    )
    return {
        (mine, period_id): amount
        for (mine, period_id), amount in found.items()
        if mine not in live
        and (jobs[mine.job_id].has_ended or mine.number != jobs[mine.job_id].attempt)
    }


def _release(
    left: dict[tuple[Attempt, int], int],
    budgets: dict[Attempt, int],
    reason: str,
    *,
    at: datetime,
    now: datetime,
) -> int:
    jobs = {mine.job_id for mine, _ in left}
    released = Entry.objects.filter(kind=Entry.Kind.RELEASE, job_id__in=jobs)
    keys = set(released.filter(key__contains=reason).values_list("key", flat=True))
    entries = list(_releases(left, budgets, reason, keys, at=at, now=now))
    Entry.objects.bulk_create(entries)
    return sum(entry.amount_mgpus for entry in entries)


def _releases(
    left: dict[tuple[Attempt, int], int],
    budgets: dict[Attempt, int],
    reason: str,
    taken: set[str],
    *,
    at: datetime,
    now: datetime,
) -> Iterator[Entry]:
    """Yield one release per attempt and period; keys count where an attempt has several."""
    for (mine, period_id), amount in sorted(left.items()):
        if amount <= 0:
            continue
        yield Entry(
            kind=Entry.Kind.RELEASE,
            budget_id=budgets[mine],
            period_id=period_id,
            at=at,
            amount_mgpus=amount,
            job_id=mine.job_id,
            attempt=mine.number,
            key=_free_key(taken, f"release:{mine.job_id}:{mine.number}:{reason}"),
            created_at=now,
        )


def _hold(
    need: _Need,
    period_id: int,
    amount: int,
    key: str,
    *,
    at: datetime,
    now: datetime,
    note: str = "",
) -> Entry:
    return Entry(
        kind=Entry.Kind.HOLD,
        budget_id=need.budget_id,
        period_id=period_id,
        at=at,
        amount_mgpus=amount,
        job_id=need.attempt.job_id,
        attempt=need.attempt.number,
        run_id=need.run_id or None,
        note=note,
        key=key,
        created_at=now,
    )
