"""Fields and serializers of the API that take nothing for something else.

The framework's own read "8", 8.0 and true as numbers, skip misspelt names, and let through text
that a database refuses.
"""

import math
from collections.abc import Iterator
from datetime import UTC, datetime
from difflib import get_close_matches
from typing import Any

from django.utils.dateparse import parse_datetime
from django.utils.translation import gettext as _
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers

LARGEST_INTEGER = 2**31 - 1
DEEPEST_JSON = 20
YEARS = range(1970, 2200)  # instants that may be asked for


def wrong_year() -> str:
    """Return what a form says of an instant in another year."""
    years = {"first": YEARS.start, "last": YEARS.stop - 1}
    return _("Give a year from %(first)s to %(last)s.") % years


class Strict(serializers.Serializer[Any]):
    """Refuses names it doesn't know, and suggests the one that was meant."""

    def to_internal_value(self, data: Any) -> Any:
        if isinstance(data, dict):
            known = [name for name, field in self.fields.items() if not field.read_only]
            unknown = {
                str(name): [_unknown(str(name), known)] for name in data if name not in known
            }
            if unknown:
                raise serializers.ValidationError(unknown)
        return super().to_internal_value(data)


class Integer(serializers.IntegerField):
    """A JSON integer; neither a string nor a number with a point, nor true."""

    default_error_messages = {"invalid": "Give a whole number, without quotes."}

    def __init__(self, **options: Any) -> None:
        super().__init__(**{"min_value": 0, "max_value": LARGEST_INTEGER} | options)

    def to_internal_value(self, data: Any) -> int:
        if isinstance(data, bool) or not isinstance(data, int):
            self.fail("invalid")
        return data


class Boolean(serializers.BooleanField):
    """true or false; null only where it is allowed."""

    default_error_messages = {"invalid": "Give true or false, without quotes."}

    def to_internal_value(self, data: Any) -> bool:
        if not isinstance(data, bool):
            self.fail("invalid")
        return data


class Text(serializers.CharField):
    """A JSON string that every database can keep."""

    default_error_messages = {
        "invalid": "Give a string.",
        "unkeepable": "Leave out NUL and half surrogates: no database keeps them.",
    }

    def __init__(self, **options: Any) -> None:
        super().__init__(**{"trim_whitespace": False} | options)

    def to_internal_value(self, data: Any) -> str:
        if not isinstance(data, str):
            self.fail("invalid")
        if not is_keepable(data):
            self.fail("unkeepable")
        return super().to_internal_value(data)


class Json(serializers.JSONField):
    """A JSON object of bounded depth, without what a database can't keep."""

    default_error_messages = {
        "object": "Give a JSON object.",
        "deep": f"Nest at most {DEEPEST_JSON} levels.",
        "unkeepable": "Leave out NUL, half surrogates and numbers beyond all bounds.",
    }

    def to_internal_value(self, data: Any) -> dict[str, Any]:
        if not isinstance(data, dict):
            self.fail("object")
        for depth, value in _walk(data):
            if depth > DEEPEST_JSON:
                self.fail("deep")
            if isinstance(value, str) and not is_keepable(value):
                self.fail("unkeepable")
            if isinstance(value, float) and not math.isfinite(value):
                self.fail("unkeepable")
        return data


@extend_schema_field(OpenApiTypes.DATETIME)
class Instant(serializers.Field[datetime, Any, str, Any]):
    """An instant in ISO 8601 with a zone, whole seconds; shown in UTC with Z."""

    default_error_messages = {
        "invalid": "Give an instant with a zone and whole seconds, such as 2026-10-01T00:00:00Z.",
    }

    def to_internal_value(self, data: Any) -> datetime:
        try:
            at = parse_datetime(data) if isinstance(data, str) else None
            at = (at and at.tzinfo and at.astimezone(UTC)) or None
        except (ValueError, OverflowError):
            at = None
        if at is None or at.microsecond or at.year not in YEARS:
            self.fail("invalid")
        return at

    def to_representation(self, value: datetime) -> str:
        return value.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def is_keepable(text: str) -> bool:
    """Say whether text holds neither NUL nor half a surrogate pair."""
    return "\0" not in text and not any("\ud800" <= character <= "\udfff" for character in text)


def _unknown(name: str, known: list[str]) -> str:
    near = get_close_matches(name, known, n=1)
    if near:
        return f"There is no field {name!r}: did you mean {near[0]!r}?"
    return f"There is no field {name!r}; there are {', '.join(known)}."


def _walk(value: Any) -> Iterator[tuple[int, Any]]:
    """Yield every key and value with its depth, without recursion and stopping too deep."""
    heap = [(0, value)]
    while heap:
        depth, value = heap.pop()
        yield depth, value
        inner = [*value, *value.values()] if isinstance(value, dict) else value
        if isinstance(inner, list) and depth <= DEEPEST_JSON:
            heap.extend((depth + 1, one) for one in inner)
