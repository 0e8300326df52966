"""What the API of windows takes: a window, and a change of one."""

from datetime import datetime
from typing import Any

from rest_framework import serializers

from clusters import windows
from config.fields import Instant, Integer, Strict, Text

MOST_LISTS = 1000


class WindowIn(Strict):
    """`nodes`: names, or ranges such as h100-n[01-08]; it begins now where `starts_at` is left
    out, and lasts until it is ended where `ends_at` is."""

    nodes = serializers.ListField(child=Text(max_length=1000), max_length=MOST_LISTS)
    starts_at = Instant(required=False, allow_null=True)
    ends_at = Instant(required=False, allow_null=True)
    reason = Text(max_length=windows.REASON_MAX)

    def arguments(self, now: datetime) -> dict[str, Any]:
        """Return what was asked as `set_window` takes it."""
        given = self.validated_data
        return {
            "nodes": windows.find(" ".join(given["nodes"]), at=now),
            "starts_at": given.get("starts_at"),
            "ends_at": given.get("ends_at"),
            "reason": given["reason"],
        }


class SeenIn(Strict):
    """`version`: the one that was looked at; refused if it isn't the newest any more."""

    version = Integer(required=False, min_value=1)


class WindowChangeIn(SeenIn):
    """What is left out stays; `ends_at` null: until it is ended."""

    starts_at = Instant(required=False)
    ends_at = Instant(required=False, allow_null=True)
    reason = Text(required=False, max_length=windows.REASON_MAX)
