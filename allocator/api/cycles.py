"""The current plan and the cycles that made it."""

from functools import cache
from typing import Any

from django.conf import settings
from django.db.models import QuerySet
from django.http import Http404
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import extend_schema, extend_schema_field
from rest_framework import serializers
from rest_framework.generics import GenericAPIView, ListAPIView, RetrieveAPIView
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from allocator import reading
from allocator.cycle import unpack
from allocator.models import Cycle
from allocator.reading import Bar, PlanView
from budgets.access import Standing, standing
from budgets.models import Budget
from config import clock
from config.fields import Instant

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
            raise Http404("No cycle has committed a plan yet: the first tick makes one.")
        view = reading.plan_view(cycle)
        found = {
            "now": clock.now(),
            "cycle": cycle,
            "horizon_end": view.horizon_end,
            "nodes": view.nodes,
        }
        held = standing(request.user)
        context = {"held": held, "plan": view, "sees_all": lambda: _sees_all(held)}
        return Response(PlanOut(found, context=context).data)


class _OfCycles(GenericAPIView[Cycle]):
    """Cycles without what is heavy, as far as the person may see them."""

    queryset = Cycle.objects.defer(*HEAVY).order_by("-pk")
    serializer_class = CycleOut
    filter_backends = ()

    def get_serializer_context(self) -> dict[str, Any]:
        sees_all = cache(lambda: _sees_all(standing(self.request.user)))  # once, for all rows
        return {**super().get_serializer_context(), "sees_all": sees_all}


class Cycles(_OfCycles, ListAPIView[Cycle]):
    """All cycles, the newest first."""


class CycleDetail(_OfCycles, RetrieveAPIView[Cycle]):
    """One cycle by its number."""


class CycleSnapshot(APIView):
    """What a cycle saw, as a scenario file. For those who may see the whole tree."""

    @extend_schema(responses=OpenApiTypes.OBJECT)
    def get(self, request: Request, pk: int) -> Response:
        return Response(unpack(bytes(_whole(request, pk).snapshot)))


class CyclePlan(APIView):
    """What a cycle planned, as a plan file. For those who may see the whole tree."""

    @extend_schema(responses=OpenApiTypes.OBJECT)
    def get(self, request: Request, pk: int) -> Response:
        return Response(unpack(bytes(_whole(request, pk).plan)))


def _sees_all(held: Standing) -> bool:
    """Say whether someone may see every budget, and so all that is in a cycle."""
    roots: QuerySet[Budget] = Budget.objects.filter(parent=None)
    return all(held.sees(root.path) for root in roots)


def _whole(request: Request, pk: int) -> Cycle:
    """A cycle with all budgets and jobs in it: not there for who may not see all of them."""
    cycle = Cycle.objects.filter(pk=pk).first()
    if cycle is None or not _sees_all(standing(request.user)):
        raise Http404("There is no such cycle, or you may not see all that is in it.")
    if not cycle.snapshot:
        raise Http404(
            f"What cycle {pk} saw and planned was kept for {settings.CYCLES_KEPT_DAYS} days "
            "(CYCLES_KEPT_DAYS), and is gone."
        )
    return cycle


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
