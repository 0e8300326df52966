"""What every page has around it: whose institute, which period, who reads, what waits.

`zone` has pages tell time in the institute's zone, that of the running period; `parts` tells
caches that htmx is answered with a part of a page at the page's own address; `around` is the
context that `templates/base.html` reads. Its parts are asked for where a template uses them, so a
fragment pays for none.
"""

from collections.abc import Callable
from functools import cache
from typing import Any
from zoneinfo import ZoneInfo

from django.conf import settings
from django.http import HttpRequest, HttpResponse
from django.urls import reverse
from django.utils import timezone
from django.utils.cache import patch_vary_headers
from django.utils.functional import SimpleLazyObject
from django.utils.translation import gettext as _

from allocator.pages import shell
from budgets import periods
from budgets.hues import Hue
from budgets.models import Budget, Period
from clusters.templatetags.allotment import hue
from clusters.writing import dated
from config.clock import now

# Pages whose figures are asked for again while they are open.
LIVE = frozenset(
    (
        *("overview", "budgets", "budget", "jobs", "job", "plan", "cycles", "nodes", "window"),
        "simulation",
    )
)
WITHOUT_PAGES = ("/api/", "/favicon.ico", "/healthz", "/static/")


def zone(get_response: Callable[[HttpRequest], HttpResponse]) -> Callable[..., HttpResponse]:
    """Tell time in the zone of the running period, on pages; the API speaks UTC."""

    def middleware(request: HttpRequest) -> HttpResponse:
        if request.path.startswith(WITHOUT_PAGES):
            return get_response(request)
        period = periods.active(now())
        request.period = period  # type: ignore[attr-defined]
        name = period.time_zone if period else settings.ORGANISATION_TIME_ZONE
        with timezone.override(ZoneInfo(name)):
            return get_response(request)

    return middleware


def parts(get_response: Callable[[HttpRequest], HttpResponse]) -> Callable[..., HttpResponse]:
    """Keep a browser from showing the part that it refreshed last when one goes back to a page."""

    def middleware(request: HttpRequest) -> HttpResponse:
        response = get_response(request)
        if not request.path.startswith(WITHOUT_PAGES):
            patch_vary_headers(response, ["HX-Request"])
        return response

    return middleware


def around(request: HttpRequest) -> dict[str, Any]:
    """Return the shell's part of a page's context; nobody signed out learns anything."""
    user = getattr(request, "user", None)
    if user is None or not user.is_authenticated:
        return {"institute": cache(shell.institute)}
    period: Period | None = getattr(request, "period", None)
    match = request.resolver_match
    waiting = cache(lambda: shell.waiting(user))
    context: dict[str, Any] = {
        "institute": cache(shell.institute),
        "role": cache(lambda: shell.role(user)),
        "nav_counts": cache(lambda: shell.counts(user, at=now()) | waiting()),
        "nav_hidden": cache(lambda: shell.hidden(user)),
        "unread": cache(lambda: waiting()["notices"]),
        "my_budgets": cache(lambda: _linked(shell.own_budgets(user))),
        "period": _named(period),
    }
    if match is not None and match.url_name in LIVE:
        context["live"] = cache(lambda: _live(period))
    return context


def _linked(budgets: list[tuple[Budget, Hue]]) -> list[dict[str, str]]:
    return [
        {"name": one.name, "url": reverse("budget", args=[one.path]), "hue": hue(painted)}
        for one, painted in budgets
    ]


def _named(period: Period | None) -> dict[str, str] | None:
    if period is None:
        return None
    day, days = shell.day_of(period, now())
    words = {"name": period.name, "day": day, "days": days}
    return {"label": _("%(name)s, day %(day)s of %(days)s") % words}


def _live(period: Period | None) -> dict[str, Any]:
    closed = shell.closed_until()
    return {
        "at": now(),
        "zone": period.time_zone if period else settings.ORGANISATION_TIME_ZONE,
        "title": SimpleLazyObject(lambda: _title(closed)),
    }


def _title(closed: Any) -> str:
    if closed is None:
        return _("No timestep has been closed yet")
    local = timezone.localtime(closed)
    return _("Charged up to %(at)s") % {"at": dated(local, "H:i, d M")}
