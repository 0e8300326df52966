"""Writes what a connector observed into the node and GPU logs, and answers from them."""

from datetime import datetime

from django.db import transaction
from django.db.models import Min

from clusters.connectors.base import Observation
from clusters.models import Cluster, GpuState, Node, NodeState, Pool, PoolRate


def record(cluster: Cluster, observation: Observation) -> None:
    """Append an observation to the logs; the same one twice changes nothing.

    Two reports of one node at one instant: the later one tells how the instant ended.
    """
    nodes = {node.name: node for node in Node.objects.filter(pool__cluster=cluster)}
    with transaction.atomic():
        GpuState.objects.bulk_create(
            [
                GpuState(
                    node=nodes[report.node],
                    at=report.at,
                    held=report.held,
                    free=report.free,
                    down=report.down,
                )
                for report in observation.gpus
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


def nodes_down(*, at: datetime) -> dict[int, str]:
    """Nodes whose last state at an instant is down → why. One query."""
    last: dict[int, NodeState] = {}
    for state in NodeState.objects.filter(at__lte=at).order_by("at", "id"):
        last[state.node_id] = state
    return {pk: s.reason for pk, s in last.items() if s.state == NodeState.State.DOWN}


def active_nodes(*, at: datetime) -> list[Node]:
    """Nodes in use at an instant, in the order of the grid: pool by pool, by position."""
    return [node for node in all_nodes() if node.is_active(at)]


def all_nodes() -> list[Node]:
    """Every node there ever was or will be, in the order of the grid."""
    nodes = Node.objects.select_related("pool", "pool__cluster")
    return list(nodes.order_by("pool__position", "pool_id", "position"))


def rates(*, at: datetime) -> dict[int, int]:
    """Rate of each pool in force at an instant, per mille; 1000 where none is set."""
    found = {pool_id: 1000 for pool_id in Pool.objects.values_list("pk", flat=True)}
    for rate in PoolRate.objects.filter(effective_at__lte=at).order_by("effective_at"):
        found[rate.pool_id] = rate.rate_per_mille
    return found


def in_use_since() -> dict[int, datetime]:
    """When the first node of each pool came into use."""
    firsts = Node.objects.order_by().values_list("pool_id").annotate(Min("active_from"))
    return dict(firsts)


def healthy_gpu_seconds(*, start: datetime, end: datetime) -> dict[int, int]:
    """GPU-seconds of each pool in [start, end) that were in use and not down, from the logs."""
    healthy: dict[int, int] = {}
    for node in Node.objects.all():
        until = end if node.active_until is None else min(end, node.active_until)
        seconds = max(0, int((until - max(start, node.active_from)).total_seconds()))
        healthy[node.pool_id] = healthy.get(node.pool_id, 0) + node.gpus * seconds
    for pool_id, seconds in _down_gpu_seconds(start, end).items():
        healthy[pool_id] -= seconds
    return healthy


def _down_gpu_seconds(start: datetime, end: datetime) -> dict[int, int]:
    """GPU-seconds of each pool in [start, end) in which GPUs were down."""
    broken = GpuState.objects.exclude(down=0).filter(at__lt=end).values("node_id").distinct()
    logs: dict[int, list[GpuState]] = {}
    states = GpuState.objects.filter(node_id__in=broken, at__lt=end).select_related("node")
    for state in states.order_by("node_id", "at"):
        logs.setdefault(state.node_id, []).append(state)
    down: dict[int, int] = {}
    for log in logs.values():
        ends = [state.at for state in log[1:]] + [end]
        for state, until in zip(log, ends, strict=True):
            seconds = max(0, int((until - max(start, state.at)).total_seconds()))
            pool_id = state.node.pool_id
            down[pool_id] = down.get(pool_id, 0) + state.down.bit_count() * seconds
    return down
