"""People: who has which role, and what becomes of their accounts."""

from typing import Any, cast

from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.contrib.auth.models import User
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.utils.translation import gettext as _
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_http_methods

from allocator import accounts, steering
from allocator.forms import GiveForm, InviteForm
from allocator.pages import giving
from allocator.pages import people as pages
from budgets.models import Budget
from budgets.refusals import Refused
from config.clock import now

SECRETS = {"token": accounts.reset_token, "password": accounts.reset_password}
STATES = {"deactivate": accounts.deactivate, "reactivate": accounts.reactivate}


@require_http_methods(["GET", "HEAD", "POST"])
@login_required
@never_cache
def people(request: HttpRequest) -> HttpResponse:
    """List people; an administrator of the organisation makes an account."""
    page = pages.page(request.user, query=request.GET)
    if request.method == "POST" and not page.reader.administers:
        raise Http404
    form, made = InviteForm(request.POST or None), None
    if form.is_valid():
        try:
            made = accounts.invite(by=cast(User, request.user), now=now(), **form.cleaned_data)
        except Refused as refused:
            form.add_error(refused.field, refused.sentence)
        else:
            page, form = pages.page(request.user, query=request.GET), InviteForm()
    context = {"page": page, "form": form, "made": made, "nav_current": "people"}
    return render(request, "allocator/people.html", context, status=422 if form.errors else 200)


@require_http_methods(["GET", "HEAD", "POST"])
@login_required
@never_cache
def person(request: HttpRequest, pk: int) -> HttpResponse:
    """One person: roles to give and take, and the account."""
    page, refused, secret = pages.person(request.user, pk), "", ""
    do = request.POST.get("do", "")
    if request.method == "POST":
        try:
            secret = _done(request, page, do)
        except Refused as no:
            refused = no.sentence
        else:
            if not secret:
                messages.success(request, _("It is done, and stands in the audit log."))
                return redirect("people") if do == "take" else redirect("person", pk=pk)
            page = pages.person(request.user, pk)
    context = {"page": page, "secret": secret, "do": do, "refused": refused}
    context["nav_current"] = "people"
    return render(request, "allocator/person.html", context, status=422 if refused else 200)


@require_http_methods(["GET", "HEAD", "POST"])
@login_required
@never_cache
def give(request: HttpRequest) -> HttpResponse:
    """Give a role to somebody who is named exactly: looked at first, done when it is confirmed."""
    page, found = giving.page(request.user), None
    data = request.POST if request.method == "POST" else None
    paths = [one.path for one in page.budgets]
    form = GiveForm(data, paths=paths, kinds=page.kinds, at=request.GET.get("budget", ""))
    if form.is_valid():
        try:
            found = giving.find(page, **form.cleaned_data)
            if request.POST.get("do") == "give":
                place: dict[str, Any] = {"budget": found.budget, "kind": found.kind}
                by = cast(User, request.user)
                steering.give_role(user=found.person, by=by, now=now(), **place)
                messages.success(request, _("It is done, and stands in the audit log."))
                return redirect("person", pk=found.person.pk)
        except Refused as refused:
            form.refuse(refused)
    context = {"page": page, "form": form, "found": found, "nav_current": "people"}
    return render(request, "allocator/give.html", context, status=422 if form.errors else 200)


def _done(request: HttpRequest, page: pages.PersonPage, do: str) -> str:
    """Do what a button asks; return what is shown once, or nothing."""
    done: dict[str, Any] = {"user": page.person, "by": cast(User, request.user), "now": now()}
    if do in ("give", "take"):
        _role(request, page, do, done)
    elif not page.reader.administers or do not in {*SECRETS, *STATES}:
        raise Http404
    elif do in STATES:
        STATES[do](**done)
    else:
        return SECRETS[do](**done)
    return ""


def _role(request: HttpRequest, page: pages.PersonPage, do: str, done: dict[str, Any]) -> None:
    path, kind = request.POST.get("budget", ""), request.POST.get("kind", "")
    budget = get_object_or_404(Budget, path=path.replace("\0", ""))
    given = kind if do == "give" else ""
    pages.check_may_replace(page.reader, person=page.person, budget=budget, kind=given)
    if do == "give":
        steering.give_role(budget=budget, kind=kind, **done)
    else:
        steering.take_role(budget=budget, **done)
