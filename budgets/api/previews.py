"""What a change of shares would do, before it is proposed or approved."""

from typing import Any

from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from allocator.pages.effects import Effect, effects, period_of
from budgets import services
from budgets.access import Action, get_budget_or_404
from budgets.api.change_sets import ChangeSetIn, overrides_of
from budgets.api.common import require
from clusters.models import Pool
from config import clock
from config.fields import Instant, Integer, Text


class PreviewIn(ChangeSetIn):
    """A change set as it would be proposed; neither a reason nor a base is needed yet."""

    reason = Text(default="", allow_blank=True, max_length=2000)
    base_version = Integer(required=False)


class EffectOut(serializers.Serializer[Any]):
    """One budget below: entitlements are of the rest of the period; null: there is none.

    Of a period that has yet to start nothing is spent or spendable: those are null, too.
    `change_mgpus` is what its grant would move by. That stops at what is spent or set aside:
    `kept_mgpus` by how much it stops short, `under_burned_mgpus` by how much its grant would fall
    under what it burned already.
    """

    path = serializers.CharField(source="budget.path")
    name = serializers.CharField(source="budget.name")
    effective_before_thousandths = serializers.IntegerField(source="before")
    effective_thousandths = serializers.IntegerField(source="after")
    entitled_before_gpu_seconds = serializers.IntegerField(allow_null=True)
    entitled_gpu_seconds = serializers.IntegerField(allow_null=True)
    entitled_mgpus = serializers.IntegerField(allow_null=True)
    change_mgpus = serializers.IntegerField(allow_null=True)
    kept_mgpus = serializers.IntegerField()
    burned_mgpus = serializers.IntegerField(allow_null=True)
    under_burned_mgpus = serializers.IntegerField()
    spendable_before_mgpus = serializers.IntegerField(source="spendable_before", allow_null=True)
    spendable_mgpus = serializers.IntegerField(source="spendable_after", allow_null=True)
    runway_before_s = serializers.IntegerField(source="runway_before", allow_null=True)
    runway_s = serializers.IntegerField(source="runway_after", allow_null=True)


class PreviewOut(serializers.Serializer[Any]):
    """`gains`, `loses` and `under_burned` are paths: the largest change first."""

    # A declared field's name, which hides no attribute: the framework takes it off the class.
    parent = serializers.CharField()  # type: ignore[assignment]
    effective_at = Instant()
    period = serializers.CharField(allow_null=True)
    period_ends_at = Instant(allow_null=True)
    gains = serializers.ListField(child=serializers.CharField())
    loses = serializers.ListField(child=serializers.CharField())
    under_burned = serializers.ListField(child=serializers.CharField())
    rows = EffectOut(many=True)


class PreviewChangeSet(APIView):
    """Entitlements, grants and runways as a change would make them. Writes nothing."""

    @extend_schema(request=PreviewIn, responses=PreviewOut)
    def post(self, request: Request, path: str) -> Response:
        parent = get_budget_or_404(request.user, path)
        require(request, Action.PROPOSE_SHARES, parent)
        asked = PreviewIn(data=request.data)
        asked.is_valid(raise_exception=True)
        given, now = asked.validated_data, clock.now()
        children = services.children_by_slug(parent, [*given["shares"], *given["overrides"]])
        pools = {pool.slug: pool for pool in Pool.objects.all()}
        vector = services.checked_vector(
            parent=parent,
            shares={children[slug]: share for slug, share in given["shares"].items()},
            overrides=overrides_of(given["overrides"], children, pools),
        )
        at = max(now, given.get("effective_at") or now)
        period = period_of(at=at, now=now)
        found = effects(parent=parent, vector=vector, period=period, at=at, now=now)
        answer = {
            "parent": parent.path,
            "effective_at": at,
            "period": period.name if period else None,
            "period_ends_at": period.ends_at if period else None,
            "rows": found,
            **_named(found),
        }
        return Response(PreviewOut(answer).data)


def _named(found: list[Effect]) -> dict[str, list[str]]:
    """Who gains, who loses, and who falls under what it burned, by how much."""
    changes = {one.budget.path: one.change_gpu_seconds or 0 for one in found}
    under = {one.budget.path: one.under_burned_mgpus for one in found if one.under_burned_mgpus}
    rising = sorted(changes, key=lambda path: changes[path])
    return {
        "gains": [path for path in reversed(rising) if changes[path] > 0],
        "loses": [path for path in rising if changes[path] < 0],
        "under_burned": sorted(under, key=lambda path: -under[path]),
    }
