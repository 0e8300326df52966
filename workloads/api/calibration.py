"""How a real-time service follows its traffic: opting in, a GPU's rate, versions of its profile."""

from datetime import datetime
from typing import Any, cast

from django.conf import settings
from django.contrib.auth.models import User
from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from clusters.refusals import Refused
from clusters.saying import say as _
from config import clock
from config.fields import Boolean, Instant, Integer, Strict
from forecasting import calibrating, gpu_rates
from forecasting import service_profiles as profiles
from forecasting.looking_ahead import NEAR
from forecasting.models import RatePerGpu, ServiceProfile
from forecasting.traffic import MICRO
from ledger.instants import timestep, timestep_at
from workloads.api.rows import visible_job
from workloads.api.traffic import Rate, sender_of
from workloads.demand import demand_over
from workloads.models import Job, Service

SHOWN = 30  # versions and rates


class CalibrationIn(Strict):
    """What is to change; what is left out stays."""

    calibrated = Boolean(required=False, help_text="Follow the traffic, once there is enough")
    rate_per_gpu = Rate(
        required=False,
        allow_null=True,
        help_text="What one GPU does a second; null: as it is measured",
    )
    least_gpus = Integer(required=False, help_text="Forecasts ask for no fewer")
    most_gpus = Integer(required=False, help_text="Forecasts ask for no more")


class RatePerGpuOut(serializers.ModelSerializer[RatePerGpu]):
    """What one GPU does a second, who said so, or from how many steps it was measured."""

    rate = serializers.SerializerMethodField(help_text="Null: a declared one was withdrawn")
    at = Instant()
    author = serializers.CharField(source="author.username", default=None, allow_null=True)

    class Meta:
        model = RatePerGpu
        fields = ("source", "rate", "at", "author", "evidence")

    def get_rate(self, rate: RatePerGpu) -> float | None:
        return None if rate.rate_micro is None else rate.rate_micro / MICRO


class TriedOut(serializers.Serializer[Any]):
    """How a profile did on the last days, which it had not seen; parts of 1."""

    timesteps = serializers.IntegerField()
    time_covered = serializers.FloatField()
    demand_covered = serializers.FloatField()
    over = serializers.FloatField(help_text="Provided ÷ needed − 1")
    broken = serializers.IntegerField(help_text="Changes beyond the swap cap: none")
    loss = serializers.FloatField(help_text="Pinball loss in GPUs a timestep")
    peak_over = serializers.FloatField(help_text="Over-provision of reserving the peak")


class ServiceProfileOut(serializers.ModelSerializer[ServiceProfile]):
    """A version of the profile: in force from … to, or the reason why it never was."""

    made_at = Instant()
    made_by = serializers.CharField(source="made_by.username", default=None, allow_null=True)
    in_force_at = Instant(allow_null=True)
    replaced_at = Instant(allow_null=True)
    tried = TriedOut()
    present = TriedOut(allow_null=True, help_text="What was in force, on the same days")

    class Meta:
        model = ServiceProfile
        fields = (
            *("version", "made_at", "made_by", "in_force_at", "replaced_at", "reason"),
            *("method", "step_minutes", "week", "tried", "present"),
        )


class CalibrationOut(serializers.Serializer[Any]):
    """How a service follows its traffic now, and what it will want in the next 24 h."""

    calibrated = serializers.BooleanField()
    version = serializers.IntegerField(allow_null=True, help_text="Of the profile in force")
    problem = serializers.CharField(help_text="Why no profile can be made now; empty: it can")
    least_gpus = serializers.IntegerField()
    most_gpus = serializers.IntegerField()
    rate_per_gpu = RatePerGpuOut(allow_null=True, help_text="The one that counts")
    rates = RatePerGpuOut(many=True, help_text="All that were declared and measured, newest first")
    demand_from = Instant()
    demand_step_minutes = serializers.IntegerField()
    demand = serializers.ListField(child=serializers.IntegerField(), help_text="GPUs a timestep")
    versions = ServiceProfileOut(many=True, help_text="The newest first")


class Calibration(APIView):
    """How a real-time service follows its traffic."""

    @extend_schema(responses=CalibrationOut)
    def get(self, request: Request, pk: int) -> Response:
        return _shown(visible_job(request.user, pk), clock.now())

    @extend_schema(request=CalibrationIn, responses=CalibrationOut)
    def post(self, request: Request, pk: int) -> Response:
        """Opt in or out, declare what a GPU does, or change between which GPUs it may move."""
        job, now = sender_of(request, pk), clock.now()
        asked = CalibrationIn(data=request.data)
        asked.is_valid(raise_exception=True)
        given = dict(asked.validated_data)
        calibrating.change(service=service_of(job), by=cast(User, request.user), now=now, **given)
        return _shown(visible_job(request.user, pk), now)


class Recalibrate(APIView):
    """Make the next version of a service's profile now, which beat does by night."""

    @extend_schema(request=None, responses=ServiceProfileOut)
    def post(self, request: Request, pk: int) -> Response:
        job = sender_of(request, pk)
        made = calibrating.recalibrate(
            service=service_of(job), now=clock.now(), by=cast(User, request.user)
        )
        return Response(ServiceProfileOut(made).data)


def service_of(job: Job) -> Service:
    """Return a job's service; refuse other jobs."""
    if not job.is_realtime:
        raise Refused(
            "job", _("Job %(job)s is no real-time service: it has no profile.", job=job.pk)
        )
    return job.service


def _shown(job: Job, now: datetime) -> Response:
    service = service_of(job)
    present, (least, most) = profiles.in_force(service), profiles.bounds(service)
    start = timestep_at(now)
    versions = service.profiles.select_related("made_by").order_by("-version")[:SHOWN]
    shown = {
        "calibrated": service.calibrated,
        "version": present.version if present is not None and service.calibrated else None,
        "problem": calibrating.problem(service, now=now),
        "least_gpus": least,
        "most_gpus": most,
        "rate_per_gpu": gpu_rates.in_force(service),
        "rates": service.gpu_rates.select_related("author").order_by("-pk")[:SHOWN],
        "demand_from": start,
        "demand_step_minutes": settings.TIMESTEP_MINUTES,
        "demand": demand_over(service, start=start, step=timestep(), timesteps=NEAR // timestep()),
        "versions": versions,
    }
    return Response(CalibrationOut(shown).data)
