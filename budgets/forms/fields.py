"""Fields of forms about budgets: percents and amounts as people type them."""

from typing import Any

from django import forms
from django.utils.translation import gettext as _

from budgets.models import WHOLE, Request
from budgets.refusals import CREDIT
from clusters.numerals import plain
from clusters.writing import plain_percent, typed

INSTANT = "%Y-%m-%dT%H:%M"  # what browsers send of a datetime-local field
HOUR = 3600


class Percent(forms.CharField):
    """A percent with at most three decimals; its value is in thousandths."""

    def to_python(self, value: Any) -> Any:
        text = plain(str(value or "").strip().removesuffix("%"))
        if not text:
            return None
        whole, _dot, part = text.partition(".")
        digits = f"{whole}{part}"
        if not digits.isascii() or not digits.isdigit() or len(whole) > 3 or len(part) > 3:
            raise forms.ValidationError(_wrong())
        thousandths = int(whole or 0) * 1000 + int(part.ljust(3, "0") or 0)
        if thousandths > WHOLE:
            raise forms.ValidationError(_wrong())
        return thousandths

    def prepare_value(self, value: Any) -> Any:
        if isinstance(value, int):
            return typed(plain_percent(value))
        return value


def _wrong() -> str:
    return _("Give a percent from 0 to 100 with at most three decimals, such as 33.333.")


class Amount(forms.CharField):
    """An amount whose unit another field says: its value is the text, tidied."""

    def to_python(self, value: Any) -> str:
        return plain(str(value or "").strip().removesuffix("%"))


def amount_of(text: str, unit: str) -> int:
    """Return what was typed, in thousandths of a percent or in milli-GPU-seconds."""
    if unit == Request.Unit.PERCENT:
        return int(Percent().to_python(text) or 0)
    return _times(text, CREDIT, _("Give credits with at most two decimals, such as 250.5."))


def cost_of_gpu_hours(text: str, rate_per_mille: int) -> int:
    """Return what GPU-hours that were typed cost at a rate, in milli-GPU-seconds."""
    wrong = _("Give GPU-hours with at most two decimals, such as 250.5.")
    return _times(text, HOUR * rate_per_mille, wrong)


def _times(text: str, one: int, wrong: str) -> int:
    """Return a number that was typed times what one is worth, rounded down."""
    whole, _dot, part = text.partition(".")
    digits = f"{whole}{part}"
    if not digits.isascii() or not digits.isdigit() or len(whole) > 11 or len(part) > 2:
        raise forms.ValidationError(wrong)
    return int(digits) * one // 10 ** len(part)


def amount_text(amount: int, unit: str) -> str:
    """Return an amount as it is typed; credits rounded down to two decimals."""
    if unit == Request.Unit.PERCENT:
        return str(Percent().prepare_value(amount))
    hundredths = amount * 100 // CREDIT
    return typed(f"{hundredths // 100}.{hundredths % 100:02d}")
