"""Pages of the whole cluster: the overview and the plan."""

from typing import Any

from django.contrib.auth.decorators import login_required
from django.core.paginator import Paginator
from django.http import Http404, HttpRequest, HttpResponse, JsonResponse
from django.shortcuts import render
from django.views.decorators.http import conditional_page, require_safe

from allocator.pages import overview as overviews
from allocator.pages import plan as plans
from allocator.pages import plan_feed
from clusters.models import Pool
from clusters.saying import say as _
from config.clock import now

ROWS = 50


@require_safe
@login_required
@conditional_page
def overview(request: HttpRequest) -> HttpResponse:
    """The whole in one page, or, asked by htmx, its live part."""
    page = overviews.page(request.user, now=now(), query=request.GET)
    part = request.headers.get("HX-Request")
    template = "allocator/_overview.html" if part else "allocator/overview.html"
    return render(request, template, {"page": page})


@require_safe
@login_required
@conditional_page
def plan(request: HttpRequest) -> HttpResponse:
    """What ran, runs and comes, as a grid or (``?view=table``) as a table."""
    pool = _pool(request)
    page = plans.page(request.user, now=now(), pool=pool)
    context: dict[str, Any] = {"page": page, "pool": pool}
    if request.GET.get("view") == "table":
        rows = Paginator(plans.table(page.picture), ROWS)
        context["rows"] = rows.get_page(request.GET.get("page"))
        return render(request, "allocator/plan_table.html", context)
    part = request.headers.get("HX-Request")
    return render(request, "allocator/_plan_side.html" if part else "allocator/plan.html", context)


@require_safe
@login_required
@conditional_page
def plan_data(request: HttpRequest) -> JsonResponse:
    """The grid as JSON, for the canvas."""
    seen = plans.picture(request.user, now=now(), pool=_pool(request))
    return JsonResponse(plan_feed.feed(seen))


def _pool(request: HttpRequest) -> Pool | None:
    slug = request.GET.get("pool")
    if not slug:
        return None
    pool = next((one for one in Pool.objects.all() if one.slug == slug), None)
    if pool is None:
        raise Http404(_("There is no such pool."))
    return pool
