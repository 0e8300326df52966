"""Pages of jobs: the list, the submit form with its quote, one job and its charges."""

import csv
from collections.abc import Callable
from datetime import timedelta
from typing import cast
from uuid import uuid4

from django import forms
from django.conf import settings
from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.contrib.auth.models import User
from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy
from django.views.decorators.http import conditional_page, require_POST, require_safe

from allocator import admission, sessions, urgency
from allocator.pages import job as pages
from allocator.pages import jobs as lists
from allocator.pages import service as service_pages
from allocator.pages import session as session_pages
from allocator.pages import submit as submitting
from allocator.pages import submit_words
from allocator.pages.names import Names
from budgets.access import Action, can, standing
from clusters.models import Pool
from clusters.refusals import Refused
from clusters.words import offered
from config.clock import now
from forecasting import calibrating, traffic
from workloads.api.traffic import csv_of
from workloads.forms import CalibrationForm, ExtendForm, JobForm, TrafficForm, first_error
from workloads.models import Job

SENT_BEFORE = gettext_lazy(
    "This form was sent before, as job %(number)s, and asked for something else then. Send it "
    "again to submit this as another job."
)


@require_safe
@login_required
@conditional_page
def jobs(request: HttpRequest) -> HttpResponse:
    """The list, or, asked by htmx, its live part."""
    page = lists.page(request.user, now=now(), query=request.GET)
    part = request.headers.get("HX-Request")
    context = {"page": page, "kinds": offered(Job.Kind.choices)()}
    return render(request, "workloads/_jobs.html" if part else "workloads/jobs.html", context)


@login_required
def new(request: HttpRequest) -> HttpResponse:
    """The form; sent, it submits. The same form sent twice submits once, by its key."""
    form = _form(request)
    if request.method == "POST" and form.is_valid():
        job = _submit(request, form)
        if job is not None:
            messages.success(request, _("Submitted. This page follows it to its end."))
            return redirect("job", pk=job.pk)
    return render(request, "workloads/new.html", _quoted(form))


@require_POST
@login_required
def quote(request: HttpRequest) -> HttpResponse:
    """What the job in the form would cost, asked while it is filled in."""
    return render(request, "workloads/_quote.html", _quoted(_form(request)))


@require_safe
@login_required
@conditional_page
def job(request: HttpRequest, pk: int) -> HttpResponse:
    """One job, or, asked by htmx, its live part."""
    page = pages.page(request.user, pk, now=now())
    part = request.headers.get("HX-Request")
    context = {
        "page": page,
        "extend_key": "" if part else uuid4().hex,
        "urgencies": offered(Job.Urgency.choices)(),
    }
    if page.job.is_realtime and not part:
        context["service"] = service_pages.page(request.user, page.job, now=now())
    return render(request, "workloads/_job.html" if part else "workloads/job.html", context)


@require_POST
@login_required
def cancel(request: HttpRequest, pk: int) -> HttpResponse:
    """Cancel a job: at once while it waits, by the next cycle while it runs."""
    user = cast(User, request.user)
    found = pages.find(user, pk)
    if not found.has_ended and found.cancel_requested_at is None:
        if not pages.may_cancel(Names.load(user), user, found):
            raise PermissionDenied
        ended = admission.cancel(job=found, by=user, now=now()).has_ended
        text = _("Cancelled.") if ended else _("Its run is stopped by the next cycle.")
        messages.success(request, text)
    return redirect("job", pk=pk)


@require_POST
@login_required
def extend(request: HttpRequest, pk: int) -> HttpResponse:
    """Extend a session at once, or say why not; asked by htmx, it answers the live part."""
    user = cast(User, request.user)
    found = pages.find(user, pk)
    names = Names.load(user)
    if not sessions.may_extend(names.held, user, found):
        raise PermissionDenied
    said = session_pages.asked(found, user, names.held, ExtendForm(request.POST), now=now())
    if not request.headers.get("HX-Request"):
        (messages.success if said.is_granted else messages.error)(request, said.sentence)
        return redirect("job", pk=pk)
    context = {"page": pages.page(user, pk, now=now()), "said": said, "extend_key": uuid4().hex}
    return render(request, "workloads/_job_extended.html", context)


@require_POST
@login_required
def change_urgency(request: HttpRequest, pk: int) -> HttpResponse:
    """Sort a job otherwise among those of its budget, or say why not."""
    user = cast(User, request.user)
    found = pages.find(user, pk)
    if not urgency.may_change(standing(user), user, found):
        raise PermissionDenied
    wanted = request.POST.get("urgency", "")
    if wanted not in Job.Urgency.values:
        messages.error(request, _("Choose low, normal or high."))
        return redirect("job", pk=pk)
    try:
        urgency.change(job=found, urgency=wanted, by=user, now=now())
    except urgency.UrgencyRefused as error:
        messages.error(request, str(error))
    else:
        messages.success(request, _("Changed. The next plan sorts it by that."))
    return redirect("job", pk=pk)


@require_safe
@login_required
def charges(request: HttpRequest, pk: int) -> HttpResponse:
    """All charges of a job as CSV, in integers: GPU-seconds and milli-GPU-seconds."""
    found = pages.find(request.user, pk)
    response = HttpResponse(content_type="text/csv; charset=utf-8")
    response["Content-Disposition"] = f'attachment; filename="job-{pk}-charges.csv"'
    writer = csv.writer(response)
    writer.writerow(pages.CHARGE_COLUMNS)
    writer.writerows(pages.charge_rows(found))
    return response


@require_safe
@login_required
def demand(request: HttpRequest, pk: int) -> JsonResponse:
    """A service's traffic and GPUs, for static/charts.js."""
    found = service_pages.of(pages.find(request.user, pk))
    return JsonResponse(service_pages.chart(found, now=now()))


@require_safe
@login_required
def traffic_file(request: HttpRequest, pk: int) -> HttpResponse:
    """All traffic that is kept of a service, as CSV."""
    found = service_pages.of(pages.find(request.user, pk))
    start = now() - timedelta(days=settings.TRAFFIC_KEPT_DAYS)
    return csv_of(found, traffic.between(found.service, start=start, end=now()))


@require_POST
@login_required
def send_traffic(request: HttpRequest, pk: int) -> HttpResponse:
    """Keep a file of past traffic, or say what is wrong with it."""
    found, form = _changeable(request, pk), TrafficForm(request.POST, request.FILES)

    def keep() -> str:
        given = form.cleaned_data
        content = given["file"].read(traffic.MOST_FILE_BYTES + 1)
        stored = traffic.store(
            job=found,
            rows=traffic.read_csv(content),
            step_minutes=given["step_minutes"],
            now=now(),
        )
        return _("%(new)s rates are new, %(changed)s changed.") % vars(stored)

    return _said(request, found, form, keep)


@require_POST
@login_required
def calibration(request: HttpRequest, pk: int) -> HttpResponse:
    """Change how a service follows its traffic."""
    found, form = _changeable(request, pk), CalibrationForm(request.POST)

    def change() -> str:
        by = cast(User, request.user)
        calibrating.change(service=found.service, by=by, now=now(), **form.cleaned_data)
        return _("Saved.")

    return _said(request, found, form, change)


@require_POST
@login_required
def recalibrate(request: HttpRequest, pk: int) -> HttpResponse:
    """Make the next version of a service's profile now."""
    found, form = _changeable(request, pk), forms.Form({})

    def make() -> str:
        by = cast(User, request.user)
        made = calibrating.recalibrate(service=found.service, now=now(), by=by)
        return made.reason or _("Version %(n)s is in force.") % {"n": made.version}

    return _said(request, found, form, make)


def _changeable(request: HttpRequest, pk: int) -> Job:
    """The service, if the reader may change it."""
    found = service_pages.of(pages.find(request.user, pk))
    if not can(request.user, Action.SUBMIT, found.budget):
        raise PermissionDenied
    return found


def _said(
    request: HttpRequest, job: Job, form: forms.Form, deed: Callable[[], str]
) -> HttpResponse:
    """Do it, and say on the job's page what came of it, or why it can't be."""
    try:
        if not form.is_valid():
            messages.error(request, first_error(form))
        else:
            messages.success(request, deed())
    except Refused as refused:
        messages.error(request, refused.sentence)
    return redirect(f"{reverse('job', args=[job.pk])}#service")


def _form(request: HttpRequest) -> JobForm:
    data = request.POST if request.method == "POST" else None
    leaves = submitting.leaves(request.user, now=now())
    if not leaves:
        raise PermissionDenied
    start = {"budget": request.GET.get("budget", leaves[0].path)}
    return JobForm(data, leaves=leaves, pools=Pool.objects.all(), initial=start)


def _submit(request: HttpRequest, form: JobForm) -> Job | None:
    """Submit what the form says; refused, it shows at the fields why, and nothing is lost."""
    user, spec, budget = cast(User, request.user), form.job_spec(), form.chosen
    if budget is None or not can(user, Action.SUBMIT, budget):
        raise PermissionDenied
    unseen = set(spec.dependencies) - submitting.visible_job_ids(user, spec.dependencies)
    if unseen:
        sentence = _("There is no job %(number)s, or none that you may see.")
        form.add_error("dependencies", sentence % {"number": min(unseen)})
        return None
    try:
        return admission.submit(budget=budget, user=user, spec=spec, now=now())
    except admission.AdmissionError as error:
        form.take(error.problems)
    except admission.KeyReused as error:
        form.renew_key()
        form.add_error(None, SENT_BEFORE % {"number": error.job.pk})
    return None


def _quoted(form: JobForm) -> dict[str, object]:
    """The form, its quote and when it would start, as templates want them."""
    quote = _quote(form)
    return {"form": form, "quote": quote, "start": quote and submit_words.start(quote)}


def _quote(form: JobForm) -> submitting.Quote | None:
    if not form.is_bound:
        return None
    form.is_valid()
    budget = form.chosen
    wrong = form.errors.keys() & {"gpus", "profile", "kind", "pools"}
    if budget is None or wrong or form.work_problem:
        return None
    return submitting.quote(budget=budget, spec=form.job_spec(), now=now())
