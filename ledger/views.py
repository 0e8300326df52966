"""What a budget burned, as a chart's data and as a file."""

from django.contrib.auth.decorators import login_required
from django.http import (
    Http404,
    HttpRequest,
    HttpResponse,
    HttpResponseBadRequest,
    JsonResponse,
    StreamingHttpResponse,
)
from django.http.response import HttpResponseBase
from django.shortcuts import render
from django.utils.translation import gettext as _
from django.views.decorators.http import conditional_page, require_safe

from allocator.pages import budget_chart, report
from budgets.access import get_budget_or_404
from config.clock import now
from ledger import asking
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
        asked = asking.asked(budget, request.GET.dict(), now())
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
