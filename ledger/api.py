"""Where a budget's credits went."""

from datetime import datetime
from typing import Any
from zoneinfo import ZoneInfo

from drf_spectacular.utils import extend_schema, extend_schema_field
from rest_framework import serializers
from rest_framework.exceptions import ValidationError
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from allocator import delivery
from budgets.access import get_budget_or_404
from budgets.periods import active
from config import clock
from config.fields import Instant, Strict
from ledger import reports
from ledger.instants import LedgerError


class BurnQuery(Strict):
    """`from` and `to` bound [from, to); left out, they are the open period's start and now."""

    to = Instant(required=False)
    by = serializers.ChoiceField(choices=["child", "leaf"], default="child")

    def get_fields(self) -> dict[str, serializers.Field[Any, Any, Any, Any]]:
        return {"from": Instant(required=False), **super().get_fields()}


class BurnRowOut(serializers.Serializer[Any]):
    """A budget with all below it: its period's figures, and what it spent in the interval.

    `pace_per_mille`: 1000 is on time; `burn_rate_mgpus` per day; the forecast is of what is settled
    at the period's end, four times out of five between low and high. null: nothing was planned,
    nothing is spent, it is too early, nothing is known of what was owed. The reserve is the part
    of the budget that no child has.
    """

    path = serializers.CharField()
    name = serializers.CharField()
    is_reserve = serializers.BooleanField()
    granted_mgpus = serializers.IntegerField()
    settled_mgpus = serializers.IntegerField()
    in_flight_mgpus = serializers.IntegerField()
    held_mgpus = serializers.IntegerField()
    spendable_mgpus = serializers.IntegerField()
    pace_per_mille = serializers.IntegerField(allow_null=True)
    burn_rate_mgpus = serializers.IntegerField()
    runway_hours = serializers.IntegerField(allow_null=True)
    forecast_low_mgpus = serializers.IntegerField(allow_null=True)
    forecast_mgpus = serializers.IntegerField(allow_null=True)
    forecast_high_mgpus = serializers.IntegerField(allow_null=True)
    burned_mgpus = serializers.IntegerField()
    busy_mgpus = serializers.IntegerField()
    parked_mgpus = serializers.IntegerField()
    realtime_mgpus = serializers.IntegerField()
    corrected_mgpus = serializers.IntegerField(help_text="Refunds (below 0) and adjustments")
    busy_gpu_seconds = serializers.IntegerField()
    parked_gpu_seconds = serializers.IntegerField()
    realtime_gpu_seconds = serializers.IntegerField()
    unfunded_gpu_seconds = serializers.IntegerField()
    owed_gpu_seconds = serializers.IntegerField(allow_null=True)
    delivered_gpu_seconds = serializers.IntegerField(allow_null=True)


class DayOut(serializers.Serializer[Any]):
    day = serializers.DateField()
    settled_mgpus = serializers.IntegerField()
    busy_mgpus = serializers.IntegerField()
    parked_mgpus = serializers.IntegerField()
    realtime_mgpus = serializers.IntegerField()
    corrected_mgpus = serializers.IntegerField()
    busy_gpu_seconds = serializers.IntegerField()
    parked_gpu_seconds = serializers.IntegerField()
    realtime_gpu_seconds = serializers.IntegerField()
    unfunded_gpu_seconds = serializers.IntegerField()


class BurnOut(serializers.Serializer[Any]):
    budget = serializers.CharField()
    period = serializers.CharField()
    time_zone = serializers.CharField(help_text="Whose midnights part the days")
    start = Instant()
    end = Instant()
    now = Instant()
    rows = BurnRowOut(many=True)
    total = BurnRowOut()
    days = serializers.SerializerMethodField()

    @extend_schema_field(DayOut(many=True))
    def get_days(self, report: Any) -> list[Any]:
        return list(DayOut(self.context["days"], many=True).data)


class Burn(APIView):
    """What a budget was granted and what it burnt, by what is below it and by day."""

    @extend_schema(parameters=[BurnQuery], responses=BurnOut)
    def get(self, request: Request, path: str) -> Response:
        budget = get_budget_or_404(request.user, path)
        asked = BurnQuery(data=request.query_params)
        asked.is_valid(raise_exception=True)
        at = clock.now()
        try:
            start, end = _interval(asked.validated_data, at)
            report = reports.burn_report(
                budget=budget,
                start=start,
                end=end,
                now=at,
                by=asked.validated_data["by"],
                delivered=delivery.summary(start=start, end=end),
            )
            zone = ZoneInfo(report.time_zone)
            days = reports.burn_by_day(budget=budget, start=start, end=end, zone=zone)
        except LedgerError as error:
            raise ValidationError({"from": [str(error)]}) from error
        return Response(BurnOut(report, context={"days": days}).data)


def _interval(given: dict[str, datetime], at: datetime) -> tuple[datetime, datetime]:
    """Return what was asked for; what was not is the open period's start, and now."""
    period = active(at)
    if period is None and not {"from", "to"} <= set(given):
        raise LedgerError("No period is open now: give both from and to.")
    start = given.get("from") or (period.starts_at if period else at)
    return start, given.get("to", at)
