"""The two moments in which a cycle touches the clusters: observing, and carrying out decisions.

No connector call happens inside a database transaction. What was decided stands in the database
first (runs that are starting or stopping, a service's pending set), so that whoever comes after
a crash carries out the same decisions; connectors answer a repeated call as they did the first.
Each call is guarded by itself (``calls``): one that fails leaves its run as decided.
"""

import logging
from collections import defaultdict
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from datetime import datetime

from django.db import transaction
from django.db.models import F, Q, QuerySet

from allocator import admission, alarms, clocks, closing, requests, timesteps
from allocator.calls import Calls, Line, NoAnswer
from clusters import services as clusters
from clusters.connectors.base import Placement, Refusal, RunReport, StartOrder
from clusters.models import Cluster, Node
from forecasting import services as forecasting
from ledger import figures
from ledger import services as ledger
from workloads import services as workloads
from workloads.models import Holding, Job, Run, Service

logger = logging.getLogger(__name__)

STARTING = Run.State.STARTING
# Sessions that were extended, and whose cluster would still end them as it knew before.
UNTOLD = Q(state=Run.State.RUNNING, job__session=True, told_limit_s__lt=F("job__time_limit_s"))
OUTCOMES = {
    "completed": Run.EndReason.COMPLETED,
    "failed": Run.EndReason.FAILED,
    "timed_out": Run.EndReason.TIMED_OUT,
    "node_failure": Run.EndReason.NODE_FAILURE,
}


def observe(*, at: datetime, calls: Calls | None = None) -> int:
    """Write down what every cluster says has happened. Returns how many runs ended.

    A cluster that can't be reached raises an alarm and keeps its last known state.
    """
    calls, ended = calls or Calls(), 0
    for cluster in Cluster.objects.all():
        line = calls.to(cluster)
        with _told(line, at):
            ended += _observe(line, at)
    return ended


def carry_out(*, at: datetime, calls: Calls | None = None) -> None:
    """Stop, resize and start what was decided, in that order: stops free the GPUs of starts.

    What fails stays decided: a later cycle carries it out.
    """
    calls = calls or Calls()
    by_cluster: dict[int, list[Run]] = defaultdict(list)
    for run in _undone():
        by_cluster[run.pool.cluster_id].append(run)
    starting = {run.pk for runs in by_cluster.values() for run in runs if run.state == STARTING}
    new = calls.not_yet_ordered(starting)
    if not by_cluster:
        return
    for cluster in Cluster.objects.filter(pk__in=by_cluster):
        line, runs = calls.to(cluster), by_cluster[cluster.pk]
        _stop(line, [r for r in runs if r.state == Run.State.STOPPING], at)
        going = [r for r in runs if r.state == Run.State.RUNNING]
        _resize(line, [r for r in going if r.job.is_realtime], at)
        _set_time_limits(line, [r for r in going if r.job.session], at)
        _start(line, [r for r in runs if r.state == STARTING], new, at)
        if not line.failed and not line.is_left_alone:
            alarms.clear(kind=_alarm(line), at=at)


@contextmanager
def _told(line: Line, at: datetime) -> Iterator[None]:
    """A call that fails is an alarm of its cluster, and nothing else."""
    try:
        yield
    except NoAnswer as failure:
        alarms.raise_alarm(kind=_alarm(line), text=str(failure), at=at, answers=line.answers)


def _alarm(line: Line) -> str:
    return f"{alarms.UNREACHABLE}{line.cluster.slug}"


def _observe(line: Line, at: datetime) -> int:
    cluster = line.cluster
    live = {run.external_id: run for run in _live().filter(pool__cluster=cluster)}
    seen = line.observe(since=cluster.observed_until, at=at, live=set(live))
    known = [
        report
        for report in seen.runs
        if (run := live.get(report.external_id)) and not clocks.is_past(run, report)
    ]
    looked = cluster.observed_until
    with transaction.atomic():
        closed = figures.closed_until() if seen.gpus else None
        clusters.record(cluster, seen, closed_until=closed)
        ended = sum(
            _take_over(live[report.external_id], report, at, looked=looked) for report in known
        )
        clocks.clear(cluster=cluster, at=at)
    if alarms.is_open(kind=_alarm(line)):
        _note_that_it_answers(line, at)
    return ended


def _note_that_it_answers(line: Line, at: datetime) -> None:
    """The alarm is over, unless a call has failed that is yet to be made again."""
    if not _undone().filter(pool__cluster=line.cluster).exists():
        alarms.clear(kind=_alarm(line), at=at)
    else:
        alarms.note(kind=_alarm(line), answers=True)


def _live() -> QuerySet[Run]:
    live = Run.objects.filter(state__in=Run.LIVE)
    there = ("job", "job__service", "pool__cluster", "job__budget")
    return live.select_related(*there).order_by("id")


def _undone() -> QuerySet[Run]:
    """Runs of which something was decided that their cluster has yet to confirm."""
    decided = Q(state__in=(STARTING, Run.State.STOPPING))
    changing = Q(state=Run.State.RUNNING, job__service__pending__isnull=False)
    return _live().filter(decided | changing | UNTOLD)


def _stop(line: Line, runs: list[Run], at: datetime) -> None:
    for run in _while_it_answers(line, runs):
        with _told(line, at):
            _take_over(run, line.stop(run.external_id, at=at), at)


def _start(line: Line, runs: list[Run], new: set[int], at: datetime) -> None:
    others = _others(line, [run for run in runs if run.pk in new], at)
    for run in _while_it_answers(line, runs):
        blocks = _blocks(run)
        if _held_by_others(run, blocks):
            logger.warning("Run %s waits: its GPUs are not free yet.", run.external_id)
            continue
        with _told(line, at):
            known = others.get(run.external_id)
            answer = known or line.start(_order(run, blocks), at=at)
            if isinstance(answer, RunReport) and (known or clocks.is_past(run, answer)):
                since = answer.started_at.date()
                reason = f"it knows another run by the name {run.external_id}, of {since}"
                answer = Refusal(external_id=run.external_id, reason=reason)
            if isinstance(answer, Refusal):
                logger.warning("Run %s was refused: %s", run.external_id, answer.reason)
                _end(run, Run.EndReason.REFUSED, at, now=at, why=answer.reason)
            else:
                _take_over(run, answer, at, looked=line.cluster.observed_until)


def _others(line: Line, new: list[Run], at: datetime) -> dict[str, RunReport]:
    """What a cluster knows by the names of runs that nobody has ordered yet: none of it is ours."""
    if not new or line.is_left_alone:
        return {}
    runs = {run.external_id: run for run in new}
    with _told(line, at):
        seen = line.observe(since=at, at=at, live=set(runs))
        return {
            report.external_id: report
            for report in seen.runs
            if (run := runs.get(report.external_id)) and clocks.began_long_before(run, report)
        }
    return {}


def _resize(line: Line, runs: list[Run], at: datetime) -> None:
    """Services that shrink come first: others may grow into what they leave."""
    nodes = {node.pk: node for node in Node.objects.all()} if runs else {}
    for run in _while_it_answers(line, sorted(runs, key=_growth)):
        blocks = [workloads.Block(nodes[pk], mask, funded) for pk, mask, funded in _pending(run)]
        if _held_by_others(run, blocks):
            logger.warning("Service %s waits: GPUs are not free yet.", run.external_id)
            continue
        with _told(line, at):
            since = _resized(line, run, blocks, at)
            with transaction.atomic():
                workloads.resize(run=run, blocks=blocks, at=since)
                Service.objects.filter(pk=run.job.service.pk).update(pending=None)


def tell_time_limit(*, run: Run, at: datetime) -> None:
    """Tell a cluster at once that a session lasts longer. What fails, a cycle does again."""
    _set_time_limits(Calls().to(run.pool.cluster), [run], at)


def _set_time_limits(line: Line, runs: list[Run], at: datetime) -> None:
    """Tell a cluster how long sessions last now; of one that has ended the next look tells."""
    for run in _while_it_answers(line, runs):
        with _told(line, at):
            order = _order(run, _blocks(run))
            line.set_time_limit(order, at=at)
            workloads.limit_told(run=run, limit_s=run.job.time_limit_s or 0)


def _while_it_answers(line: Line, runs: Iterable[Run]) -> Iterator[Run]:
    for run in runs:
        if line.is_left_alone:
            return
        yield run


def _held_by_others(run: Run, blocks: Iterable[workloads.Block]) -> bool:
    """Whether another run has yet to leave GPUs that this one is to have: its stop failed, say."""
    wanted: dict[int, int] = defaultdict(int)
    for block in blocks:
        wanted[block.node.pk] |= block.mask
    held = Holding.objects.filter(node_id__in=wanted, ended_at=None, started_at__isnull=False)
    others = held.filter(run__state__in=Run.LIVE).exclude(run=run)
    return any(wanted[node] & mask for node, mask in others.values_list("node_id", "mask"))


def _resized(line: Line, run: Run, blocks: list[workloads.Block], at: datetime) -> datetime:
    """Since when the service has the set; a change of funding alone isn't the cluster's matter."""
    held = list(run.holdings.filter(ended_at=None).select_related("node"))
    present = [workloads.Block(h.node, h.mask, h.funded) for h in held]
    wanted = placements(blocks)
    if set(placements(present)) == set(wanted):
        return at
    since = line.resize(run.external_id, wanted, at=at)
    return max([since, *(h.started_at for h in held if h.started_at is not None)])


def _pending(run: Run) -> list[tuple[int, int, bool]]:
    """A service's decided set: node, bit mask, funded."""
    return [(pk, int(mask), bool(funded)) for pk, mask, funded in run.job.service.pending or ()]


def _growth(run: Run) -> tuple[int, int]:
    wanted = sum(mask.bit_count() for _, mask, _ in _pending(run))
    held = sum(holding.gpus for holding in run.holdings.filter(ended_at=None))
    return wanted - held, run.pk


def placements(blocks: list[workloads.Block]) -> tuple[Placement, ...]:
    """GPUs by node, funded and unfunded together: the cluster knows nothing of money."""
    masks: dict[str, int] = {}
    for block in blocks:
        masks[block.node.name] = masks.get(block.node.name, 0) | block.mask
    return tuple(Placement(node=name, mask=mask) for name, mask in masks.items())


def _blocks(run: Run) -> list[workloads.Block]:
    """The GPUs that a run is to start on."""
    held = run.holdings.filter(ended_at=None).select_related("node").order_by("id")
    return [workloads.Block(one.node, one.mask, one.funded) for one in held]


def _order(run: Run, blocks: list[workloads.Block]) -> StartOrder:
    job = run.job
    limit = job.time_limit_s
    return StartOrder(
        external_id=run.external_id,
        placements=placements(blocks),
        command=job.command,
        spec=job.spec,
        expected_s=max(1, job.estimate_p50_s - job.progress_s),
        progress_s=job.progress_s,
        time_limit_s=None if limit is None else max(1, limit - job.progress_s),
        open_ended=job.is_realtime,
    )


def _take_over(
    run: Run, report: RunReport, at: datetime, *, looked: datetime | None = None
) -> bool:
    """Make a run say what the cluster says of it; True if it has ended.

    ``looked`` is when its cluster was asked last before, and had no such run.
    """
    if clocks.began_long_before(run, report):
        logger.warning("Run %s began at %s, says its cluster.", run.external_id, report.started_at)
        clocks.tell(run, report, cluster=run.pool.cluster, at=at)
    report = clocks.on_ours(run, report, looked=looked, at=at)
    if run.state == STARTING:
        _confirm(run, report.started_at)
    if report.ended_at is None:
        return False
    reason = OUTCOMES.get(report.outcome) or run.end_reason or Run.EndReason.CANCELLED
    return _end(run, reason, report.ended_at, now=at)


def _confirm(run: Run, started_at: datetime) -> None:
    with transaction.atomic():
        workloads.confirm_start(run=run, at=started_at)
        run.refresh_from_db(fields=["state", "started_at", "protected_until"])
        end = timesteps.floor(started_at) + timesteps.step()
        if not run.job.is_realtime and not closing.set_aside([run], end=end):
            # Less than a timestep was promised, or it starts in a later one than was decided on.
            closing.top_up([run], started_at, end)


def _end(run: Run, reason: str, at: datetime, *, now: datetime, **data: object) -> bool:
    """End a run, and in the same transaction release what is left of its hold.

    ``now`` is when that became known.
    """
    with transaction.atomic():
        attempt, funded = Job.objects.values_list("attempt", "funded").get(pk=run.job_id)
        if not workloads.end_run(run=run, reason=reason, at=at, **data):
            return False
        ledger.release_rest(job=run.job, attempt=attempt, at=at, now=at)
        closing.settle_late_end(run=run, now=now)
        if reason == Run.EndReason.REFUSED:
            _go_on_without(run, funded, at)
        if reason == Run.EndReason.COMPLETED and run.started_at is not None:
            worked = int((at - run.started_at).total_seconds())
            forecasting.score(job=run.job, actual_s=run.job.progress_s + worked, now=at)
    return True


def _go_on_without(run: Run, funded: bool, at: datetime) -> None:
    """The block of a refused run is free for others; its job keeps its place among the funded.

    The new attempt's hold takes what the old one's released, before anybody else can.
    """
    if funded:
        admission.fund_all(jobs=[Job.objects.get(pk=run.job_id)], now=at)
    requests.replan("refusal")
