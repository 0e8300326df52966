"""Sentences and figures that can be said again in another language than they were first said in.

`say` gives text in the language of whoever is served: a page's reader, else English. What it gives
also remembers its words and figures, so what is kept (`kept`) can be said later to a reader of any
language (`told`). Modules import it as ``_``, by which gettext's programs find the words.
"""

from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

from django.utils import translation
from django.utils.formats import date_format, number_format

from clusters.words import worded

ENGLISH = "en"


class Said(str):
    """A sentence with the words (English, ``%(name)s`` for a value) and values it was made of."""

    words: str
    values: Mapping[str, object]


class Figure(str):
    """A number or an instant as text, with what it was made of."""

    kind: str
    raw: Any


def say(words: str, /, **values: object) -> Said:
    """Say something in the active language; without values a percent sign is just that."""
    text = translation.gettext(words)
    said = Said(text % values if values else text)
    said.words, said.values = words, values
    return said


def joined(texts: Iterable[str], between: str = "") -> Said:
    """Lay texts one after another, each still what it is."""
    values = {f"p{number}": text for number, text in enumerate(texts)}
    return say(between.join(f"%({name})s" for name in values), **values)


def state(label: str) -> Figure:
    """Return a label of a model's choices as it stands inside a sentence."""
    return _figure("state", label)


def kept(text: str) -> dict[str, Any]:
    """Return a sentence as it is kept: its words, and its values in no language. JSON."""
    if not isinstance(text, Said):
        return {"words": "%(text)s", "values": {"text": str(text)}}
    return {
        "words": text.words,
        "values": {name: _kept_value(value) for name, value in text.values.items()},
    }


def _kept_value(value: object) -> object:
    if isinstance(value, Said):
        return kept(value)
    if isinstance(value, Figure):
        return {"kind": value.kind, "raw": value.raw}
    return value if isinstance(value, int) else str(value)


def told(sentence: Mapping[str, Any]) -> Said:
    """Say in the active language what was kept."""
    values = {name: _told_value(value) for name, value in sentence["values"].items()}
    return say(sentence["words"], **values)


def _told_value(value: Any) -> object:
    if not isinstance(value, dict):
        return value
    return told(value) if "words" in value else _figure(value["kind"], value["raw"])


def in_english(text: str) -> str:
    """Return a sentence in English, whatever it was said in: the API's language."""
    if not isinstance(text, Said):
        return text
    with translation.override(ENGLISH):
        return told(kept(text))


def number(value: int) -> Figure:
    """Return a whole number, grouped: '1,234'."""
    return _figure("number", value)


def instant(at: datetime) -> Figure:
    """Return an instant as people read it, in UTC: '27 Nov 2026 14:00 UTC'."""
    return _figure("instant", at.astimezone(UTC).isoformat())


def day(at: datetime) -> Figure:
    """Return the day of an instant in UTC: '27 Nov 2026'."""
    return _figure("day", at.astimezone(UTC).isoformat())


def clock(at: datetime) -> Figure:
    """Return an instant on the clocks of its own zone: '27 November 2026 14:00'."""
    return _figure("clock", at.isoformat())


def percent(thousandths: int) -> Figure:
    """Return thousandths of a percent as people read them: 33333 → '33.333 %'."""
    return _figure("percent", thousandths)


def per_mille(value: int) -> Figure:
    """Return a part of a thousand as people read it: 835 → '83.5 %'."""
    return _figure("per_mille", value)


def hundredths(value: int) -> Figure:
    """Return a whole number of hundredths: 123450 → '1,234.50'."""
    return _figure("hundredths", value)


def _figure(kind: str, raw: Any) -> Figure:
    made = Figure(KINDS[kind](raw))
    made.kind, made.raw = kind, raw
    return made


def _decimal(places: int, after: str = "") -> Callable[[int], str]:
    def write(raw: int) -> str:
        value = Decimal(raw).scaleb(-places)
        return number_format(value, places, use_l10n=True, force_grouping=True) + after

    return write


def _dated(raw: str, pattern: str) -> str:
    return date_format(datetime.fromisoformat(raw), pattern, use_l10n=True)


KINDS: dict[str, Callable[[Any], str]] = {
    "number": _decimal(0),
    "hundredths": _decimal(2),
    "state": lambda label: worded(label).lower(),
    "percent": _decimal(3, " %"),
    "per_mille": _decimal(1, " %"),
    "instant": lambda raw: f"{_dated(raw, 'd M Y H:i')} UTC",
    "day": lambda raw: _dated(raw, "d M Y"),
    "clock": lambda raw: _dated(raw, "j F Y H:i"),
}
