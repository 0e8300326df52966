"""Sends readers on from an address that a budget had before it was renamed or moved.

Only what is read is sent on, and never for good: another budget may have the address tomorrow.
What is written to an old address is answered with 404; the API's sentence names the new one.
"""

import re
from collections.abc import Callable
from typing import Protocol

from django.http import HttpRequest, HttpResponse, HttpResponseRedirect

from budgets.access import CalledOtherwise

SAFE = ("GET", "HEAD")
# What stands before a budget's path in an address, on pages and in the API.
BEFORE = re.compile(r"/(api/v1/)?(budgets|reviews/(files/[a-z]+/)?[0-9]+)/")


class Asked(Protocol):
    """What a request has, Django's or the API framework's."""

    def get_full_path(self) -> str: ...


class FollowRenames:
    """Middleware of the pages; the API asks `there` by itself."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponse]) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        return self.get_response(request)

    def process_exception(self, request: HttpRequest, error: Exception) -> HttpResponse | None:
        if isinstance(error, CalledOtherwise) and request.method in SAFE:
            return there(request, error)
        return None


def there(request: Asked, error: CalledOtherwise) -> HttpResponse:
    """Answer with the same address under the budget's present path, its query included."""
    address = request.get_full_path()
    found = BEFORE.match(address)
    before = found.group() if found else ""
    rest = address[len(before) :].replace(error.old, error.path, 1)
    return HttpResponseRedirect(before + rest)
