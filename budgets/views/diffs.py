"""The page that compares the tree at two instants."""

from functools import partial
from zoneinfo import ZoneInfo

from django.contrib.auth.decorators import login_required
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.utils import timezone
from django.views.decorators.http import require_safe

from allocator.pages import differences as differences_page
from budgets.services import Refused
from config.clock import now
from ledger.asking import zone_named
from ledger.services import LedgerError


@require_safe
@login_required
def differences(request: HttpRequest, path: str) -> HttpResponse:
    """What is different between two instants; what is asked wrongly is said above the default."""
    budget = differences_page.subject(request.user, path=path)
    given, wrong, zone = request.GET.dict(), "", ZoneInfo(timezone.get_current_timezone_name())
    at_both = partial(differences_page.page, request.user, budget=budget, now=now())
    try:
        zone = zone_named(given["zone"]) if given.get("zone") else zone
        page = at_both(given=given, zone=zone)
    except (LedgerError, Refused) as error:
        wrong = getattr(error, "sentence", str(error))
        page = at_both(given={}, zone=zone)
    context = {"page": page, "given": given, "wrong": wrong, "zone": zone, "nav_current": "budgets"}
    with timezone.override(zone):
        return render(request, "budgets/diff.html", context, status=400 if wrong else 200)
