"""Writes what a connector observed into the node and GPU logs, and answers from them."""

from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Any

from django.db import transaction
from django.db.models import Min, OuterRef, Q, QuerySet, Subquery
from django.db.models.functions import Coalesce

from clusters.connectors.base import Observation
from clusters.models import Cluster, GpuState, Node, NodeState, Pool, PoolRate


def record(
    cluster: Cluster, observation: Observation, *, closed_until: datetime | None = None
) -> None:
    """Append an observation to the logs; the same one twice changes nothing.

    Two reports of one node at one instant: the later one tells how the instant ended. What is told
    late, of a time that was observed and charged up to ``closed_until``, counts from there on.
    """
    nodes = {node.name: node for node in Node.objects.filter(pool__cluster=cluster)}
    gpus = {
        (report.node, max(report.at, _settled(cluster, closed_until) or report.at)): report
        for report in observation.gpus
    }
    with transaction.atomic():
        GpuState.objects.bulk_create(
            [
                GpuState(
                    node=nodes[name],
                    at=at,
                    held=report.held,
                    free=report.free,
                    down=report.down,
                )
                for (name, at), report in gpus.items()
            ],
            update_conflicts=True,
            unique_fields=["node", "at"],
            update_fields=["held", "free", "down"],
        )
        NodeState.objects.bulk_create(
            NodeState(node=nodes[r.node], at=r.at, state=r.state, reason=r.reason)
            for r in observation.nodes
        )
        Cluster.objects.filter(pk=cluster.pk).update(observed_until=observation.at)
    cluster.observed_until = observation.at


def _settled(cluster: Cluster, closed_until: datetime | None) -> datetime | None:
    """Up to when what a cluster's GPUs were has been both observed and charged."""
    if cluster.observed_until is None or closed_until is None:
        return None
    return min(cluster.observed_until, closed_until)


def nodes_down(*, at: datetime) -> dict[int, str]:
    """Nodes whose last state at an instant is down → why. One query."""
    last = NodeState.objects.filter(pk__in=newest(NodeState, at=at), state=NodeState.State.DOWN)
    return dict(last.order_by().values_list("node_id", "reason"))


def newest(log: type[NodeState | GpuState], *, at: datetime) -> QuerySet[Any]:
    """Ids of each node's last row of a log by an instant: a look into the index for each node,
    however long the log has grown."""
    rows = log.objects.filter(node=OuterRef("pk"), at__lte=at).order_by("-at", "-pk")
    return Node.objects.order_by().annotate(last=Subquery(rows.values("pk")[:1])).values("last")


def active_nodes(*, at: datetime) -> list[Node]:
    """Nodes in use at an instant, in the order of the grid: pool by pool, by position."""
    return [node for node in all_nodes() if node.is_active(at)]


def all_nodes() -> list[Node]:
    """Every node there ever was or will be, in the order of the grid."""
    # Prefetched, not joined: hundreds of nodes share a few pools.
    nodes = Node.objects.prefetch_related("pool__cluster")
    return list(nodes.order_by("pool__position", "pool_id", "position"))


def number_of_nodes(*, at: datetime) -> int:
    """How many nodes are in use at an instant, as `Node.is_active` says. One query."""
    stays = Q(active_until=None) | Q(active_until__gt=at)
    return Node.objects.filter(stays, active_from__lte=at).count()


def rates(*, at: datetime) -> dict[int, int]:
    """Rate of each pool in force at an instant, per mille; 1000 where none is set."""
    so_far = PoolRate.objects.filter(pool=OuterRef("pk"), effective_at__lte=at)
    last = so_far.order_by("-effective_at").values("rate_per_mille")[:1]
    pools = Pool.objects.order_by().annotate(rate=Coalesce(Subquery(last), 1000))
    return dict(pools.values_list("pk", "rate"))


def in_use_since() -> dict[int, datetime]:
    """When the first node of each pool came into use."""
    firsts = Node.objects.order_by().values_list("pool_id").annotate(Min("active_from"))
    return dict(firsts)


def healthy_gpu_seconds(*, start: datetime, end: datetime) -> dict[int, int]:
    """GPU-seconds of each pool in [start, end) that were in use and not down, from the logs."""
    return healthy_by_stretch(marks=(start, end))[0]


def healthy_by_stretch(*, marks: Sequence[datetime]) -> list[dict[int, int]]:
    """The same for each stretch between two marks that follow each other. Three queries."""
    start, end = marks[0], marks[-1]
    # By pool, how many healthy GPUs more or less there are from an instant on.
    changes: dict[int, dict[datetime, int]] = {}
    for node in Node.objects.all():
        mine = changes.setdefault(node.pool_id, {})
        until = end if node.active_until is None else min(end, node.active_until)
        _between(mine, max(start, node.active_from), until, node.gpus)
    for pool_id, since, until, gpus in _down_gpus(start, end):
        _between(changes[pool_id], since, until, -gpus)
    found: list[dict[int, int]] = [{} for _ in marks[1:]]
    for pool_id, mine in changes.items():
        for stretch, seconds in zip(found, _gpu_seconds(mine, marks), strict=True):
            stretch[pool_id] = seconds
    return found


def _between(changes: dict[datetime, int], start: datetime, end: datetime, gpus: int) -> None:
    if start < end:
        changes[start] = changes.get(start, 0) + gpus
        changes[end] = changes.get(end, 0) - gpus


def _gpu_seconds(changes: dict[datetime, int], marks: Sequence[datetime]) -> Iterator[int]:
    """Yield the GPU-seconds of each stretch."""
    gpus, seconds, since = 0, 0, marks[0]
    stops = set(marks[1:])
    for at in sorted({*changes, *stops}):
        seconds += gpus * int((at - since).total_seconds())
        gpus, since = gpus + changes.get(at, 0), at
        if at in stops:
            yield seconds
            seconds = 0


def _down_gpus(start: datetime, end: datetime) -> Iterator[tuple[int, datetime, datetime, int]]:
    """Yield (pool id, from, to, GPUs) of what was down in [start, end). Two queries.

    Only rows with GPUs down are read, each with the instant of the row that follows it.
    """
    following = GpuState.objects.filter(node=OuterRef("node"), at__gt=OuterRef("at"))
    broken = GpuState.objects.filter(down__gt=0).annotate(
        until=Subquery(following.order_by("at").values("at")[:1])
    )
    at_start = broken.filter(pk__in=newest(GpuState, at=start))
    for rows in (at_start, broken.filter(at__gt=start, at__lt=end)):
        for state in rows.select_related("node"):
            node = state.node
            # Of a node that left while it was down nothing is missing any more.
            until = min(state.until or end, node.active_until or end, end)
            yield (
                node.pool_id,
                max(state.at, node.active_from, start),
                until,
                state.down.bit_count(),
            )
