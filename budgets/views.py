"""Pages of the tree, of one budget, and of the shares of its children."""

from typing import cast

from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.contrib.auth.models import User
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.utils import timezone
from django.utils.translation import gettext as _
from django.views.decorators.http import (
    conditional_page,
    require_http_methods,
    require_POST,
    require_safe,
)

from allocator import steering
from allocator.pages import budget as budget_page
from allocator.pages import conflict as conflict_page
from allocator.pages import editor as editor_page
from allocator.pages import tree as tree_page
from budgets import services
from budgets.forms import DECISIONS, SharesForm, rebased
from budgets.models import ChangeSet
from budgets.services import Refused, StaleBase
from config.clock import now


@require_safe
@conditional_page
@login_required
def tree(request: HttpRequest) -> HttpResponse:
    """The tree of budgets; asked for by htmx, its table alone."""
    page = tree_page.page(
        request.user,
        now=now(),
        show=request.GET.get("show", "all"),
        words=request.GET.get("name", ""),
        sort=request.GET.get("sort", ""),
        pool=request.GET.get("pool", ""),
    )
    template = "budgets/_tree.html" if request.headers.get("HX-Request") else "budgets/tree.html"
    return render(request, template, {"page": page})


@require_safe
@conditional_page
@login_required
def budget(request: HttpRequest, path: str) -> HttpResponse:
    """One budget; asked for by htmx, its figures alone."""
    page = budget_page.page(request.user, path=path, now=now(), sort=request.GET.get("sort", ""))
    if request.headers.get("HX-Request"):
        return render(request, "budgets/_facts.html", {"page": page})
    return render(request, "budgets/budget.html", {"page": page, "nav_current": "budgets"})


@require_http_methods(["GET", "HEAD", "POST"])
@login_required
def shares(request: HttpRequest, path: str) -> HttpResponse:
    """The share editor. What is typed is written once it is put in force or proposed."""
    found, at = editor_page.subject(request.user, path=path), now()
    if request.method != "POST":
        looked_at = editor_page.proposal(found, pk=request.GET.get("set", ""))
        return _editor(request, SharesForm(found, now=at, looked_at=looked_at))
    if request.POST.get("onto") == str(found.base_version):
        return _editor(request, rebased(found, request.POST, now=at))
    form = SharesForm(found, request.POST, now=at)
    if form.is_outdated:
        return _conflict(request, form)
    if not form.is_valid() or request.POST.get("do") not in DECISIONS:
        return _editor(request, form)
    return _decide(request, form, approve=request.POST["do"] == "approve")


def _decide(request: HttpRequest, form: SharesForm, *, approve: bool) -> HttpResponse:
    found = form.found
    try:
        made = steering.change_shares(
            parent=found.parent,
            author=cast(User, request.user),
            approve_at_once=approve and found.may_approve,
            now=form.now,
            **form.decision,
        )
    except Refused as refused:
        form.add_error(None, refused.sentence)
        return _editor(request, form)
    except StaleBase:
        again = editor_page.subject(request.user, path=found.parent.path)
        return _conflict(request, SharesForm(again, request.POST, now=form.now))
    messages.success(request, _said(made))
    return redirect("shares", path=found.parent.path)


@require_POST
@login_required
def shares_preview(request: HttpRequest, path: str) -> HttpResponse:
    """What the shares that are being typed would move; nothing is written."""
    found, at = editor_page.subject(request.user, path=path), now()
    form = SharesForm(found, request.POST, now=at)
    page = editor_page.page(found, vector=form.vector, effective_at=form.from_when, now=at)
    return render(request, "budgets/_preview.html", {"page": page, "form": form})


@require_POST
@login_required
def decide(request: HttpRequest, pk: int, decision: str) -> HttpResponse:
    """Approve or decline a proposal."""
    found, at = editor_page.open_set(request.user, pk=pk), now()
    person = cast(User, request.user)
    try:
        if decision == "approve":
            made = steering.approve(change_set=found, by=person, now=at)
        else:
            made = services.decline(change_set=found, by=person, now=at)
    except Refused as refused:
        messages.error(request, refused.sentence)
    except StaleBase as stale:
        messages.error(request, str(stale))
    else:
        messages.success(request, _said(made))
    return redirect("shares", path=found.parent.path)


def _said(made: ChangeSet) -> str:
    at = timezone.localtime(made.effective_at)
    words = {"number": made.pk, "parent": made.parent.name, "at": f"{at:%d %b %H:%M}"}
    if made.status == ChangeSet.Status.PROPOSED:
        return _("Change set #%(number)s is proposed to the manager of %(parent)s.") % words
    if made.status == ChangeSet.Status.DECLINED:
        return _("Change set #%(number)s is declined.") % words
    if made.decided_at and made.effective_at > made.decided_at:
        return _("Change set #%(number)s is approved; it takes effect on %(at)s.") % words
    return _("Change set #%(number)s is in force, with the grants it moves.") % words


def _editor(request: HttpRequest, form: SharesForm) -> HttpResponse:
    page = editor_page.page(
        form.found, vector=form.vector, effective_at=form.from_when, now=form.now
    )
    context = {
        "page": page,
        "form": form,
        "lines": form.lines(page.rows),
        "nav_current": "budgets",
    }
    return render(request, "budgets/shares.html", context, status=422 if form.errors else 200)


def _conflict(request: HttpRequest, form: SharesForm) -> HttpResponse:
    page = conflict_page.conflict(
        form.found, base_version=form.based_on, mine=form.mine, gone=form.gone
    )
    context = {"page": page, "form": form, "subject": form.found, "nav_current": "budgets"}
    return render(request, "budgets/conflict.html", context, status=409)
