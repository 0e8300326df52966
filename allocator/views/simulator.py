"""The simulator: asking for a simulation, following it, and what came of it."""

from datetime import UTC
from typing import cast

from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.contrib.auth.models import User
from django.core.exceptions import PermissionDenied
from django.core.paginator import Paginator
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.shortcuts import redirect, render
from django.utils.translation import gettext as _
from django.views.decorators.http import (
    conditional_page,
    require_http_methods,
    require_POST,
    require_safe,
)

from allocator.core.traces import write_csv
from allocator.forms import SimulationForm
from allocator.pages import simulator as pages
from allocator.pages import simulator_figures, simulator_picture
from allocator.pages.names import Names
from allocator.pages.simulator_picture import Picture
from allocator.simulating import asking
from budgets.refusals import Refused
from config.clock import now

ROWS = 50


@require_http_methods(["GET", "HEAD", "POST"])
@login_required
def simulator(request: HttpRequest) -> HttpResponse:
    """All simulations that the reader sees, and the form of a new one."""
    at = now()
    page = pages.listing(request.user, now=at)
    posted = (request.POST, request.FILES) if request.method == "POST" else (None, None)
    form = SimulationForm(page, *posted, now=at, initial={"shares": request.GET.get("shares")})
    if request.method == "POST" and not page.may:
        raise PermissionDenied(asking.NOT_YOURS)
    if form.is_valid():
        try:
            made = asking.ask(by=cast(User, request.user), **form.arguments)
        except Refused as refused:
            form.refuse(refused)
        else:
            return redirect("simulation", pk=made.pk)
    context = {"page": page, "form": form}
    status = 422 if form.errors else 200
    return render(request, "allocator/simulator.html", context, status=status)


@require_safe
@login_required
@conditional_page
def simulation(request: HttpRequest, pk: int) -> HttpResponse:
    """One simulation: how far it is, or what came of it; asked by htmx, how far it is."""
    page = pages.one(request.user, pk=pk)
    if request.headers.get("HX-Request"):
        part = render(request, "allocator/_simulation_state.html", {"page": page})
        if not page.row.is_open:
            part["HX-Refresh"] = "true"  # what came of it is another page
        return part
    names = Names.load(request.user)
    context = {
        "page": page,
        "found": simulator_figures.figures(page.row, names),
        "days": simulator_picture.days(
            page.row, _number(request, "day") if "day" in request.GET else None
        ),
        "programs": simulator_picture.programs(page.row, names),
        "gone": simulator_picture.gone(),
        "nav_current": "simulator",
    }
    return render(request, "allocator/simulation.html", context)


@require_safe
@login_required
def simulation_runs(request: HttpRequest, pk: int) -> HttpResponse:
    """The runs of one course in the days that are shown, as a table."""
    page = pages.one(request.user, pk=pk)
    names = Names.load(request.user)
    day, course = _number(request, "day"), _number(request, "course")
    seen = Picture(page.row, names, course=course, day=day)
    context = {
        "page": page,
        "found": simulator_figures.figures(page.row, names),
        "course": course,
        "days": simulator_picture.days(page.row, day),
        "rows": Paginator(seen.bars(), ROWS).get_page(request.GET.get("page")),
        "nav_current": "simulator",
    }
    return render(request, "allocator/simulation_runs.html", context)


@require_safe
@login_required
@conditional_page
def simulation_picture(request: HttpRequest, pk: int) -> JsonResponse:
    """The runs of one course in some days as JSON, for the canvas."""
    row = asking.find(request.user, pk)
    names = Names.load(request.user)
    day, course = _number(request, "day"), _number(request, "course")
    return JsonResponse(Picture(row, names, course=course, day=day).feed())


@require_safe
@login_required
def simulation_preview(request: HttpRequest, pk: int) -> HttpResponse:
    """How far the preview of a draft is, or what each project would have got, as a part."""
    page = pages.one(request.user, pk=pk)
    found = simulator_figures.figures(page.row, Names.load(request.user))
    context = {"page": page, "found": found}
    return render(request, "allocator/_draft_preview.html", context)


@require_POST
@login_required
def simulation_cancel(request: HttpRequest, pk: int) -> HttpResponse:
    """End a simulation that waits or runs."""
    row = asking.find(request.user, pk)
    if not asking.may_cancel(request.user, row):
        raise PermissionDenied(_("Only who asked for it, or a manager of its budget, ends it."))
    try:
        asking.cancel(simulation=row, now=now())
    except Refused as refused:
        messages.error(request, refused.sentence)
    if request.headers.get("HX-Request"):
        return simulation_preview(_as_get(request), pk)
    return redirect("simulation", pk=pk)


@require_safe
@login_required
def history_file(request: HttpRequest) -> HttpResponse:
    """The own jobs of a window as a trace, of the budgets that the reader sees."""
    at = now()
    try:
        of = _number(request, "of") if "of" in request.GET else None
        days = _number(request, "days", 7)
        start, end = pages.window(request.user, days=days, of=of, now=at)
        past = pages.window_file(request.user, start=start, end=end, now=at)
    except Refused as refused:
        messages.error(request, refused.sentence)
        return redirect("simulator")
    name = f"history-{start.astimezone(UTC):%Y%m%d}-{end.astimezone(UTC):%Y%m%d}.csv"
    return HttpResponse(
        "".join(write_csv(past.trace)),
        content_type="text/csv; charset=utf-8",
        headers={"Content-Disposition": f'attachment; filename="{name}"'},
    )


def _number(request: HttpRequest, name: str, default: int = 0) -> int:
    text = request.GET.get(name, "")
    return int(text) if text.isascii() and text.isdigit() and len(text) <= 9 else default


def _as_get(request: HttpRequest) -> HttpRequest:
    request.method = "GET"
    return request
