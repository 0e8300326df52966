"""Errors of the API are problem objects that say what to change."""

from typing import Any

import pytest
from django.core.exceptions import ValidationError as DjangoValidationError
from django.http import Http404
from rest_framework import exceptions
from rest_framework.response import Response
from rest_framework.test import APIClient

from config.problems import handler

pytestmark = pytest.mark.once


def _problem(error: Exception) -> dict[str, Any]:
    response = handler(error, {})
    assert isinstance(response, Response)
    assert response.content_type == "application/problem+json"
    assert response.data["status"] == response.status_code
    assert response.data["type"] == "about:blank"
    return dict(response.data)


def test_refused_fields_are_listed_and_named() -> None:
    problem = _problem(
        exceptions.ValidationError(
            {"gpus": ["Must be a power of two."], "shares": [{}, {"percent": ["Too much."]}]}
        )
    )
    assert (problem["status"], problem["title"]) == (400, "Bad Request")
    assert problem["errors"] == [
        {"field": "gpus", "code": "invalid", "message": "Must be a power of two."},
        {"field": "shares.1.percent", "code": "invalid", "message": "Too much."},
    ]
    assert problem["detail"] == "gpus: Must be a power of two. shares.1.percent: Too much."


@pytest.mark.parametrize(
    "error",
    [
        exceptions.ValidationError("Siblings total 110 %."),
        exceptions.ValidationError({"non_field_errors": ["Siblings total 110 %."]}),
        DjangoValidationError("Siblings total 110 %."),
        DjangoValidationError({"__all__": "Siblings total 110 %."}),
    ],
)
def test_what_concerns_the_whole_request_has_no_field(error: Exception) -> None:
    problem = _problem(error)
    assert problem["detail"] == "Siblings total 110 %."
    assert [row["field"] for row in problem["errors"]] == [""]


def test_half_a_surrogate_pair_is_not_sent_back() -> None:
    problem = _problem(exceptions.ValidationError({"\ud800": ["\udfff is no role."]}))
    assert problem["errors"][0]["field"] == "?"
    assert problem["detail"] == "?: ? is no role."


@pytest.mark.parametrize(
    ("error", "status", "detail"),
    [
        (Http404(), 404, "Not found."),
        (exceptions.NotFound("No budget has this path."), 404, "No budget has this path."),
        (exceptions.PermissionDenied(), 403, "You do not have permission to perform this action."),
        (
            exceptions.Throttled(wait=3),
            429,
            "Request was throttled. Expected available in 3 seconds.",
        ),
    ],
)
def test_other_refusals_have_a_detail_and_no_rows(
    error: Exception, status: int, detail: str
) -> None:
    problem = _problem(error)
    assert problem["status"] == status
    assert problem["errors"] == []
    assert problem["detail"] == detail


def test_an_error_of_ours_is_left_to_django() -> None:
    assert handler(RuntimeError("a fault of ours"), {}) is None


@pytest.mark.django_db
def test_a_wrong_token_is_a_problem() -> None:
    answer = APIClient().get("/api/v1/schema", headers={"Authorization": "Token wrong"})
    assert answer.status_code == 401
    assert answer.headers["Content-Type"] == "application/problem+json"
    assert b"Invalid token." in answer.content
