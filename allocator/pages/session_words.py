"""What came of asking for more time, in one sentence. The words are in templates.

`_session_refused.html` and `_session_extended.html` in `templates/workloads`: the same for pages,
API and command line.
"""

from datetime import datetime
from html import unescape
from typing import Any

from django.template.loader import render_to_string


def refusal(rule: str, data: dict[str, Any], *, now: datetime) -> str:
    """Say why, as far as the reader may know: what they may not is taken out of the data."""
    instants = {name: _instant(data.get(name)) for name in ("at", "until")}
    return _said("refused", {"rule": rule, "data": data, "now": now, **instants})


def granted(more_s: int, until: datetime, *, now: datetime) -> str:
    """Say by how much it was extended, and until when."""
    return _said("extended", {"more_s": more_s, "at": until, "now": now})


def _said(what: str, given: dict[str, Any]) -> str:
    text = unescape(render_to_string(f"workloads/_session_{what}.html", given))
    words = " ".join(text.split())
    for mark in (":", ",", "."):
        words = words.replace(f" {mark}", mark)
    return words


def _instant(text: str | None) -> datetime | None:
    return None if text is None else datetime.fromisoformat(text)
