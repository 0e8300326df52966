"""Lengths of time as people write them: 90 min, 1 h 30, 2 d, 45 s; a bare number is hours."""

import re

from django.utils.translation import gettext_noop

from clusters.saying import say as _

SECONDS = {"d": 86_400, "h": 3600, "min": 60, "m": 60, "s": 1}
PART = re.compile(r"(\d+(?:[.,]\d+)?)\s*(d|h|min|m|s)?", re.IGNORECASE)
NOT_UNDERSTOOD = gettext_noop(
    "Write a length of time such as 90 min, 1 h 30 or 2 d, not “%(text)s”."
)


def parse(text: str) -> int:
    """Return the seconds that a text means; ValueError with one sentence otherwise.

    A part without a unit takes the next smaller one after a part that has one (1 h 30), else
    hours. 1:30 is an hour and a half.
    """
    cleaned = text.strip().lower()
    clock = re.fullmatch(r"(\d{1,4}):([0-5]\d)", cleaned)
    if clock:
        return int(clock[1]) * 3600 + int(clock[2]) * 60
    parts = list(PART.finditer(cleaned))
    if not parts or PART.sub("", cleaned).strip():
        raise ValueError(_(NOT_UNDERSTOOD, text=text.strip()[:40]))
    total, last = 0.0, ""
    for part in parts:
        unit = part[2] or {"": "h", "d": "h", "h": "min", "min": "s", "m": "s"}.get(last, "")
        if not unit or (last and SECONDS[unit] >= SECONDS[last]):
            raise ValueError(_(NOT_UNDERSTOOD, text=text.strip()[:40]))
        total += float(part[1].replace(",", ".")) * SECONDS[unit]
        last = unit
    return round(total)


def words(seconds: int) -> str:
    """Return a length of time as plain text: 45 s, 12 min, 3 h 58, 2 d 4 h."""
    if seconds < SECONDS["min"]:
        return f"{seconds} s"
    if seconds < SECONDS["h"]:
        return f"{seconds // 60} min"
    hours, minutes = seconds // 3600, seconds % 3600 // 60
    return f"{hours // 24} d {hours % 24} h" if hours >= 48 else f"{hours} h {minutes:02d}"
