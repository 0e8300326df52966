"""Grants and adjustments by hand."""

from typing import Any
from uuid import uuid4

from django.db.models import Q
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework import serializers
from rest_framework.exceptions import ValidationError
from rest_framework.generics import ListAPIView
from rest_framework.request import Request
from rest_framework.response import Response

from allocator import steering
from budgets.access import Action, get_budget_or_404
from budgets.api.common import person, require
from budgets.models import Period
from budgets.refusals import AMOUNT_MAX
from config import clock
from config.fields import Instant, Integer, Strict, Text
from config.problems import Conflict
from ledger.grants import NOTE_MAX
from ledger.models import Entry
from ledger.services import KeyTaken, Kind, LedgerError


class ByHandOut(serializers.ModelSerializer[Entry]):
    """A grant, or an adjustment of what is settled: above 0 more is settled, below 0 less."""

    budget = serializers.CharField(source="budget.path")
    period = serializers.CharField(source="period.name")
    at = Instant()
    author = serializers.CharField(source="author.username", default=None, allow_null=True)
    reason = serializers.CharField(source="note")

    class Meta:
        model = Entry
        fields = ("id", "kind", "budget", "period", "at", "amount_mgpus", "author", "reason")


class ByHandIn(Strict):
    """One entry in the open period. An adjustment above 0 settles more, below 0 less."""

    kind = serializers.ChoiceField(choices=[str(kind) for kind in Kind])
    amount_mgpus = Integer(min_value=-AMOUNT_MAX, max_value=AMOUNT_MAX)
    reason = Text(max_length=NOTE_MAX)
    of = Integer(required=False, help_text="Id of the closed period that an adjustment corrects")
    idempotency_key = Text(
        max_length=60,
        required=False,
        help_text="Also as header Idempotency-Key: the same request again answers the same entry",
    )


class ByHand(ListAPIView[Entry]):
    """What people granted to a budget and adjusted in it by hand, the newest first."""

    serializer_class = ByHandOut
    filter_backends = ()

    def get_queryset(self) -> Any:
        if getattr(self, "swagger_fake_view", False):
            return Entry.objects.none()
        budget = get_budget_or_404(self.request.user, self.kwargs["path"])
        granted = Q(kind=Entry.Kind.GRANT, key__startswith="grant:by-hand:")
        adjusted = Q(kind=Entry.Kind.ADJUST, author__isnull=False, run=None)
        rows = Entry.objects.filter(granted | adjusted, budget=budget)
        return rows.select_related("budget", "period", "author").order_by("-pk")

    @extend_schema(
        request=ByHandIn,
        responses={201: ByHandOut, 200: ByHandOut},
        parameters=[OpenApiParameter("Idempotency-Key", str, OpenApiParameter.HEADER)],
    )
    def post(self, request: Request, path: str) -> Response:
        """Write a grant or an adjustment; wanted: an administrator's role there or above."""
        budget = get_budget_or_404(request.user, path)
        require(request, Action.ADMINISTER, budget)
        asked = ByHandIn(data=request.data)
        asked.is_valid(raise_exception=True)
        given = asked.validated_data
        try:
            written = steering.write_by_hand(
                kind=Kind(given["kind"]),
                budget=budget,
                amount_mgpus=given["amount_mgpus"],
                reason=given["reason"],
                key=f"{request.user.pk}:{_key(request, given)}",
                author=person(request),
                now=clock.now(),
                of=_period(given),
            )
        except KeyTaken as error:
            raise Conflict(str(error)) from error
        except LedgerError as error:
            raise ValidationError({"amount_mgpus": [str(error)]}) from error
        return Response(ByHandOut(written.entry).data, status=201 if written.anew else 200)


def _key(request: Request, given: dict[str, Any]) -> str:
    header, field = request.headers.get("Idempotency-Key"), given.get("idempotency_key")
    if header is not None:
        header = Text(max_length=60).run_validation(header)
        if field not in (None, header):
            sentence = "It differs from the header Idempotency-Key: send one of them."
            raise ValidationError({"idempotency_key": [sentence]})
    return header or field or uuid4().hex


def _period(given: dict[str, Any]) -> Period | None:
    if "of" not in given:
        return None
    found = Period.objects.filter(pk=given["of"]).first()
    if found is None:
        raise ValidationError({"of": ["There is no such period."]})
    return found
