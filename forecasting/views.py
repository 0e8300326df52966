"""The page of the forecasts' track record."""

from django.contrib.auth.decorators import login_required
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.views.decorators.http import conditional_page, require_safe

from allocator.pages import forecasts as pages
from config.clock import now


@require_safe
@login_required
@conditional_page
def forecasts(request: HttpRequest) -> HttpResponse:
    """How forecasts came true over the last days, of what the reader may see.

    ``?whole=1`` lists all of many projects.
    """
    days, whole = pages.days_of(request.GET.get("days", "")), bool(request.GET.get("whole"))
    page = pages.page(request.user, now=now(), days=days, whole=whole)
    return render(request, "forecasting/forecasts.html", {"page": page})
