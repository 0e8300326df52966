"""Pools and nodes that come, change and go, as on their pages; administrators alone."""

from typing import Any, cast

from django.contrib.auth.models import User
from django.http import Http404
from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.exceptions import PermissionDenied, ValidationError
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from allocator import installing, inventory
from budgets.access import may_administer
from clusters.models import Cluster, Node, Pool
from clusters.saying import say as _
from config import clock
from config.fields import Instant, Integer, Strict, Text

MOST_LISTS = 1000


class ReasonIn(Strict):
    """`reason` stands in the audit log."""

    reason = Text(max_length=installing.REASON_MAX)


class PoolIn(ReasonIn):
    """`cluster`, a slug, may be left out where there is a single one."""

    cluster = Text(required=False, max_length=50)
    slug = Text(max_length=installing.SLUG_MAX)
    name = Text(max_length=installing.NAME_MAX)
    gpu_type = Text(max_length=installing.GPU_TYPE_MAX)
    rate_per_mille = Integer(max_value=installing.RATE_MAX)


class PoolChangeIn(ReasonIn):
    """What is left out stays."""

    name = Text(required=False, max_length=installing.NAME_MAX)
    gpu_type = Text(required=False, max_length=installing.GPU_TYPE_MAX)


class PoolRateIn(ReasonIn):
    """Left out, `effective_at` is now."""

    rate_per_mille = Integer(max_value=installing.RATE_MAX)
    effective_at = Instant(required=False, allow_null=True)


class NodesIn(ReasonIn):
    """`nodes`: names, or ranges such as h100-n[01-08]; left out, `effective_at` is now."""

    pool = Text(max_length=50)
    nodes = serializers.ListField(child=Text(max_length=1000), max_length=MOST_LISTS)
    gpus = Integer(min_value=1, max_value=inventory.GPUS_MAX)
    label = Text(required=False, allow_blank=True, max_length=inventory.LABEL_MAX)  # type: ignore[assignment]
    effective_at = Instant(required=False, allow_null=True)


class LabelIn(ReasonIn):
    label = Text(allow_blank=True, max_length=inventory.LABEL_MAX)  # type: ignore[assignment]


class RetireIn(ReasonIn):
    """Left out, `effective_at` is now."""

    effective_at = Instant(required=False, allow_null=True)


class PoolChangedOut(serializers.ModelSerializer[Pool]):
    cluster = serializers.CharField(source="cluster.slug")

    class Meta:
        model = Pool
        fields = ("slug", "name", "cluster", "gpu_type")


class PoolRateOut(serializers.Serializer[Any]):
    pool = serializers.CharField(source="pool.slug")
    rate_per_mille = serializers.IntegerField()
    effective_at = Instant()


class NodeChangedOut(serializers.ModelSerializer[Node]):
    """A node as it is set up: in use from an instant on, for good or until another."""

    pool = serializers.CharField(source="pool.slug")
    active_from = Instant()
    active_until = Instant(allow_null=True)

    class Meta:
        model = Node
        fields = ("name", "pool", "gpus", "label", "active_from", "active_until")


class ChangePool(APIView):
    """Another name of a pool, or of its GPUs."""

    @extend_schema(request=PoolChangeIn, responses=PoolChangedOut)
    def post(self, request: Request, slug: str) -> Response:
        """Call it otherwise; its slug stays."""
        who, asked = _who(request), _asked(request, PoolChangeIn)
        pool = _pool(slug)
        called = {"name": pool.name, "gpu_type": pool.gpu_type} | asked
        return Response(PoolChangedOut(installing.change_pool(pool=pool, **who, **called)).data)


class SetRate(APIView):
    """What a pool costs."""

    @extend_schema(request=PoolRateIn, responses={201: PoolRateOut})
    def post(self, request: Request, slug: str) -> Response:
        """Price it from an instant on that isn't over; what ran stays charged as it is."""
        who, asked = _who(request), {"effective_at": None} | _asked(request, PoolRateIn)
        made = installing.set_rate(pool=_pool(slug), **who, **asked)
        return Response(PoolRateOut(made).data, status=201)


class LabelNode(APIView):
    """People's word for a node."""

    @extend_schema(request=LabelIn, responses=NodeChangedOut)
    def post(self, request: Request, name: str) -> Response:
        """Label it."""
        who, asked = _who(request), _asked(request, LabelIn)
        return _node_out(inventory.label_node(node=_node(name), **who, **asked))


class RetireNode(APIView):
    """A node that leaves."""

    @extend_schema(request=RetireIn, responses=NodeChangedOut)
    def post(self, request: Request, name: str) -> Response:
        """Take it out of use from an instant on at which it is surely empty."""
        who, asked = _who(request), {"effective_at": None} | _asked(request, RetireIn)
        return _node_out(inventory.retire(node=_node(name), **who, **asked))


class KeepNode(APIView):
    """A node that was to leave."""

    @extend_schema(request=ReasonIn, responses=NodeChangedOut)
    def post(self, request: Request, name: str) -> Response:
        """Leave it in use."""
        who, asked = _who(request), _asked(request, ReasonIn)
        return _node_out(inventory.keep(node=_node(name), **who, **asked))


class CallOffNode(APIView):
    """A node that was to come."""

    @extend_schema(request=ReasonIn, responses={204: None})
    def post(self, request: Request, name: str) -> Response:
        """Call it off before it is in use; its name is free again."""
        who, asked = _who(request), _asked(request, ReasonIn)
        inventory.call_off(node=_node(name), **who, **asked)
        return Response(status=204)


def make_pool(request: Request) -> Response:
    """Make a pool."""
    who, asked = _who(request), _asked(request, PoolIn)
    asked["cluster"] = _cluster(asked.get("cluster"))
    made = installing.add_pool(**who, **asked)
    return Response(PoolChangedOut(made).data, status=201)


def add_nodes(request: Request) -> Response:
    """Add nodes to a pool."""
    who, asked = _who(request), {"label": "", "effective_at": None} | _asked(request, NodesIn)
    found = Pool.objects.select_related("cluster").filter(slug=asked["pool"]).first()
    if found is None:
        words = _("There is no pool %(slug)s.", slug=repr(asked["pool"]))
        raise ValidationError({"pool": [words]})
    asked |= {"pool": found, "nodes": " ".join(asked["nodes"])}
    made = inventory.add_nodes(**who, **asked)
    return Response(NodeChangedOut(made.nodes, many=True).data, status=201)


def _who(request: Request) -> dict[str, Any]:
    """Return who does it and when; 403 for who may not."""
    if not may_administer(request.user):
        words = _("Pools and nodes are changed by the organisation's administrators.")
        raise PermissionDenied(words)
    return {"by": cast(User, request.user), "now": clock.now()}


def _asked(request: Request, takes: type[Strict]) -> dict[str, Any]:
    asked = takes(data=request.data)
    asked.is_valid(raise_exception=True)
    return dict(asked.validated_data)


def _cluster(slug: str | None) -> Cluster:
    found = list(Cluster.objects.all() if slug is None else Cluster.objects.filter(slug=slug))
    if len(found) != 1:
        known = ", ".join(Cluster.objects.values_list("slug", flat=True))
        words = _("Name the cluster that it is in; there are: %(known)s.", known=known or "–")
        raise ValidationError({"cluster": [words]})
    return found[0]


def _pool(slug: str) -> Pool:
    found = Pool.objects.select_related("cluster").filter(slug=slug).first()
    if found is None:
        raise Http404(_("There is no such pool."))
    return found


def _node(name: str) -> Node:
    found = Node.objects.select_related("pool__cluster").filter(name=name.replace("\0", "")).first()
    if found is None:
        raise Http404(_("There is no such node."))
    return found


def _node_out(node: Node) -> Response:
    return Response(NodeChangedOut(_node(node.name)).data)
