"""What was declared against what was used, as a part of a budget's page that comes after it."""

from django.contrib.auth.decorators import login_required
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_safe

from allocator.pages import asked as asked_page
from config.clock import now


@require_safe
@login_required
def asked(request: HttpRequest, path: str) -> HttpResponse:
    page = asked_page.page(request.user, path=path, now=now())
    return render(request, "budgets/_declared.html", {"page": page})
