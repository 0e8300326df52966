"""What a budget burned, as a chart's data and as a file."""

from django.contrib.auth.decorators import login_required
from django.http import Http404, HttpRequest, HttpResponse, JsonResponse
from django.utils.translation import gettext as _
from django.views.decorators.http import conditional_page, require_safe

from allocator.pages import budget_chart
from budgets import periods
from budgets.access import get_budget_or_404
from config.clock import now
from ledger import reports, sheets


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
    report = reports.burn_report(budget=budget, start=period.starts_at, end=at, now=at)
    name = f"burn-{path.replace('/', '-')}-{at:%Y-%m-%d}.csv"
    return HttpResponse(
        sheets.burn_csv(report),
        content_type="text/csv; charset=utf-8",
        headers={"Content-Disposition": f'attachment; filename="{name}"'},
    )
