"""What a failed node gives back: the charges of the run that it killed."""

from collections import defaultdict
from collections.abc import Iterable
from datetime import datetime, timedelta

from django.db import transaction
from django.db.models import Max, Sum

from budgets.models import Period
from ledger.entries import write
from ledger.figures import segment_bounds
from ledger.instants import LedgerError, iso, to_seconds, whole
from ledger.lock import lock_ledger
from ledger.models import Entry
from workloads.models import JobEvent, Run

POLICIES = ("all", "checkpoint", "none")
CHECKPOINT = "checkpoint"  # the kind of JobEvent that marks progress kept


@transaction.atomic
def refund_run(*, run: Run, now: datetime, policy: str) -> int:
    """Give back what a run that a node failure ended was charged; return how much.

    ``policy``: "all" of it, what came after its last "checkpoint" event (all, if there is none),
    or "none". Repeated it gives back only what was charged since. What is charged later, for the
    timestep in which the run ended, is refunded when that timestep is closed.
    """
    now = whole(now, "now")
    if run.end_reason != Run.EndReason.NODE_FAILURE:
        raise LedgerError(f"Run {run} did not end by node failure: nothing is refunded.")
    lock_ledger()
    refunds = refunds_of(runs=[run], now=now, policy=policy)
    write(refunds)
    return sum(entry.amount_mgpus for entry in refunds)


def refunds_of(*, runs: Iterable[Run], now: datetime, policy: str) -> list[Entry]:
    """Return the refunds that runs have yet to get, unsaved, under a lock of the caller's.

    They carry an amount and no GPU-seconds: the time was held all the same. The refund of a charge
    in a closed period is an entry in the open one.
    """
    if policy not in POLICIES:
        raise LedgerError(f"There is no refund policy {policy!r}: choose {', '.join(POLICIES)}.")
    by_id = {run.pk: run for run in runs}
    if policy == "none" or not by_id:
        return []
    since = _checkpoints(by_id) if policy == CHECKPOINT else {}
    due = _charged(by_id, since)
    for run_id, refunded in _refunded(by_id).items():
        due[run_id] = due.get(run_id, 0) - refunded
    return [
        _refund(by_id[run_id], amount, policy, now) for run_id, amount in due.items() if amount > 0
    ]


def _checkpoints(runs: dict[int, Run]) -> dict[int, int]:
    rows = JobEvent.objects.filter(run_id__in=runs, kind=CHECKPOINT).order_by()
    last = rows.values_list("run_id").annotate(last=Max("at"))
    return {run_id: to_seconds(at) for run_id, at in last if run_id is not None}


def _charged(runs: dict[int, Run], since: dict[int, int]) -> dict[int, int]:
    """Return what each run was charged after its checkpoint; a segment's cost is even over it."""
    charges = Entry.objects.filter(run_id__in=runs, kind=Entry.Kind.CHARGE, funded=True)
    total: dict[int, int] = defaultdict(int)
    for charge in charges.order_by("run_id", "at"):
        assert charge.run_id is not None
        start, end = segment_bounds(charge)
        lost = max(0, end - max(start, since.get(charge.run_id, start)))
        total[charge.run_id] += charge.amount_mgpus * lost // (end - start)
    return total


def _refunded(runs: dict[int, Run]) -> dict[int, int]:
    rows = Entry.objects.filter(run_id__in=runs, kind=Entry.Kind.REFUND).order_by()
    return dict(rows.values_list("run_id").annotate(total=Sum("amount_mgpus")))


def _refund(run: Run, amount: int, policy: str, now: datetime) -> Entry:
    last = (
        Entry.objects.filter(run=run, kind=Entry.Kind.CHARGE, funded=True)
        .select_related("period")
        .latest("at")
    )
    period = last.period if last.period.status != Period.Status.CLOSED else _open_period(now)
    what = "all of it" if policy == "all" else "since its last checkpoint"
    return Entry(
        kind=Entry.Kind.REFUND,
        budget_id=last.budget_id,
        period=period,
        at=min(max(now, period.starts_at), period.ends_at - timedelta(seconds=1)),
        amount_mgpus=amount,
        job_id=run.job_id,
        attempt=run.number,
        run=run,
        pool_id=run.pool_id,
        note=f"node failure: {what}",
        key=f"refund:{run.pk}:{iso(last.at)}",
        created_at=now,
    )


def _open_period(now: datetime) -> Period:
    active = Period.objects.filter(status=Period.Status.ACTIVE)
    period = active.filter(starts_at__lte=now).order_by("-starts_at").first()
    if period is None:
        raise LedgerError("No period is active: start one, corrections are written there.")
    return period
