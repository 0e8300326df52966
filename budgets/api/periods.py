"""Periods: drafted and decided on by the organisation's administrators, seen by everybody."""

from typing import Any

from django.db.models import QuerySet
from django.http import Http404
from drf_spectacular.utils import extend_schema, extend_schema_field
from rest_framework import serializers
from rest_framework.exceptions import PermissionDenied, ValidationError
from rest_framework.generics import ListAPIView
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from allocator import steering
from budgets import calendars, periods
from budgets.access import may_administer
from budgets.api.common import person
from budgets.models import WHOLE, Period
from budgets.redrafting import redraft_period
from clusters.models import Pool
from clusters.saying import say as _
from config import clock
from config.fields import Instant, Integer, Strict, Text
from ledger import services as ledger

LARGEST = 2**63 - 1


class CapacityOut(serializers.Serializer[Any]):
    pool = serializers.CharField(source="pool.slug")
    gpu_seconds = serializers.IntegerField()
    rate_per_mille = serializers.IntegerField()


class WholePeriodOut(serializers.ModelSerializer[Period]):
    """[starts_at, ends_at), with what grants are computed from.

    `carry_over_cap` in thousandths of a percent of what the period before left unspent;
    `carry_over_max_mgpus` the most of it for the whole organisation, null: no such limit.
    `concerns` are for those who may administer the organisation, null for others.
    """

    starts_at = Instant()
    ends_at = Instant()
    capacity = CapacityOut(source="capacities", many=True)
    concerns = serializers.SerializerMethodField()

    class Meta:
        model = Period
        fields = (
            *("id", "name", "status", "starts_at", "ends_at", "time_zone"),
            *("carry_over_cap", "carry_over_max_mgpus", "capacity", "concerns"),
        )

    @extend_schema_field(serializers.ListField(child=serializers.CharField(), allow_null=True))
    def get_concerns(self, period: Period) -> list[str] | None:
        return periods.concerns(period) if self.context.get("decides") else None


class PeriodIn(Strict):
    """A draft. Its borders as a `calendar` (2026-11 or 2026-Q4 of the time zone), as local days
    (`ends_on` is the first day after) or as instants.
    """

    name = Text(max_length=100)
    time_zone = Text(max_length=64, default="UTC")
    calendar = Text(max_length=20, default="")
    starts_on = serializers.DateField(required=False)
    ends_on = serializers.DateField(required=False)
    starts_at = Instant(required=False)
    ends_at = Instant(required=False)
    carry_over_cap = Integer(max_value=WHOLE, default=0)
    carry_over_max_mgpus = Integer(max_value=LARGEST, allow_null=True, default=None)
    capacity = serializers.DictField(
        child=Integer(max_value=LARGEST),
        required=False,
        help_text="Planned GPU-seconds by pool; left out, what the inventory has",
    )

    def arguments(self) -> dict[str, Any]:
        """Return what was asked as `draft_period` takes it."""
        given = dict(self.validated_data)
        names = ("starts_on", "ends_on", "starts_at", "ends_at")
        borders = {name: given.pop(name) for name in names if name in given}
        zone, named = calendars.zone(given["time_zone"]), given.pop("calendar")
        start, end = calendars.span(zone=zone, calendar_name=named, **borders)
        capacity = given.pop("capacity", None)
        planned = None if capacity is None else _by_pool(capacity)
        return given | {"starts_at": start, "ends_at": end, "capacity": planned}


class Periods(ListAPIView[Period]):
    """All periods, the newest first; and new drafts."""

    serializer_class = WholePeriodOut
    filter_backends = ()

    def get_queryset(self) -> Any:
        return _periods().order_by("-starts_at", "-pk")

    def get_serializer_context(self) -> dict[str, Any]:
        return {**super().get_serializer_context(), "decides": may_administer(self.request.user)}

    @extend_schema(request=PeriodIn, responses={201: WholePeriodOut})
    def post(self, request: Request) -> Response:
        """Draft a period."""
        _require_administrator(request)
        asked = PeriodIn(data=request.data)
        asked.is_valid(raise_exception=True)
        made = steering.draft_period(by=person(request), now=clock.now(), **asked.arguments())
        return _answer(request, made.pk, status=201)


class PeriodDetail(APIView):
    """One period."""

    @extend_schema(responses=WholePeriodOut)
    def get(self, request: Request, pk: int) -> Response:
        return _answer(request, pk)


class RedraftPeriod(APIView):
    """Write a draft anew, with its planned capacity."""

    @extend_schema(request=PeriodIn, responses=WholePeriodOut)
    def post(self, request: Request, pk: int) -> Response:
        draft = _decided_by(request, pk)
        asked = PeriodIn(data=request.data)
        asked.is_valid(raise_exception=True)
        redraft_period(period=draft, author=person(request), now=clock.now(), **asked.arguments())
        return _answer(request, pk)


class ProposePeriod(APIView):
    """Put a draft before whoever approves it."""

    @extend_schema(request=None, responses=WholePeriodOut)
    def post(self, request: Request, pk: int) -> Response:
        _decide(request, pk, "propose")
        return _answer(request, pk)


class ApprovePeriod(APIView):
    """Approve a draft or a proposal: it starts by itself."""

    @extend_schema(request=None, responses=WholePeriodOut)
    def post(self, request: Request, pk: int) -> Response:
        _decide(request, pk, "approve")
        return _answer(request, pk)


class WithdrawPeriod(APIView):
    """Make a draft again of what was proposed or approved and has no entries."""

    @extend_schema(request=None, responses=WholePeriodOut)
    def post(self, request: Request, pk: int) -> Response:
        try:
            _decide(request, pk, "withdraw")
        except ledger.LedgerError as error:
            raise ValidationError({"status": [str(error)]}) from error
        return _answer(request, pk)


def found(pk: int) -> Period:
    """Return a period; that there are some everybody may know."""
    period = _periods().filter(pk=pk).first()
    if period is None:
        raise Http404(_("There is no such period."))
    return period


def _decided_by(request: Request, pk: int) -> Period:
    _require_administrator(request)
    return found(pk)


def _require_administrator(request: Request) -> None:
    if not may_administer(request.user):
        raise PermissionDenied(
            _("Periods are drafted and decided on by the organisation's administrators.")
        )


def _answer(request: Request, pk: int, *, status: int = 200) -> Response:
    decides = may_administer(request.user)
    return Response(WholePeriodOut(found(pk), context={"decides": decides}).data, status=status)


def _periods() -> QuerySet[Period]:
    return Period.objects.prefetch_related("capacities__pool")


def _by_pool(capacity: dict[str, int]) -> dict[Pool, int]:
    pools = {pool.slug: pool for pool in Pool.objects.all()}
    for slug in capacity:
        if slug not in pools:
            known = ", ".join(pools) or _("none yet")
            raise ValidationError(
                {
                    "capacity": [
                        _(
                            "There is no pool %(slug)s: choose from %(known)s.",
                            slug=repr(slug),
                            known=known,
                        )
                    ]
                }
            )
    return {pools[slug]: seconds for slug, seconds in capacity.items()}


def _decide(request: Request, pk: int, decision: str) -> None:
    steering.decide_period(
        period=_decided_by(request, pk), decision=decision, by=person(request), now=clock.now()
    )
