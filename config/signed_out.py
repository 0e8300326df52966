"""What somebody is told whose session has ended: a page that was open stays useful."""

from collections.abc import Callable
from urllib.parse import urlencode, urlsplit

from django.conf import settings
from django.http import HttpRequest, HttpResponse
from django.urls import reverse


def come_back(get_response: Callable[[HttpRequest], HttpResponse]) -> Callable[..., HttpResponse]:
    """Lead back to the page that was open, not to an address that only takes what is sent.

    A part of a page that htmx asks for is refused instead of being replaced by a sign-in form; the
    page is told by the event `signed-out`.
    """

    def middleware(request: HttpRequest) -> HttpResponse:
        response = get_response(request)
        if not _asks_to_sign_in(response) or request.user.is_authenticated:
            return response
        if request.headers.get("HX-Request"):
            return HttpResponse(status=401, headers={"HX-Trigger": "signed-out"})
        if request.method not in ("GET", "HEAD"):
            back = urlencode({"next": _page(request)})
            response["Location"] = f"{reverse(settings.LOGIN_URL)}?{back}"
        return response

    return middleware


def _asks_to_sign_in(response: HttpResponse) -> bool:
    path = urlsplit(response.get("Location", "")).path
    return response.status_code == 302 and path == reverse(settings.LOGIN_URL)


def _page(request: HttpRequest) -> str:
    """Where the form stood, as the browser tells; the overview, where it tells nothing of ours."""
    told = urlsplit(request.headers.get("Referer", ""))
    if told.netloc != request.get_host() or not told.path:
        return reverse("overview")
    return f"{told.path}?{told.query}" if told.query else told.path
