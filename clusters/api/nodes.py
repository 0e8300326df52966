"""Nodes and pools: what there is, and in what state. Everyone who is signed in may know."""

from typing import Any

from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from allocator import emptying
from clusters import services as clusters
from clusters import states
from clusters.api.inventory import (
    NodeChangedOut,
    NodesIn,
    PoolChangedOut,
    PoolIn,
    add_nodes,
    make_pool,
)
from clusters.models import Drain, GpuState, Node, Pool
from config import clock
from config.fields import Instant


class DrainOut(serializers.Serializer[Any]):
    """A span in which nothing is placed on a node; `window` is the number of its window."""

    window = serializers.IntegerField(source="window_id", allow_null=True)
    starts_at = Instant()
    ends_at = Instant(allow_null=True)
    reason = serializers.CharField()


class NodeOut(serializers.Serializer[Any]):
    """A node with its last logged state; null GPUs where none was logged yet.

    `free_from`: of a node that is down, or has a window open or to come, when it is surely empty
    for it; `likely_free_from` by estimates; null for others.
    """

    name = serializers.CharField()
    label = serializers.CharField(allow_blank=True)  # type: ignore[assignment]
    pool = serializers.CharField()
    gpus = serializers.IntegerField()
    active_until = Instant(allow_null=True)
    state = serializers.ChoiceField(choices=["up", "down"])
    reason = serializers.CharField(allow_blank=True)
    held_gpus = serializers.IntegerField(allow_null=True)
    free_gpus = serializers.IntegerField(allow_null=True)
    down_gpus = serializers.IntegerField(allow_null=True)
    observed_at = Instant(allow_null=True)
    free_from = Instant(allow_null=True)
    likely_free_from = Instant(allow_null=True)
    drains = DrainOut(many=True)


class PoolOut(serializers.Serializer[Any]):
    slug = serializers.CharField()
    name = serializers.CharField()
    cluster = serializers.CharField()
    gpu_type = serializers.CharField()
    nodes = serializers.IntegerField()
    gpus = serializers.IntegerField()
    rate_per_mille = serializers.IntegerField()


class Nodes(APIView):
    """Every node in use, in the order of the grid."""

    @extend_schema(responses=NodeOut(many=True))
    def get(self, request: Request) -> Response:
        at = clock.now()
        nodes = clusters.active_nodes(at=at)
        down = clusters.nodes_down(at=at)
        last = states.last_gpu_states(at=at)
        drains, free = states.open_drains(at=at), emptying.of_nodes(now=at)
        rows = [
            _node(n, down, last.get(n.pk), drains.get(n.pk, [])) | _free(free.get(n.pk))
            for n in nodes
        ]
        return Response(NodeOut(rows, many=True).data)

    @extend_schema(request=NodesIn, responses={201: NodeChangedOut(many=True)})
    def post(self, request: Request) -> Response:
        """Add nodes to a pool (administrators), after its last one."""
        return add_nodes(request)


class Pools(APIView):
    """Every pool with the GPUs in use and the rate in force now."""

    @extend_schema(responses=PoolOut(many=True))
    def get(self, request: Request) -> Response:
        at = clock.now()
        nodes, rates = clusters.active_nodes(at=at), clusters.rates(at=at)
        pools = Pool.objects.select_related("cluster")
        rows = [_pool(pool, [n for n in nodes if n.pool_id == pool.pk], rates) for pool in pools]
        return Response(PoolOut(rows, many=True).data)

    @extend_schema(request=PoolIn, responses={201: PoolChangedOut})
    def post(self, request: Request) -> Response:
        """Make a pool (administrators), still without nodes, with its first rate."""
        return make_pool(request)


def _node(
    node: Node, down: dict[int, str], state: GpuState | None, drains: list[Drain]
) -> dict[str, Any]:
    return {
        "name": node.name,
        "label": node.label,
        "active_until": node.active_until,
        "pool": node.pool.slug,
        "gpus": node.gpus,
        "state": "down" if node.pk in down else "up",
        "reason": down.get(node.pk, ""),
        "held_gpus": state and state.held.bit_count(),
        "free_gpus": state and state.free.bit_count(),
        "down_gpus": state and state.down.bit_count(),
        "observed_at": state and state.at,
        "drains": drains,
    }


def _free(outlook: emptying.NodeOutlook | None) -> dict[str, Any]:
    return {
        "free_from": outlook and outlook.free_from,
        "likely_free_from": outlook and outlook.likely,
    }


def _pool(pool: Pool, nodes: list[Node], rates: dict[int, int]) -> dict[str, Any]:
    return {
        "slug": pool.slug,
        "name": pool.name,
        "cluster": pool.cluster.slug,
        "gpu_type": pool.gpu_type,
        "nodes": len(nodes),
        "gpus": sum(node.gpus for node in nodes),
        "rate_per_mille": rates[pool.pk],
    }
