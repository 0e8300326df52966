"""The guide: docs/ in the pages' own style, for who is signed in."""

import mimetypes

from django.contrib.auth.decorators import login_required
from django.http import FileResponse, Http404, HttpRequest, HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_safe

from config import guide


@require_safe
@login_required
def index(request: HttpRequest) -> HttpResponse:
    """All pages, each with what it is about."""
    return render(request, "guide/index.html", {"groups": guide.groups()})


@require_safe
@login_required
def page(request: HttpRequest, name: str) -> HttpResponse:
    """One page."""
    if name not in guide.PAGES:
        raise Http404
    context = {"page": guide.page(name), "groups": guide.groups(), "nav_current": "guide"}
    return render(request, "guide/page.html", context)


@require_safe
@login_required
def file(request: HttpRequest, path: str) -> FileResponse:
    """A picture or an example that a page shows or links to."""
    found = guide.files().get(path)
    if found is None:
        raise Http404
    kind = mimetypes.guess_type(found.name)[0] or "application/octet-stream"
    return FileResponse(found.open("rb"), content_type=kind)
