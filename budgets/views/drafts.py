"""A draft of shares that is being typed, played on the cluster's own history."""

from typing import cast

from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.contrib.auth.models import User
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.http import require_POST

from allocator.models import Simulation
from allocator.pages import editor as editor_page
from allocator.pages import simulator as simulator_page
from allocator.simulating import asking
from allocator.simulating.asking import Draft
from budgets import services
from budgets.forms import SharesForm
from budgets.services import Refused
from config.clock import now

DAYS = ("7", "14", "28")
PART = "allocator/_draft_preview.html"


@require_POST
@login_required
def simulate(request: HttpRequest, path: str) -> HttpResponse:
    """Have the last days played under the shares of today and those that are typed."""
    found, at = editor_page.subject(request.user, path=path), now()
    form = SharesForm(found, request.POST, now=at)
    part = bool(request.headers.get("HX-Request"))
    try:
        made = _asked(cast(User, request.user), form, request.POST.get("days", ""))
    except Refused as refused:
        if part:
            return render(request, PART, {"refused": refused.sentence})
        messages.error(request, refused.sentence)
        return redirect("shares", path=path)
    if not part:
        return redirect("simulation", pk=made.pk)
    return render(request, PART, {"page": simulator_page.one(request.user, pk=made.pk)})


def _asked(by: User, form: SharesForm, days: str) -> Simulation:
    form.is_valid()
    vector = services.checked_vector(
        parent=form.found.parent, shares=form.shares, overrides=form.overrides
    )
    window = asking.last_days(int(days) if days in DAYS else 7, now=form.now)
    draft = Draft(parent=form.found.parent, vector=vector, at=form.from_when)
    return asking.ask(by=by, now=form.now, window=window, draft=draft)
