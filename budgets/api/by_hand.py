"""Grants and adjustments by hand."""

from typing import Any

from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.exceptions import ValidationError
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from allocator import steering
from budgets.access import Action, get_budget_or_404, standing
from budgets.api.common import person, require
from budgets.api.entries import FIELDS, KEY_HEADER, Entries, EntryIn, EntryOut, key_of, refused
from budgets.models import Budget, Period
from budgets.refusals import AMOUNT_MAX
from clusters.saying import say as _
from config import clock
from config.fields import Integer, Strict
from ledger import services as ledger
from ledger.services import Change, Kind

KINDS = [str(kind) for kind in Kind]


class ByHandOut(EntryOut):
    """A grant, or an adjustment of what is settled: above 0 more is settled, below 0 less."""

    class Meta(EntryOut.Meta):
        fields = ("kind", *FIELDS)


class AmountIn(Strict):
    """One entry in the open period. An adjustment above 0 settles more, below 0 less."""

    kind = serializers.ChoiceField(choices=KINDS)
    amount_mgpus = Integer(min_value=-AMOUNT_MAX, max_value=AMOUNT_MAX)
    of = Integer(required=False, help_text="Id of the closed period that an adjustment corrects")


class ByHandIn(AmountIn, EntryIn):
    """One entry in the open period, and why. An adjustment above 0 settles more, below 0 less."""


class PairOut(serializers.Serializer[Any]):
    before = serializers.IntegerField()
    after = serializers.IntegerField()


class ChangeOut(serializers.Serializer[Any]):
    """What an entry would do to a budget: what it has now and would have, in milli-GPU-seconds."""

    path = serializers.CharField()
    granted_mgpus = PairOut()
    settled_mgpus = PairOut()
    spendable_mgpus = PairOut()
    reserve_mgpus = PairOut()


class ByHandEffectOut(serializers.Serializer[Any]):
    """What an entry would do to the budget, then to each above it that you see; unwritten."""

    changes = ChangeOut(many=True)
    goes_beyond_reserve = serializers.BooleanField(
        allow_null=True,
        help_text="Whether a grant gives more than the parent has in reserve; null where you "
        "don't see the parent",
    )
    beyond_reserve_mgpus = serializers.IntegerField(
        allow_null=True, help_text="How much more; null likewise"
    )


class ByHand(Entries):
    """What people granted to a budget and adjusted in it by hand, the newest first."""

    serializer_class = ByHandOut

    def entries(self, budget: Budget) -> Any:
        return ledger.entries_by_hand([budget.pk])

    @extend_schema(
        request=ByHandIn, responses={201: ByHandOut, 200: ByHandOut}, parameters=[KEY_HEADER]
    )
    def post(self, request: Request, path: str) -> Response:
        """Write a grant or an adjustment; wanted: an administrator's role there or above."""
        budget = _administered(request, path)
        asked = ByHandIn(data=request.data)
        asked.is_valid(raise_exception=True)
        given = asked.validated_data
        with refused():
            written = steering.write_by_hand(
                kind=Kind(given["kind"]),
                budget=budget,
                amount_mgpus=given["amount_mgpus"],
                reason=given["reason"],
                key=key_of(request, given),
                author=person(request),
                now=clock.now(),
                of=_period(given),
            )
        return Response(ByHandOut(written.entry).data, status=201 if written.anew else 200)


class PreviewByHand(APIView):
    """What a grant or an adjustment would do now; nothing is written."""

    @extend_schema(request=AmountIn, responses=ByHandEffectOut)
    def post(self, request: Request, path: str) -> Response:
        """Say what an entry would do; wanted: an administrator's role there or above."""
        budget = _administered(request, path)
        asked = AmountIn(data=request.data)
        asked.is_valid(raise_exception=True)
        given = asked.validated_data
        with refused():
            effect = ledger.preview_by_hand(
                kind=Kind(given["kind"]),
                budget=budget,
                amount_mgpus=given["amount_mgpus"],
                now=clock.now(),
                of=_period(given),
                held=standing(request.user),
            )
        answer = {
            "changes": [_change(one) for one in effect.changes],
            "goes_beyond_reserve": effect.goes_beyond,
            "beyond_reserve_mgpus": effect.beyond,
        }
        return Response(ByHandEffectOut(answer).data)


def _administered(request: Request, path: str) -> Budget:
    budget = get_budget_or_404(request.user, path)
    require(request, Action.ADMINISTER, budget)
    return budget


def _change(one: Change) -> dict[str, Any]:
    names = ("granted", "settled", "spendable", "reserve")
    pairs = {f"{name}_mgpus": getattr(one, name) for name in names}
    shown = {name: {"before": pair[0], "after": pair[1]} for name, pair in pairs.items()}
    return {"path": one.path, **shown}


def _period(given: dict[str, Any]) -> Period | None:
    if "of" not in given:
        return None
    found = Period.objects.filter(pk=given["of"]).first()
    if found is None:
        raise ValidationError({"of": [_("There is no such period.")]})
    return found
