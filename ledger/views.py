"""What a budget burned, as a chart's data and as a file; plans and checkpoints."""

from datetime import datetime
from typing import cast

from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.contrib.auth.models import User
from django.core.exceptions import PermissionDenied
from django.http import (
    Http404,
    HttpRequest,
    HttpResponse,
    HttpResponseBadRequest,
    JsonResponse,
    StreamingHttpResponse,
)
from django.http.response import HttpResponseBase
from django.shortcuts import redirect, render
from django.utils.translation import gettext as _
from django.views.decorators.http import (
    conditional_page,
    require_http_methods,
    require_POST,
    require_safe,
)

from allocator import steering
from allocator.pages import budget_chart, report
from allocator.pages import planning as planning_page
from allocator.pages.planning import PlanPage
from budgets import checkpoints, plans
from budgets.access import get_budget_or_404, standing
from budgets.refusals import Refused
from clusters.words import worded
from config.clock import now
from ledger import asking
from ledger.forms import CheckpointForm, PlanForm, ReasonForm
from ledger.instants import LedgerError

# Endings of burn reports as files: what they are, and in which version.
FILES = {
    "csv": ("csv", ""),
    "xlsx": ("xlsx", ""),
    "report.json": ("json", ""),
    "focus-1.2.csv": ("focus", "1.2"),
    "focus-1.4.csv": ("focus", "1.4"),
}


@require_safe
@conditional_page
@login_required
def burndown(request: HttpRequest, path: str) -> JsonResponse:
    """What is left of a budget's grant, for static/charts.js."""
    data = budget_chart.burndown(request.user, path=path, now=now())
    if data is None:
        raise Http404(_("No period is running."))
    return JsonResponse(data)


@require_safe
@login_required
def burn_report(request: HttpRequest, path: str, kind: str) -> HttpResponseBase:
    """A burn report as a file: of the running period up to now, or as asked for."""
    budget = get_budget_or_404(request.user, path)
    kind, version = FILES[kind]
    try:
        asked = asking.asked(budget, request.GET.dict(), now(), held=standing(request.user))
        if asked is None:
            raise Http404(_("No period is running."))
        file = report.file_of(asked, kind=kind, focus_version=version)
    except LedgerError as error:
        return HttpResponseBadRequest(str(error), content_type="text/plain; charset=utf-8")
    response = StreamingHttpResponse if file.is_long else HttpResponse
    return response(
        file.chunks,
        content_type=file.content_type,
        headers={"Content-Disposition": f'attachment; filename="{file.name}"'},
    )


@require_safe
@login_required
def report_page(request: HttpRequest, path: str) -> HttpResponse:
    """A burn report to read and to print; what is asked for wrongly is said above the default."""
    budget, given, wrong = get_budget_or_404(request.user, path), request.GET.dict(), ""
    at = now()
    try:
        page = report.page(request.user, budget=budget, given=given, now=at)
    except LedgerError as error:
        wrong, page = str(error), report.page(request.user, budget=budget, given={}, now=at)
    if page is None:
        raise Http404(_("No period is running."))
    context = {"page": page, "given": given, "wrong": wrong, "nav_current": "budgets"}
    return render(request, "ledger/report.html", context, status=400 if wrong else 200)


# --- Plans and checkpoints ------------------------------------------------------------------------


@require_http_methods(["GET", "HEAD", "POST"])
@login_required
def plan(request: HttpRequest, path: str) -> HttpResponse:
    """How much of its grant a budget means to use when, and what it would lose."""
    at, asked = now(), request.GET
    page = planning_page.plan_page(
        request.user,
        path=path,
        period_id=asked.get("period", ""),
        by=request.POST.get("by") or asked.get("by", ""),
        now=at,
    )
    posted = request.POST if request.method == "POST" else None
    form = PlanForm(page.planned, posted) if page.planned else None
    if posted is not None and form is not None and page.planned is not None:
        if not page.can_plan:
            raise PermissionDenied(_("You may see this budget, but not plan for it."))
        if form.is_valid() and _planned(request, page, form, at):
            return redirect(f"{request.path}?period={page.planned.period.pk}")
    return _plan(request, page, form=form, reason=ReasonForm())


def _planned(request: HttpRequest, page: PlanPage, form: PlanForm, at: datetime) -> bool:
    """Write a plan; what is refused stands in the form."""
    assert page.planned is not None, "there is a period"
    try:
        made = plans.write_plan(
            budget=page.budget,
            period=page.planned.period,
            author=cast(User, request.user),
            now=at,
            **form.plan,
        )
    except Refused as refused:
        form.add_error(None, refused.sentence)
        return False
    words = {"version": made.version, "period": made.period.name}
    messages.success(request, _("Version %(version)s is the plan of %(period)s now.") % words)
    return True


@require_POST
@login_required
def ask_exemption(request: HttpRequest, path: str) -> HttpResponse:
    """Ask that the next checkpoint spare a budget."""
    page = planning_page.plan_page(request.user, path=path, now=now())
    if not page.can_ask:
        raise PermissionDenied(_("You may see this budget, but not ask for it."))
    form = ReasonForm(request.POST)
    if page.ahead is not None and form.is_valid():
        try:
            checkpoints.ask_exemption(
                checkpoint=page.ahead.checkpoint,
                budget=page.budget,
                reason=form.cleaned_data["reason"],
                by=cast(User, request.user),
                now=now(),
            )
        except Refused as refused:
            form.add_error(None, refused.sentence)
        else:
            messages.success(request, _("It is asked; who decides is told."))
            return redirect("budget-plan", path=path)
    plan_form = PlanForm(page.planned) if page.planned else None
    return _plan(request, page, form=plan_form, reason=form)


def _plan(
    request: HttpRequest, page: PlanPage, *, form: PlanForm | None, reason: ReasonForm
) -> HttpResponse:
    context = {"page": page, "form": form, "reason": reason, "nav_current": "budgets"}
    wrong = bool(reason.errors or (form is not None and form.errors))
    return render(request, "budgets/plan.html", context, status=422 if wrong else 200)


@require_http_methods(["GET", "HEAD", "POST"])
@login_required
def period_checkpoints(request: HttpRequest, pk: int) -> HttpResponse:
    """A period's checkpoints, what the next would take, and a form for another."""
    page = planning_page.checkpoints_page(request.user, pk=pk, now=now())
    form = CheckpointForm(request.POST or None)
    if request.method == "POST":
        if not page.can_add:
            raise PermissionDenied(_("Checkpoints are set by the organisation's administrators."))
        if form.is_valid():
            by = cast(User, request.user)
            try:
                checkpoints.add_checkpoint(
                    period=page.period, author=by, now=now(), **form.cleaned_data
                )
            except Refused as refused:
                form.refuse(next(iter(refused.message_dict)), refused.sentence)
            else:
                messages.success(request, _("The checkpoint is set."))
                return redirect("checkpoints", pk=pk)
    context = {"page": page, "form": form, "nav_current": "periods"}
    status = 422 if form.is_bound else 200
    return render(request, "budgets/checkpoints.html", context, status=status)


@require_POST
@login_required
def remove_checkpoint(request: HttpRequest, pk: int) -> HttpResponse:
    """Take a checkpoint out of its period."""
    found = planning_page.checkpoint_to_remove(request.user, pk=pk)
    try:
        steering.remove_checkpoint(checkpoint=found, by=cast(User, request.user), now=now())
    except Refused as refused:
        messages.error(request, refused.sentence)
    else:
        messages.success(request, _("The checkpoint is gone; nothing will be taken at it."))
    return redirect("checkpoints", pk=found.period_id)


@require_POST
@login_required
def decide_exemption(request: HttpRequest, pk: int, decision: str) -> HttpResponse:
    """Approve or decline that a checkpoint spare a budget."""
    found = planning_page.exemption_to_decide(request.user, pk=pk)
    try:
        made = checkpoints.decide_exemption(
            exemption=found,
            approve=decision == "approve",
            reason=request.POST.get("reason", ""),
            by=cast(User, request.user),
            now=now(),
        )
    except Refused as refused:
        messages.error(request, refused.sentence)
    else:
        words = {"budget": made.budget.name, "status": worded(made.get_status_display()).lower()}
        messages.success(request, _("The exemption of %(budget)s is %(status)s.") % words)
    return redirect("checkpoints", pk=found.checkpoint.period_id)
