"""The page that renames a budget."""

from typing import cast

from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.contrib.auth.models import User
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.utils.translation import gettext as _
from django.views.decorators.http import require_http_methods

from allocator.pages import renaming
from budgets import services
from budgets.forms.names import NameForm
from budgets.models import Budget
from budgets.services import Refused
from config.clock import now


@require_http_methods(["GET", "HEAD", "POST"])
@login_required
def rename(request: HttpRequest, path: str) -> HttpResponse:
    """Give a budget another name and slug."""
    page = renaming.page(request.user, path=path)
    form = NameForm(page.budget, request.POST if request.method == "POST" else None)
    made = _renamed(request, page.budget, form) if form.is_valid() else None
    if made is not None:
        return redirect("budget", path=made.path)
    context = {"page": page, "form": form, "nav_current": "budgets"}
    return render(request, "budgets/rename.html", context, status=422 if form.errors else 200)


def _renamed(request: HttpRequest, budget: Budget, form: NameForm) -> Budget | None:
    """Rename as the form says; what is refused stands in it."""
    by, called = cast(User, request.user), {"was": budget.name, "is": budget.name}
    try:
        made = services.rename_budget(budget=budget, author=by, now=now(), **form.changes)
    except Refused as refused:
        form.refuse(refused)
        return None
    called |= {"is": made.name, "path": made.path}
    if form.changes:
        messages.success(request, _("%(was)s is %(is)s now, at %(path)s.") % called)
    else:
        messages.info(request, _("Nothing was changed: it is still %(is)s.") % called)
    return made
