"""Pages of machines: nodes, and windows of maintenance."""

from typing import Any, cast

from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.contrib.auth.models import User
from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.utils.translation import gettext as _
from django.views.decorators.http import (
    conditional_page,
    require_http_methods,
    require_POST,
    require_safe,
)

from allocator import maintenance
from allocator.pages import nodes as node_pages
from allocator.pages import windows as window_pages
from budgets.access import may_administer
from clusters.forms import ChangeForm, WindowForm
from clusters.refusals import Refused
from config.clock import now


@require_safe
@login_required
@conditional_page
def nodes(request: HttpRequest) -> HttpResponse:
    """Nodes by pool; ``?state=`` and ``?pool=`` filter, ``?whole=1`` lists all of a large fleet."""
    asked = {name: request.GET.get(name, "") for name in ("state", "pool")}
    whole = bool(request.GET.get("whole"))
    page = node_pages.page(request.user, now=now(), whole=whole, **asked)
    part = request.headers.get("HX-Request")
    template = "clusters/_nodes.html" if part else "clusters/nodes.html"
    context = {"page": page, "states": node_pages.STATES, **asked}
    return render(request, template, context)


@require_safe
@login_required
@conditional_page
def window(request: HttpRequest, pk: int) -> HttpResponse:
    """One window, or, asked by htmx, its live part."""
    page = window_pages.page(request.user, pk, now=now())
    if request.headers.get("HX-Request"):
        return render(request, "clusters/_window.html", {"page": page})
    context = _of(page, ChangeForm(page.window, page.now) if page.may_change else None)
    return render(request, "clusters/window.html", context)


@require_http_methods(["GET", "HEAD", "POST"])
@login_required
def window_new(request: HttpRequest) -> HttpResponse:
    """Set a window; looked at first, done when it is confirmed."""
    window_pages.require(request.user)
    form, context = _new(request)
    if form.is_valid() and form.confirms and form.decision is not None:
        by = cast(User, request.user)
        try:
            made = maintenance.set_window(**form.decision, by=by, now=form.now)
        except Refused as error:
            form.refuse(error)
        else:
            messages.success(request, _("The window is set; the next plan keeps to it."))
            return redirect("window", pk=made.pk)
    status = 422 if form.is_bound and form.errors else 200
    return render(request, "clusters/window_new.html", context, status=status)


@require_POST
@login_required
def window_new_preview(request: HttpRequest) -> HttpResponse:
    """What the window that is being typed would do; nothing is written."""
    window_pages.require(request.user)
    return render(request, "clusters/_window_does.html", _new(request)[1] | {"live": True})


@require_POST
@login_required
def window_change(request: HttpRequest, pk: int) -> HttpResponse:
    """Change a window, or look at what that would do."""
    page = _changeable(request, pk)
    form = ChangeForm(page.window, page.now, request.POST)
    if form.is_valid() and form.confirms:
        try:
            deed = {"version": form.cleaned_data["version"], **form.changes}
            maintenance.change(
                window=page.window, by=cast(User, request.user), now=page.now, **deed
            )
        except Refused as error:
            form.refuse(error)
        else:
            messages.success(request, _("The window is changed; the next plan keeps to it."))
            return redirect("window", pk=pk)
    context = _of(page, form) | {"does": _changed(request, form, page)}
    part = request.headers.get("HX-Request") and not form.confirms
    template = "clusters/_window_changes.html" if part else "clusters/window.html"
    return render(request, template, context, status=200 if part or not form.errors else 422)


@require_POST
@login_required
def window_end(request: HttpRequest, pk: int) -> HttpResponse:
    """End a window that has begun, or call off one that hasn't."""
    page = _changeable(request, pk)
    deed = maintenance.end_now if page.has_begun else maintenance.call_off
    try:
        deed(window=page.window, by=cast(User, request.user), now=page.now)
    except Refused as error:
        messages.error(request, error.sentence)
    else:
        ended = _("The window is ended; its nodes are in the plan again.")
        messages.success(request, ended if page.has_begun else _("The window is called off."))
    return redirect("window", pk=pk)


def _new(request: HttpRequest) -> tuple[WindowForm, dict[str, Any]]:
    at = now()
    pools = window_pages.pools(at)
    names = [node.name for _pool, nodes in pools for node in nodes]
    data = request.POST if request.method == "POST" else None
    form = WindowForm(names, at, data)
    does = None
    form.is_valid()
    if form.decision is not None:
        try:
            does = window_pages.preview(request.user, form.decision, now=at)
        except Refused as error:
            form.refuse(error)
    context = {"form": form, "pools": pools, "does": does, "now": at, "nav_current": "nodes"}
    return form, context


def _changed(
    request: HttpRequest, form: ChangeForm, page: window_pages.WindowPage
) -> window_pages.Does | None:
    """What the change that a form says would do; what is refused stands in the form."""
    if not form.is_valid() or not form.changes:
        return None
    try:
        return window_pages.preview_change(request.user, page.window, form.changes, now=page.now)
    except Refused as error:
        form.refuse(error)
    return None


def _changeable(request: HttpRequest, pk: int) -> window_pages.WindowPage:
    page = window_pages.page(request.user, pk, now=now())
    if not may_administer(request.user):
        raise PermissionDenied(_("Windows are set and changed by administrators."))
    return page


def _of(page: window_pages.WindowPage, form: ChangeForm | None) -> dict[str, Any]:
    return {"page": page, "form": form, "now": page.now, "nav_current": "nodes"}
