"""What is given back: charges of a run that a failed node killed, or of time past a run's end.

Either carries an amount and no GPU-seconds: the time was held all the same.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta

from django.db import transaction
from django.db.models import F, Max

from budgets.models import Period
from clusters.saying import say as _
from ledger.entries import free_key, write
from ledger.figures import closed_until, segment_bounds
from ledger.instants import LedgerError, iso, to_seconds, whole
from ledger.lock import lock_ledger
from ledger.models import Entry
from workloads.models import JobEvent, Run
from workloads.services import CHECKPOINT

POLICIES = ("all", "checkpoint", "none")
LATE_END, REFUND = "adjust:late-end:", "refund:"  # and the rest of the charge's key
NOTE_MAX = 300
Place = tuple[int, int]  # ids of a run and of a period that it was charged in


@transaction.atomic
def refund_run(*, run: Run, now: datetime, policy: str) -> int:
    """Give back what a run that a node failure ended was charged; return how much.

    ``policy``: "all" of it, what came after its last "checkpoint" event (all, if there is none),
    or "none". Repeated it gives back only what was charged since; under a later policy that gives
    back more, only what is not given back yet. What is charged later, for the timestep in which
    the run ended, is refunded when that timestep is closed.
    """
    now = whole(now, "now")
    if run.end_reason != Run.EndReason.NODE_FAILURE:
        raise LedgerError(
            _("Run %(run)s did not end by node failure: nothing is refunded.", run=run)
        )
    lock_ledger()
    refunds = refunds_of(runs=[run], now=now, policy=policy)
    write(refunds)
    return sum(entry.amount_mgpus for entry in refunds)


@transaction.atomic
def settle_late_end(*, run: Run, now: datetime, policy: str) -> int:
    """Give back what a run was charged past its end, once that is known; return how much.

    Timesteps that were closed in the belief that it still ran stay closed: each funded charge that
    reaches past the end gets one "adjust" of exactly the part beyond. A node failure's refund,
    due when the timestep in which the run ended is closed, is written with it. Repeated it writes
    nothing. Raises LedgerError where a closed period is to be corrected and none is active.
    """
    now, closed = whole(now, "now"), closed_until()
    if run.ended_at is None:
        raise LedgerError(_("Run %(run)s has not ended: nothing is given back.", run=run))
    if closed is None or closed <= run.ended_at:
        return 0
    lock_ledger()
    late = _past_end(run, run.ended_at, now)
    failed = [run] if run.end_reason == Run.EndReason.NODE_FAILURE else []
    refunds = refunds_of(runs=failed, now=now, policy=policy)
    write([*late, *refunds])
    return sum(entry.amount_mgpus for entry in refunds) - sum(entry.amount_mgpus for entry in late)


def _past_end(run: Run, ended_at: datetime, now: datetime) -> list[Entry]:
    """Return an adjustment, unsaved, for each funded charge past the end that has none yet."""
    charges = Entry.objects.filter(run=run, kind=Entry.Kind.CHARGE, funded=True)
    there = Entry.objects.filter(run=run, kind=Entry.Kind.ADJUST, key__startswith=LATE_END)
    known = set(there.values_list("key", flat=True))
    note = f"the run had ended at {iso(ended_at)}, which became known at {iso(now)}"
    return [
        _correction(Entry.Kind.ADJUST, charge, -past_end(charge, ended_at)[1], key, note, now)
        for charge in charges.filter(until__gt=ended_at).select_related("period").order_by("at")
        if (key := late_end_key(charge)) not in known
    ]


def past_end(charge: Entry, ended_at: datetime) -> tuple[int, int]:
    """Return the GPU-seconds and the amount of a charge that lie past its run's end.

    Exact: over a segment GPUs and rate are constant.
    """
    start, end = segment_bounds(charge)
    late = max(0, end - max(start, to_seconds(ended_at)))
    seconds = end - start
    return charge.gpu_seconds * late // seconds, charge.amount_mgpus * late // seconds


def late_end_key(charge: Entry) -> str:
    return LATE_END + charge.key.removeprefix("charge:")


def charge_key(key: str) -> str | None:
    """Return the key of the charge that a refund's or a late end's key names; None for others."""
    for mark in (LATE_END, REFUND):
        if key.startswith(mark):
            whose, is_instant, _ = key.removeprefix(mark).partition("Z")
            return f"charge:{whose}Z" if is_instant else None
    return None


def refunds_of(*, runs: Iterable[Run], now: datetime, policy: str) -> list[Entry]:
    """Return the refunds that runs have yet to get, unsaved, under a lock of the caller's.

    One for each period that a run was charged in; that of charges in a closed period is an entry in
    the open one. What was charged past a run's end is no part of it (``settle_late_end``).
    """
    if policy not in POLICIES:
        raise LedgerError(
            _(
                "There is no refund policy %(policy)s: choose %(policies)s.",
                policy=repr(policy),
                policies=", ".join(POLICIES),
            )
        )
    by_id = {run.pk: run for run in runs}
    if policy == "none" or not by_id:
        return []
    since = _checkpoints(by_id) if policy == CHECKPOINT else {}
    refunds = Entry.objects.filter(run_id__in=by_id, kind=Entry.Kind.REFUND)
    taken = set(refunds.values_list("key", flat=True))
    due = _due(_charged(by_id, since), _refunded(by_id))
    return [
        _refund(by_id[run_id], period_id, amount, policy, taken, now)
        for (run_id, period_id), amount in due.items()
    ]


def _due(charged: Mapping[Place, int], refunded: Mapping[Place, int]) -> dict[Place, int]:
    """Return what is still to be refunded, by run and period; never more than a run's whole.

    What one period was given back for another, as was done once, counts for the run.
    """
    left: dict[int, int] = defaultdict(int)
    for sign, amounts in ((1, charged), (-1, refunded)):
        for (run_id, _period), amount in amounts.items():
            left[run_id] += sign * amount
    found: dict[Place, int] = {}
    for (run_id, period_id), amount in charged.items():
        more = min(amount - refunded.get((run_id, period_id), 0), left[run_id])
        if more > 0:
            found[run_id, period_id] = more
            left[run_id] -= more
    return found


def _checkpoints(runs: dict[int, Run]) -> dict[int, int]:
    """Return when each run was last marked: up to its end, as `workloads` keeps its progress."""
    marks = JobEvent.objects.filter(run_id__in=runs, kind=CHECKPOINT)
    rows = marks.filter(at__lte=F("run__ended_at")).order_by()
    last = rows.values_list("run_id").annotate(last=Max("at"))
    return {run_id: to_seconds(at) for run_id, at in last if run_id is not None}


def _charged(runs: dict[int, Run], since: dict[int, int]) -> dict[Place, int]:
    """Return what each run was charged in each period, in order of time, from its checkpoint to
    its end; a segment's cost is even."""
    charges = Entry.objects.filter(run_id__in=runs, kind=Entry.Kind.CHARGE, funded=True)
    total: dict[Place, int] = defaultdict(int)
    for charge in charges.order_by("run_id", "at"):
        assert charge.run_id is not None
        start, end = segment_bounds(charge)
        ended_at = runs[charge.run_id].ended_at
        until = end if ended_at is None else min(end, to_seconds(ended_at))
        lost = max(0, until - max(start, since.get(charge.run_id, start)))
        total[charge.run_id, charge.period_id] += charge.amount_mgpus * lost // (end - start)
    return total


def _refunded(runs: dict[int, Run]) -> dict[Place, int]:
    """Return what each run was given back of each period's charges; the key names one of them."""
    mine = Entry.objects.filter(run_id__in=runs).order_by()
    charges = mine.filter(kind=Entry.Kind.CHARGE, funded=True)
    period_of = dict(charges.values_list("key", "period_id"))
    total: dict[Place, int] = defaultdict(int)
    refunds = mine.filter(kind=Entry.Kind.REFUND)
    rows = refunds.values_list("run_id", "period_id", "key", "amount_mgpus")
    for run_id, period_id, key, amount in rows:
        assert run_id is not None
        total[run_id, period_of.get(charge_key(key) or "", period_id)] += amount
    return total


def _refund(
    run: Run, period_id: int, amount: int, policy: str, taken: set[str], now: datetime
) -> Entry:
    """Return a refund, unsaved; its key is numbered where a later policy gives back more."""
    last = (
        Entry.objects.filter(run=run, period=period_id, kind=Entry.Kind.CHARGE, funded=True)
        .select_related("period")
        .latest("at")
    )
    what = "all of it" if policy == "all" else "since its last checkpoint"
    key = free_key(taken, f"{REFUND}{run.pk}:{iso(last.at)}")
    return _correction(Entry.Kind.REFUND, last, amount, key, f"node failure: {what}", now)


def _correction(
    kind: Entry.Kind, charge: Entry, amount: int, key: str, note: str, now: datetime
) -> Entry:
    """Return an entry, unsaved, that corrects a charge: in its period, or if that is closed, in the
    open one."""
    closed = charge.period.status == Period.Status.CLOSED
    period = _open_period(now) if closed else charge.period
    note = f"for {charge.period.name}: {note}" if closed else note
    return Entry(
        kind=kind,
        budget_id=charge.budget_id,
        period=period,
        at=min(max(now, period.starts_at), period.ends_at - timedelta(seconds=1)),
        amount_mgpus=amount,
        job_id=charge.job_id,
        attempt=charge.attempt,
        run_id=charge.run_id,
        pool_id=charge.pool_id,
        note=note[:NOTE_MAX],
        key=key,
        created_at=now,
    )


def _open_period(now: datetime) -> Period:
    active = Period.objects.filter(status=Period.Status.ACTIVE)
    period = active.filter(starts_at__lte=now).order_by("-starts_at").first()
    if period is None:
        raise LedgerError(_("No period is active: start one, corrections are written there."))
    return period
