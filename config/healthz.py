"""`/healthz`: whether this process can do its work, as plain JSON."""

from collections.abc import Callable, Mapping

from django.conf import settings
from django.db import DatabaseError, connection
from django.http import HttpRequest, JsonResponse

from allocator import health
from config.clock import now

Check = Callable[[], Mapping[str, object]]


def database() -> dict[str, object]:
    """Return whether the database answers a query."""
    try:
        with connection.cursor() as cursor:
            cursor.execute("SELECT 1")
    except DatabaseError:
        return {"ok": False, "engine": connection.vendor}
    return {"ok": True, "engine": connection.vendor}


def allocator() -> dict[str, object]:
    """Return how late the ticks are."""
    try:
        return health.ticks(at=now())
    except DatabaseError:
        return {"ok": False}


# Each answers a mapping with "ok"; the server is healthy when all of them are.
CHECKS: dict[str, Check] = {"database": database, "allocator": allocator}


def healthz(request: HttpRequest) -> JsonResponse:
    """Answer 200 when every check is ok, else 503; needs no sign-in and tells no secrets."""
    results = {name: check() for name, check in CHECKS.items()}
    ok = all(result["ok"] for result in results.values())
    body = {"ok": ok, "version": settings.VERSION, **results}
    return JsonResponse(body, status=200 if ok else 503)
