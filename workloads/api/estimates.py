"""What a job would take, cost and wait, without submitting it."""

from dataclasses import replace
from datetime import datetime
from typing import Any

from drf_spectacular.utils import extend_schema, extend_schema_field
from rest_framework import serializers
from rest_framework.exceptions import ValidationError
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from allocator import admission
from allocator.pages import submit, submit_words
from budgets.models import Budget
from clusters.saying import say as _
from config import clock
from config.fields import Instant, Integer, Text
from forecasting import works
from workloads.api.inputs import JobIn, spec_from
from workloads.api.views import budget_to_submit_to, check_dependencies
from workloads.specs import JobSpec


class EstimateIn(JobIn):
    """A job as it would be submitted; `gpus` may be left out where `work` says what it computes."""

    name = Text(required=False)
    gpus = Integer(required=False, allow_null=True, help_text="Left out: the least that fits")
    deadline = Instant(required=False, help_text="By when it should have ended")


class SecondsOut(serializers.Serializer[Any]):
    """A range of seconds, and what it comes from."""

    p10_s = serializers.IntegerField()
    p50_s = serializers.IntegerField()
    p90_s = serializers.IntegerField()
    method = serializers.CharField()
    version = serializers.CharField()
    reasons = serializers.ListField(child=serializers.CharField())


class OptionOut(serializers.Serializer[Any]):
    """The same job on another number of GPUs that it fits on."""

    gpus = serializers.IntegerField()
    p10_s = serializers.IntegerField(source="low_s")
    p50_s = serializers.IntegerField(source="likely_s")
    p90_s = serializers.IntegerField(source="high_s")
    likely_mgpus = serializers.IntegerField()
    high_mgpus = serializers.IntegerField()
    cheapest = serializers.BooleanField(source="is_cheapest")
    in_time = serializers.BooleanField(
        allow_null=True, help_text="Ends by the deadline at p90 if it starts at once"
    )


class StartOut(serializers.Serializer[Any]):
    """When a block of that size is free, by gaps of the newest plan: no promise."""

    low = Instant(allow_null=True)
    likely = Instant(allow_null=True)
    high = Instant(allow_null=True)
    planned_at = Instant()


class EstimateOut(serializers.Serializer[Any]):
    """What the job would take, cost and wait. Times within its time limit, if it has one."""

    gpus = serializers.IntegerField()
    p10_s = serializers.IntegerField(source="low_s")
    p50_s = serializers.IntegerField(source="likely_s")
    p90_s = serializers.IntegerField(source="high_s")
    p50_gpu_seconds = serializers.IntegerField(source="likely_gpu_seconds")
    p90_gpu_seconds = serializers.IntegerField(source="high_gpu_seconds")
    method = serializers.CharField(source="estimate.method")
    version = serializers.CharField(source="estimate.version")
    variant = serializers.CharField(source="estimate.variant")
    fits = serializers.BooleanField(
        source="estimate.fits", allow_null=True, help_text="In memory; null: not known"
    )
    reasons = serializers.ListField(child=serializers.CharField(), source="estimate.reasons")
    by_work = SecondsOut(
        source="estimate.beside", allow_null=True, help_text="Beside a declared duration"
    )
    rate_per_mille = serializers.IntegerField(help_text="Of the dearest pool that it accepts")
    low_mgpus = serializers.IntegerField()
    likely_mgpus = serializers.IntegerField()
    high_mgpus = serializers.IntegerField()
    day_mgpus = serializers.IntegerField(allow_null=True, help_text="A service's, by its profile")
    minimum_runtime_s = serializers.IntegerField()
    hold_mgpus = serializers.IntegerField()
    verdict = serializers.CharField(help_text="funded, short, unfunded, no_period or service")
    spendable_mgpus = serializers.IntegerField(allow_null=True)
    short_mgpus = serializers.IntegerField()
    bound_by = serializers.CharField(source="binding_path", help_text="Whose credits run out first")
    start = StartOut(source="gap", allow_null=True)
    start_text = serializers.SerializerMethodField()
    options = OptionOut(many=True, help_text="Where work is given: the counts that fit in memory")
    least_gpus_in_time = serializers.IntegerField(source="least_in_time", allow_null=True)

    @extend_schema_field(serializers.CharField())
    def get_start_text(self, quote: submit.Quote) -> str:
        return submit_words.start(quote)


class Estimates(APIView):
    """Ask what a job would take, cost and wait; nothing is written."""

    @extend_schema(request=EstimateIn, responses=EstimateOut)
    def post(self, request: Request) -> Response:
        asked = EstimateIn(data=request.data)
        asked.is_valid(raise_exception=True)
        given = dict(asked.validated_data)
        budget = budget_to_submit_to(request, given.pop("budget"))
        check_dependencies(request.user, given.get("dependencies", ()))
        try:
            found = estimated(budget, given, now=clock.now())
        except admission.AdmissionError as error:
            raise ValidationError(
                {name: [text] for name, text in error.problems.items()}
            ) from error
        return Response(EstimateOut(found).data)


def estimated(budget: Budget, given: dict[str, Any], *, now: datetime) -> submit.Quote:
    """Quote what was asked, refused as a submission would be; raises AdmissionError."""
    deadline = given.pop("deadline", None)
    if deadline is not None and deadline <= now:
        raise admission.AdmissionError({"deadline": _("Give a deadline that is still to come.")})
    spec = spec_from({"name": "estimate"} | given)
    spec = _with_gpus(budget, spec)
    admission.check(budget, spec, now)
    found = submit.quote(budget=budget, spec=spec, now=now, deadline=deadline)
    if found is None:
        raise admission.AdmissionError({"pools": _("There is no pool yet that it could run in.")})
    return found


def _with_gpus(budget: Budget, spec: JobSpec) -> JobSpec:
    """The least GPUs that fit, where none are given and what it computes is right."""
    wrong = admission.problem_with_work(spec)
    if spec.gpus is not None or spec.is_realtime or not spec.work or wrong:
        return spec
    admission.acceptable_pools(spec)  # a name that is no pool's has no types of GPU
    try:
        return replace(spec, gpus=submit.least_gpus(budget=budget, spec=spec))
    except works.CannotEstimate as error:
        raise admission.AdmissionError({"gpus": str(error)}) from error
