"""Windows of maintenance: set, looked at, changed, ended, called off. Pages show the same."""

from datetime import datetime
from typing import Any, cast

from django.contrib.auth.models import User
from django.db.models import QuerySet
from django.http import Http404
from drf_spectacular.utils import OpenApiParameter, extend_schema, extend_schema_field
from rest_framework import serializers
from rest_framework.exceptions import PermissionDenied, ValidationError
from rest_framework.generics import ListAPIView
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from allocator import emptying, maintenance, window_effects
from allocator.emptying import NodeOutlook, Stay, WindowOutlook
from budgets.access import Standing, may_administer, redacted, standing
from clusters import windows
from clusters.api.window_inputs import SeenIn, WindowChangeIn, WindowIn
from clusters.models import Node, Window, WindowEvent
from clusters.saying import say as _
from clusters.windows import Span
from config import clock
from config.fields import Instant, Strict
from workloads.models import Job


class WindowEventOut(serializers.ModelSerializer[WindowEvent]):
    """A line of a window's record: what it was from then on. `by` null: nobody knows."""

    at = Instant()
    by = serializers.CharField(source="by.username", default=None, allow_null=True)
    nodes = serializers.ListField(child=serializers.CharField())
    starts_at = Instant()
    ends_at = Instant(allow_null=True)

    class Meta:
        model = WindowEvent
        fields = ("version", "kind", "at", "by", "nodes", "starts_at", "ends_at", "reason")


class FreeOut(serializers.Serializer[Any]):
    """When nodes are free: surely, likely, and how long after the window's begin that is."""

    free_from = Instant()
    likely_free_from = Instant(source="likely")
    late_s = serializers.IntegerField()


class StayOut(serializers.Serializer[Any]):
    """A run on a node; null job, name and budget where you may not know them.

    `how`: `protected` (stays until its protection ends), `interruptible` (is stopped when the
    window begins), `service` (leaves within its swap cap), `starting`, `stopping`.
    """

    job = serializers.IntegerField(allow_null=True)
    name = serializers.CharField(allow_null=True)
    budget = serializers.CharField(allow_null=True)
    gpus = serializers.IntegerField()
    how = serializers.CharField()
    leaves_by = Instant()
    likely_leaves = Instant()
    likely_ends = Instant(allow_null=True)


class NodeFreeOut(FreeOut):
    """One node of a window. `answers` false: its cluster can't be asked to stop anything."""

    node = serializers.CharField(source="node.name")
    is_free = serializers.BooleanField()
    empty_since = Instant(allow_null=True)
    answers = serializers.BooleanField()
    runs = serializers.SerializerMethodField()

    @extend_schema_field(StayOut(many=True))
    def get_runs(self, one: NodeOutlook) -> Any:
        return StayOut([_stay(stay, self.context["held"]) for stay in one.stays], many=True).data


class WindowJobOut(serializers.Serializer[Any]):
    job = serializers.IntegerField(allow_null=True)
    name = serializers.CharField(allow_null=True)
    budget = serializers.CharField(allow_null=True)
    at = Instant(allow_null=True)


class WindowOutlookOut(FreeOut):
    """When all nodes of a window are free, and what it does to jobs.

    `because` is the run that stays longest past the window's begin; `interrupted` are runs that
    are stopped unless they end before, `at` when; `moves` planned starts on the nodes, which
    another plan places elsewhere.
    """

    free_nodes = serializers.IntegerField(source="free")
    never_free = serializers.BooleanField()
    because = serializers.SerializerMethodField()
    nodes = NodeFreeOut(many=True)
    interrupted = serializers.SerializerMethodField()
    moves = serializers.SerializerMethodField()

    @extend_schema_field(StayOut(allow_null=True))
    def get_because(self, outlook: WindowOutlook) -> Any:
        stay = outlook.because
        return None if stay is None else StayOut(_stay(stay, self.context["held"])).data

    @extend_schema_field(WindowJobOut(many=True))
    def get_interrupted(self, outlook: WindowOutlook) -> Any:
        stays = self.context["effect"].interrupted
        return self._jobs([(stay.job, stay.leaves_by) for stay in stays])

    @extend_schema_field(WindowJobOut(many=True))
    def get_moves(self, outlook: WindowOutlook) -> Any:
        return self._jobs([(one.job, one.at) for one in self.context["effect"].moves])

    def _jobs(self, jobs: list[tuple[Job, datetime]]) -> Any:
        rows = [_job(job, self.context["held"]) | {"at": at} for job, at in jobs]
        return WindowJobOut(rows, many=True).data


class WindowOut(serializers.ModelSerializer[Window]):
    """A window. `free_from` and what goes with it are null once it is over or called off."""

    state = serializers.SerializerMethodField()
    starts_at = Instant()
    ends_at = Instant(allow_null=True)
    nodes = serializers.SerializerMethodField()
    gpus = serializers.SerializerMethodField()
    set_by = serializers.SerializerMethodField()
    free = serializers.SerializerMethodField()

    class Meta:
        model = Window
        fields: tuple[str, ...] = (
            *("id", "state", "starts_at", "ends_at", "reason", "version"),
            *("nodes", "gpus", "set_by", "free"),
        )

    def get_state(self, row: Window) -> str:
        return row.state(self.context["now"])

    @extend_schema_field(serializers.ListField(child=serializers.CharField()))
    def get_nodes(self, row: Window) -> list[str]:
        return list(row.events.all()[0].nodes)

    def get_gpus(self, row: Window) -> int:
        gpus: dict[str, int] = self.context["gpus"]
        return sum(gpus.get(name, 0) for name in self.get_nodes(row))

    def get_set_by(self, row: Window) -> str | None:
        author = row.events.all()[0].by
        return author.username if author else None

    @extend_schema_field(FreeOut(allow_null=True))
    def get_free(self, row: Window) -> Any:
        outlook = self.context["outlooks"].get(row.pk)
        return None if outlook is None else FreeOut(outlook).data


class WholeWindowOut(WindowOut):
    """One window with its record, when each node is free, and who waits because of it."""

    outlook = serializers.SerializerMethodField()
    capacity_gpu_seconds = serializers.SerializerMethodField()
    waiting = serializers.SerializerMethodField()
    events = WindowEventOut(many=True)

    class Meta(WindowOut.Meta):
        fields = (*WindowOut.Meta.fields, "capacity_gpu_seconds", "outlook", "waiting", "events")

    @extend_schema_field(WindowOutlookOut(allow_null=True))
    def get_outlook(self, row: Window) -> Any:
        outlook = self.context["outlooks"].get(row.pk)
        return None if outlook is None else _outlook(outlook, self.context["held"])

    def get_capacity_gpu_seconds(self, row: Window) -> int | None:
        return windows.span_of(row).capacity_gpu_seconds

    @extend_schema_field(WindowJobOut(many=True))
    def get_waiting(self, row: Window) -> Any:
        names = self.get_nodes(row) if row.pk in self.context["outlooks"] else []
        rows = window_effects.waiting(names)
        held = self.context["held"]
        told = [_job(row.job, held) | {"at": row.start_likely} for row in rows]
        return WindowJobOut(told, many=True).data


class WindowPreviewOut(serializers.Serializer[Any]):
    """What a window would be and do; nothing is written."""

    nodes = serializers.SerializerMethodField()
    starts_at = Instant()
    ends_at = Instant(allow_null=True)
    gpus = serializers.IntegerField()
    capacity_gpu_seconds = serializers.IntegerField(allow_null=True)
    outlook = serializers.SerializerMethodField()

    @extend_schema_field(serializers.ListField(child=serializers.CharField()))
    def get_nodes(self, span: Span) -> list[str]:
        return [node.name for node in span.nodes]

    @extend_schema_field(WindowOutlookOut)
    def get_outlook(self, span: Span) -> Any:
        instead_of = self.context.get("instead_of")
        told = emptying.of_span(span, now=self.context["now"], instead_of=instead_of)
        return _outlook(told, self.context["held"])


STATE = OpenApiParameter("state", enum=Window.State.values, many=True, description="May repeat.")


class Windows(ListAPIView[Window]):
    """All windows, the one that begins last first; and new ones, set by administrators."""

    serializer_class = WindowOut
    filter_backends = ()

    def get_queryset(self) -> QuerySet[Window]:
        states = self.request.query_params.getlist("state")
        wrong = [state for state in states if state not in Window.State.values]
        if wrong:
            known = ", ".join(Window.State.values)
            raise ValidationError(
                {
                    "state": [
                        _(
                            "There is no state %(wrong)s; there are %(known)s.",
                            wrong=repr(wrong[0]),
                            known=known,
                        )
                    ]
                }
            )
        rows = windows.in_state(*states, at=clock.now()).order_by("-starts_at", "-pk")
        return windows.with_record(rows)

    def get_serializer_context(self) -> dict[str, Any]:
        given = dict(super().get_serializer_context())
        described = getattr(self, "swagger_fake_view", False)
        return given if described else given | _context(self.request, clock.now())

    @extend_schema(parameters=[STATE])
    def get(self, request: Request, *args: Any, **kwargs: Any) -> Response:
        return super().get(request, *args, **kwargs)

    @extend_schema(request=WindowIn, responses={201: WholeWindowOut})
    def post(self, request: Request) -> Response:
        """Set a window; the next cycle, within seconds, keeps to it."""
        by, now = _administrator(request), clock.now()
        asked = WindowIn(data=request.data)
        asked.is_valid(raise_exception=True)
        made = maintenance.set_window(**asked.arguments(now), by=by, now=now)
        return Response(_out(request, made.pk, now), status=201)


class PreviewWindow(APIView):
    """What a window would do."""

    @extend_schema(request=WindowIn, responses=WindowPreviewOut)
    def post(self, request: Request) -> Response:
        """Say when its nodes would be free and what it would interrupt; nothing is written."""
        _administrator(request)
        now = clock.now()
        asked = WindowIn(data=request.data)
        asked.is_valid(raise_exception=True)
        span = windows.proposed(**asked.arguments(now), now=now)
        return _previewed(request, span, now)


class WindowDetail(APIView):
    """One window: when each of its nodes is free, and why then."""

    @extend_schema(responses=WholeWindowOut)
    def get(self, request: Request, pk: int) -> Response:
        return Response(_out(request, pk, clock.now()))


class ChangeWindow(APIView):
    """Another begin, end or reason."""

    @extend_schema(request=WindowChangeIn, responses=WholeWindowOut)
    def post(self, request: Request, pk: int) -> Response:
        """Change a window; what is left out stays as it is."""
        return _changed(request, pk, maintenance.change, WindowChangeIn)


class PreviewWindowChange(APIView):
    """What a window would do if it were changed."""

    @extend_schema(request=WindowChangeIn, responses=WindowPreviewOut)
    def post(self, request: Request, pk: int) -> Response:
        """Say what a change of a window would do, as its page does; nothing is written."""
        now, window = clock.now(), _found(pk)
        _administrator(request)
        asked = WindowChangeIn(data=request.data)
        asked.is_valid(raise_exception=True)
        span = windows.changed(window=window, now=now, **asked.validated_data)
        return _previewed(request, span, now, instead_of=window)


class EndWindow(APIView):
    """The end of a window that has begun."""

    @extend_schema(request=SeenIn, responses=WholeWindowOut)
    def post(self, request: Request, pk: int) -> Response:
        """End it now: its nodes are in the plan again."""
        return _changed(request, pk, maintenance.end_now, SeenIn)


class CallOffWindow(APIView):
    """The end of a window that hasn't begun."""

    @extend_schema(request=SeenIn, responses=WholeWindowOut)
    def post(self, request: Request, pk: int) -> Response:
        """Call it off: it leaves its record and nothing else."""
        return _changed(request, pk, maintenance.call_off, SeenIn)


def _changed(request: Request, pk: int, deed: Any, form: type[Strict]) -> Response:
    now = clock.now()
    window = _found(pk)
    by = _administrator(request)
    asked = form(data=request.data)
    asked.is_valid(raise_exception=True)
    deed(window=window, by=by, now=now, **asked.validated_data)
    return Response(_out(request, pk, now))


def _previewed(
    request: Request, span: Span, now: datetime, instead_of: Window | None = None
) -> Response:
    context = {"now": now, "held": standing(request.user), "instead_of": instead_of}
    return Response(WindowPreviewOut(span, context=context).data)


def _administrator(request: Request) -> User:
    if not may_administer(request.user):
        raise PermissionDenied(
            _("Windows are set and changed by the organisation's administrators.")
        )
    return cast(User, request.user)


def _found(pk: int) -> Window:
    found = windows.with_record(Window.objects.filter(pk=pk)).first()
    if found is None:
        raise Http404(_("There is no such window."))
    return found


def _out(request: Request, pk: int, now: datetime) -> Any:
    return WholeWindowOut(_found(pk), context=_context(request, now)).data


def _context(request: Request, now: datetime) -> dict[str, Any]:
    return {
        "now": now,
        "held": standing(request.user),
        "outlooks": emptying.of_windows(now=now),
        "gpus": dict(Node.objects.order_by().values_list("name", "gpus")),
    }


def _outlook(outlook: WindowOutlook, held: Standing) -> Any:
    context = {"held": held, "effect": window_effects.effect(outlook)}
    return WindowOutlookOut(outlook, context=context).data


def _stay(stay: Stay, held: Standing) -> dict[str, Any]:
    return _job(stay.job, held) | {
        "gpus": stay.gpus,
        "how": str(stay.how),
        "leaves_by": stay.leaves_by,
        "likely_leaves": stay.likely,
        "likely_ends": stay.ends,
    }


def _job(job: Job, held: Standing) -> dict[str, Any]:
    told = {"job": job.pk, "name": job.name, "budget": job.budget.path}
    hidden: dict[str, Any] = redacted(held, told)
    return hidden
