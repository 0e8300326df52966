"""Requests for more: asked, listed, decided, withdrawn."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from django.http import Http404
from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.exceptions import PermissionDenied, ValidationError
from rest_framework.generics import ListAPIView
from rest_framework.request import Request as HttpRequest
from rest_framework.response import Response
from rest_framework.views import APIView

from allocator import choices, steering
from budgets import requests
from budgets.access import (
    Action,
    get_budget_or_404,
    get_request_or_404,
    may_withdraw,
    standing,
    visible,
    visible_q,
)
from budgets.api.common import person, require
from budgets.models import Budget, Request
from budgets.refusals import AMOUNT_MAX, StaleBase
from clusters.saying import say as _
from config import clock
from config.fields import Instant, Integer, Strict, Text
from config.problems import Conflict
from ledger import services as ledger
from ledger.services import LedgerError

Unit = Request.Unit
RELATED = ("budget", "asked_by", "decided_by", "source")


class RequestOut(serializers.ModelSerializer[Request]):
    """Amounts in the field of the request's unit; the other is null."""

    budget = serializers.CharField(source="budget.path")
    thousandths = serializers.SerializerMethodField(help_text="Of a percent of the parent")
    amount_mgpus = serializers.SerializerMethodField()
    given_thousandths = serializers.SerializerMethodField()
    given_mgpus = serializers.SerializerMethodField()
    source = serializers.SerializerMethodField(  # type: ignore[assignment]  # as below
        help_text="Path of what it was taken from; null, too, if one may not know it"
    )
    asked_by = serializers.CharField(source="asked_by.username")
    decided_by = serializers.CharField(source="decided_by.username", default=None, allow_null=True)
    until = Instant(allow_null=True)
    created_at = Instant()
    decided_at = Instant(allow_null=True)
    ended_at = Instant(allow_null=True)

    class Meta:
        model = Request
        fields = (
            *("id", "budget", "unit", "thousandths", "amount_mgpus", "reason", "until"),
            *("asked_by", "created_at", "status", "decision", "source", "given_thousandths"),
            *("given_mgpus", "change_set", "set_back", "answer", "decided_by", "decided_at"),
            "ended_at",
        )

    def get_thousandths(self, found: Request) -> int | None:
        return found.asked if found.unit == Unit.PERCENT else None

    def get_amount_mgpus(self, found: Request) -> int | None:
        return found.asked if found.unit == Unit.CREDITS else None

    def get_given_thousandths(self, found: Request) -> int | None:
        return found.given if found.unit == Unit.PERCENT else None

    def get_given_mgpus(self, found: Request) -> int | None:
        return found.given if found.unit == Unit.CREDITS else None

    def get_source(self, found: Request) -> str | None:
        known = found.source is not None and self.context["held"].knows(found.source.path)
        return found.source.path if found.source is not None and known else None


class ChoiceOut(serializers.Serializer[Any]):
    """What granting all of it out of one budget would do; `problem` says why it can't be."""

    source = serializers.CharField(source="source.path")  # type: ignore[assignment]  # declared
    decision = serializers.ChoiceField(Request.Decision.choices)
    share_before = serializers.IntegerField(allow_null=True)
    share_after = serializers.IntegerField(allow_null=True)
    before_mgpus = serializers.IntegerField(allow_null=True)
    after_mgpus = serializers.IntegerField(allow_null=True)
    most = serializers.IntegerField(help_text="In the request's unit")
    problem = serializers.CharField()


class RequestDetailOut(RequestOut):
    """One request, with what the one who asks may decide."""

    choices = ChoiceOut(many=True, source="found_choices")
    may_withdraw = serializers.BooleanField()

    class Meta:
        model = Request
        fields = (*RequestOut.Meta.fields, "choices", "may_withdraw")


class RequestIn(Strict):
    """More of one unit: `thousandths` of a percent of the parent, or `amount_mgpus`."""

    thousandths = Integer(min_value=1, required=False)
    amount_mgpus = Integer(min_value=1, max_value=AMOUNT_MAX, required=False)
    reason = Text(max_length=requests.REASON_MAX)
    until = Instant(required=False, allow_null=True, default=None)

    def validate(self, attrs: dict[str, Any]) -> dict[str, Any]:
        if ("thousandths" in attrs) == ("amount_mgpus" in attrs):
            raise ValidationError(_("Give thousandths (percent) or amount_mgpus (credits)."))
        return attrs


class GrantIn(Strict):
    """Out of `source`; all that was asked for, unless less is given in the request's unit."""

    source = Text(help_text="Path of an ancestor or a sibling")  # type: ignore[assignment]
    given = Integer(max_value=AMOUNT_MAX, required=False)
    reason = Text(max_length=requests.REASON_MAX, default="", allow_blank=True)
    base_version = Integer(required=False, help_text="Of the parent's shares, as one knows them")


class DeclineIn(Strict):
    reason = Text(max_length=requests.REASON_MAX)


class RequestsQuery(serializers.Serializer[Any]):
    status = serializers.ChoiceField(Request.Status.choices, required=False)


class _Listed(ListAPIView[Request]):
    serializer_class = RequestOut
    filter_backends = ()

    def get_serializer_context(self) -> dict[str, Any]:
        return {**super().get_serializer_context(), "held": standing(self.request.user)}

    def listed(self, rows: Any) -> Any:
        if getattr(self, "swagger_fake_view", False):
            return Request.objects.none()
        asked = RequestsQuery(data=self.request.query_params)
        asked.is_valid(raise_exception=True)
        return rows.filter(**asked.validated_data).select_related(*RELATED).order_by("-pk")


class Requests(_Listed):
    """All requests for budgets that one may see, the newest first."""

    @extend_schema(parameters=[RequestsQuery])
    def get(self, request: HttpRequest, *args: Any, **kwargs: Any) -> Response:
        return super().get(request, *args, **kwargs)

    def get_queryset(self) -> Any:
        return self.listed(Request.objects.filter(visible_q(self.request.user, "budget__")))


class BudgetRequests(_Listed):
    """The requests for one budget, the newest first; and new ones."""

    @extend_schema(parameters=[RequestsQuery])
    def get(self, request: HttpRequest, *args: Any, **kwargs: Any) -> Response:
        return super().get(request, *args, **kwargs)

    def get_queryset(self) -> Any:
        budget = get_budget_or_404(self.request.user, self.kwargs["path"])
        return self.listed(budget.requests.all())

    @extend_schema(request=RequestIn, responses={201: RequestDetailOut})
    def post(self, request: HttpRequest, path: str) -> Response:
        """Ask for more for it."""
        budget = get_budget_or_404(request.user, path)
        require(request, Action.ASK, budget)
        given = _given(RequestIn, request)
        unit = Unit.PERCENT if "thousandths" in given else Unit.CREDITS
        with refusals():
            made = requests.ask(
                budget=budget,
                unit=unit,
                asked=given["thousandths" if unit == Unit.PERCENT else "amount_mgpus"],
                reason=given["reason"],
                until=given["until"],
                by=person(request),
                now=clock.now(),
            )
        return _detail(request, made.pk, status=201)


class RequestDetail(APIView):
    """One request, with the choices of whoever may decide on it."""

    @extend_schema(responses=RequestDetailOut)
    def get(self, request: HttpRequest, pk: int) -> Response:
        return _detail(request, pk)


class GrantRequest(APIView):
    """Grant it out of an ancestor's reserve or out of a sibling; all it writes, or nothing."""

    @extend_schema(request=GrantIn, responses=RequestDetailOut)
    def post(self, request: HttpRequest, pk: int) -> Response:
        found = get_request_or_404(request.user, pk)
        _require_deciding(request, found)
        given = _given(GrantIn, request)
        source = _seen(request, given["source"])
        with refusals():
            require(request, Action.DECIDE_REQUESTS, ledger.place_of_decision(found, source))
            steering.grant_request(
                request=found,
                source=source,
                given=given.get("given"),
                answer=given["reason"],
                base_version=given.get("base_version"),
                by=person(request),
                now=clock.now(),
            )
        return _detail(request, pk)


class DeclineRequest(APIView):
    """Decline it with a reason."""

    @extend_schema(request=DeclineIn, responses=RequestDetailOut)
    def post(self, request: HttpRequest, pk: int) -> Response:
        found = get_request_or_404(request.user, pk)
        _require_deciding(request, found)
        given = _given(DeclineIn, request)
        with refusals():
            ledger.decline_request(
                request=found, answer=given["reason"], by=person(request), now=clock.now()
            )
        return _detail(request, pk)


class WithdrawRequest(APIView):
    """Take an open request back: one's own, or any as the budget's manager."""

    @extend_schema(request=None, responses=RequestDetailOut)
    def post(self, request: HttpRequest, pk: int) -> Response:
        found = get_request_or_404(request.user, pk)
        if not may_withdraw(standing(request.user), request.user, found):
            raise PermissionDenied(
                _(
                    "Request %(pk)s is withdrawn by who asked, or by a manager of %(budget)s.",
                    pk=pk,
                    budget=found.budget.path,
                )
            )
        with refusals():
            requests.withdraw(request=found, by=person(request), now=clock.now())
        return _detail(request, pk)


@contextmanager
def refusals() -> Iterator[None]:
    """Turn what the domain refuses into problem objects."""
    try:
        yield
    except requests.AskedAlready as refused:
        raise Conflict(refused.sentence, request=refused.open.pk) from refused
    except requests.DecidedAlready as refused:
        raise Conflict(refused.sentence, request_status=refused.request.status) from refused
    except StaleBase as stale:
        raise Conflict(str(stale), theirs_version=stale.theirs, mine_version=stale.mine) from stale
    except LedgerError as error:
        raise ValidationError({"source": [str(error)]}) from error


def _given(serializer: type[Strict], request: HttpRequest) -> dict[str, Any]:
    asked = serializer(data=request.data)
    asked.is_valid(raise_exception=True)
    return dict(asked.validated_data)


def _seen(request: HttpRequest, path: str) -> Budget:
    found = visible(request.user).filter(path=path).first()
    if found is None:
        raise ValidationError({"source": [_("There is no such budget, or none that you may see.")]})
    return found


def _require_deciding(request: HttpRequest, found: Request) -> None:
    if found.budget.parent is None:
        raise Http404(_("Nobody asks for more for the root."))
    require(request, Action.DECIDE_REQUESTS, found.budget.parent)


def _detail(request: HttpRequest, pk: int, status: int = 200) -> Response:
    found, held = get_request_or_404(request.user, pk), standing(request.user)
    is_open = found.status == Request.Status.OPEN
    offered = choices.choices([found], held=held, at=clock.now()) if is_open else {}
    found.found_choices = offered.get(pk, [])  # type: ignore[attr-defined]  # for the serializer
    found.may_withdraw = is_open and may_withdraw(held, request.user, found)  # type: ignore[attr-defined]
    return Response(RequestDetailOut(found, context={"held": held}).data, status=status)
