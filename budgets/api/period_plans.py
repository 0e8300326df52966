"""A period's plan of shares and its closing statement: each person sees the rows they may see."""

from typing import Any

from django.http import Http404, HttpResponse
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.exceptions import ValidationError
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from budgets import period_plans, services
from budgets.access import Action, standing, visible
from budgets.api.change_sets import ChangeSetOut, overrides_of
from budgets.api.common import answered, person, require
from budgets.api.periods import found
from budgets.models import WHOLE, Period
from budgets.period_plans import NewShares
from clusters.models import Pool
from clusters.saying import say as _
from clusters.saying import state
from config import clock
from config.fields import Instant, Integer, Strict, Text
from ledger import closing_statements
from ledger import period_plans as comparison
from ledger.closing_statements import Correction
from ledger.exports.statement import COLUMNS, statement_csv
from ledger.models import ClosingStatement


class PlannedBudgetOut(serializers.Serializer[Any]):
    """A budget now and at the period's start. Shares in thousandths of a percent, null: not active.

    `granted_mgpus` is all it was granted in the running period (null: none runs), `planned_mgpus`
    what starting this one would grant. `shares_version` is that of its children's shares.
    """

    path = serializers.CharField(source="budget.path")
    name = serializers.CharField(source="budget.name")
    depth = serializers.IntegerField()
    share_now = serializers.IntegerField(allow_null=True)
    share_planned = serializers.IntegerField(allow_null=True)
    granted_mgpus = serializers.IntegerField(allow_null=True)
    planned_mgpus = serializers.IntegerField()
    shares_version = serializers.IntegerField()


class PeriodPlanOut(serializers.Serializer[Any]):
    period = serializers.CharField()
    rows = PlannedBudgetOut(many=True)
    change_sets = ChangeSetOut(many=True)


class NewSharesIn(Strict):
    """New shares of all active children of one budget."""

    parent = Text(help_text="Path")  # type: ignore[assignment]  # hides no attribute
    shares = serializers.DictField(child=Integer(max_value=WHOLE))
    overrides = serializers.DictField(
        child=serializers.DictField(child=Integer(max_value=WHOLE)), default=dict
    )
    base_version = Integer()


class PeriodPlanIn(Strict):
    """Shares that hold from the period's start, of as many budgets as are given; all or none."""

    change_sets = NewSharesIn(many=True)
    reason = Text(max_length=2000)


class PeriodPlan(APIView):
    """The shares at a period's start beside those of now; what is proposed counts."""

    @extend_schema(responses=PeriodPlanOut)
    def get(self, request: Request, pk: int) -> Response:
        period, held = found(pk), standing(request.user)
        rows = comparison.compare(period=period, now=clock.now())
        sets = period_plans.sets_of(period).prefetch_related("shares__budget", "shares__pool")
        plan = {
            "period": period.name,
            "rows": [row for row in rows if held.sees(row.budget.path)],
            "change_sets": [one for one in sets if held.sees(one.parent.path)],
        }
        return Response(PeriodPlanOut(plan, context={"held": held}).data)

    @extend_schema(request=PeriodPlanIn, responses={201: ChangeSetOut(many=True)})
    def post(self, request: Request, pk: int) -> Response:
        """Propose shares for its start; each parent's manager approves them."""
        period = found(pk)
        asked = PeriodPlanIn(data=request.data)
        asked.is_valid(raise_exception=True)
        given = asked.validated_data
        changes = [_new_shares(request, one) for one in given["change_sets"]]
        with answered():
            made = period_plans.plan_shares(
                period=period,
                changes=changes,
                reason=given["reason"],
                author=person(request),
                now=clock.now(),
            )
        shown = ChangeSetOut(made, many=True, context={"held": standing(request.user)})
        return Response(shown.data, status=201)


def _new_shares(request: Request, given: dict[str, Any]) -> NewShares:
    parent = visible(request.user).filter(path=given["parent"]).first()
    if parent is None:
        raise ValidationError(
            {
                "change_sets": [
                    _(
                        "There is no budget %(given)s, or none you may see.",
                        given=repr(given["parent"]),
                    )
                ]
            }
        )
    require(request, Action.PROPOSE_SHARES, parent)
    children = services.children_by_slug(parent, [*given["shares"], *given["overrides"]])
    pools = {pool.slug: pool for pool in Pool.objects.all()}
    shares = {children[slug]: share for slug, share in given["shares"].items()}
    overrides = overrides_of(given["overrides"], children, pools)
    return NewShares(parent, shares, given["base_version"], overrides)


class StatementRowOut(serializers.ModelSerializer[ClosingStatement]):
    """A budget as it was when the period closed, all below it included; granted to transferred
    are its own. null: nobody measured what it was owed. What was corrected later is no part of it.
    """

    unspent_mgpus = serializers.IntegerField()
    corrected_later_mgpus = serializers.SerializerMethodField()

    class Meta:
        model = ClosingStatement
        fields = (*COLUMNS, "corrected_later_mgpus")

    def get_corrected_later_mgpus(self, row: ClosingStatement) -> int:
        later: dict[int, int] = self.context["corrected"]
        return later.get(row.budget_id, 0)


class CorrectionOut(serializers.Serializer[Any]):
    """An entry of a later period about this one; above 0: more was settled."""

    path = serializers.CharField(source="entry.budget.path")
    kind = serializers.CharField(source="entry.kind")
    settled_mgpus = serializers.IntegerField()
    period = serializers.CharField(source="entry.period.name")
    written_at = Instant(source="entry.created_at")
    author = serializers.CharField(source="entry.author.username", default=None, allow_null=True)
    note = serializers.CharField(source="entry.note")


class StatementOut(serializers.Serializer[Any]):
    period = serializers.CharField()
    closed_at = Instant()
    rows = StatementRowOut(many=True)
    corrections = CorrectionOut(many=True)


class PeriodStatement(APIView):
    """What a closed period came to, as it was then, and what was corrected afterwards."""

    @extend_schema(responses=StatementOut)
    def get(self, request: Request, pk: int) -> Response:
        period, rows, later = _statement(request, pk)
        statement = {
            "period": period.name,
            "closed_at": rows[0].closed_at if rows else period.ends_at,
            "rows": rows,
            "corrections": later,
        }
        context = {"corrected": closing_statements.corrected(later)}
        return Response(StatementOut(statement, context=context).data)


class PeriodStatementFile(APIView):
    """The same as CSV, a line per budget."""

    @extend_schema(responses={(200, "text/csv"): OpenApiTypes.STR})
    def get(self, request: Request, pk: int) -> HttpResponse:
        period, rows, later = _statement(request, pk)
        return HttpResponse(
            statement_csv(rows, closing_statements.corrected(later)),
            content_type="text/csv; charset=utf-8",
            headers={"Content-Disposition": f'attachment; filename="statement-{period.pk}.csv"'},
        )


def _statement(
    request: Request, pk: int
) -> tuple[Period, list[ClosingStatement], list[Correction]]:
    """Return a closed period with the rows and corrections of budgets that the person may see."""
    period, held = found(pk), standing(request.user)
    if period.status != Period.Status.CLOSED:
        raise Http404(
            _(
                "%(period)s is %(status)s: its statement is written when it closes.",
                period=period.name,
                status=state(period.get_status_display()),
            )
        )
    rows = closing_statements.statement(period).select_related("budget")
    later = closing_statements.corrections(period)
    return (
        period,
        [row for row in rows if held.sees(row.budget.path)],
        [one for one in later if held.sees(one.entry.budget.path)],
    )
