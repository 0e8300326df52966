"""Where a budget's credits went."""

from typing import Any
from zoneinfo import ZoneInfo

from django.http import HttpResponse, StreamingHttpResponse
from django.http.response import HttpResponseBase
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.exceptions import NotFound, ValidationError
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from allocator.pages import report
from budgets.access import get_budget_or_404, standing
from budgets.models import Budget
from budgets.periods import active
from clusters.saying import say as _
from config import clock
from config.fields import Instant, Strict
from ledger import asking
from ledger.exports.files import KINDS
from ledger.exports.focus_columns import DEFAULT, VERSIONS
from ledger.exports.sections import as_json
from ledger.full_report import Asked
from ledger.instants import LedgerError


def _zone(name: str) -> None:
    try:
        asking.zone_named(name)
    except LedgerError as error:
        raise ValidationError(str(error)) from error


class BurnQuery(Strict):
    """`from` and `to` bound [from, to); left out, they are the open period's start and now.

    `zone` parts the days; left out, it is the period's.
    """

    to = Instant(required=False)
    by = serializers.ChoiceField(choices=["child", "leaf"], default="child")
    zone = serializers.CharField(required=False, validators=[_zone])

    def get_fields(self) -> dict[str, serializers.Field[Any, Any, Any, Any]]:
        return {"from": Instant(required=False), **super().get_fields()}


class BurnFileQuery(BurnQuery):
    focus_version = serializers.ChoiceField(choices=VERSIONS, default=DEFAULT)


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


class JobSpentOut(serializers.Serializer[Any]):
    job = serializers.IntegerField()
    name = serializers.CharField()
    kind = serializers.CharField()
    budget = serializers.CharField()
    person = serializers.CharField()
    settled_mgpus = serializers.IntegerField()
    gpu_seconds = serializers.IntegerField()


class PersonSpentOut(serializers.Serializer[Any]):
    username = serializers.CharField()
    name = serializers.CharField()
    jobs = serializers.IntegerField()
    settled_mgpus = serializers.IntegerField()
    gpu_seconds = serializers.IntegerField()


class OthersOut(serializers.Serializer[Any]):
    """How many more there are, and what they and corrections of no job come to."""

    number = serializers.IntegerField()
    settled_mgpus = serializers.IntegerField()
    gpu_seconds = serializers.IntegerField()


class BurnOut(serializers.Serializer[Any]):
    """`start` and `end` bound what was burned; `jobs` and `people` are the dearest in it."""

    budget = serializers.CharField()
    name = serializers.CharField()
    period = serializers.CharField()
    time_zone = serializers.CharField(help_text="The period's")
    period_start = Instant()
    period_end = Instant()
    by = serializers.CharField()
    start = Instant()
    end = Instant()
    now = Instant()
    closed_until = Instant(allow_null=True, help_text="Where the last charged timestep ends")
    rows = BurnRowOut(many=True)
    total = BurnRowOut()
    zone = serializers.CharField(help_text="Whose midnights part the days")
    days = DayOut(many=True)
    jobs = JobSpentOut(many=True)
    other_jobs = OthersOut()
    people = PersonSpentOut(many=True)
    other_people = OthersOut()
    checksum = serializers.CharField(help_text="SHA-256 of the same report's CSV file")


class Burn(APIView):
    """What a budget was granted and burnt: by what is below it, by day, by job and person."""

    @extend_schema(parameters=[BurnQuery], responses=BurnOut)
    def get(self, request: Request, path: str) -> Response:
        budget = get_budget_or_404(request.user, path)
        given = BurnQuery(data=request.query_params)
        given.is_valid(raise_exception=True)
        try:
            full = report.full_of(_asked(request, budget, given.validated_data))
        except LedgerError as error:
            raise ValidationError({"from": [str(error)]}) from error
        return Response(as_json(full))


class BurnFile(APIView):
    """The same report as a file: table, csv, json, xlsx or focus."""

    @extend_schema(
        operation_id="budgets_burn_file",
        parameters=[BurnFileQuery],
        responses={(200, "application/octet-stream"): OpenApiTypes.BINARY},
    )
    def get(self, request: Request, path: str, kind: str) -> HttpResponseBase:
        budget = get_budget_or_404(request.user, path)
        if kind not in KINDS:
            raise NotFound(
                _("There is no %(kind)s: ask for %(kinds)s.", kind=kind, kinds=", ".join(KINDS))
            )
        given = BurnFileQuery(data=request.query_params)
        given.is_valid(raise_exception=True)
        asked = _asked(request, budget, given.validated_data)
        version = given.validated_data["focus_version"]
        try:
            file = report.file_of(asked, kind=kind, focus_version=version)
        except LedgerError as error:
            raise ValidationError({"from": [str(error)]}) from error
        response = StreamingHttpResponse if file.is_long else HttpResponse
        return response(
            file.chunks,
            content_type=file.content_type,
            headers={"Content-Disposition": f'attachment; filename="{file.name}"'},
        )


def _asked(request: Request, budget: Budget, given: dict[str, Any]) -> Asked:
    """Return what was asked for; what was not is the open period's start, and now."""
    at = clock.now()
    period = active(at)
    if period is None and not {"from", "to"} <= set(given):
        raise ValidationError({"from": [_("No period is open now: give both from and to.")]})
    start = given.get("from") or (period.starts_at if period else at)
    zone = ZoneInfo(given["zone"]) if "zone" in given else None
    held = standing(request.user)
    return Asked(budget, start, given.get("to", at), at, given["by"], zone, held)
