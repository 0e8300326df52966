"""What was declared for a budget's jobs against what they used."""

from datetime import timedelta
from typing import Any

from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from budgets.access import get_budget_or_404
from config import clock
from config.fields import Instant, Strict
from forecasting import asked


class AskedQuery(Strict):
    """So many days up to now."""

    days = serializers.IntegerField(required=False, min_value=1, max_value=366, default=asked.DAYS)


class InflationOut(serializers.Serializer[Any]):
    """Asked ÷ used per mille: 1600 is 1.6 times what was used; took is used ÷ asked, at the median.

    `suggested_per_mille`: what to declare of what one would; null where fewer than five jobs tell.
    """

    jobs = serializers.IntegerField()
    low_per_mille = serializers.IntegerField()
    median_per_mille = serializers.IntegerField()
    high_per_mille = serializers.IntegerField()
    took_per_mille = serializers.IntegerField()
    nine_of_ten_per_mille = serializers.IntegerField()
    asked_gpu_seconds = serializers.IntegerField()
    used_gpu_seconds = serializers.IntegerField()
    beyond_gpu_seconds = serializers.IntegerField(help_text="Asked and not used, never netted")
    suggested_per_mille = serializers.IntegerField(source="suggests", allow_null=True)


class ProjectAskedOut(serializers.Serializer[Any]):
    path = serializers.CharField(source="key")
    name = serializers.CharField()
    found = InflationOut()


class PersonAskedOut(serializers.Serializer[Any]):
    username = serializers.CharField(source="key")
    name = serializers.CharField()
    found = InflationOut()


class ServiceAskedOut(serializers.Serializer[Any]):
    """A declared profile against what traffic needed; null: nothing was needed."""

    job = serializers.IntegerField()
    name = serializers.CharField()
    path = serializers.CharField()
    declared = serializers.IntegerField(help_text="GPU-timesteps")
    needed = serializers.IntegerField(help_text="GPU-timesteps")
    per_mille = serializers.IntegerField(allow_null=True)


class AskedOut(serializers.Serializer[Any]):
    """Jobs that completed or were stopped at their limit; null: none declared one.

    `people` are all for who manages the budget, else only whoever asks.
    """

    since = Instant()
    until = Instant()
    jobs = serializers.IntegerField()
    duration = InflationOut(allow_null=True, help_text="Declared durations")
    limit = InflationOut(allow_null=True, help_text="Time limits")
    in_vain = serializers.IntegerField(help_text="Jobs that ended before their minimum runtime")
    in_vain_gpu_seconds = serializers.IntegerField()
    held_gpu_seconds = serializers.IntegerField(help_text="Busy and parked")
    parked_gpu_seconds = serializers.IntegerField()
    projects = ProjectAskedOut(many=True)
    people = PersonAskedOut(many=True)
    services = ServiceAskedOut(many=True)


class Asked(APIView):
    """How much more is declared than used, by whom, and what to declare instead."""

    @extend_schema(parameters=[AskedQuery], responses=AskedOut)
    def get(self, request: Request, path: str) -> Response:
        budget = get_budget_or_404(request.user, path)
        given = AskedQuery(data=request.query_params)
        given.is_valid(raise_exception=True)
        now = clock.now()
        since = now - timedelta(days=given.validated_data["days"])
        found = asked.asked_against_used(budget=budget, since=since, now=now, reader=request.user)
        return Response(AskedOut(found).data)
