"""How much of its grant a budget means to use when: the plan in force, and a new version."""

from typing import Any

from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.exceptions import ValidationError
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from budgets import plans
from budgets.access import Action, get_budget_or_404
from budgets.api.common import person, require
from budgets.models import WHOLE, BudgetPlan, Period
from clusters.saying import say as _
from config import clock
from config.fields import LARGEST_INTEGER, Instant, Integer, Strict, Text
from ledger import planning

By = BudgetPlan.By


class PlanQuery(Strict):
    period = serializers.IntegerField(
        required=False, min_value=1, max_value=LARGEST_INTEGER, help_text="Its id; the active one"
    )
    by = serializers.ChoiceField(By.choices, required=False, help_text="As the plan in force has")


class PlanIn(Strict):
    """`parts`: thousandths of a percent for each month or quarter of the period, 100,000 in all.

    `base_version` is the version you saw, 0 where there was none.
    """

    period = Integer(required=False, help_text="Its id; the active one, if left out")
    by = serializers.ChoiceField(By.choices)
    parts = serializers.ListField(child=Integer(max_value=WHOLE), max_length=200)
    base_version = Integer()
    note = Text(max_length=plans.NOTE_MAX, default="", allow_blank=True)


class PartOut(serializers.Serializer[Any]):
    """One month or quarter. `begun`: it stays as it is. Planned in it, and up to its end."""

    starts_at = Instant()
    ends_at = Instant()
    thousandths = serializers.IntegerField()
    begun = serializers.BooleanField()
    planned_mgpus = serializers.IntegerField()


class BudgetPlanOut(serializers.Serializer[Any]):
    """A budget's plan of a period; `has_plan` false: it has none, and time is its plan.

    `planned_to_date_mgpus` is of what is granted now; `pace_per_mille` is null where nothing is.
    """

    budget = serializers.CharField(source="budget.path")
    period = serializers.CharField(source="period.name")
    time_zone = serializers.CharField(source="period.time_zone")
    version = serializers.IntegerField()
    has_plan = serializers.BooleanField()
    by = serializers.ChoiceField(By.choices)
    author = serializers.CharField(allow_null=True)
    created_at = Instant(allow_null=True)
    note = serializers.CharField()
    parts = PartOut(many=True)
    granted_mgpus = serializers.IntegerField()
    used_mgpus = serializers.IntegerField()
    planned_to_date_mgpus = serializers.IntegerField()
    pace_per_mille = serializers.IntegerField(allow_null=True)


class Plan(APIView):
    """A budget's plan in a period."""

    @extend_schema(parameters=[PlanQuery], responses=BudgetPlanOut)
    def get(self, request: Request, path: str) -> Response:
        budget = get_budget_or_404(request.user, path)
        asked = PlanQuery(data=request.query_params)
        asked.is_valid(raise_exception=True)
        period, by = _period(asked.validated_data.get("period")), asked.validated_data.get("by")
        page = planning.planned(budget=budget, period=period, by=by, now=clock.now())
        return Response(BudgetPlanOut(page).data)

    @extend_schema(request=PlanIn, responses={201: BudgetPlanOut})
    def post(self, request: Request, path: str) -> Response:
        """Write a new version; parts that have `begun` stay as they are."""
        budget, at = get_budget_or_404(request.user, path), clock.now()
        require(request, Action.PLAN, budget)
        asked = PlanIn(data=request.data)
        asked.is_valid(raise_exception=True)
        given = dict(asked.validated_data)
        period = _period(given.pop("period", None))
        plans.write_plan(budget=budget, period=period, author=person(request), now=at, **given)
        return Response(
            BudgetPlanOut(planning.planned(budget=budget, period=period, now=at)).data, status=201
        )


def _period(pk: int | None) -> Period:
    period = planning.period_of(pk, now=clock.now())
    if period is None:
        what = (
            _("No period is active now: name one.") if pk is None else _("There is no such period.")
        )
        raise ValidationError({"period": [what]})
    return period
