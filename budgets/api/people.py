"""Who is asking, tokens, and roles."""

from http import HTTPStatus
from typing import Any

from django.contrib.auth import authenticate
from django.contrib.auth.models import User
from django.core.exceptions import NON_FIELD_ERRORS
from django.http import Http404
from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.authtoken.models import Token
from rest_framework.authtoken.views import ObtainAuthToken
from rest_framework.exceptions import APIException, PermissionDenied, ValidationError
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.throttling import AnonRateThrottle
from rest_framework.views import APIView

from allocator import steering
from budgets.access import get_budget_or_404, standing
from budgets.api.common import person
from budgets.models import Budget, Role
from clusters.saying import say as _
from config import clock
from config.fields import Strict, Text
from config.parsers import BoundedJSONParser
from config.sign_in import TryLater


class MeOut(serializers.Serializer[Any]):
    username = serializers.CharField()
    name = serializers.CharField()
    is_superuser = serializers.BooleanField()
    roles = serializers.DictField(child=serializers.CharField(), help_text="Role by budget path")


class Me(APIView):
    """Who is asking, and in which budgets they have a role."""

    @extend_schema(responses=MeOut)
    def get(self, request: Request) -> Response:
        user = person(request)
        return Response(
            {
                "username": user.username,
                "name": user.get_full_name(),
                "is_superuser": user.is_superuser,
                "roles": {path: str(kind) for path, kind in standing(user).roles},
            }
        )


class TokenIn(Strict):
    username = Text(max_length=150)
    password = Text(max_length=1000)


class TokenOut(serializers.Serializer[Any]):
    token = serializers.CharField()


class TooManyTries(APIException):
    """429, with Retry-After: so many tries to sign in failed that the next may come later."""

    status_code = HTTPStatus.TOO_MANY_REQUESTS
    default_code = "too_many"

    def __init__(self, later: TryLater) -> None:
        super().__init__(later.message)
        self.wait = later.seconds


class SignInForToken(ObtainAuthToken):
    """A token for scripts: send it as `Authorization: Token …`. It is one's own until revoked."""

    throttle_classes = (AnonRateThrottle,)
    parser_classes = (BoundedJSONParser,)

    @extend_schema(request=TokenIn, responses=TokenOut, auth=[])
    def post(self, request: Request, *args: Any, **kwargs: Any) -> Response:
        """Answer 429 with Retry-After when too many tries of an account failed."""
        asked = TokenIn(data=request.data)
        asked.is_valid(raise_exception=True)
        try:
            user = authenticate(request=request, **asked.validated_data)
        except TryLater as later:
            raise TooManyTries(later) from None
        if user is None:
            wrong = _("Name and password don't fit, or the account is deactivated: give others.")
            raise ValidationError({NON_FIELD_ERRORS: [wrong]}, code="authorization")
        token, _made = Token.objects.get_or_create(user=user)
        return Response({"token": token.key})


class RoleOut(serializers.ModelSerializer[Role]):
    username = serializers.CharField(source="user.username")

    class Meta:
        model = Role
        fields = ("username", "kind")


class RoleIn(Strict):
    username = Text(max_length=150)
    kind = serializers.ChoiceField(choices=Role.Kind.choices)


class Roles(APIView):
    """Who has a role in this very budget; it holds in all below it too."""

    @extend_schema(responses=RoleOut(many=True))
    def get(self, request: Request, path: str) -> Response:
        budget = get_budget_or_404(request.user, path)
        roles = budget.roles.select_related("user").order_by("user__username")
        return Response(RoleOut(roles, many=True).data)

    @extend_schema(request=RoleIn, responses=RoleOut)
    def post(self, request: Request, path: str) -> Response:
        """Give someone a role here, in place of the one they had here."""
        budget = get_budget_or_404(request.user, path)
        asked = RoleIn(data=request.data)
        asked.is_valid(raise_exception=True)
        user, kind = asked.validated_data["username"], asked.validated_data["kind"]
        found = User.objects.filter(username=user, is_active=True).first()
        for given in {kind, *_kinds(budget, user)}:
            _require_giving(request, given, budget)
        if found is None:
            raise ValidationError(
                {
                    "username": [
                        _("There is nobody called %(user)s: add them first.", user=repr(user))
                    ]
                }
            )
        made = steering.give_role(
            user=found, budget=budget, kind=kind, by=person(request), now=clock.now()
        )
        return Response(RoleOut(made).data)


class RoleOf(APIView):
    """One person's role in this very budget."""

    @extend_schema(request=None, responses={204: None})
    def delete(self, request: Request, path: str, username: str) -> Response:
        """Take the role away."""
        budget = get_budget_or_404(request.user, path)
        there = budget.roles.select_related("user")
        role = next((one for one in there if one.user.username == username), None)
        if role is None:
            raise Http404(
                _("%(username)s has no role in %(path)s itself.", username=username, path=path)
            )
        _require_giving(request, role.kind, budget)
        steering.take_role(user=role.user, budget=budget, by=person(request), now=clock.now())
        return Response(status=204)


def _kinds(budget: Budget, username: str) -> list[str]:
    return list(budget.roles.filter(user__username=username).values_list("kind", flat=True))


def _require_giving(request: Request, kind: str, budget: Budget) -> None:
    if not standing(request.user).may_give(kind, budget.path):
        raise PermissionDenied(
            _(
                "You may not give or take the role of %(kind)s in %(budget)s: ask who has one "
                "above.",
                kind=kind,
                budget=budget.path,
            )
        )
