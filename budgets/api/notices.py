"""What one was told."""

from typing import Any

from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.generics import ListAPIView
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from budgets import notices
from budgets.access import get_notice_or_404, own_notices
from budgets.api.common import person
from budgets.models import Notice
from config import clock
from config.fields import Instant


class NoticeOut(serializers.ModelSerializer[Notice]):
    """`link` is the path of a page; `emailed_at` null: no e-mail has left."""

    budget = serializers.CharField(source="budget.path")
    created_at = Instant()
    read_at = Instant(allow_null=True)
    emailed_at = Instant(allow_null=True)

    class Meta:
        model = Notice
        fields = ("id", "kind", "budget", "text", "link", "created_at", "read_at", "emailed_at")


class NoticesQuery(serializers.Serializer[Any]):
    unread = serializers.BooleanField(default=False)


class ReadOut(serializers.Serializer[Any]):
    read = serializers.IntegerField(help_text="How many were unread")


class Notices(ListAPIView[Notice]):
    """What one was told oneself, the newest first."""

    serializer_class = NoticeOut
    filter_backends = ()

    @extend_schema(parameters=[NoticesQuery])
    def get(self, request: Request, *args: Any, **kwargs: Any) -> Response:
        return super().get(request, *args, **kwargs)

    def get_queryset(self) -> Any:
        asked = NoticesQuery(data=self.request.query_params)
        asked.is_valid(raise_exception=True)
        own = own_notices(self.request.user)
        return own.filter(read_at=None) if asked.validated_data["unread"] else own


class ReadNotice(APIView):
    """Note that one of one's notices was read."""

    @extend_schema(request=None, responses=NoticeOut)
    def post(self, request: Request, pk: int) -> Response:
        get_notice_or_404(request.user, pk)
        notices.mark_read(user=person(request), pk=pk, now=clock.now())
        return Response(NoticeOut(get_notice_or_404(request.user, pk)).data)


class ReadAllNotices(APIView):
    """Note that all of one's notices were read."""

    @extend_schema(operation_id="notices_read_all", request=None, responses=ReadOut)
    def post(self, request: Request) -> Response:
        return Response({"read": notices.mark_read(user=person(request), now=clock.now())})
