"""The page that moves, archives or re-activates a budget."""

from typing import cast

from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.contrib.auth.models import User
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.http import require_http_methods, require_POST

from allocator import steering
from allocator.pages import placing
from budgets.forms.places import PlaceForm
from budgets.models import ChangeSet
from budgets.services import Refused, StaleBase
from config.clock import now


@require_http_methods(["GET", "HEAD", "POST"])
@login_required
def place(request: HttpRequest, path: str) -> HttpResponse:
    """Do or propose it; looked at first."""
    given = request.GET.get("set", "")
    found = placing.subject(request.user, path=path, now=now(), pk=given)
    form = PlaceForm(found, request.POST if request.method == "POST" else None)
    if form.is_valid() and form.decides:
        made = _decided(request, form)
        if made is not None:
            return _there(form, made)
    context = _context(request, form) | {"nav_current": "budgets"}
    return render(request, "budgets/place.html", context, status=422 if form.errors else 200)


@require_POST
@login_required
def preview(request: HttpRequest, path: str) -> HttpResponse:
    """What it would do, or the fields of those beside it; nothing is written."""
    form = PlaceForm(placing.subject(request.user, path=path, now=now()), request.POST)
    form.is_valid()
    part = "_beside" if request.POST.get("part") == "beside" else "_place"
    return render(request, f"budgets/{part}.html", _context(request, form) | {"live": True})


def _decided(request: HttpRequest, form: PlaceForm) -> ChangeSet | None:
    """Do or propose it as the form says; what is refused stands in it."""
    approves = request.POST["do"] == "approve" and form.may_approve
    try:
        made = steering.change_place(
            author=cast(User, request.user),
            approve_at_once=approves,
            now=form.found.now,
            **form.decision,
        )
    except Refused as refused:
        form.refuse(refused)
        return None
    except StaleBase as stale:
        form.add_error(None, str(stale))
        return None
    messages.success(request, form.said(made))
    return made


def _there(form: PlaceForm, made: ChangeSet) -> HttpResponse:
    """Go to the budget where it is now; what is proposed stands with its parent's shares."""
    if made.status == ChangeSet.Status.APPROVED:
        form.found.budget.refresh_from_db()
        return redirect("budget", path=form.found.budget.path)
    return redirect("shares", path=made.parent.path)


def _context(request: HttpRequest, form: PlaceForm) -> dict[str, object]:
    shown = None
    if form.is_complete:
        shown = placing.preview(request.user, form.found, **form.asked)
    return {"page": form.found, "form": form, "preview": shown}
