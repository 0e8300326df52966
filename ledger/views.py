"""What a budget burned, as a chart's data and as a file."""

from django.contrib.auth.decorators import login_required
from django.http import Http404, HttpRequest, HttpResponse, JsonResponse
from django.utils.translation import gettext as _
from django.views.decorators.http import conditional_page, require_safe

from allocator.pages import budget_chart, report
from budgets import periods
from budgets.access import get_budget_or_404
from config.clock import now
from ledger.full_report import Asked


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
def burn_report(request: HttpRequest, path: str) -> HttpResponse:
    """The burn report of the running period up to now, as CSV."""
    budget, at = get_budget_or_404(request.user, path), now()
    period = periods.active(at)
    if period is None:
        raise Http404(_("No period is running."))
    file = report.file_of(Asked(budget, period.starts_at, at, at), kind="csv")
    return HttpResponse(
        file.read(),
        content_type=file.content_type,
        headers={"Content-Disposition": f'attachment; filename="{file.name}"'},
    )
