"""Simulations: asked for, listed, looked at, cancelled. Pages show the same answers."""

import json
from datetime import datetime
from typing import Any, cast

from django.contrib.auth.models import User
from django.db.models import QuerySet
from django.http import Http404
from django.utils.translation import gettext_lazy
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import extend_schema, extend_schema_field
from rest_framework import serializers
from rest_framework.exceptions import PermissionDenied, ValidationError
from rest_framework.generics import ListAPIView
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from allocator.core.simulate import POLICIES
from allocator.models import Simulation
from allocator.simulating import asking, results
from allocator.simulating.asking import TODAY, Draft
from allocator.simulating.given import Asked
from budgets import services
from budgets.access import Standing, get_budget_or_404, simulated_q, standing, visible_q
from budgets.models import WHOLE, Budget, ChangeSet, Period
from clusters.models import Pool
from clusters.saying import say as _
from config import clock
from config.fields import Boolean, Instant, Integer, Strict, Text

HEAVY = ("trace", "events", "trees", "picture")
NONE_SEEN = gettext_lazy("There is none with this number, or none that you see.")
DRAFTS = ("change_set", "period", "draft", "tree", "equal_shares")


class HistoryIn(Strict):
    """A window of the own history: `days` back from now, or [from, to)."""

    days = Integer(required=False, min_value=1, max_value=asking.MOST_DAYS)

    def get_fields(self) -> dict[str, Any]:
        """Add the fields whose names are words of the language."""
        return {
            **super().get_fields(),
            "from": Instant(required=False),
            "to": Instant(required=False),
        }

    def window(self, given: dict[str, Any], now: datetime) -> tuple[datetime, datetime]:
        """Return the window's borders."""
        if given.keys() == {"days"}:
            return asking.last_days(given["days"], now=now)
        if given.keys() == {"from", "to"}:
            return given["from"], given["to"]
        raise ValidationError({"history": [_("Give either days, or from and to.")]})


class TraceIn(Strict):
    """The jobs as a file's text: CSV, or SWF where the name ends so."""

    name = Text(max_length=100, default="trace.csv")
    text = Text()


class EventsIn(Strict):
    """What befalls the nodes as an events file's text."""

    name = Text(max_length=100, default="events.csv")
    text = Text()


class DraftIn(Strict):
    """New shares of all children of one budget, which need not be proposed yet."""

    parent = Text(help_text="Path")  # type: ignore[assignment]  # hides no attribute
    shares = serializers.DictField(child=Integer(max_value=WHOLE), help_text="Share by slug")
    overrides = serializers.DictField(
        child=serializers.DictField(child=Integer(max_value=WHOLE)), default=dict
    )
    effective_at = Instant(required=False, help_text="Now, if left out")


class SimulationIn(Strict):
    """What to simulate: one of `history` and `trace`; at most one of `change_set`, `period`,
    `draft` (each beside the shares of today), `tree` and `equal_shares`.
    """

    name = Text(max_length=100, default="", allow_blank=True)
    budget = Text(required=False, help_text="For whom; the highest that you manage, if left out")
    history = HistoryIn(required=False)
    trace = TraceIn(required=False)
    nodes = Text(default="", allow_blank=True, max_length=20, help_text="56x8; else as they are")
    events = EventsIn(required=False)
    planned_windows = Boolean(default=False)
    change_set = Integer(required=False)
    period = Integer(required=False)
    draft = DraftIn(required=False)
    tree = serializers.JSONField(required=False, help_text="A tree file")
    equal_shares = Boolean(default=False)
    policies = serializers.ListField(
        child=serializers.ChoiceField(POLICIES), default=lambda: ["fairshare"], max_length=6
    )
    seed = Integer(default=0)


class SimulationOut(serializers.ModelSerializer[Simulation]):
    """How far it is. Its context needs `held`, the reader's standing."""

    asked_by = serializers.CharField(source="asked_by.username")
    budget = serializers.SerializerMethodField()
    history = serializers.SerializerMethodField()
    created_at = Instant()
    started_at = Instant(allow_null=True)
    ended_at = Instant(allow_null=True)

    class Meta:
        model = Simulation
        fields: tuple[str, ...] = (
            *("id", "name", "asked_by", "budget", "state", "progress_per_mille", "simulated_s"),
            *(
                "left_s",
                "error",
                "history",
                "trace_name",
                "nodes",
                "events_name",
                "planned_windows",
                "shares",
                "change_set",
                "period",
            ),
            *("policies", "seed", "created_at", "started_at", "ended_at"),
        )

    def get_budget(self, row: Simulation) -> str:
        return str(self.context["held"].named(row.budget.path))

    @extend_schema_field(OpenApiTypes.OBJECT)
    def get_history(self, row: Simulation) -> dict[str, Any] | None:
        if row.starts_at is None or row.ends_at is None:
            return None
        as_text = Instant().to_representation
        return {"from": as_text(row.starts_at), "to": as_text(row.ends_at)}


class WholeSimulationOut(SimulationOut):
    """One simulation with its `result`, null until it is done.

    `courses` has the figures of each policy under each `shares` (`now`, `draft`, `given`), as
    docs/simulator.md explains them; of a history `did` has what each budget really got and waited.
    """

    result = serializers.SerializerMethodField()

    class Meta(SimulationOut.Meta):
        fields = (*SimulationOut.Meta.fields, "result")

    @extend_schema_field(OpenApiTypes.OBJECT)
    def get_result(self, row: Simulation) -> dict[str, Any] | None:
        seen = results.seen(row, self.context["held"])
        if seen is not None:
            seen.pop("noted", None)  # `notes` in no language
        return seen


class Simulations(ListAPIView[Simulation]):
    """Those you asked for, and those for budgets you manage, the newest first; and new ones."""

    serializer_class = SimulationOut
    filter_backends = ()

    def get_queryset(self) -> QuerySet[Simulation]:
        seen = Simulation.objects.filter(simulated_q(self.request.user))
        related = seen.select_related("asked_by", "budget").defer(*HEAVY, "result")
        return related.order_by("-pk")

    def get_serializer_context(self) -> dict[str, Any]:
        return {**super().get_serializer_context(), "held": standing(self.request.user)}

    @extend_schema(request=SimulationIn, responses={201: WholeSimulationOut})
    def post(self, request: Request) -> Response:
        """Ask for one; a worker plays it as soon as none runs."""
        asked = SimulationIn(data=request.data)
        asked.is_valid(raise_exception=True)
        held = standing(request.user)
        made = asking.ask(**_arguments(request, asked.validated_data, clock.now()))
        return Response(_out(made, held), status=201)


class SimulationDetail(APIView):
    """One simulation: how far it is, and what came of it."""

    @extend_schema(responses=WholeSimulationOut)
    def get(self, request: Request, pk: int) -> Response:
        return Response(_out(asking.find(request.user, pk), standing(request.user)))


class CancelSimulation(APIView):
    """End a simulation."""

    @extend_schema(request=None, responses=WholeSimulationOut)
    def post(self, request: Request, pk: int) -> Response:
        """End it: what waits isn't begun, what runs stops within seconds."""
        found = asking.find(request.user, pk)
        if not asking.may_cancel(request.user, found):
            raise PermissionDenied(_("Only who asked for it, or a manager of its budget, ends it."))
        made = asking.cancel(simulation=found, now=clock.now())
        return Response(_out(made, standing(request.user)))


def _out(row: Simulation, held: Standing) -> Any:
    return WholeSimulationOut(row, context={"held": held}).data


def _arguments(request: Request, given: dict[str, Any], now: datetime) -> dict[str, Any]:
    window = None
    if "history" in given:
        window = HistoryIn().window(dict(given["history"]), now)
    trace, events = given.get("trace", {}), given.get("events", {})
    budget = given.get("budget")
    return {
        "by": cast(User, request.user),
        "now": now,
        "window": window,
        "trace_name": trace.get("name", ""),
        "trace": trace.get("text", ""),
        "budget": None if budget is None else _budget(request, "budget", budget),
        "events": Asked(**events, planned=given["planned_windows"]),
        "draft": _draft(request, given),
        "equal": given["equal_shares"],
        **{name: given[name] for name in ("name", "nodes", "policies", "seed")},
    }


def _draft(request: Request, given: dict[str, Any]) -> Draft:
    # An empty tree is a wrong one, and 0 is no change set's number: neither means today's shares.
    named = [one for one in DRAFTS if one in given and (one != "equal_shares" or given[one])]
    if len(named) > 1:
        raise ValidationError(
            {named[1]: [_("Give one of %(drafts)s, or none.", drafts=", ".join(DRAFTS))]}
        )
    if "change_set" in named:
        seen = ChangeSet.objects.filter(visible_q(request.user, "parent__"))
        return Draft(change_set=_one(seen, "change_set", given["change_set"]))
    if "period" in named:
        period = _one(Period.objects.all(), "period", given["period"])
        if not asking.may_plan(standing(request.user), period):
            raise ValidationError({"period": [NONE_SEEN]})
        return Draft(period=period)
    if "draft" in named:
        return _vector(request, given["draft"])
    return Draft(file=json.dumps(given["tree"])) if "tree" in named else TODAY


def _vector(request: Request, given: dict[str, Any]) -> Draft:
    parent = _budget(request, "draft", given["parent"])
    children = services.children_by_slug(parent, [*given["shares"], *given["overrides"]])
    pools = {pool.slug: pool for pool in Pool.objects.all()}
    overrides = {}
    for slug, by_pool in given["overrides"].items():
        for name, share in by_pool.items():
            if name not in pools:
                raise ValidationError({"draft": [_("There is no pool %(name)s.", name=repr(name))]})
            overrides[children[slug], pools[name]] = share
    vector = services.checked_vector(
        parent=parent,
        shares={children[slug]: share for slug, share in given["shares"].items()},
        overrides=overrides,
    )
    return Draft(parent=parent, vector=vector, at=given.get("effective_at"))


def _one(rows: QuerySet[Any], field: str, pk: int) -> Any:
    found = rows.filter(pk=pk).first()
    if found is None:
        raise ValidationError({field: [NONE_SEEN]})
    return found


def _budget(request: Request, field: str, path: str) -> Budget:
    try:
        return get_budget_or_404(request.user, path)
    except Http404 as missing:
        raise ValidationError({field: [str(missing)]}) from None
