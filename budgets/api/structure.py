"""Creating, archiving, re-activating, moving and renaming budgets."""

from typing import Any

from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.exceptions import PermissionDenied, ValidationError
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from allocator import steering
from budgets import services
from budgets.access import Action, get_budget_or_404, standing, visible
from budgets.api.common import answered, person, require
from budgets.api.tree import BudgetDetailOut, Tree, detail
from budgets.models import WHOLE, Budget
from clusters.saying import say as _
from config import clock
from config.fields import Integer, Strict, Text


class ChangeIn(Strict):
    """Why, and what the other children of the parent have from now on, if it changes."""

    reason = Text(max_length=2000)
    siblings = serializers.DictField(
        child=Integer(max_value=WHOLE), default=dict, help_text="Share by slug"
    )


class BudgetIn(ChangeIn):
    """A new budget. Without a parent it is the organisation, which superusers create."""

    parent = Text(  # type: ignore[assignment]  # a declared field's name hides no attribute
        allow_null=True, default=None, help_text="Path"
    )
    slug = Text(help_text="a-z, 0-9 and single hyphens inside")
    name = Text()
    description = Text(default="", allow_blank=True, max_length=10_000)
    share = Integer(max_value=WHOLE, default=0, help_text="Thousandths of a percent")
    reason = Text(max_length=2000, default="created")


class ReactivateIn(ChangeIn):
    share = Integer(max_value=WHOLE)


class MoveIn(ReactivateIn):
    to = Text(help_text="Path of the new parent")


class RenameIn(Strict):
    """Another slug, another name, or both; what is left out stays."""

    slug = Text(required=False, help_text="a-z, 0-9 and single hyphens inside")
    name = Text(required=False)

    def validate(self, attrs: dict[str, Any]) -> dict[str, Any]:
        if not attrs:
            raise ValidationError(_("Give a slug, a name or both."))
        return attrs


class Budgets(Tree):
    """The tree, and new budgets in it."""

    @extend_schema(request=BudgetIn, responses={201: BudgetDetailOut})
    def post(self, request: Request) -> Response:
        """Create a budget: a change of its parent's shares, in force at once."""
        given = _given(BudgetIn, request)
        path, at = given.pop("parent"), clock.now()
        if path is None:
            budget = _organisation(request, given)
        else:
            parent = seen(request, "parent", path)
            require(request, Action.EDIT_SHARES, parent)
            with answered():
                budget = steering.create_budget(
                    parent=parent, **change_of(request, given, parent), now=at
                )
        return detail(request, budget, status=201)


class Archive(APIView):
    """Take a budget and all below it out of the tree; its history stays."""

    @extend_schema(request=ChangeIn, responses=BudgetDetailOut)
    def post(self, request: Request, path: str) -> Response:
        budget, parent = with_parent(request, path)
        change = change_of(request, _given(ChangeIn, request), parent)
        with answered():
            budget = steering.archive_budget(budget=budget, **change, now=clock.now())
        return detail(request, budget)


class Reactivate(APIView):
    """Put an archived budget back with a share."""

    @extend_schema(request=ReactivateIn, responses=BudgetDetailOut)
    def post(self, request: Request, path: str) -> Response:
        budget, parent = with_parent(request, path)
        change = change_of(request, _given(ReactivateIn, request), parent)
        with answered():
            budget = steering.reactivate_budget(budget=budget, **change, now=clock.now())
        return detail(request, budget)


class Move(APIView):
    """Move a budget with all below it; `siblings` are the new parent's other children."""

    @extend_schema(request=MoveIn, responses=BudgetDetailOut)
    def post(self, request: Request, path: str) -> Response:
        budget, _ = with_parent(request, path)
        given = _given(MoveIn, request)
        to = seen(request, "to", given.pop("to"))
        require(request, Action.EDIT_SHARES, to)
        change = change_of(request, given, to)
        with answered():
            budget = steering.move_budget(budget=budget, to=to, **change, now=clock.now())
        return detail(request, budget)


class Rename(APIView):
    """Give a budget another slug and name; the past says what it was called then."""

    @extend_schema(request=RenameIn, responses=BudgetDetailOut)
    def post(self, request: Request, path: str) -> Response:
        budget = get_budget_or_404(request.user, path)
        require(request, Action.RENAME, budget)
        words = _given(RenameIn, request) | {"author": person(request), "now": clock.now()}
        return detail(request, services.rename_budget(budget=budget, **words))


def _given(serializer: type[Strict], request: Request) -> dict[str, Any]:
    asked = serializer(data=request.data)
    asked.is_valid(raise_exception=True)
    return dict(asked.validated_data)


def with_parent(request: Request, path: str) -> tuple[Budget, Budget]:
    """The budget, and its parent, whose shares the person must be allowed to edit."""
    budget = get_budget_or_404(request.user, path)
    parent = budget.parent or budget  # the root: the domain says no, in a sentence
    require(request, Action.EDIT_SHARES, parent)
    return budget, parent


def seen(request: Request, field: str, path: str) -> Budget:
    budget = visible(request.user).filter(path=path).first()
    if budget is None:
        raise ValidationError({field: [_("There is no such budget, or none that you may see.")]})
    return budget


def change_of(request: Request, given: dict[str, Any], parent: Budget) -> dict[str, Any]:
    """The arguments that every change of the tree has."""
    siblings = shares_of(parent, given.pop("siblings"))
    return {**given, "siblings": siblings, "author": person(request)}


def shares_of(parent: Budget, by_slug: dict[str, int]) -> dict[Budget, int]:
    """Return shares by the child that a slug names; refuses one that the parent doesn't have."""
    children = services.children_by_slug(parent, by_slug)
    return {children[slug]: share for slug, share in by_slug.items()}


def _organisation(request: Request, given: dict[str, Any]) -> Budget:
    if not standing(request.user).everything:
        raise PermissionDenied(_("Name a parent: only a superuser creates the organisation."))
    named = {name: given[name] for name in ("slug", "name", "description")}
    return services.create_organisation(**named, now=clock.now())
