"""The tree of budgets with shares and figures."""

from typing import Any

from drf_spectacular.utils import extend_schema, extend_schema_field
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from budgets import periods, presenting, shares
from budgets.access import Action, get_budget_or_404, standing
from budgets.models import Budget
from budgets.presenting import BudgetRow
from config import clock
from config.fields import Instant
from ledger import reports
from ledger.reports import Figures


class FiguresOut(serializers.Serializer[Any]):
    """Money in milli-GPU-seconds, time in GPU-seconds, the subtree's included."""

    granted_mgpus = serializers.IntegerField()
    settled_mgpus = serializers.IntegerField()
    in_flight_mgpus = serializers.IntegerField()
    held_mgpus = serializers.IntegerField()
    spendable_mgpus = serializers.IntegerField()
    reserve_mgpus = serializers.IntegerField()
    charged_gpu_seconds = serializers.IntegerField()
    parked_gpu_seconds = serializers.IntegerField()
    parked_mgpus = serializers.IntegerField()
    unfunded_gpu_seconds = serializers.IntegerField()


FIGURES = tuple(FiguresOut().fields)


class BudgetOut(serializers.Serializer[Any]):
    """A budget in the tree; shares are null where it is not active."""

    path = serializers.CharField(source="budget.path")
    name = serializers.CharField(source="budget.name")
    # A declared field's name, which hides no attribute: the framework takes it off the class.
    parent = serializers.CharField(source="parent_path", allow_null=True)  # type: ignore[assignment]
    depth = serializers.IntegerField()
    is_leaf = serializers.BooleanField()
    archived_at = Instant(source="budget.archived_at", allow_null=True)
    share_thousandths = serializers.IntegerField(allow_null=True)
    share_overrides = serializers.DictField(child=serializers.IntegerField())
    effective_share = serializers.CharField(
        allow_null=True, help_text="Exact, as a fraction of the root: 3/10"
    )
    effective_thousandths = serializers.IntegerField(allow_null=True)
    figures = serializers.SerializerMethodField()

    @extend_schema_field(FiguresOut(allow_null=True))
    def get_figures(self, row: BudgetRow) -> dict[str, int] | None:
        found = self.context["figures"].get(row.budget.pk)
        # Field by field, since a serializer for each of a thousand rows takes a second.
        return {name: getattr(found, name) for name in FIGURES} if found else None


class BudgetDetailOut(BudgetOut):
    """One budget, with what the one who asks may do in it."""

    description = serializers.CharField(source="budget.description")
    shares_version = serializers.SerializerMethodField(
        help_text="Version of its children's shares: the base_version of the next change set"
    )
    actions = serializers.SerializerMethodField()

    def get_shares_version(self, row: BudgetRow) -> int:
        return shares.version(row.budget)

    @extend_schema_field(serializers.ListField(child=serializers.ChoiceField(list(Action))))
    def get_actions(self, row: BudgetRow) -> list[str]:
        held = self.context["held"]
        return [str(action) for action in Action if held.can(action, row.budget.path)]


class PeriodOut(serializers.Serializer[Any]):
    name = serializers.CharField()
    starts_at = Instant()
    ends_at = Instant()
    time_zone = serializers.CharField()
    status = serializers.CharField()


class TreeOut(serializers.Serializer[Any]):
    at = Instant()
    period = PeriodOut(allow_null=True)
    budgets = BudgetOut(many=True)


class TreeQuery(serializers.Serializer[Any]):
    archived = serializers.BooleanField(default=False)


class Tree(APIView):
    """The budgets one may see, depth first, with shares and the figures of the open period."""

    @extend_schema(operation_id="budgets_tree", parameters=[TreeQuery], responses=TreeOut)
    def get(self, request: Request) -> Response:
        asked = TreeQuery(data=request.query_params)
        asked.is_valid(raise_exception=True)
        at, held = clock.now(), standing(request.user)
        period = periods.active(at)
        rows = presenting.rows(held, at=at, archived=asked.validated_data["archived"])
        context = {"figures": reports.figures(period=period, now=at) if period else {}}
        found = {"at": at, "period": period, "budgets": rows}
        return Response(TreeOut(found, context=context).data)


class BudgetDetail(APIView):
    """One budget by its path."""

    @extend_schema(responses=BudgetDetailOut)
    def get(self, request: Request, path: str) -> Response:
        return detail(request, get_budget_or_404(request.user, path))


def detail(request: Request, budget: Budget, status: int = 200) -> Response:
    """Answer with one budget as the person sees it."""
    context = {"figures": _figures(), "held": standing(request.user)}
    row = presenting.row(budget, at=clock.now())
    return Response(BudgetDetailOut(row, context=context).data, status=status)


def _figures() -> dict[int, Figures]:
    at = clock.now()
    period = periods.active(at)
    return reports.figures(period=period, now=at) if period else {}
