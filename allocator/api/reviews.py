"""Reviews: packs as JSON and as files, holding one, and comments. Pages show the same."""

from datetime import date
from typing import Any, cast

from django.contrib.auth.models import User
from django.http import HttpResponse
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import extend_schema, extend_schema_field
from rest_framework import serializers
from rest_framework.exceptions import NotFound, PermissionDenied, ValidationError
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from allocator.models import ReviewComment, ReviewRecord
from allocator.pages import review_files
from allocator.pages import reviews as pages
from allocator.reviews import building, commenting, keeping
from allocator.reviews.deciding import name_of
from allocator.reviews.differing import differences
from allocator.reviews.freezing import frozen
from budgets.access import Action, can
from budgets.models import Budget
from budgets.refusals import Refused
from clusters.saying import say as _
from config import clock
from config.fields import Instant, Integer, Strict, Text
from config.problems import Conflict
from ledger.instants import LedgerError


class ReviewOut(serializers.Serializer[Any]):
    """A budget's review of a period; `version` 0: it was not held."""

    period = serializers.IntegerField()
    period_name = serializers.CharField()
    path = serializers.CharField()
    granted_mgpus = serializers.IntegerField()
    settled_mgpus = serializers.IntegerField()
    version = serializers.IntegerField()
    held_on = serializers.DateField(allow_null=True)
    comments = serializers.IntegerField()


class ReviewQuery(Strict):
    """Which version: a number, or `live`; the newest that was kept, if left out."""

    version = Text(required=False)


class ReviewRecordOut(serializers.ModelSerializer[ReviewRecord]):
    """What was kept when a review was held; `differences` are those to the version before."""

    kept_by = serializers.CharField(source="kept_by.username")
    kept_at = Instant()

    class Meta:
        model = ReviewRecord
        fields = (
            *("version", "held_on", "decision", "reason", "kept_by", "kept_at", "checksum"),
            "differences",
        )


class ReviewCommentOut(serializers.ModelSerializer[ReviewComment]):
    """A comment; of one that was withdrawn the text is empty."""

    author = serializers.CharField(source="author.username")
    created_at = Instant()
    edited_at = Instant(allow_null=True)
    withdrawn_at = Instant(allow_null=True)
    text = serializers.SerializerMethodField()

    class Meta:
        model = ReviewComment
        fields = ("id", "author", "text", "created_at", "edited_at", "withdrawn_at")

    @extend_schema_field(OpenApiTypes.STR)
    def get_text(self, row: ReviewComment) -> str:
        return "" if row.withdrawn_at else row.text


class ReviewPackOut(serializers.Serializer[Any]):
    """A pack, the record it is from (null: it is live), and what has changed since that."""

    record = ReviewRecordOut(allow_null=True)
    pack = serializers.JSONField()
    changed = serializers.JSONField()
    comments = ReviewCommentOut(many=True)


class HoldReviewIn(Strict):
    """That a review was held; `base_version` is the one that was seen, 0 for none."""

    held_on = serializers.DateField()
    decision = Text(max_length=keeping.TEXT_MAX)
    reason = Text(max_length=keeping.TEXT_MAX, required=False, allow_blank=True, default="")
    base_version = Integer(max_value=30_000)


class ReviewCommentIn(Strict):
    """What to say."""

    text = Text(max_length=commenting.TEXT_MAX)


class Reviews(APIView):
    """The reviews that you may see: of each period that has started, the newest first."""

    @extend_schema(responses=ReviewOut(many=True))
    def get(self, request: Request) -> Response:
        rows = [
            {
                "period": one.period.pk,
                "period_name": one.period.name,
                "path": entry.budget.path,
                "granted_mgpus": entry.granted_mgpus,
                "settled_mgpus": entry.settled_mgpus,
                "version": entry.version,
                "held_on": entry.held_on,
                "comments": entry.comments,
            }
            for one in pages.listing(request.user, now=clock.now())
            for entry in one.entries
        ]
        return Response(ReviewOut(rows, many=True).data)


class ReviewDetail(APIView):
    """A budget's pack of a period, and its comments."""

    @extend_schema(parameters=[ReviewQuery], responses=ReviewPackOut)
    def get(self, request: Request, pk: int, path: str) -> Response:
        now, asked = clock.now(), _asked(request, pk, path)
        pack, kept = _pack(asked)
        data = frozen(pack)
        seen = pages.options_seen(request.user, pack)
        data["options"] = [one for one in data["options"] if one["pk"] in seen]
        changed: tuple[Any, ...] = ()
        if kept is not None:
            live = building.build(budget=asked.budget, period=asked.period, now=now)
            changed = differences(pack, live)
        said = ReviewComment.objects.filter(budget=asked.budget, period=asked.period)
        answer = {
            "record": ReviewRecordOut(kept.row).data if kept else None,
            "pack": data,
            "changed": frozen(changed),
            "comments": ReviewCommentOut(said.select_related("author"), many=True).data,
        }
        return Response(answer)


class ReviewFile(APIView):
    """The same pack as a file: pdf, xlsx or csv."""

    @extend_schema(
        parameters=[ReviewQuery],
        responses={(200, "application/octet-stream"): OpenApiTypes.BINARY},
    )
    def get(self, request: Request, kind: str, pk: int, path: str) -> HttpResponse:
        asked = _asked(request, pk, path)
        if kind not in review_files.KINDS:
            raise NotFound(
                _(
                    "There is no %(kind)s: ask for %(kinds)s.",
                    kind=kind,
                    kinds=", ".join(review_files.KINDS),
                )
            )
        try:
            user = cast(User, request.user)
            file = review_files.file_of(user, asked=asked, kind=kind, now=clock.now())
        except LedgerError as error:
            raise ValidationError({"period": [str(error)]}) from error
        return HttpResponse(
            file.chunks,
            content_type=file.content_type,
            headers={"Content-Disposition": f'attachment; filename="{file.name}"'},
        )


class HoldReview(APIView):
    """Keep a pack as it is now, with what was decided."""

    @extend_schema(request=HoldReviewIn, responses={201: ReviewRecordOut})
    def post(self, request: Request, pk: int, path: str) -> Response:
        """Hold the review; from version 1 on it is a correction and wants a reason."""
        asked = pages.ask(request.user, pk=pk, path=path, version=pages.LIVE)
        _require(request, Action.HOLD_REVIEWS, asked.budget)
        given = HoldReviewIn(data=request.data)
        given.is_valid(raise_exception=True)
        fields: dict[str, Any] = given.validated_data
        held_on: date = fields.pop("held_on")
        try:
            made = keeping.hold(
                budget=asked.budget,
                period=asked.period,
                held_on=held_on,
                by=cast(User, request.user),
                now=clock.now(),
                **fields,
            )
        except Refused as refused:
            if refused.field == "base_version":
                raise Conflict(refused.sentence) from refused
            raise
        return Response(ReviewRecordOut(made).data, status=201)


class CommentReview(APIView):
    """Say something about a pack."""

    @extend_schema(request=ReviewCommentIn, responses={201: ReviewCommentOut})
    def post(self, request: Request, pk: int, path: str) -> Response:
        asked = pages.ask(request.user, pk=pk, path=path)
        _require(request, Action.COMMENT, asked.budget)
        made = commenting.add(
            budget=asked.budget,
            period=asked.period,
            author=cast(User, request.user),
            text=_text(request),
            now=clock.now(),
        )
        return Response(ReviewCommentOut(made).data, status=201)


class EditReviewComment(APIView):
    """Write your own comment anew, within 15 minutes."""

    @extend_schema(request=ReviewCommentIn, responses=ReviewCommentOut)
    def post(self, request: Request, pk: int) -> Response:
        found = _own(request, pk)
        made = commenting.edit(comment=found, by=request.user, text=_text(request), now=clock.now())
        return Response(ReviewCommentOut(made).data)


class WithdrawReviewComment(APIView):
    """Take your own comment back."""

    @extend_schema(request=None, responses=ReviewCommentOut)
    def post(self, request: Request, pk: int) -> Response:
        made = commenting.withdraw(comment=_own(request, pk), by=request.user, now=clock.now())
        return Response(ReviewCommentOut(made).data)


def _asked(request: Request, pk: int, path: str) -> pages.Asked:
    given = ReviewQuery(data=request.query_params)
    given.is_valid(raise_exception=True)
    version = given.validated_data.get("version", "")
    return pages.ask(request.user, pk=pk, path=path, version=version)


def _pack(asked: pages.Asked) -> tuple[Any, Any]:
    try:
        return pages.pack_of(asked, now=clock.now())
    except LedgerError as error:
        raise ValidationError({"period": [str(error)]}) from error


def _text(request: Request) -> str:
    given = ReviewCommentIn(data=request.data)
    given.is_valid(raise_exception=True)
    return str(given.validated_data["text"])


def _own(request: Request, pk: int) -> ReviewComment:
    found = commenting.find(request.user, pk)
    if found.author_id != request.user.pk:
        raise PermissionDenied(
            _("It is %(author)s's comment: only they change it.", author=name_of(found.author))
        )
    return found


def _require(request: Request, action: Action, budget: Budget) -> None:
    if not can(request.user, action, budget):
        what = str(action).replace("_", " ")
        raise PermissionDenied(
            _(
                "You may see %(budget)s, but not %(what)s: ask its manager.",
                budget=budget.path,
                what=what,
            )
        )
