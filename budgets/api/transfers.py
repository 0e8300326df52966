"""Transfers of credits by hand."""

from typing import Any

from drf_spectacular.utils import extend_schema
from rest_framework.exceptions import ValidationError
from rest_framework.request import Request
from rest_framework.response import Response

from allocator import steering
from budgets.access import Action, get_budget_or_404, visible
from budgets.api.common import person, require
from budgets.api.entries import KEY_HEADER, Entries, EntryIn, EntryOut, key_of, refused
from budgets.models import Budget
from budgets.refusals import AMOUNT_MAX
from clusters.saying import say as _
from config import clock
from config.fields import Integer, Text
from ledger import services as ledger
from ledger.models import Entry


class TransferOut(EntryOut):
    """One budget's side of a transfer: below 0, credits left it."""


class TransferIn(EntryIn):
    """Credits from the budget of the address to another: a sibling, or one above or below."""

    to = Text(help_text="Path of the budget that gets them")
    amount_mgpus = Integer(min_value=1, max_value=AMOUNT_MAX)


class Transfers(Entries):
    """What transfers brought to a budget and took from it, the newest first."""

    serializer_class = TransferOut

    def entries(self, budget: Budget) -> Any:
        return Entry.objects.filter(budget=budget, kind=Entry.Kind.TRANSFER)

    @extend_schema(
        request=TransferIn, responses={201: TransferOut(many=True)}, parameters=[KEY_HEADER]
    )
    def post(self, request: Request, path: str) -> Response:
        """Move credits to another budget; wanted: a manager's role where the two meet."""
        source = get_budget_or_404(request.user, path)
        asked = TransferIn(data=request.data)
        asked.is_valid(raise_exception=True)
        given = asked.validated_data
        target = _seen(request, given["to"])
        require(request, Action.TRANSFER, ledger.place_of_transfer(source, target))
        with refused():
            written = steering.transfer(
                source=source,
                target=target,
                amount_mgpus=given["amount_mgpus"],
                reason=given["reason"],
                key=key_of(request, given),
                author=person(request),
                now=clock.now(),
            )
        return Response(TransferOut(written, many=True).data, status=201)


def _seen(request: Request, path: str) -> Budget:
    found = visible(request.user).filter(path=path).first()
    if found is None:
        raise ValidationError({"to": [_("There is no such budget, or none that you may see.")]})
    return found
