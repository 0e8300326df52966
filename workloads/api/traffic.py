"""Traffic of real-time services: sent in bounded lists, read as JSON or CSV."""

import csv
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any

from django.http import HttpResponse
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import extend_schema, extend_schema_field
from rest_framework import serializers
from rest_framework.exceptions import PermissionDenied
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from budgets.access import Action, can
from clusters.saying import number
from clusters.saying import say as _
from config import clock
from config.fields import Instant, Integer, Strict
from forecasting import traffic
from ledger.instants import iso
from workloads.api.rows import visible_job
from workloads.models import Job

USUAL = timedelta(days=7)
LONGEST = timedelta(days=400)


@extend_schema_field(OpenApiTypes.DECIMAL)
class Rate(serializers.Field[Decimal, Any, float, Any]):
    """A JSON number; neither a string nor true."""

    default_error_messages = {"invalid": "Give a number, without quotes."}

    def to_internal_value(self, data: Any) -> Decimal:
        if isinstance(data, bool) or not isinstance(data, int | float):
            self.fail("invalid")
        return Decimal(str(data))

    def to_representation(self, value: Decimal) -> float:
        return float(value)


class RateIn(Strict):
    """What came in one step: the mean rate a second, and the instant at which the step begins."""

    at = Instant()
    rate = Rate(help_text="Requests, tokens or whatever is counted, a second; 0: nobody came")


class TrafficIn(Strict):
    """A list of rates; steps that are left out are gaps."""

    traffic = RateIn(many=True, help_text=f"At most {traffic.MOST_ROWS:,}")
    step_minutes = Integer(
        required=False, help_text="Of a service's first traffic: 5, 10, 15, 20, 30 or 60 (60)"
    )

    def validate_traffic(self, rows: list[Any]) -> list[Any]:
        if len(rows) > traffic.MOST_ROWS:
            raise serializers.ValidationError(
                _(
                    "Send at most %(most)s rates at a time, not %(count)s.",
                    most=number(traffic.MOST_ROWS),
                    count=number(len(rows)),
                )
            )
        return rows


class TrafficQuery(Strict):
    """The interval that is read: the last 7 days, unless it is given."""

    to = Instant(required=False)

    def get_fields(self) -> dict[str, Any]:
        return {"from": Instant(required=False), **super().get_fields()}


class StoredOut(serializers.Serializer[Any]):
    """What became of a list, in rows."""

    new = serializers.IntegerField()
    changed = serializers.IntegerField()
    same = serializers.IntegerField(help_text="Known before: nothing was written")
    too_old = serializers.IntegerField(help_text="Older than traffic is kept: left out")


class RateOut(serializers.Serializer[Any]):
    at = Instant()
    rate = serializers.FloatField(help_text="A second")


class TrafficOut(serializers.Serializer[Any]):
    """The steps that are known of [from, to); others are gaps."""

    step_minutes = serializers.IntegerField(allow_null=True)
    traffic = RateOut(many=True)


class Traffic(APIView):
    """What came to a real-time service."""

    @extend_schema(parameters=[TrafficQuery], responses=TrafficOut)
    def get(self, request: Request, pk: int) -> Response:
        job = visible_job(request.user, pk)
        rows = [{"at": at, "rate": rate} for at, rate in _rows(request, job)]
        step = job.service.traffic_step_minutes if job.is_realtime else None
        return Response(TrafficOut({"step_minutes": step, "traffic": rows}).data)

    @extend_schema(request=TrafficIn, responses=StoredOut)
    def post(self, request: Request, pk: int) -> Response:
        """Keep rates; the same list again writes nothing, another rate of a step replaces it."""
        job = sender_of(request, pk)
        asked = TrafficIn(data=request.data)
        asked.is_valid(raise_exception=True)
        stored = traffic.store(
            job=job,
            rows=[(row["at"], row["rate"]) for row in asked.validated_data["traffic"]],
            step_minutes=asked.validated_data.get("step_minutes"),
            now=clock.now(),
        )
        return Response(StoredOut(stored).data)


class TrafficFile(APIView):
    """The same as CSV, as it may be sent again."""

    @extend_schema(parameters=[TrafficQuery], responses={(200, "text/csv"): OpenApiTypes.STR})
    def get(self, request: Request, pk: int) -> HttpResponse:
        job = visible_job(request.user, pk)
        return csv_of(job, _rows(request, job))


def csv_of(job: Job, rows: list[tuple[datetime, float]]) -> HttpResponse:
    """Return rates as a file with the columns at and rate."""
    headers = {"Content-Disposition": f'attachment; filename="job-{job.pk}-traffic.csv"'}
    response = HttpResponse(content_type="text/csv; charset=utf-8", headers=headers)
    writer = csv.writer(response)
    writer.writerow(traffic.COLUMNS)
    writer.writerows((iso(at), f"{rate:.6f}".rstrip("0").rstrip(".")) for at, rate in rows)
    return response


def sender_of(request: Request, pk: int) -> Job:
    """Return a job whose budget the person may submit to."""
    job = visible_job(request.user, pk)
    if not can(request.user, Action.SUBMIT, job.budget):
        raise PermissionDenied(
            _(
                "You may see this service, but not change it: ask for a role in %(budget)s.",
                budget=job.budget.path,
            )
        )
    return job


def _rows(request: Request, job: Job) -> list[tuple[datetime, float]]:
    asked = TrafficQuery(data=request.query_params.dict())
    asked.is_valid(raise_exception=True)
    end = asked.validated_data.get("to", clock.now())
    start = asked.validated_data.get("from", end - USUAL)
    if not start <= end <= start + LONGEST:
        raise serializers.ValidationError(
            {"from": [_("Give an interval that ends after it begins, of at most 400 days.")]}
        )
    return traffic.between(job.service, start=start, end=end) if job.is_realtime else []
