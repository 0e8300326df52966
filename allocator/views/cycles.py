"""Cycles: the list, one with what it saw and decided, planned once more, and its files."""

from http import HTTPStatus
from typing import Any

from django.contrib.auth.decorators import login_required
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.shortcuts import render
from django.views.decorators.http import conditional_page, require_POST, require_safe

from allocator.packing import unpack
from allocator.pages import cycle as pages
from allocator.pages import cycle_replay
from allocator.pages import cycles as lists
from allocator.pages.names import Names
from config.clock import now


@require_safe
@login_required
@conditional_page
def cycles(request: HttpRequest) -> HttpResponse:
    """All cycles, filtered and paged as the address says; asked by htmx, its live part."""
    page = lists.page(now=now(), query=request.GET)
    part = request.headers.get("HX-Request")
    template = "allocator/_cycles.html" if part else "allocator/cycles.html"
    return render(request, template, {"page": page})


@require_safe
@login_required
@conditional_page
def cycle(request: HttpRequest, pk: int) -> HttpResponse:
    """One cycle."""
    return render(request, "allocator/cycle.html", _context(request, pk))


@require_POST
@login_required
def replay(request: HttpRequest, pk: int) -> HttpResponse:
    """Plan what it saw once more; asked by htmx, only what came of it."""
    found = pages.find(pk)
    names = Names.load(request.user)
    again = cycle_replay.replay(found, names, request.user)
    status = HTTPStatus.TOO_MANY_REQUESTS if again.busy else HTTPStatus.OK
    if request.headers.get("HX-Request"):
        context = {"replay": again, "cycle": found}
        return render(request, "allocator/_cycle_replay.html", context, status=status)
    context = _context(request, pk) | {"replay": again}
    return render(request, "allocator/cycle.html", context, status=status)


@require_safe
@login_required
def cycle_file(request: HttpRequest, pk: int, kind: str) -> JsonResponse:
    """What it saw as a scenario file, or what it planned as a plan file."""
    found = pages.whole(request.user, pk)
    stored = unpack(bytes(found.snapshot if kind == "snapshot" else found.plan))
    headers = {"Content-Disposition": f'attachment; filename="cycle-{pk}-{kind}.json"'}
    return JsonResponse(stored, headers=headers)


def _context(request: HttpRequest, pk: int) -> dict[str, Any]:
    page = pages.page(request.user, pk)
    return {"page": page, "cycle": page.cycle, "nav_current": "cycles"}
