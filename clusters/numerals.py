"""Numbers as people type them, with a comma or a point before the decimals. No model is known."""

import re
from typing import Any

from django import forms

SPACES = re.compile(r"[\s\u00a0\u202f]+")
GROUPED = re.compile(r"\d{1,3}([.,])\d{3}(\1\d{3})*")


def plain(text: str) -> str:
    """Return what was typed as ``1234.5``: 1.234,5 and 1,234.5 and 1 234,5 are the same.

    A lone comma or point is before the decimals in either language: 1.234 is one and a bit, which
    fields that take fewer decimals refuse rather than guess. What is no number comes back as it is.
    """
    text = SPACES.sub("", text)
    marks = [one for one in text if one in ",."]
    if len(marks) < 2:
        return text.replace(",", ".")
    if len(set(marks)) == 1:  # 1.234.567
        return text.replace(marks[0], "") if GROUPED.fullmatch(text) else text
    whole, part = text[: text.rindex(marks[-1])], text[text.rindex(marks[-1]) + 1 :]
    grouped = GROUPED.fullmatch(whole) and marks[-1] not in whole
    return f"{re.sub('[.,]', '', whole)}.{part}" if grouped else text


class Number(forms.DecimalField):
    """A number as people of any language type it."""

    def to_python(self, value: Any) -> Any:
        return super().to_python(plain(value) if isinstance(value, str) else value)
