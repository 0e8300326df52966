"""Errors of the API as problem objects (RFC 9457): each says in `detail` what to change."""

from collections.abc import Iterator, Mapping
from http import HTTPStatus
from typing import Any

from django.core.exceptions import NON_FIELD_ERRORS, RequestDataTooBig
from django.core.exceptions import ValidationError as DjangoValidationError
from django.http import HttpResponseBase
from drf_spectacular.utils import extend_schema
from rest_framework import exceptions
from rest_framework.permissions import SAFE_METHODS
from rest_framework.request import Request
from rest_framework.views import APIView, exception_handler

from budgets.access import CalledOtherwise
from clusters.saying import say as _
from config.parsers import TooLarge
from config.renames import there

CONTENT_TYPE = "application/problem+json"


class Conflict(exceptions.APIException):
    """409: what was asked contradicts what is there. Keyword arguments stand in the object too."""

    status_code = HTTPStatus.CONFLICT
    default_code = "conflict"

    def __init__(self, sentence: str, **members: Any) -> None:
        super().__init__(sentence)
        self.members = members


@extend_schema(exclude=True)
class NoSuchAddress(APIView):
    """Answers what no other address of the API does, with a problem object and not a page."""

    def initial(self, request: Request, *args: Any, **kwargs: Any) -> None:
        raise exceptions.NotFound(
            _(
                "There is nothing at %(request)s: /api/v1/docs lists the addresses.",
                request=request.path,
            )
        )


def handler(error: Exception, context: dict[str, Any]) -> HttpResponseBase | None:
    """Answer with application/problem+json: type, title, status, detail, errors.

    `errors` lists {"field", "code", "message"} of each refused field; a nested field is named
    "outer.0.inner", and what concerns the whole request has the field "". Returns None
    for an error that is ours: Django then answers 500 and logs it. What is read of a budget at an
    address that it had before is sent on to its present one.
    """
    request = context.get("request")
    if isinstance(error, CalledOtherwise) and request and request.method in SAFE_METHODS:
        return there(request, error)
    if isinstance(error, RequestDataTooBig):
        error = TooLarge()
    if isinstance(error, DjangoValidationError):
        error = exceptions.ValidationError(_by_field(error))
    response = exception_handler(error, context)
    if response is None:
        return None
    # DRF turns Django's 404 and 403 into its own; here only their text is of interest.
    detail = error.detail if isinstance(error, exceptions.APIException) else response.data
    rows = list(_rows(detail)) if isinstance(error, exceptions.ValidationError) else []
    response.data = {
        "type": "about:blank",
        "title": HTTPStatus(response.status_code).phrase,
        "status": response.status_code,
        "detail": _sentence(rows) if rows else _text(detail),
        "errors": rows,
        **(error.members if isinstance(error, Conflict) else {}),
    }
    response.content_type = CONTENT_TYPE
    return response


def _by_field(error: DjangoValidationError) -> dict[str, list[str]]:
    if hasattr(error, "error_dict"):
        return error.message_dict
    return {NON_FIELD_ERRORS: error.messages}


def _rows(detail: Any, field: str = "") -> Iterator[dict[str, str]]:
    if isinstance(detail, Mapping):
        for name, inner in detail.items():
            whole = name in (NON_FIELD_ERRORS, "non_field_errors")
            yield from _rows(inner, field if whole else _joined(field, str(name)))
    elif isinstance(detail, list | tuple):
        for index, inner in enumerate(detail):
            nested = isinstance(inner, Mapping | list)
            yield from _rows(inner, _joined(field, str(index)) if nested else field)
    else:
        code = str(getattr(detail, "code", "invalid"))
        yield {"field": _sendable(field), "code": code, "message": _sendable(str(detail))}


def _joined(outer: str, name: str) -> str:
    return f"{outer}.{name}" if outer else name


def _sendable(text: str) -> str:
    """What was sent may stand in a refusal, and half a surrogate pair can't be sent back."""
    return text.encode(errors="replace").decode()


def _sentence(rows: list[dict[str, str]]) -> str:
    return " ".join(
        f"{row['field']}: {row['message']}" if row["field"] else row["message"] for row in rows
    )


def _text(detail: Any) -> str:
    if isinstance(detail, Mapping):
        return str(detail.get("detail", detail))
    return str(detail)
