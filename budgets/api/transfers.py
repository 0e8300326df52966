"""Transfers of credits by hand."""

from typing import Any
from uuid import uuid4

from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.exceptions import ValidationError
from rest_framework.generics import ListAPIView
from rest_framework.request import Request
from rest_framework.response import Response

from allocator import steering
from budgets.access import Action, get_budget_or_404, visible
from budgets.api.common import person, require
from budgets.models import Budget
from budgets.refusals import AMOUNT_MAX
from config import clock
from config.fields import Instant, Integer, Strict, Text
from ledger import services as ledger
from ledger.grants import NOTE_MAX
from ledger.models import Entry
from ledger.services import LedgerError


class TransferOut(serializers.ModelSerializer[Entry]):
    """One budget's side of a transfer: below 0, credits left it."""

    budget = serializers.CharField(source="budget.path")
    period = serializers.CharField(source="period.name")
    at = Instant()
    author = serializers.CharField(source="author.username", default=None, allow_null=True)
    reason = serializers.CharField(source="note")

    class Meta:
        model = Entry
        fields = ("id", "budget", "period", "at", "amount_mgpus", "author", "reason")


class TransferIn(Strict):
    """Credits from the budget of the address to another: a sibling, or one above or below."""

    to = Text(help_text="Path of the budget that gets them")
    amount_mgpus = Integer(min_value=1, max_value=AMOUNT_MAX)
    reason = Text(max_length=NOTE_MAX)
    idempotency_key = Text(
        max_length=60, required=False, help_text="The same key again is the same transfer"
    )


class Transfers(ListAPIView[Entry]):
    """What transfers brought to a budget and took from it, the newest first."""

    serializer_class = TransferOut
    filter_backends = ()

    def get_queryset(self) -> Any:
        if getattr(self, "swagger_fake_view", False):
            return Entry.objects.none()
        budget = get_budget_or_404(self.request.user, self.kwargs["path"])
        rows = Entry.objects.filter(budget=budget, kind=Entry.Kind.TRANSFER)
        return rows.select_related("budget", "period", "author").order_by("-pk")

    @extend_schema(request=TransferIn, responses={201: TransferOut(many=True)})
    def post(self, request: Request, path: str) -> Response:
        """Move credits to another budget; wanted: a manager's role where the two meet."""
        source = get_budget_or_404(request.user, path)
        asked = TransferIn(data=request.data)
        asked.is_valid(raise_exception=True)
        given = asked.validated_data
        target = _seen(request, given["to"])
        require(request, Action.TRANSFER, ledger.place_of_transfer(source, target))
        try:
            written = steering.transfer(
                source=source,
                target=target,
                amount_mgpus=given["amount_mgpus"],
                reason=given["reason"],
                key=f"{request.user.pk}:{given.get('idempotency_key') or uuid4().hex}",
                author=person(request),
                now=clock.now(),
            )
        except LedgerError as error:
            raise ValidationError({"amount_mgpus": [str(error)]}) from error
        return Response(TransferOut(written, many=True).data, status=201)


def _seen(request: Request, path: str) -> Budget:
    found = visible(request.user).filter(path=path).first()
    if found is None:
        raise ValidationError({"to": ["There is no such budget, or none that you may see."]})
    return found
