"""The Content-Security-Policy of every page: own files only, nothing inline."""

from collections.abc import Callable

from django.http import HttpRequest, HttpResponse

STRICT = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
    "font-src 'self'; connect-src 'self'; form-action 'self'; base-uri 'none'; "
    "frame-ancestors 'none'"
)
# Swagger UI sets style attributes and has a <style> element; its scripts are our own files.
DOCS = STRICT.replace("style-src 'self'", "style-src 'self' 'unsafe-inline'")
DOCS_PATH = "/api/v1/docs"


def content_security_policy(
    get_response: Callable[[HttpRequest], HttpResponse],
) -> Callable[[HttpRequest], HttpResponse]:
    """Add the policy to each response that doesn't bring one."""

    def middleware(request: HttpRequest) -> HttpResponse:
        response = get_response(request)
        policy = DOCS if request.path.startswith(DOCS_PATH) else STRICT
        response.headers.setdefault("Content-Security-Policy", policy)
        return response

    return middleware
