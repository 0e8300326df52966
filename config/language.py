"""Which language a page speaks: the reader's choice, else what the browser asks for.

The API, the health check and what runs without a page speak English, whatever is asked: programs
read them. The language is given back after each request: nothing else in the process inherits it.
"""

from typing import Any

from django.http import HttpRequest
from django.http.response import HttpResponseBase
from django.middleware.locale import LocaleMiddleware
from django.utils import translation
from django.utils.cache import patch_vary_headers

ENGLISH = "en"
ONLY_ENGLISH = ("/api/", "/healthz", "/static/")


class ReadersLanguage(LocaleMiddleware):
    """Django's middleware, for pages alone; caches are told what an answer hangs on."""

    def __call__(self, request: HttpRequest) -> Any:
        with translation.override(ENGLISH):
            return super().__call__(request)

    def process_request(self, request: HttpRequest) -> None:
        if request.path.startswith(ONLY_ENGLISH):
            request.LANGUAGE_CODE = ENGLISH
        else:
            super().process_request(request)

    def process_response(
        self, request: HttpRequest, response: HttpResponseBase
    ) -> HttpResponseBase:
        if request.path.startswith(ONLY_ENGLISH):
            response.headers.setdefault("Content-Language", ENGLISH)
            return response
        patch_vary_headers(response, ["Cookie"])  # that the choice is kept in
        return super().process_response(request, response)
