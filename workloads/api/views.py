"""Jobs: submit, list, show, cancel."""

from collections.abc import Iterable
from typing import Any, cast

from django.contrib.auth.models import User
from django.db.models import QuerySet
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework.exceptions import PermissionDenied, ValidationError
from rest_framework.generics import ListAPIView
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from allocator import admission, sessions, urgency
from allocator.pages import session as session_pages
from allocator.pages.names import Names
from budgets.access import Action, Person, standing, visible, visible_q
from budgets.models import Budget
from clusters.saying import say as _
from config import clock
from config.fields import Text
from config.problems import Conflict
from workloads.api import rows
from workloads.api.inputs import ExtensionIn, JobIn, JobQuery, UrgencyIn, spec_from
from workloads.api.outputs import JobDetailOut, JobOut
from workloads.models import Job


class Jobs(ListAPIView[Job]):
    """The jobs one may see, the newest first; and new ones."""

    serializer_class = JobOut
    filter_backends = ()

    def get_queryset(self) -> QuerySet[Job]:
        if getattr(self, "swagger_fake_view", False):
            return Job.objects.none()
        query = self.request.query_params
        states = {"state": query.getlist("state")} if "state" in query else {}
        asked = JobQuery(data=query.dict() | states)
        asked.is_valid(raise_exception=True)
        given = asked.validated_data
        jobs = rows.for_list(Job.objects.filter(visible_q(self.request.user, "budget__")))
        if "budget" in given:
            jobs = rows.in_subtree(jobs, given["budget"])
        if given.get("state"):
            jobs = jobs.filter(state__in=given["state"])
        return jobs.filter(submitted_by=_person(self.request)) if given["mine"] else jobs

    def get_serializer_context(self) -> dict[str, Any]:
        given = dict(super().get_serializer_context())
        described = getattr(self, "swagger_fake_view", False)
        return given if described else given | _context(self.request)

    @extend_schema(parameters=[JobQuery])
    def get(self, request: Request, *args: Any, **kwargs: Any) -> Response:
        return super().get(request, *args, **kwargs)

    @extend_schema(
        request=JobIn,
        responses={200: JobDetailOut, 201: JobDetailOut},
        parameters=[OpenApiParameter("Idempotency-Key", str, OpenApiParameter.HEADER)],
    )
    def post(self, request: Request) -> Response:
        """Submit a job: 201, or 200 with the job that the same key submitted before."""
        asked = JobIn(data=request.data)
        asked.is_valid(raise_exception=True)
        given = dict(asked.validated_data)
        user, budget = _person(request), budget_to_submit_to(request, given.pop("budget"))
        spec = spec_from(given | _key(request, given))
        check_dependencies(user, spec.dependencies)
        known = rows.by_key(user, spec.idempotency_key)
        try:
            job = admission.submit(budget=budget, user=user, spec=spec, now=clock.now())
        except admission.AdmissionError as error:
            raise ValidationError(
                {name: [text] for name, text in error.problems.items()}
            ) from error
        except admission.KeyReused as error:
            raise Conflict(str(error), job=error.job.pk) from error
        return _detail(request, job.pk, status=201 if known is None else 200)


class JobDetail(APIView):
    """One job with its runs, what they held, its charges, why it waits, and its story."""

    @extend_schema(responses=JobDetailOut)
    def get(self, request: Request, pk: int) -> Response:
        return _detail(request, _job(request, pk).pk)


class CancelJob(APIView):
    """Cancel a job: at once while it waits, at the next cycle while it runs."""

    @extend_schema(request=None, responses=JobDetailOut)
    def post(self, request: Request, pk: int) -> Response:
        job = _job(request, pk)
        user = _person(request)
        if not admission.may_cancel(standing(user), user, job):
            raise PermissionDenied(
                _("You may cancel your own jobs; ask the budget's manager for others'.")
            )
        admission.cancel(job=job, by=user, now=clock.now())
        return _detail(request, pk)


class ExtendJob(APIView):
    """Extend a session at once; else 409 with the reason, and until when it may be."""

    @extend_schema(
        request=ExtensionIn,
        responses=JobDetailOut,
        parameters=[OpenApiParameter("Idempotency-Key", str, OpenApiParameter.HEADER)],
    )
    def post(self, request: Request, pk: int) -> Response:
        job, user, now = _job(request, pk), _person(request), clock.now()
        held = standing(user)
        if not sessions.may_extend(held, user, job):
            raise PermissionDenied(
                _("You may extend your own sessions; ask the budget's manager for others'.")
            )
        asked = ExtensionIn(data=request.data)
        asked.is_valid(raise_exception=True)
        given = asked.validated_data
        key = (given | _key(request, given)).get("idempotency_key")
        try:
            answer = sessions.extend(job=job, by=user, more_s=given["more_s"], now=now, key=key)
        except sessions.ExtensionKeyReused as error:
            raise Conflict(str(error), job=error.job_id) from error
        if not answer.is_granted:
            raise Conflict(**session_pages.refused(answer, held, now=now))
        return _detail(request, pk)


class ChangeUrgency(APIView):
    """Sort a job otherwise among those of its budget, and replan; else 409 with the reason."""

    @extend_schema(request=UrgencyIn, responses=JobDetailOut)
    def post(self, request: Request, pk: int) -> Response:
        job, user = _job(request, pk), _person(request)
        if not urgency.may_change(standing(user), user, job):
            raise PermissionDenied(
                _(
                    "You may change the urgency of your own jobs; ask the budget's manager for "
                    "others'."
                )
            )
        asked = UrgencyIn(data=request.data)
        asked.is_valid(raise_exception=True)
        try:
            urgency.change(
                job=job, urgency=asked.validated_data["urgency"], by=user, now=clock.now()
            )
        except urgency.UrgencyRefused as error:
            raise Conflict(str(error), rule=error.rule) from error
        return _detail(request, pk)


def _person(request: Request) -> User:
    return cast(User, request.user)  # every view here wants someone signed in


def _job(request: Request, pk: int) -> Job:
    return rows.visible_job(request.user, pk)


def _detail(request: Request, pk: int, status: int = 200) -> Response:
    job = rows.for_detail(Job.objects.all()).get(pk=pk)
    return Response(JobDetailOut(job, context=_context(request)).data, status=status)


def _context(request: Request) -> dict[str, Any]:
    """What outputs need: the reader, names as they may know them, and the instant."""
    return {"user": request.user, "names": Names.load(request.user), "now": clock.now()}


def budget_to_submit_to(request: Request, path: str) -> Budget:
    budget = visible(request.user).filter(path=path).first()
    if budget is None:
        raise ValidationError({"budget": [_("There is no such budget, or none that you may see.")]})
    if not standing(request.user).can(Action.SUBMIT, path):
        raise PermissionDenied(
            _("You may see %(path)s, but not submit to it: ask its manager.", path=path)
        )
    return budget


def _key(request: Request, given: dict[str, Any]) -> dict[str, str]:
    """The idempotency key of the header, where there is one."""
    header = request.headers.get("Idempotency-Key")
    if header is None:
        return {}
    if given.get("idempotency_key") not in (None, header):
        raise ValidationError(
            {
                "idempotency_key": [
                    _("It differs from the header Idempotency-Key: send one of them.")
                ]
            }
        )
    return {"idempotency_key": Text().run_validation(header)}


def check_dependencies(user: Person, asked: Iterable[int]) -> None:
    """A job that one may not see is no job to depend on, nor is its number confirmed."""
    seen = Job.objects.filter(visible_q(user, "budget__"), pk__in=list(asked))
    missing = set(asked) - set(seen.values_list("pk", flat=True))
    if missing:
        raise ValidationError(
            {
                "dependencies": [
                    _(
                        "There is no job %(missing)s, or none that you may see.",
                        missing=min(missing),
                    )
                ]
            }
        )
