"""The tree of budgets, changes of shares, and who is asking."""

from typing import Any, cast

from django.contrib.auth.models import User
from django.http import Http404
from drf_spectacular.utils import extend_schema, extend_schema_field
from rest_framework import serializers
from rest_framework.authtoken.models import Token
from rest_framework.authtoken.views import ObtainAuthToken
from rest_framework.exceptions import PermissionDenied, ValidationError
from rest_framework.generics import GenericAPIView, ListAPIView
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.throttling import AnonRateThrottle
from rest_framework.views import APIView

from allocator import steering
from budgets import periods, presenting, services, shares
from budgets.access import Action, get_budget_or_404, standing, visible_q
from budgets.models import WHOLE, Budget, ChangeSet
from budgets.presenting import BudgetRow
from clusters.models import Pool
from config.clock import now
from config.fields import Instant, Integer, Strict, Text
from config.parsers import BoundedJSONParser
from config.problems import Conflict
from ledger import reports
from ledger.reports import Figures
from ledger.services import LedgerError


class FiguresOut(serializers.Serializer[Any]):
    """Money in milli-GPU-seconds, time in GPU-seconds, the subtree's included."""

    granted_mgpus = serializers.IntegerField()
    settled_mgpus = serializers.IntegerField()
    in_flight_mgpus = serializers.IntegerField()
    held_mgpus = serializers.IntegerField()
    spendable_mgpus = serializers.IntegerField()
    reserve_mgpus = serializers.IntegerField()
    charged_gpu_seconds = serializers.IntegerField()
    parked_gpu_seconds = serializers.IntegerField()
    parked_mgpus = serializers.IntegerField()
    unfunded_gpu_seconds = serializers.IntegerField()


class BudgetOut(serializers.Serializer[Any]):
    """A budget in the tree; shares are null where it is not active."""

    path = serializers.CharField(source="budget.path")
    name = serializers.CharField(source="budget.name")
    # A declared field's name, which hides no attribute: the framework takes it off the class.
    parent = serializers.CharField(source="parent_path", allow_null=True)  # type: ignore[assignment]
    depth = serializers.IntegerField()
    is_leaf = serializers.BooleanField()
    archived_at = Instant(source="budget.archived_at", allow_null=True)
    share_thousandths = serializers.IntegerField(allow_null=True)
    share_overrides = serializers.DictField(child=serializers.IntegerField())
    effective_share = serializers.CharField(
        allow_null=True, help_text="Exact, as a fraction of the root: 3/10"
    )
    effective_thousandths = serializers.IntegerField(allow_null=True)
    figures = serializers.SerializerMethodField()

    @extend_schema_field(FiguresOut(allow_null=True))
    def get_figures(self, row: BudgetRow) -> dict[str, int] | None:
        found = self.context["figures"].get(row.budget.pk)
        return FiguresOut(found).data if found else None


class BudgetDetailOut(BudgetOut):
    """One budget, with what the one who asks may do in it."""

    description = serializers.CharField(source="budget.description")
    shares_version = serializers.SerializerMethodField(
        help_text="Version of its children's shares: the base_version of the next change set"
    )
    actions = serializers.SerializerMethodField()

    def get_shares_version(self, row: BudgetRow) -> int:
        return shares.version(row.budget)

    @extend_schema_field(serializers.ListField(child=serializers.ChoiceField(list(Action))))
    def get_actions(self, row: BudgetRow) -> list[str]:
        held = self.context["held"]
        return [str(action) for action in Action if held.can(action, row.budget.path)]


class PeriodOut(serializers.Serializer[Any]):
    name = serializers.CharField()
    starts_at = Instant()
    ends_at = Instant()
    time_zone = serializers.CharField()
    status = serializers.CharField()


class TreeOut(serializers.Serializer[Any]):
    at = Instant()
    period = PeriodOut(allow_null=True)
    budgets = BudgetOut(many=True)


class TreeQuery(serializers.Serializer[Any]):
    archived = serializers.BooleanField(default=False)


class Tree(APIView):
    """The budgets one may see, depth first, with shares and the figures of the open period."""

    @extend_schema(operation_id="budgets_tree", parameters=[TreeQuery], responses=TreeOut)
    def get(self, request: Request) -> Response:
        asked = TreeQuery(data=request.query_params)
        asked.is_valid(raise_exception=True)
        at, held = now(), standing(request.user)
        period = periods.active(at)
        rows = presenting.rows(held, at=at, archived=asked.validated_data["archived"])
        context = {"figures": reports.figures(period=period, now=at) if period else {}}
        found = {"at": at, "period": period, "budgets": rows}
        return Response(TreeOut(found, context=context).data)


class BudgetDetail(APIView):
    """One budget by its path."""

    @extend_schema(responses=BudgetDetailOut)
    def get(self, request: Request, path: str) -> Response:
        budget = get_budget_or_404(request.user, path)
        at = now()
        context = {"figures": _figures(), "held": standing(request.user)}
        return Response(BudgetDetailOut(presenting.row(budget, at=at), context=context).data)


class ChangeSetOut(serializers.ModelSerializer[ChangeSet]):
    """Shares by the child's slug, in thousandths of a percent."""

    parent = serializers.CharField(source="parent.path")  # type: ignore[assignment]  # as above
    author = serializers.CharField(source="author.username")
    decided_by = serializers.CharField(source="decided_by.username", default=None, allow_null=True)
    created_at = Instant()
    effective_at = Instant()
    decided_at = Instant(allow_null=True)
    shares = serializers.SerializerMethodField()
    overrides = serializers.SerializerMethodField()

    class Meta:
        model = ChangeSet
        fields = (
            *("id", "parent", "version", "status", "reason", "author", "created_at"),
            *("effective_at", "decided_by", "decided_at", "shares", "overrides"),
        )

    def get_shares(self, change_set: ChangeSet) -> dict[str, int]:
        rows = change_set.shares.all()
        return {_key(change_set, r.budget): r.thousandths for r in rows if r.pool is None}

    def get_overrides(self, change_set: ChangeSet) -> dict[str, dict[str, int]]:
        found: dict[str, dict[str, int]] = {}
        for row in change_set.shares.all():
            if row.pool is not None:
                pools = found.setdefault(_key(change_set, row.budget), {})
                pools[row.pool.slug] = row.thousandths
        return found


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
    """The changes of one budget's children's shares, the newest first; and new proposals."""

    serializer_class = ChangeSetOut
    filter_backends = ()

    def get_queryset(self) -> Any:
        if getattr(self, "swagger_fake_view", False):
            return ChangeSet.objects.none()
        budget = get_budget_or_404(self.request.user, self.kwargs["path"])
        return _change_sets().filter(parent=budget).order_by("-version", "-pk")

    @extend_schema(request=ChangeSetIn, responses={201: ChangeSetOut})
    def post(self, request: Request, path: str) -> Response:
        """Propose a whole new vector; one who may approves it."""
        parent = get_budget_or_404(request.user, path)
        _require(request, Action.PROPOSE_SHARES, parent)
        asked = ChangeSetIn(data=request.data)
        asked.is_valid(raise_exception=True)
        given, at = asked.validated_data, now()
        children = services.children_by_slug(parent, [*given["shares"], *given["overrides"]])
        pools = {pool.slug: pool for pool in Pool.objects.all()}
        try:
            change_set = steering.change_shares(
                parent=parent,
                shares={children[slug]: share for slug, share in given["shares"].items()},
                overrides=_overrides(given["overrides"], children, pools),
                reason=given["reason"],
                author=_person(request),
                base_version=given["base_version"],
                effective_at=given.get("effective_at"),
                approve_at_once=False,
                now=at,
            )
        except services.StaleBase as stale:
            raise _conflict(stale) from stale
        return Response(ChangeSetOut(change_set).data, status=201)


class _Decision(GenericAPIView[ChangeSet]):
    """A change set whose parent's shares the person may edit."""

    serializer_class = ChangeSetOut

    def found(self, request: Request, pk: int) -> ChangeSet:
        seen = _change_sets().filter(visible_q(request.user, "parent__"))
        change_set = seen.filter(pk=pk).first()
        if change_set is None:
            raise Http404("There is no such change set, or none that you may see.")
        _require(request, Action.EDIT_SHARES, change_set.parent)
        return change_set


class ApproveChangeSet(_Decision):
    """Put a proposal in force, with the grants it moves."""

    @extend_schema(request=None, responses=ChangeSetOut)
    def post(self, request: Request, pk: int) -> Response:
        change_set = self.found(request, pk)
        try:
            steering.approve(change_set=change_set, by=_person(request), now=now())
        except services.StaleBase as stale:
            raise _conflict(stale) from stale
        except LedgerError as error:
            raise ValidationError({"shares": [str(error)]}) from error
        return Response(ChangeSetOut(_change_sets().get(pk=pk)).data)


class DeclineChangeSet(_Decision):
    """Turn a proposal down."""

    @extend_schema(request=None, responses=ChangeSetOut)
    def post(self, request: Request, pk: int) -> Response:
        change_set = self.found(request, pk)
        services.decline(change_set=change_set, by=_person(request), now=now())
        return Response(ChangeSetOut(_change_sets().get(pk=pk)).data)


class MeOut(serializers.Serializer[Any]):
    username = serializers.CharField()
    name = serializers.CharField()
    is_superuser = serializers.BooleanField()
    roles = serializers.DictField(child=serializers.CharField(), help_text="Role by budget path")


class Me(APIView):
    """Who is asking, and in which budgets they have a role."""

    @extend_schema(responses=MeOut)
    def get(self, request: Request) -> Response:
        user = _person(request)
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


class SignInForToken(ObtainAuthToken):
    """A token for scripts: send it as `Authorization: Token …`. It is one's own until revoked."""

    throttle_classes = (AnonRateThrottle,)
    parser_classes = (BoundedJSONParser,)

    @extend_schema(request=TokenIn, responses=TokenOut, auth=[])
    def post(self, request: Request, *args: Any, **kwargs: Any) -> Response:
        TokenIn(data=request.data).is_valid(raise_exception=True)
        checked = self.get_serializer(data=request.data)
        checked.is_valid(raise_exception=True)
        token, _ = Token.objects.get_or_create(user=checked.validated_data["user"])
        return Response({"token": token.key})


def _person(request: Request) -> User:
    return cast(User, request.user)  # every view but the token's wants someone signed in


def _require(request: Request, action: Action, budget: Budget) -> None:
    if not standing(request.user).can(action, budget.path):
        what = str(action).replace("_", " ")
        raise PermissionDenied(f"You may see {budget.path}, but not {what} there: ask its manager.")


def _conflict(stale: services.StaleBase) -> Conflict:
    return Conflict(str(stale), theirs_version=stale.theirs, mine_version=stale.mine)


def _change_sets() -> Any:
    related = ChangeSet.objects.select_related("parent", "author", "decided_by")
    return related.prefetch_related("shares__budget", "shares__pool")


def _key(change_set: ChangeSet, child: Budget) -> str:
    """The child's slug; the whole path of one that has moved elsewhere since."""
    return child.slug if child.parent_id == change_set.parent_id else child.path


def _figures() -> dict[int, Figures]:
    at = now()
    period = periods.active(at)
    return reports.figures(period=period, now=at) if period else {}


def _overrides(
    given: dict[str, dict[str, int]], children: dict[str, Budget], pools: dict[str, Pool]
) -> dict[tuple[Budget, Pool], int]:
    found = {}
    for slug, by_pool in given.items():
        for pool, share in by_pool.items():
            if pool not in pools:
                known = ", ".join(pools) or "none yet"
                raise ValidationError(
                    {"overrides": [f"There is no pool {pool!r}: choose from {known}."]}
                )
            found[children[slug], pools[pool]] = share
    return found
