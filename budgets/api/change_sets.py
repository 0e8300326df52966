"""Changes of shares: listed, proposed, approved, declined."""

from collections.abc import Sequence
from functools import cached_property
from typing import Any

from django.db.models import Case, Q, When
from django.http import Http404
from drf_spectacular.utils import extend_schema, extend_schema_field
from rest_framework import serializers
from rest_framework.exceptions import PermissionDenied, ValidationError
from rest_framework.generics import GenericAPIView, ListAPIView
from rest_framework.request import Request
from rest_framework.response import Response

from allocator import steering
from allocator.pages import changes
from budgets import services
from budgets.access import (
    ELSEWHERE,
    NOT_ALL_YOURS,
    Action,
    get_budget_or_404,
    may_approve,
    may_decline,
    out_of_sight,
    standing,
)
from budgets.api.common import answered, person, require
from budgets.models import WHOLE, Budget, ChangeSet, Share
from budgets.names import Names
from clusters.models import Pool
from clusters.saying import say as _
from config import clock
from config.fields import Instant, Integer, Strict, Text


class MoveOut(serializers.Serializer[Any]):
    """A child's share before and after; null: it had none, or in a pool: as overall."""

    child = serializers.CharField(source="slug")
    pool = serializers.CharField(source="pool_slug", allow_blank=True, help_text="Empty: overall")
    before = serializers.IntegerField(allow_null=True)
    after = serializers.IntegerField(allow_null=True)


class ChangeSetOut(serializers.ModelSerializer[ChangeSet]):
    """Shares by the child's slug, in thousandths of a percent; `moves` is what differs.

    Its context needs `held`, the reader's standing. Of a set by which a child moves below a parent
    that they don't see, it has the shares of those budgets alone that they see.
    """

    parent = serializers.SerializerMethodField()  # type: ignore[assignment]  # as above
    author = serializers.CharField(source="author.username")
    decided_by = serializers.CharField(source="decided_by.username", default=None, allow_null=True)
    created_at = Instant()
    effective_at = Instant()
    decided_at = Instant(allow_null=True)
    shares = serializers.SerializerMethodField()
    overrides = serializers.SerializerMethodField()
    moves = serializers.SerializerMethodField()

    class Meta:
        model = ChangeSet
        fields = (
            *("id", "parent", "version", "status", "reason", "author", "created_at"),
            *("effective_at", "decided_by", "decided_at", "shares", "overrides", "moves"),
        )

    @extend_schema_field(MoveOut(many=True))
    def get_moves(self, change_set: ChangeSet) -> list[Any]:
        moves = self.context.get("moves") or _moves([change_set])
        seen = {row.budget_id for row in self._rows(change_set)}
        whole = self.context["held"].sees(change_set.parent.path)
        told = [move for move in moves[change_set.pk] if whole or move.budget_id in seen]
        return list(MoveOut(told, many=True).data)

    def get_parent(self, change_set: ChangeSet) -> str:
        path: str = change_set.parent.path
        return path if self.context["held"].knows(path) else ELSEWHERE

    def get_shares(self, change_set: ChangeSet) -> dict[str, int]:
        rows = self._rows(change_set)
        return {self._key(change_set, r.budget): r.thousandths for r in rows if r.pool is None}

    def _rows(self, change_set: ChangeSet) -> list[Share]:
        held, rows = self.context["held"], list(change_set.shares.all())
        if held.sees(change_set.parent.path):
            return rows
        return [row for row in rows if held.sees(row.budget.path)]

    def get_overrides(self, change_set: ChangeSet) -> dict[str, dict[str, int]]:
        found: dict[str, dict[str, int]] = {}
        for row in self._rows(change_set):
            if row.pool is not None:
                pools = found.setdefault(self._key(change_set, row.budget), {})
                pools[row.pool.slug] = row.thousandths
        return found

    def _key(self, change_set: ChangeSet, child: Budget) -> str:
        """The child's slug; the path of one that has moved elsewhere since, for who may know it.

        Others are told what it was called then: later names are none of theirs.
        """
        if child.parent_id == change_set.parent_id:
            return child.slug
        if self.context["held"].knows(child.path):
            return str(child.path)
        return out_of_sight(self._names.at(child, change_set.effective_at).slug)

    @cached_property
    def _names(self) -> Names:
        return Names.load()


class ChangeSetIn(Strict):
    """New shares of all active children of one budget."""

    shares = serializers.DictField(child=Integer(max_value=WHOLE))
    overrides = serializers.DictField(
        child=serializers.DictField(child=Integer(max_value=WHOLE)), default=dict
    )
    reason = Text(max_length=2000)
    base_version = Integer()
    effective_at = Instant(required=False, help_text="Now, if left out")


class ChangeSets(ListAPIView[ChangeSet]):
    """The changes of one budget's children's shares, the newest first; and new proposals.

    First of all stand the proposals that a child moves elsewhere, which divide another parent.
    """

    serializer_class = ChangeSetOut
    filter_backends = ()

    def get_serializer(self, *given: Any, **more: Any) -> Any:
        """Read what all sets of a page move at once."""
        if given:
            more["context"] = {"moves": _moves(given[0]), "held": standing(self.request.user)}
        return ChangeSetOut(*given, **more)

    def get_queryset(self) -> Any:
        if getattr(self, "swagger_fake_view", False):
            return ChangeSet.objects.none()
        budget = get_budget_or_404(self.request.user, self.kwargs["path"])
        here = Q(parent=budget)
        away = Q(pk__in=services.leaving([budget.pk]).values("change_set"))
        own = Case(When(here, then=1), default=0)
        return _change_sets().filter(here | away).order_by(own, "-version", "-pk")

    @extend_schema(request=ChangeSetIn, responses={201: ChangeSetOut})
    def post(self, request: Request, path: str) -> Response:
        """Propose a whole new vector; one who may approves it."""
        parent = get_budget_or_404(request.user, path)
        require(request, Action.PROPOSE_SHARES, parent)
        asked = ChangeSetIn(data=request.data)
        asked.is_valid(raise_exception=True)
        given, at = asked.validated_data, clock.now()
        children = services.children_by_slug(parent, [*given["shares"], *given["overrides"]])
        pools = {pool.slug: pool for pool in Pool.objects.all()}
        with answered():
            change_set = steering.change_shares(
                parent=parent,
                shares={children[slug]: share for slug, share in given["shares"].items()},
                overrides=overrides_of(given["overrides"], children, pools),
                reason=given["reason"],
                author=person(request),
                base_version=given["base_version"],
                effective_at=given.get("effective_at"),
                approve_at_once=False,
                now=at,
            )
        return Response(_out(request, change_set.pk), status=201)


class _Decision(GenericAPIView[ChangeSet]):
    """A change set of a parent whose shares the person may edit, or of a child that leaves it."""

    serializer_class = ChangeSetOut

    def found(self, request: Request, pk: int) -> tuple[ChangeSet, list[Budget]]:
        """Return it, with those whose children's shares it changes."""
        change_set, held = _change_sets().filter(pk=pk).first(), standing(request.user)
        parents = services.parents_of(change_set) if change_set is not None else []
        if change_set is None or not any(held.sees(one.path) for one in parents):
            raise Http404(_("There is no such change set, or none that you may see."))
        if not may_decline(held, parents):
            require(request, Action.EDIT_SHARES, next(p for p in parents if held.sees(p.path)))
        return change_set, parents


class ApproveChangeSet(_Decision):
    """Put a proposal in force, with the grants it moves."""

    @extend_schema(request=None, responses=ChangeSetOut)
    def post(self, request: Request, pk: int) -> Response:
        change_set, parents = self.found(request, pk)
        by = person(request)
        if not may_approve(standing(by), parents):
            raise PermissionDenied(NOT_ALL_YOURS)
        with answered():
            steering.approve(change_set=change_set, by=by, now=clock.now(), parents=parents)
        return Response(_out(request, pk))


class DeclineChangeSet(_Decision):
    """Turn a proposal down."""

    @extend_schema(request=None, responses=ChangeSetOut)
    def post(self, request: Request, pk: int) -> Response:
        change_set, _ = self.found(request, pk)
        services.decline(change_set=change_set, by=person(request), now=clock.now())
        return Response(_out(request, pk))


def _out(request: Request, pk: int) -> Any:
    change_set, held = _change_sets().get(pk=pk), standing(request.user)
    return ChangeSetOut(change_set, context={"moves": _moves([change_set]), "held": held}).data


def _moves(sets: Sequence[ChangeSet]) -> dict[int, tuple[changes.Move, ...]]:
    return {one.change_set.pk: one.moves for one in changes.of_sets(sets)}


def _change_sets() -> Any:
    related = ChangeSet.objects.select_related("parent", "author", "decided_by")
    return related.prefetch_related("shares__budget", "shares__pool")


def overrides_of(
    given: dict[str, dict[str, int]], children: dict[str, Budget], pools: dict[str, Pool]
) -> dict[tuple[Budget, Pool], int]:
    found = {}
    for slug, by_pool in given.items():
        for pool, share in by_pool.items():
            if pool not in pools:
                known = ", ".join(pools) or _("none yet")
                raise ValidationError(
                    {
                        "overrides": [
                            _(
                                "There is no pool %(pool)s: choose from %(known)s.",
                                pool=repr(pool),
                                known=known,
                            )
                        ]
                    }
                )
            found[children[slug], pools[pool]] = share
    return found
