"""The two moments in which a cycle touches the clusters: observing, and carrying out decisions.

No connector call happens inside a database transaction. What was decided stands in the database
first (runs that are starting or stopping, a service's pending set), so that whoever comes after
a crash carries out the same decisions; connectors answer a repeated call as they did the first.
"""

import logging
from collections import defaultdict
from datetime import datetime

from django.db import transaction
from django.db.models import Q, QuerySet

from allocator import alarms, closing, timesteps
from clusters import services as clusters
from clusters.connectors import connector_for
from clusters.connectors.base import (
    Connector,
    ConnectorError,
    Placement,
    Refusal,
    RunReport,
    StartOrder,
)
from clusters.models import Cluster, Node
from forecasting import services as forecasting
from ledger import services as ledger
from workloads import services as workloads
from workloads.models import Job, Run, Service

logger = logging.getLogger(__name__)

OUTCOMES = {
    "completed": Run.EndReason.COMPLETED,
    "failed": Run.EndReason.FAILED,
    "timed_out": Run.EndReason.TIMED_OUT,
    "node_failure": Run.EndReason.NODE_FAILURE,
}


def observe(*, at: datetime) -> int:
    """Write down what every cluster says has happened. Returns how many runs ended.

    A cluster that can't be reached raises an alarm and keeps its last known state.
    """
    ended = 0
    for cluster in Cluster.objects.all():
        live = {run.external_id: run for run in _live().filter(pool__cluster=cluster)}
        try:
            seen = connector_for(cluster).observe(
                since=cluster.observed_until, at=at, live=set(live)
            )
        except ConnectorError as error:
            alarms.raise_alarm(kind=f"{alarms.UNREACHABLE}{cluster.slug}", text=str(error), at=at)
            continue
        alarms.clear(kind=f"{alarms.UNREACHABLE}{cluster.slug}", at=at)
        with transaction.atomic():
            clusters.record(cluster, seen)
            ended += sum(_take_over(live[report.external_id], report, at) for report in seen.runs)
    return ended


def carry_out(*, at: datetime) -> None:
    """Stop, resize and start what was decided, in that order: stops free the GPUs of starts."""
    decided = Q(state__in=(Run.State.STARTING, Run.State.STOPPING))
    changing = Q(state=Run.State.RUNNING, job__service__pending__isnull=False)
    by_cluster: dict[int, list[Run]] = defaultdict(list)
    for run in _live().filter(decided | changing):
        by_cluster[run.pool.cluster_id].append(run)
    if not by_cluster:
        return
    for cluster in Cluster.objects.filter(pk__in=by_cluster):
        runs = by_cluster[cluster.pk]
        connector = connector_for(cluster)
        try:
            _stop(connector, [r for r in runs if r.state == Run.State.STOPPING], at)
            _resize(connector, [r for r in runs if r.state == Run.State.RUNNING], at)
            _start(connector, [r for r in runs if r.state == Run.State.STARTING], at)
        except ConnectorError as error:
            # The rest stays decided: the next cycle carries it out.
            alarms.raise_alarm(kind=f"{alarms.UNREACHABLE}{cluster.slug}", text=str(error), at=at)


def _live() -> QuerySet[Run]:
    live = Run.objects.filter(state__in=Run.LIVE)
    return live.select_related("job", "job__service", "pool", "job__budget").order_by("id")


def _stop(connector: Connector, runs: list[Run], at: datetime) -> None:
    for run in runs:
        _take_over(run, connector.stop(run.external_id, at=at), at)


def _start(connector: Connector, runs: list[Run], at: datetime) -> None:
    for run in runs:
        answer = connector.start(_order(run), at=at)
        if isinstance(answer, Refusal):
            logger.warning("Run %s was refused: %s", run.external_id, answer.reason)
            _end(run, Run.EndReason.REFUSED, at, why=answer.reason)
        else:
            _take_over(run, answer, at)


def _resize(connector: Connector, runs: list[Run], at: datetime) -> None:
    """Services that shrink come first: others may grow into what they leave."""
    nodes = {node.pk: node for node in Node.objects.all()} if runs else {}
    for run in sorted(runs, key=_growth):
        blocks = [workloads.Block(nodes[pk], mask, funded) for pk, mask, funded in _pending(run)]
        since = _resized(connector, run, blocks, at)
        with transaction.atomic():
            workloads.resize(run=run, blocks=blocks, at=since)
            Service.objects.filter(pk=run.job.service.pk).update(pending=None)


def _resized(
    connector: Connector, run: Run, blocks: list[workloads.Block], at: datetime
) -> datetime:
    """Since when the service has the set; a change of funding alone isn't the cluster's matter."""
    held = list(run.holdings.filter(ended_at=None).select_related("node"))
    present = [workloads.Block(h.node, h.mask, h.funded) for h in held]
    wanted = placements(blocks)
    if set(placements(present)) == set(wanted):
        return at
    since = connector.resize(run.external_id, wanted, at=at)
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


def _order(run: Run) -> StartOrder:
    job = run.job
    blocks = [
        workloads.Block(holding.node, holding.mask, holding.funded)
        for holding in run.holdings.filter(ended_at=None).select_related("node").order_by("id")
    ]
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


def _take_over(run: Run, report: RunReport, at: datetime) -> bool:
    """Make a run say what the cluster says of it; True if it has ended."""
    if run.state == Run.State.STARTING:
        _confirm(run, report.started_at)
    if report.ended_at is None:
        return False
    reason = OUTCOMES.get(report.outcome) or run.end_reason or Run.EndReason.CANCELLED
    return _end(run, reason, report.ended_at)


def _confirm(run: Run, started_at: datetime) -> None:
    with transaction.atomic():
        workloads.confirm_start(run=run, at=started_at)
        run.refresh_from_db(fields=["state", "started_at", "protected_until"])
        end = timesteps.floor(started_at) + timesteps.step()
        if not run.job.is_realtime and not closing.set_aside([run], end=end):
            # Less than a timestep was promised, or it starts in a later one than was decided on.
            closing.top_up([run], started_at, end)


def _end(run: Run, reason: str, at: datetime, **data: object) -> bool:
    """End a run, and in the same transaction release what is left of its hold."""
    with transaction.atomic():
        attempt = Job.objects.values_list("attempt", flat=True).get(pk=run.job_id)
        if not workloads.end_run(run=run, reason=reason, at=at, **data):
            return False
        ledger.release_rest(job=run.job, attempt=attempt, at=at, now=at)
        if reason == Run.EndReason.COMPLETED and run.started_at is not None:
            worked = int((at - run.started_at).total_seconds())
            forecasting.score(job=run.job, actual_s=run.job.progress_s + worked, now=at)
    return True
