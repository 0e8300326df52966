"""The audit log: everything that somebody decided, the newest first."""

from typing import Any

from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from allocator.audit import listing
from allocator.audit.listing import KINDS
from allocator.audit.rows import Filters, Row
from config.fields import Instant, Strict, Text


class AuditQuery(Strict):
    """What to list, and where to go on. The interval is [from, to)."""

    kind = serializers.ChoiceField(choices=KINDS, required=False)
    who = Text(required=False, help_text="Part of a username or name")
    budget = Text(required=False, help_text="Path: of it and of all below it")
    to = Instant(required=False)
    before = Text(required=False, help_text="The `next` of the part before")
    page_size = serializers.IntegerField(required=False, min_value=1, max_value=1000, default=100)

    def get_fields(self) -> dict[str, Any]:
        return {"from": Instant(required=False), **super().get_fields()}


class AuditMoveOut(serializers.Serializer[Any]):
    what = serializers.CharField()
    before = serializers.CharField()
    after = serializers.CharField()


class AuditRowOut(serializers.Serializer[Any]):
    """One decision."""

    at = serializers.DateTimeField()
    who = serializers.CharField(source="by.username", default=None, allow_null=True)
    kind = serializers.CharField()
    what = serializers.CharField(source="text")
    moves = serializers.SerializerMethodField()
    reason = serializers.CharField()
    budget = serializers.CharField(help_text="Path; empty: of none")
    link = serializers.CharField(source="url", help_text="Page that shows it")

    @extend_schema(responses=AuditMoveOut(many=True))
    def get_moves(self, row: Row) -> list[dict[str, str]]:
        names = ("what", "before", "after")
        return [dict(zip(names, move, strict=True)) for move in row.moves]


class AuditOut(serializers.Serializer[Any]):
    """A part of the log; `next` is the `before` of the part after it."""

    next = serializers.CharField(allow_null=True)
    results = AuditRowOut(many=True)


class Audit(APIView):
    """Everything that somebody decided, of what you may see, the newest first."""

    @extend_schema(parameters=[AuditQuery], responses=AuditOut)
    def get(self, request: Request) -> Response:
        asked = AuditQuery(data=request.query_params.dict())
        asked.is_valid(raise_exception=True)
        given = asked.validated_data
        filters = Filters(
            who=given.get("who", ""),
            kind=given.get("kind", ""),
            budget=given.get("budget", ""),
            start=given.get("from"),
            end=given.get("to"),
        )
        key, size = given.get("before", ""), given["page_size"]
        found = listing.part(request.user, filters=filters, key=key, size=size)
        return Response(AuditOut({"next": found.older or None, "results": found.rows}).data)
