"""Checkpoints of periods: their tables, what the next would take, and whom they spare."""

from typing import Any

from django.http import Http404
from drf_spectacular.utils import extend_schema, extend_schema_field
from rest_framework import serializers
from rest_framework.exceptions import PermissionDenied
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from allocator import steering
from budgets import checkpoints
from budgets.access import (
    Action,
    get_budget_or_404,
    get_exemption_or_404,
    may_administer,
    may_decide,
    standing,
)
from budgets.api.common import person, require
from budgets.api.periods import found
from budgets.models import WHOLE, Checkpoint, CheckpointResult, Exemption
from clusters.saying import say as _
from config import clock
from config.fields import Boolean, Instant, Integer, Strict, Text
from ledger import takeback_rests
from ledger.losses import losses


class StepField(Strict):
    """Used less than `below` of what is measured: `remove`; thousandths of a percent."""

    below = Integer(min_value=1, max_value=WHOLE)
    remove = Integer(min_value=1, max_value=WHOLE)


class CheckpointIn(Strict):
    """`steps` from the lowest; `gives_back` what later use makes up for, where it is `cumulative`;
    `initial_only`: of a budget's first grant; `spared_days` since a budget's first grant.
    """

    at = Instant()
    measured = serializers.ChoiceField(Checkpoint.Measured.choices)
    removed_of = serializers.ChoiceField(Checkpoint.RemovedOf.choices)
    cumulative = Boolean()
    gives_back = Boolean(default=False)
    initial_only = Boolean(default=False)
    own_plans = Boolean(default=True)
    spared_days = Integer(max_value=checkpoints.MOST_SPARED_DAYS, default=0)
    steps = StepField(many=True)


class ResultOut(serializers.Serializer[Any]):
    """What a checkpoint found of a budget and took of it.

    `taken_mgpus` at once; `taken_since_mgpus` later, as what jobs had set aside came free.
    """

    budget = serializers.CharField(source="budget.path")
    granted_mgpus = serializers.IntegerField()
    used_mgpus = serializers.IntegerField()
    planned_mgpus = serializers.IntegerField()
    due_mgpus = serializers.IntegerField()
    taken_mgpus = serializers.IntegerField()
    taken_since_mgpus = serializers.SerializerMethodField()
    returned_mgpus = serializers.IntegerField()
    spared = serializers.CharField()

    def get_taken_since_mgpus(self, row: CheckpointResult) -> int:
        return int(self.context["since"].get(row.budget_id, 0))


class CheckpointOut(serializers.ModelSerializer[Checkpoint]):
    """`done_at`: when it was carried out; `results` are of budgets that you may see."""

    at = Instant()
    author = serializers.CharField(source="author.username")
    created_at = Instant()
    done_at = Instant(allow_null=True)
    steps = serializers.SerializerMethodField()
    results = serializers.SerializerMethodField()

    class Meta:
        model = Checkpoint
        fields = (
            *("id", "at", "measured", "removed_of", "cumulative", "gives_back", "initial_only"),
            *("own_plans", "spared_days", "steps", "author", "created_at", "done_at", "results"),
        )

    @extend_schema_field(StepField(many=True))
    def get_steps(self, checkpoint: Checkpoint) -> list[dict[str, int]]:
        return [{"below": below, "remove": remove} for below, remove in checkpoint.steps]

    @extend_schema_field(ResultOut(many=True))
    def get_results(self, checkpoint: Checkpoint) -> list[Any]:
        held = self.context["held"]
        seen = [row for row in checkpoint.results.all() if held.sees(row.budget.path)]
        since = takeback_rests.taken_since(checkpoint) if seen else {}
        return list(ResultOut(seen, many=True, context={"since": since}).data)


class LossOut(serializers.Serializer[Any]):
    """What a checkpoint takes of one budget as things stand, and what use by then avoids it.

    `due_mgpus` by the rule, `amount_mgpus` of it neither spent nor set aside; `missing_mgpus` more
    must be used by then for it to take nothing, `missing_a_day_mgpus` a day (null within the last
    day); `due_at_rate_mgpus` is due at the present burn rate. `back_mgpus`: what it gets of what
    earlier ones took. `granted_mgpus` is all that it has; what it was given after leads were told
    of the checkpoint isn't in the other figures.
    """

    budget = serializers.CharField(source="budget.path")
    granted_mgpus = serializers.IntegerField()
    used_mgpus = serializers.IntegerField()
    planned_mgpus = serializers.IntegerField()
    measured_mgpus = serializers.IntegerField()
    below = serializers.IntegerField(source="step.below", default=None, allow_null=True)
    remove = serializers.IntegerField(source="step.remove", default=None, allow_null=True)
    due_mgpus = serializers.IntegerField()
    amount_mgpus = serializers.IntegerField()
    back_mgpus = serializers.IntegerField()
    missing_mgpus = serializers.IntegerField()
    missing_a_day_mgpus = serializers.IntegerField(allow_null=True)
    rate_mgpus = serializers.IntegerField()
    due_at_rate_mgpus = serializers.IntegerField()
    spared = serializers.CharField(help_text="Why it loses nothing, whatever the rule says")


class DryRunOut(serializers.Serializer[Any]):
    """`checkpoint` is null where none is ahead."""

    checkpoint = CheckpointOut(allow_null=True)
    budgets = LossOut(many=True)


class ExemptionOut(serializers.ModelSerializer[Exemption]):
    budget = serializers.CharField(source="budget.path")
    asked_by = serializers.CharField(source="asked_by.username")
    asked_at = Instant()
    decided_by = serializers.CharField(source="decided_by.username", default=None, allow_null=True)
    decided_at = Instant(allow_null=True)

    class Meta:
        model = Exemption
        fields = (
            *("id", "checkpoint", "budget", "status", "reason", "asked_by", "asked_at"),
            *("answer", "decided_by", "decided_at"),
        )


class ExemptionIn(Strict):
    checkpoint = Integer()
    reason = Text(max_length=checkpoints.REASON_MAX)


class AnswerIn(Strict):
    reason = Text(max_length=checkpoints.REASON_MAX)


class Checkpoints(APIView):
    """The checkpoints of a period, in order; a new one."""

    @extend_schema(responses=CheckpointOut(many=True))
    def get(self, request: Request, pk: int) -> Response:
        rows = found(pk).checkpoints.select_related("author").prefetch_related("results__budget")
        held = {"held": standing(request.user)}
        return Response(CheckpointOut(rows, many=True, context=held).data)

    @extend_schema(request=CheckpointIn, responses={201: CheckpointOut})
    def post(self, request: Request, pk: int) -> Response:
        """Add one; at least seven days ahead, so that whoever would lose is warned."""
        period = found(pk)
        _require_administrator(request)
        asked = CheckpointIn(data=request.data)
        asked.is_valid(raise_exception=True)
        given = dict(asked.validated_data)
        given["steps"] = [(step["below"], step["remove"]) for step in given["steps"]]
        made = checkpoints.add_checkpoint(
            period=period, author=person(request), now=clock.now(), **given
        )
        held = {"held": standing(request.user)}
        return Response(CheckpointOut(made, context=held).data, status=201)


class RemoveCheckpoint(APIView):
    """Take a checkpoint out of its period, before its instant."""

    @extend_schema(request=None, responses={204: None})
    def delete(self, request: Request, pk: int) -> Response:
        checkpoint = Checkpoint.objects.filter(pk=pk).first()
        if checkpoint is None:
            raise Http404(_("There is no such checkpoint."))
        _require_administrator(request)
        steering.remove_checkpoint(checkpoint=checkpoint, by=person(request), now=clock.now())
        return Response(status=204)


class DryRun(APIView):
    """What the next checkpoint of a period would take of each budget, as things stand."""

    @extend_schema(responses=DryRunOut)
    def get(self, request: Request, pk: int) -> Response:
        at, held = clock.now(), standing(request.user)
        ahead = checkpoints.upcoming(found(pk), now=at)
        rows = losses(checkpoint=ahead, now=at) if ahead else []
        seen = [row for row in rows if held.sees(row.budget.path)]
        answer = {"checkpoint": ahead, "budgets": seen}
        return Response(DryRunOut(answer, context={"held": held}).data)


class Exemptions(APIView):
    """What was asked about checkpoints for one budget, the newest first; and a new question."""

    @extend_schema(responses=ExemptionOut(many=True))
    def get(self, request: Request, path: str) -> Response:
        budget = get_budget_or_404(request.user, path)
        rows = Exemption.objects.filter(budget=budget).order_by("-pk")
        related = rows.select_related("budget", "asked_by", "decided_by")
        return Response(ExemptionOut(related, many=True).data)

    @extend_schema(request=ExemptionIn, responses={201: ExemptionOut})
    def post(self, request: Request, path: str) -> Response:
        """Ask that a checkpoint spare the budget."""
        budget = get_budget_or_404(request.user, path)
        require(request, Action.ASK, budget)
        asked = ExemptionIn(data=request.data)
        asked.is_valid(raise_exception=True)
        made = checkpoints.ask_exemption(
            checkpoint=checkpoints.by_id(asked.validated_data["checkpoint"]),
            budget=budget,
            reason=asked.validated_data["reason"],
            by=person(request),
            now=clock.now(),
        )
        return Response(ExemptionOut(made).data, status=201)


class _Decision(APIView):
    approve: bool

    @extend_schema(request=AnswerIn, responses=ExemptionOut)
    def post(self, request: Request, pk: int) -> Response:
        exemption = get_exemption_or_404(request.user, pk)
        if not may_decide(standing(request.user), exemption):
            raise PermissionDenied(_("Who may decide requests for it decides on this: ask them."))
        asked = AnswerIn(data=request.data)
        asked.is_valid(raise_exception=True)
        made = checkpoints.decide_exemption(
            exemption=exemption,
            approve=self.approve,
            reason=asked.validated_data["reason"],
            by=person(request),
            now=clock.now(),
        )
        return Response(ExemptionOut(made).data)


class ApproveExemption(_Decision):
    """Have a checkpoint spare a budget."""

    approve = True


class DeclineExemption(_Decision):
    """Leave a budget to a checkpoint."""

    approve = False


def _require_administrator(request: Request) -> None:
    if not may_administer(request.user):
        raise PermissionDenied(_("Checkpoints are set by the organisation's administrators."))
