"""The current plan and the cycles that made it."""

from datetime import datetime
from functools import cache
from typing import Any

from django.db.models import QuerySet
from django.http import Http404
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import extend_schema, extend_schema_field
from rest_framework import serializers
from rest_framework.exceptions import Throttled
from rest_framework.generics import GenericAPIView, ListAPIView, RetrieveAPIView
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from allocator import reading
from allocator.models import Cycle
from allocator.packing import unpack
from allocator.pages import cycle as cycle_pages
from allocator.pages import cycle_replay
from allocator.pages import cycles as lists
from allocator.pages.cycle_replay import Differs
from allocator.pages.names import Names
from allocator.reading import Bar, PlanView
from budgets.access import Standing, standing
from clusters.saying import say as _
from config import clock
from config.fields import LARGEST_INTEGER, Instant, Strict, Text
from config.problems import Conflict

# What a list of cycles does not need: hundreds of kilobytes each.
HEAVY = ("snapshot", "plan")


class CycleOut(serializers.ModelSerializer[Cycle]):
    """What a cycle decided, in numbers."""

    at = Instant()
    timestep = Instant()
    problems = serializers.SerializerMethodField(
        help_text="In sentences, which name jobs: for those who may see the whole tree"
    )

    class Meta:
        model = Cycle
        fields = (
            *("id", "kind", "trigger", "at", "timestep", "status", "solver_status", "mode"),
            *("objective", "bound", "solve_ms", "starts", "stops", "preemptions", "waiting"),
            *("versions", "problems"),
        )

    def get_problems(self, cycle: Cycle) -> list[str]:
        return cycle.problems if self.context["sees_all"]() else []


class BarOut(serializers.Serializer[Any]):
    """A job on rows of the grid. Of a job one may not know only the place is shown."""

    job = serializers.IntegerField(allow_null=True)
    name = serializers.CharField(allow_null=True)
    budget = serializers.CharField(allow_null=True)
    kind = serializers.CharField(allow_null=True)
    rest = serializers.BooleanField(help_text="It is preempted first and comes back here")
    first_gpu = serializers.IntegerField()
    gpus = serializers.IntegerField()
    start = Instant()
    end = Instant()


class GridNodeOut(serializers.Serializer[Any]):
    name = serializers.CharField()
    gpus = serializers.IntegerField()
    pool = serializers.CharField()


class PlanOut(serializers.Serializer[Any]):
    """Rows are GPUs in the order of nodes; timesteps from the cycle's to the horizon's end."""

    now = Instant()
    cycle = CycleOut()
    horizon_end = Instant()
    nodes = GridNodeOut(many=True)
    bars = serializers.SerializerMethodField()

    @extend_schema_field(BarOut(many=True))
    def get_bars(self, view: Any) -> list[Any]:
        held: Standing = self.context["held"]
        plan: PlanView = self.context["plan"]
        return list(BarOut([_bar(bar, plan, held) for bar in plan.bars], many=True).data)


class Plan(APIView):
    """The plan of the newest committed cycle, as bars."""

    @extend_schema(responses=PlanOut)
    def get(self, request: Request) -> Response:
        cycle = reading.newest()
        if cycle is None:
            raise Http404(_("No cycle has committed a plan yet: the first tick makes one."))
        view = reading.plan_view(cycle)
        found = {
            "now": clock.now(),
            "cycle": cycle,
            "horizon_end": view.horizon_end,
            "nodes": view.nodes,
        }
        held = standing(request.user)
        context = {"held": held, "plan": view, "sees_all": lambda: reading.sees_all(held)}
        return Response(PlanOut(found, context=context).data)


class _OfCycles(GenericAPIView[Cycle]):
    """Cycles without what is heavy, as far as the person may see them."""

    queryset = Cycle.objects.defer(*HEAVY).order_by("-pk")
    serializer_class = CycleOut
    filter_backends = ()

    def get_serializer_context(self) -> dict[str, Any]:
        user = self.request.user
        sees_all = cache(lambda: reading.sees_all(standing(user)))  # once, for all rows
        return {**super().get_serializer_context(), "sees_all": sees_all}


class CycleQuery(Strict):
    """Which cycles to list, and which page of them."""

    trigger = Text(required=False, help_text="Why they ran: timestep, submission, completion, …")
    outcome = serializers.ChoiceField(
        choices=lists.OUTCOMES,
        required=False,
        help_text="changed: started or stopped something; else the status",
    )
    page = serializers.IntegerField(required=False, min_value=1, max_value=LARGEST_INTEGER)
    page_size = serializers.IntegerField(required=False, min_value=1, max_value=1000)


class Cycles(_OfCycles, ListAPIView[Cycle]):
    """All cycles, the newest first."""

    def get_queryset(self) -> QuerySet[Cycle]:
        cycles = super().get_queryset()
        if getattr(self, "swagger_fake_view", False):
            return cycles
        asked = CycleQuery(data=self.request.query_params.dict())
        asked.is_valid(raise_exception=True)
        given = asked.validated_data
        return lists.Filters(given.get("trigger", ""), given.get("outcome", "")).apply(cycles)

    @extend_schema(parameters=[CycleQuery])
    def get(self, request: Request, *args: Any, **kwargs: Any) -> Response:
        return super().get(request, *args, **kwargs)


class CycleDetail(_OfCycles, RetrieveAPIView[Cycle]):
    """One cycle by its number."""


class CycleSnapshot(APIView):
    """What a cycle saw, as a scenario file. For those who may see the whole tree."""

    @extend_schema(responses=OpenApiTypes.OBJECT)
    def get(self, request: Request, pk: int) -> Response:
        return Response(unpack(bytes(cycle_pages.whole(request.user, pk).snapshot)))


class CyclePlan(APIView):
    """What a cycle planned, as a plan file. For those who may see the whole tree."""

    @extend_schema(responses=OpenApiTypes.OBJECT)
    def get(self, request: Request, pk: int) -> Response:
        return Response(unpack(bytes(cycle_pages.whole(request.user, pk).plan)))


class PlacedOut(serializers.Serializer[Any]):
    """When a job begins in a plan, and on how many GPUs."""

    start = Instant()
    gpus = serializers.IntegerField()


class DiffersOut(serializers.Serializer[Any]):
    """A job that the two plans place otherwise; null: it isn't in that plan."""

    job = serializers.IntegerField(source="name.pk")
    name = serializers.CharField(source="name.label")
    then = serializers.SerializerMethodField()
    now = serializers.SerializerMethodField()

    @extend_schema_field(PlacedOut(allow_null=True))
    def get_then(self, differs: Differs) -> dict[str, Any] | None:
        return _placed(differs.then)

    @extend_schema_field(PlacedOut(allow_null=True))
    def get_now(self, differs: Differs) -> dict[str, Any] | None:
        return _placed(differs.now)


class ReplayOut(serializers.Serializer[Any]):
    """What came of planning a cycle's snapshot once more; nothing is decided by it."""

    same_plan = serializers.BooleanField(source="repeated.is_same")
    objective = serializers.FloatField(source="repeated.result.objective")
    solve_ms = serializers.FloatField(source="repeated.milliseconds")
    differs = DiffersOut(many=True, help_text="Of the jobs that you may see")
    differs_unseen = serializers.IntegerField(source="unseen", help_text="Of other budgets")
    versions = serializers.SerializerMethodField(help_text="Of what has changed since: then, now")

    def get_versions(self, replay: cycle_replay.Replay) -> dict[str, list[str]]:
        made = replay.repeated
        return {name: [then, now] for name, then, now in made.versions} if made else {}


class ReplayCycle(APIView):
    """Plan what a cycle saw once more, by the same rules and seed; 409 with why it can't be, 429
    where another replay of yours runs, or as many as may at once."""

    @extend_schema(request=None, responses=ReplayOut)
    def post(self, request: Request, pk: int) -> Response:
        names = Names.load(request.user)
        replay = cycle_replay.replay(cycle_pages.find(pk), names, request.user)
        if replay.busy:
            raise Throttled(detail=replay.refused)
        if replay.refused:
            raise Conflict(replay.refused)
        return Response(ReplayOut(replay).data)


def _placed(place: tuple[datetime, int] | None) -> dict[str, Any] | None:
    return None if place is None else dict(PlacedOut({"start": place[0], "gpus": place[1]}).data)


def _bar(bar: Bar, plan: PlanView, held: Standing) -> dict[str, Any]:
    job = plan.jobs.get(bar.job_id)
    known = job is not None and held.sees(job.budget.path)
    return {
        "job": job.pk if job and known else None,
        "name": job.name if job and known else None,
        "budget": job.budget.path if job and known else None,
        "kind": job.kind if job and known else None,
        "rest": bar.rest,
        "first_gpu": bar.first_gpu,
        "gpus": bar.gpus,
        "start": bar.start,
        "end": bar.end,
    }
