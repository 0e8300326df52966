"""The audit log, as a page and as a file."""

import csv
from typing import cast

from django.contrib.auth.decorators import login_required
from django.contrib.auth.models import User
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.utils import translation
from django.views.decorators.http import require_safe

from allocator.pages import audit as pages
from config.clock import now


@require_safe
@login_required
def audit(request: HttpRequest) -> HttpResponse:
    """What somebody decided, the newest first."""
    page = pages.page(cast(User, request.user), query=request.GET, now=now())
    return render(request, "allocator/audit.html", {"page": page})


@require_safe
@login_required
def audit_file(request: HttpRequest) -> HttpResponse:
    """The newest 10,000 rows under the same filters, as CSV."""
    response = HttpResponse(content_type="text/csv; charset=utf-8")
    response["Content-Disposition"] = 'attachment; filename="audit.csv"'
    writer = csv.writer(response)
    writer.writerow(pages.COLUMNS)
    with translation.override("en"):  # a file is for programs too
        writer.writerows(pages.lines(cast(User, request.user), request.GET))
    return response
