"""What a change of shares or of the tree would do, before it is proposed, approved or made."""

from typing import Any

from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from allocator.pages.effects import Look, look_at_place, look_at_shares
from budgets import services
from budgets.access import Action, get_budget_or_404
from budgets.api.change_sets import ChangeSetIn, overrides_of
from budgets.api.common import require
from budgets.api.structure import ChangeIn, MoveIn, ReactivateIn, seen, shares_of, with_parent
from budgets.models import WHOLE
from budgets.services import Does
from clusters.models import Pool
from clusters.saying import say as _
from config import clock
from config.fields import Instant, Integer, Text

PLACES = tuple(Does)


def _no_reason() -> Text:
    return Text(default="", allow_blank=True, max_length=2000)


class LookAtArchive(ChangeIn):
    reason = _no_reason()


class LookAtReactivation(ReactivateIn):
    reason = _no_reason()


class LookAtMove(MoveIn):
    reason = _no_reason()


class PreviewIn(ChangeSetIn):
    """A change set as it would be proposed; neither a reason nor a base is needed yet.

    Or, in its place, one of `move`, `archive` and `reactivate`: what is to become of the budget
    itself, as the call that does it takes it. Those hold from now on.
    """

    reason = _no_reason()
    base_version = Integer(required=False)
    shares = serializers.DictField(
        child=Integer(max_value=WHOLE), required=False, help_text="Share by slug"
    )
    move = LookAtMove(required=False)
    archive = LookAtArchive(required=False)
    reactivate = LookAtReactivation(required=False)

    def validate(self, attrs: dict[str, Any]) -> dict[str, Any]:
        """Take one thing to look at."""
        given = [name for name in ("shares", *PLACES) if name in attrs]
        if len(given) != 1:
            raise serializers.ValidationError(
                {"shares": [_("Give one of shares, move, archive and reactivate to look at.")]}
            )
        if given != ["shares"] and attrs.get("effective_at"):
            raise serializers.ValidationError(
                {"effective_at": [_("A budget gets another place at once: leave the instant out.")]}
            )
        return attrs


class EffectOut(serializers.Serializer[Any]):
    """One budget concerned: entitlements are of the rest of the period; null: there is none.

    Of a period that has yet to start nothing is granted, spent or spendable: those are null, too.
    `change_mgpus` is what its grant would move by; `taken_along_mgpus` the part of it that goes
    along with a budget that moves. A fall stops at what is spent or set aside: `kept_mgpus` by how
    much it stops short, `under_burned_mgpus` by how much its grant would fall under what it burned
    already.
    """

    path = serializers.CharField(source="budget.path")
    name = serializers.CharField(source="budget.name")
    effective_before_thousandths = serializers.IntegerField(source="before")
    effective_thousandths = serializers.IntegerField(source="after")
    entitled_before_gpu_seconds = serializers.IntegerField(allow_null=True)
    entitled_gpu_seconds = serializers.IntegerField(allow_null=True)
    entitled_mgpus = serializers.IntegerField(allow_null=True)
    change_mgpus = serializers.IntegerField(allow_null=True)
    taken_along_mgpus = serializers.IntegerField(source="along_mgpus")
    kept_mgpus = serializers.IntegerField()
    burned_mgpus = serializers.IntegerField(allow_null=True)
    under_burned_mgpus = serializers.IntegerField()
    granted_before_mgpus = serializers.IntegerField(source="granted_before", allow_null=True)
    granted_mgpus = serializers.IntegerField(source="granted_after", allow_null=True)
    spendable_before_mgpus = serializers.IntegerField(source="spendable_before", allow_null=True)
    spendable_mgpus = serializers.IntegerField(source="spendable_after", allow_null=True)
    reserve_before_mgpus = serializers.IntegerField(source="reserve_before", allow_null=True)
    reserve_mgpus = serializers.IntegerField(source="reserve_after", allow_null=True)
    runway_before_s = serializers.IntegerField(source="runway_before", allow_null=True)
    runway_s = serializers.IntegerField(source="runway_after", allow_null=True)


class PreviewOut(serializers.Serializer[Any]):
    """`gains`, `loses` and `under_burned` are paths: the largest change first.

    `taken_along_mgpus` is what a budget that moves would take along of what it has saved.
    """

    # A declared field's name, which hides no attribute: the framework takes it off the class.
    parent = serializers.CharField()  # type: ignore[assignment]
    effective_at = Instant()
    period = serializers.CharField(allow_null=True)
    period_ends_at = Instant(allow_null=True)
    gains = serializers.ListField(child=serializers.CharField())
    loses = serializers.ListField(child=serializers.CharField())
    under_burned = serializers.ListField(child=serializers.CharField())
    taken_along_mgpus = serializers.IntegerField()
    rows = EffectOut(many=True)


class PreviewChangeSet(APIView):
    """Entitlements, grants and runways as a change would make them. Writes nothing."""

    @extend_schema(request=PreviewIn, responses=PreviewOut)
    def post(self, request: Request, path: str) -> Response:
        asked = PreviewIn(data=request.data)
        get_budget_or_404(request.user, path)
        asked.is_valid(raise_exception=True)
        given = asked.validated_data
        look = _shares if "shares" in given else _place
        found = look(request, path, given)
        return Response(PreviewOut(_answer(found)).data)


def _shares(request: Request, path: str, given: dict[str, Any]) -> Look:
    parent = get_budget_or_404(request.user, path)
    require(request, Action.PROPOSE_SHARES, parent)
    children = services.children_by_slug(parent, [*given["shares"], *given["overrides"]])
    pools = {pool.slug: pool for pool in Pool.objects.all()}
    vector = services.checked_vector(
        parent=parent,
        shares={children[slug]: share for slug, share in given["shares"].items()},
        overrides=overrides_of(given["overrides"], children, pools),
    )
    at = given.get("effective_at")
    return look_at_shares(parent=parent, vector=vector, effective_at=at, now=clock.now())


def _place(request: Request, path: str, given: dict[str, Any]) -> Look:
    budget, parent = with_parent(request, path)
    does = next(name for name in PLACES if name in given)
    asked = dict(given[does])
    asked.pop("reason")
    if does == Does.MOVE:
        parent = asked["to"] = seen(request, "to", asked["to"])
        require(request, Action.EDIT_SHARES, parent)
    asked["siblings"] = shares_of(parent, asked["siblings"])
    return look_at_place(request.user, does=does, budget=budget, now=clock.now(), **asked)


def _answer(found: Look) -> dict[str, Any]:
    period = found.period
    return {
        "parent": found.parent.path,
        "effective_at": found.at,
        "period": period.name if period else None,
        "period_ends_at": period.ends_at if period else None,
        "taken_along_mgpus": found.taken_along,
        "rows": found.effects,
        **{
            name: [one.budget.path for one in getattr(found, name)]
            for name in ("gains", "loses", "under_burned")
        },
    }
