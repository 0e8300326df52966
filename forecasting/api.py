"""The track record of forecasts, of what one may see."""

from datetime import timedelta
from typing import Any

from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from config import clock
from config.fields import Instant, Strict
from forecasting import retraining
from forecasting.core.kinds import KINDS
from forecasting.models import Estimator
from forecasting.track_record import DAYS, track_record

SHOWN = 10  # newest estimators of each kind


class TrackRecordQuery(Strict):
    """Over how many days."""

    days = serializers.ChoiceField(choices=DAYS, default=DAYS[0])


class AgainstOut(serializers.Serializer[Any]):
    """Mean pinball loss of these forecasts, and of one plain number in their place."""

    number = serializers.IntegerField()
    ours_ds = serializers.IntegerField(help_text="Tenths of a second")
    theirs_ds = serializers.IntegerField()


class GroupOut(serializers.Serializer[Any]):
    """Forecasts that have these in common; an empty name means whatever it is."""

    kind = serializers.CharField()
    budget = serializers.CharField()
    variant = serializers.CharField()
    method = serializers.CharField()
    planned = serializers.BooleanField(help_text="False: made beside a declared duration")
    number = serializers.IntegerField(source="tally.number")
    mean_error_per_mille = serializers.IntegerField(source="tally.mean_error")
    median_error_per_mille = serializers.IntegerField(source="tally.median_error")
    inside_per_mille = serializers.IntegerField(
        source="tally.inside", help_text="Truths from p10 to p90; should be 800"
    )
    below_per_mille = serializers.ListField(
        child=serializers.IntegerField(),
        source="tally.below",
        help_text="Truths up to p10, p50, p90; should be 100, 500, 900",
    )
    loss_ds = serializers.IntegerField(source="tally.loss_ds", help_text="Mean pinball loss")
    said_gpu_seconds = serializers.IntegerField(
        source="tally.said_gpu_s", help_text="GPUs × p50, of all of them"
    )
    taken_gpu_seconds = serializers.IntegerField(source="tally.taken_gpu_s")
    declared = AgainstOut(source="tally.declared", allow_null=True)
    mean = AgainstOut(source="tally.mean", allow_null=True)


class EstimatorOut(serializers.ModelSerializer[Estimator]):
    """What was learned one night, and why it was switched to or not."""

    version = serializers.CharField()
    trained_at = Instant()
    newest_at = Instant(help_text="End of the newest job that it was learned from")

    class Meta:
        model = Estimator
        fields = (
            *("kind", "version", "state", "trained_at", "newest_at", "rows", "left_out"),
            *("seconds", "scores", "why"),
        )


class ForecastRecordOut(serializers.Serializer[Any]):
    """Of forecasts that came true in [since, until)."""

    since = Instant()
    until = Instant()
    number = serializers.IntegerField()
    is_cut = serializers.BooleanField(help_text="There are more: only the newest count")
    kinds = GroupOut(many=True)
    budgets = GroupOut(many=True)
    variants = GroupOut(many=True)
    methods = GroupOut(many=True)
    estimators = EstimatorOut(many=True)


class TrackRecord(APIView):
    """How good forecasts of jobs have been: of those jobs that one may see."""

    @extend_schema(parameters=[TrackRecordQuery], responses=ForecastRecordOut)
    def get(self, request: Request) -> Response:
        asked = TrackRecordQuery(data=request.query_params.dict())
        asked.is_valid(raise_exception=True)
        now = clock.now()
        since = now - timedelta(days=int(asked.validated_data["days"]))
        found = track_record(request.user, since=since, now=now)
        learned = [one for kind in KINDS for one in retraining.last(kind, SHOWN)]
        context = {name: getattr(found, name) for name in PARTS} | {"estimators": learned}
        return Response(ForecastRecordOut(context).data)


PARTS = ("since", "until", "number", "is_cut", "kinds", "budgets", "variants", "methods")
