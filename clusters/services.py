"""Writes what a connector observed into the node and GPU logs, and answers from them."""

from datetime import datetime

from django.db import transaction

from clusters.connectors.base import Observation
from clusters.models import Cluster, GpuState, Node, NodeState


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
