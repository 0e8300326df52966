"""What is different in the tree between two instants."""

from collections.abc import Iterable
from datetime import datetime
from typing import Any

from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.exceptions import ValidationError
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from budgets import diffs, diffs_shown, periods
from budgets.access import get_budget_or_404, standing
from budgets.diffs import Kind
from budgets.diffs_shown import Shown, ShownPlace
from clusters.saying import say as _
from config import clock
from config.fields import Instant, Strict


class DiffQuery(Strict):
    """Two instants; left out, they are the open period's start and now."""

    to = Instant(required=False)

    def get_fields(self) -> dict[str, serializers.Field[Any, Any, Any, Any]]:
        return {"from": Instant(required=False), **super().get_fields()}


class PlaceOut(serializers.Serializer[Any]):
    """Path and name are those of then. Shares in thousandths of a percent, effective ones as exact
    fractions; pools by slug.

    null: you may not see that place.
    """

    path = serializers.CharField(allow_null=True)
    name = serializers.CharField(allow_null=True)
    share_thousandths = serializers.IntegerField(allow_null=True)
    share_overrides = serializers.DictField(child=serializers.IntegerField(), allow_null=True)
    effective_share = serializers.CharField(allow_null=True)
    effective_shares = serializers.DictField(child=serializers.CharField(), allow_null=True)


class ByOut(serializers.Serializer[Any]):
    id = serializers.IntegerField()
    parent = serializers.CharField()  # type: ignore[assignment]  # a declared field, no attribute
    version = serializers.IntegerField()
    reason = serializers.CharField()
    author = serializers.CharField()
    effective_at = Instant()


class DifferenceOut(serializers.Serializer[Any]):
    """`before` or `after` null: it wasn't active. `by`: the change sets you may see."""

    name = serializers.CharField()
    kinds = serializers.ListField(child=serializers.ChoiceField(list(Kind)))
    before = PlaceOut(allow_null=True)
    after = PlaceOut(allow_null=True)
    by = ByOut(many=True)


class DiffOut(serializers.Serializer[Any]):
    """Declares what `_shown` answers, `from` apart, which is no name in Python."""

    to = Instant()
    rows = DifferenceOut(many=True)

    def get_fields(self) -> dict[str, serializers.Field[Any, Any, Any, Any]]:
        return {"from": Instant(), **super().get_fields()}


class Diff(APIView):
    """Budgets created, archived, moved, and with other shares, at and below one; and by whom."""

    @extend_schema(parameters=[DiffQuery], responses=DiffOut)
    def get(self, request: Request, path: str) -> Response:
        budget = get_budget_or_404(request.user, path)
        asked = DiffQuery(data=request.query_params)
        asked.is_valid(raise_exception=True)
        given, now = asked.validated_data, clock.now()
        start, end = given.get("from") or _start(now), given.get("to", now)
        found = diffs.diff(top=budget, start=start, end=end)
        rows = _shown(diffs_shown.shown(found, standing(request.user)))
        return Response(DiffOut({"from": start, "to": end, "rows": rows}).data)


def _start(now: datetime) -> datetime:
    period = periods.active(now)
    if period is None:
        raise ValidationError({"from": [_("No period is open: say from when.")]})
    return period.starts_at


def _shown(found: Iterable[Shown]) -> list[dict[str, Any]]:
    return [
        {
            "name": one.name,
            "kinds": one.difference.kinds,
            "before": _place(one.before),
            "after": _place(one.after),
            "by": [
                {
                    "id": made.pk,
                    "parent": made.parent.path,
                    "version": made.version,
                    "reason": made.reason,
                    "author": made.author.username,
                    "effective_at": made.effective_at,
                }
                for made in one.by
            ],
        }
        for one in found
    ]


def _place(place: ShownPlace | None) -> dict[str, Any] | None:
    if place is None:
        return None
    whole = place.whole
    return {
        "path": place.path,
        "name": place.name,
        "share_thousandths": whole.thousandths if whole else None,
        "share_overrides": whole.overrides if whole else None,
        "effective_share": whole.effective if whole else None,
        "effective_shares": whole.effective_in if whole else None,
    }
