"""Every change of state of jobs and runs. Nobody else writes ``state``.

The states are an explicit machine: ``TRANSITIONS`` says which may follow which. A transition is a
compare-and-set, so that of two writers at once exactly one succeeds.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from django.contrib.auth.models import User
from django.db import transaction
from django.db.models import F, Max, Q

from clusters.models import Node, Pool
from workloads.models import Holding, Job, JobEvent, Run

JS, RS, Why = Job.State, Run.State, Run.EndReason
CHECKPOINT = "checkpoint"  # the kind of JobEvent that marks progress kept

TRANSITIONS: dict[str, frozenset[str]] = {
    JS.QUEUED: frozenset({JS.STARTING, JS.CANCELLED}),
    JS.STARTING: frozenset({JS.RUNNING, JS.QUEUED, JS.CANCELLED, JS.FAILED}),
    JS.RUNNING: frozenset(
        {JS.QUEUED, JS.COMPLETED, JS.FAILED, JS.TIMED_OUT, JS.PREEMPTED, JS.CANCELLED}
    ),
}


class StateConflict(Exception):
    """Somebody else changed the state first; nothing was written."""


@dataclass(frozen=True)
class Block:
    """GPUs of one node, as a bit mask, and whether they are charged."""

    node: Node
    mask: int
    funded: bool


def transition(job: Job, to: str, *, at: datetime, **changes: Any) -> None:
    """Move a job to another state, if it still is in the state it was read in.

    Raises StateConflict when it isn't, ValueError when the machine has no such transition.
    """
    if to not in TRANSITIONS.get(job.state, frozenset()):
        raise ValueError(f"Job {job.pk} can't go from {job.state} to {to}.")
    changes |= {"state": to, "state_since": at}
    if to in Job.ENDED:
        changes["ended_at"] = at
    if not Job.objects.filter(pk=job.pk, state=job.state).update(**changes):
        raise StateConflict(f"Job {job.pk} is no longer {job.state}.")
    for name, value in changes.items():
        setattr(job, name, value)


def log(
    job: Job,
    kind: str,
    /,
    *,
    at: datetime,
    run: Run | None = None,
    actor: User | None = None,
    **data: Any,
) -> None:
    """Add a line to the job's story."""
    JobEvent.objects.create(job=job, run=run, at=at, kind=kind, actor=actor, data=data)


def decide_start(
    *, job: Job, pool: Pool, blocks: Iterable[Block], at: datetime, **data: Any
) -> Run:
    """Give a queued job its block: a run that the connector has yet to start."""
    with transaction.atomic():
        transition(job, JS.STARTING, at=at)
        # A run is known by its attempt, whose hold it spends; an attempt may pass without a run.
        run = Run.objects.create(job=job, number=job.attempt, pool=pool, decided_at=at)
        _hold(run, blocks, at=None)
        log(job, "start_decided", at=at, run=run, **data)
    return run


def confirm_start(*, run: Run, at: datetime) -> None:
    """The connector has started it: from here its GPUs are held and charged."""
    job = run.job
    protected = timedelta(seconds=job.minimum_runtime_s) if job.funded else timedelta()
    with transaction.atomic():
        changed = Run.objects.filter(pk=run.pk, state=RS.STARTING).update(
            state=RS.RUNNING,
            started_at=at,
            protected_until=at + protected,
            told_limit_s=job.time_limit_s,
        )
        if not changed:
            return
        run.holdings.filter(started_at=None).update(started_at=at)
        transition(job, JS.RUNNING, at=at)
        run.refresh_from_db()
        log(job, "started", at=at, run=run, gpus=sum(h.gpus for h in run.holdings.all()))


def decide_stop(*, run: Run, reason: str, at: datetime, **data: Any) -> bool:
    """Mark a running run to be stopped; False if it is not running any more.

    Nor is one preempted that was given more protection after the plan was made.
    """
    with transaction.atomic():
        running = Run.objects.filter(pk=run.pk, state=RS.RUNNING)
        if reason == Why.PREEMPTED:
            running = running.exclude(protected_until__gt=at)
        changed = running.update(state=RS.STOPPING, end_reason=reason)
        if changed:
            run.state, run.end_reason = RS.STOPPING, reason
            log(run.job, f"{reason}_decided", at=at, run=run, **data)
    return bool(changed)


def end_run(*, run: Run, reason: str, at: datetime, **data: Any) -> bool:
    """End a run and say what becomes of its job; False if it had ended already.

    Why a run really ended wins over why it was to be stopped: one that completes in the second
    in which it is preempted has completed. The caller releases the hold in the same transaction.
    """
    with transaction.atomic():
        if run.started_at is not None:
            at = max(at, run.started_at)
        changed = Run.objects.filter(pk=run.pk, state__in=Run.LIVE).update(
            state=RS.ENDED, end_reason=reason, ended_at=at
        )
        if not changed:
            return False
        run.state, run.end_reason, run.ended_at = RS.ENDED, reason, at
        # What was noted in the belief that it went on was never held.
        run.holdings.filter(started_at__gt=at).update(started_at=at, ended_at=at)
        run.holdings.filter(Q(ended_at=None) | Q(ended_at__gt=at)).update(ended_at=at)
        job = Job.objects.get(pk=run.job_id)
        _after_run(job, run, at=at)
        log(job, f"run_{reason}", at=at, run=run, **data)
    return True


def _after_run(job: Job, run: Run, *, at: datetime) -> None:
    """What becomes of a job when its run has ended."""
    ended = {
        Why.COMPLETED: JS.COMPLETED,
        Why.FAILED: JS.FAILED,
        Why.TIMED_OUT: JS.TIMED_OUT,
        Why.CANCELLED: JS.CANCELLED,
        Why.PREEMPTED: JS.PREEMPTED,
        Why.NODE_FAILURE: JS.FAILED,
        Why.REFUSED: JS.FAILED,
    }[Why(run.end_reason)]
    if job.state == JS.STARTING and ended not in (JS.CANCELLED, JS.FAILED):
        # It started and ended between two looks.
        transition(job, JS.RUNNING, at=run.started_at or at)
    # What was the cluster's doing is not the job's end, whether resumable or not.
    comes_back = run.end_reason in (Why.NODE_FAILURE, Why.REFUSED)
    resumes = run.end_reason == Why.PREEMPTED and (job.resumable or job.is_realtime)
    if comes_back or resumes:
        _requeue(job, run, at=at)
    else:
        transition(job, ended, at=at)


def _requeue(job: Job, run: Run, *, at: datetime) -> None:
    """Queue what is left, as a new attempt that needs a hold of its own."""
    kept = job.progress_s + (_kept_s(run, at=at) if job.resumable else 0)
    if job.cancel_requested_at is not None:
        transition(job, JS.CANCELLED, at=at)
        return
    transition(job, JS.QUEUED, at=at, attempt=job.attempt + 1, funded=False, progress_s=kept)


def _kept_s(run: Run, *, at: datetime) -> int:
    """Seconds of work that a run leaves behind: preempted all, with a node its last mark."""
    if run.started_at is None:
        return 0
    kept_until: datetime | None = at if run.end_reason == Why.PREEMPTED else None
    if run.end_reason == Why.NODE_FAILURE:
        marks = run.events.filter(kind=CHECKPOINT, at__lte=at)
        kept_until = marks.aggregate(last=Max("at"))["last"]
    return 0 if kept_until is None else max(0, int((kept_until - run.started_at).total_seconds()))


def cancel_queued(*, job: Job, by: User | None, at: datetime) -> None:
    """Cancel a job that has no run. Raises StateConflict if it got one meanwhile."""
    with transaction.atomic():
        transition(job, JS.CANCELLED, at=at, cancel_requested_at=at)
        log(job, "cancelled", at=at, actor=by)


def request_cancel(*, job: Job, by: User | None, at: datetime) -> None:
    """Ask the next cycle to stop the job's run."""
    with transaction.atomic():
        asked = Job.objects.filter(pk=job.pk, cancel_requested_at=None).exclude(state__in=Job.ENDED)
        if asked.update(cancel_requested_at=at):
            log(job, "cancel_requested", at=at, actor=by)
    job.refresh_from_db()


def extend(*, run: Run, limit_s: int, least_s: int, protected_until: datetime) -> None:
    """Move a session's time limit, minimum runtime and protection; it must be running.

    The caller has locked both rows, and sets aside what it costs in the same transaction.
    """
    with transaction.atomic():
        Job.objects.filter(pk=run.job_id, state=JS.RUNNING).update(
            time_limit_s=limit_s,
            minimum_runtime_s=least_s,
            estimate_p10_s=limit_s,
            estimate_p50_s=limit_s,
            estimate_p90_s=limit_s,
        )
        Run.objects.filter(pk=run.pk, state=RS.RUNNING).update(protected_until=protected_until)


def set_urgency(*, job: Job, urgency: str, by: User | None, at: datetime) -> None:
    """Sort a job otherwise among those of its budget. The caller has locked its row."""
    with transaction.atomic():
        before, job.urgency = job.urgency, urgency
        Job.objects.filter(pk=job.pk).update(urgency=urgency)
        log(job, "urgency", at=at, actor=by, before=before, after=urgency)


def limit_told(*, run: Run, limit_s: int) -> None:
    """Note which time limit a run's cluster knows of."""
    Run.objects.filter(pk=run.pk).update(told_limit_s=limit_s)


def lose_funding(*, job: Job, at: datetime) -> None:
    """A waiting job's hold was given up: it needs another, as another attempt."""
    with transaction.atomic():
        Job.objects.filter(pk=job.pk, state=JS.QUEUED).update(
            funded=False, attempt=F("attempt") + 1
        )
        log(job, "funds_lost", at=at)


def unfund(*, run: Run, at: datetime) -> None:
    """From an instant on, the run is free and preemptible; later funds don't reach back.

    The instant may lie ahead: up to there its minimum runtime is paid for.
    """
    with transaction.atomic():
        beyond = Q(ended_at=None) | Q(ended_at__gt=at)
        for holding in run.holdings.filter(beyond, funded=True):
            _cut(holding, at=at)
        # Its job may have gone on to an attempt that is paid.
        Job.objects.filter(pk=run.job_id, attempt=run.number).update(funded=False)
        Run.objects.filter(pk=run.pk, protected_until__gt=at).update(protected_until=at)
        log(run.job, "unfunded", at=at, run=run)


def resize(*, run: Run, blocks: Iterable[Block], at: datetime) -> None:
    """Give a real-time run another set of GPUs from an instant on."""
    wanted = {(block.node.pk, block.mask, block.funded): block for block in blocks}
    with transaction.atomic():
        for holding in list(run.holdings.filter(ended_at=None)):
            if wanted.pop((holding.node_id, holding.mask, holding.funded), None) is None:
                Holding.objects.filter(pk=holding.pk).update(ended_at=at)
        _hold(run, wanted.values(), at=at)


def _cut(holding: Holding, *, at: datetime) -> None:
    """End a funded holding at an instant; what lies beyond it goes on unfunded."""
    Holding.objects.create(
        run_id=holding.run_id,
        node_id=holding.node_id,
        mask=holding.mask,
        funded=False,
        started_at=at if holding.started_at is None else max(at, holding.started_at),
        ended_at=holding.ended_at,
    )
    Holding.objects.filter(pk=holding.pk).update(ended_at=at)


def _hold(run: Run, blocks: Iterable[Block], *, at: datetime | None) -> None:
    Holding.objects.bulk_create(
        Holding(run=run, node=block.node, mask=block.mask, funded=block.funded, started_at=at)
        for block in blocks
    )
