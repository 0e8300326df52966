"""The level fair share of a budget beside its siblings', for static/charts.js."""

from django.contrib.auth.decorators import login_required
from django.http import Http404, HttpRequest, JsonResponse
from django.utils.translation import gettext as _
from django.views.decorators.http import require_safe

from allocator.pages import fair_history
from config.clock import now


@require_safe
@login_required
def levels(request: HttpRequest, path: str) -> JsonResponse:
    data = fair_history.chart(request.user, path=path, now=now())
    if data is None:
        raise Http404(_("It has no siblings to be compared with."))
    return JsonResponse(data)
