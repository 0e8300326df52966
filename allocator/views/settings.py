"""How the installation is set up: pools and their rates."""

from typing import cast

from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.contrib.auth.models import User
from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.utils.translation import gettext as _
from django.views.decorators.http import require_http_methods

from allocator import installing
from allocator.forms import RateForm
from allocator.pages import pools as pages
from clusters.refusals import Refused
from config.clock import now


@require_http_methods(["GET", "HEAD", "POST"])
@login_required
def pools(request: HttpRequest) -> HttpResponse:
    """Every pool with its rates; administrators of the organisation set another."""
    page = pages.page(request.user, now=now())
    if request.method == "POST" and not page.may_change:
        raise PermissionDenied
    form = RateForm(request.POST or None, pools=[line.pool for line in page.lines])
    if form.is_valid():
        try:
            made = installing.set_rate(by=cast(User, request.user), now=now(), **form.arguments)
        except Refused as refused:
            form.add_error(refused.field, refused.sentence)
        else:
            words = {"name": made.pool.name, "rate": installing.shown(made.rate_per_mille)}
            messages.success(request, _("%(name)s: rate %(rate)s is set.") % words)
            return redirect("pools")
    context = {"page": page, "form": form, "nav_current": "nodes"}
    return render(request, "allocator/pools.html", context, status=422 if form.errors else 200)
