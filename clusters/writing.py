"""Numbers, money and lengths of time as people read them. Nothing here knows a model.

Integers come in (milli-GPU-seconds, GPU-seconds, thousandths of a percent, seconds), text goes out:
grouped by the reader's language, with a true minus sign.
"""

from collections.abc import Callable
from datetime import date, timedelta
from decimal import ROUND_HALF_UP, Decimal

from django.utils.formats import date_format, get_format, number_format
from django.utils.translation import get_language, ngettext
from django.utils.translation import gettext as _

MGPUS_PER_CREDIT = 3_600_000  # one GPU-hour at rate 1, in milli-GPU-seconds
NARROW = "\u202f"
NO_VALUE = "–"

Number = int | float | Decimal


def written(value: Number, places: int = 0) -> str:
    """``value`` rounded half up to ``places`` decimals, grouped, with a true minus sign."""
    step = Decimal(1).scaleb(-places)
    rounded = Decimal(str(value)).quantize(step, rounding=ROUND_HALF_UP)
    if rounded == 0:
        rounded = abs(rounded)  # no "−0"
    text = number_format(rounded, places, use_l10n=True, force_grouping=True)
    return text.replace("-", "−")


def with_sign(value: Number, places: int = 0) -> str:
    """As ``written``, with a plus before what is above zero and ± before what rounds to zero."""
    text = written(value, places)
    if text.startswith("−"):
        return text
    return ("±" if not any(digit in text for digit in "123456789") else "+") + text


def _divided(
    value: int | None, by: int, places: int, write: Callable[[Number, int], str] = written
) -> str:
    return NO_VALUE if value is None else write(Decimal(value) / by, places)


def number(value: Number | None, places: int = 0) -> str:
    """A plain number: ``{{ pace|number:2 }}``. None is a dash."""
    return NO_VALUE if value is None else written(value, places)


def gpus(value: int | None) -> str:
    """So many GPUs: 1 GPU, 1,024 GPUs; a dash where it isn't known."""
    words = ngettext("%(n)s GPU", "%(n)s GPUs", 0 if value is None else value)
    return words % {"n": number(value)}


def signed(value: Number | None, places: int = 0) -> str:
    """A difference: +5, −5, ±0."""
    return NO_VALUE if value is None else with_sign(value, places)


def credits(mgpus: int | None, places: int = 0) -> str:
    """Milli-GPU-seconds as credits (÷ 3,600,000), without the unit."""
    return _divided(mgpus, MGPUS_PER_CREDIT, places)


def signed_credits(mgpus: int | None, places: int = 0) -> str:
    """A difference of milli-GPU-seconds as credits, with its sign."""
    return _divided(mgpus, MGPUS_PER_CREDIT, places, with_sign)


def gpu_hours(gpu_seconds: int | None, places: int = 0) -> str:
    """GPU-seconds as GPU-hours, without the unit."""
    return _divided(gpu_seconds, 3600, places)


def signed_gpu_hours(gpu_seconds: int | None, places: int = 0) -> str:
    """A difference of GPU-seconds as GPU-hours, with its sign."""
    return _divided(gpu_seconds, 3600, places, with_sign)


def pace(per_mille: int | None) -> str:
    """A pace with two decimals, of per mille: 1.28. None is a dash."""
    return _divided(per_mille, 1000, 2)


def percent(thousandths: int | None, places: int = 1) -> str:
    """Thousandths of a percent as a percent, without the sign: 8750 is 8.8, with :2 8.75."""
    return _divided(thousandths, 1000, places)


def signed_percent(thousandths: int | None, places: int = 1) -> str:
    """A difference in thousandths of a percent, with its sign."""
    return _divided(thousandths, 1000, places, with_sign)


def plain_percent(thousandths: int) -> str:
    """Thousandths of a percent as pictures and scripts hold them: 33.333, in every language."""
    return f"{thousandths // 1000}.{thousandths % 1000:03d}"


def typed(plain: str) -> str:
    """A plain number as its reader types it, without groups: 33.333 is 33,333 in Portuguese."""
    return plain.replace(".", str(get_format("DECIMAL_SEPARATOR")))


# Django's format letters where a language puts the same parts otherwise.
LETTERS = {
    "pt-br": {
        "l j F": r"l, j \d\e F",
        "j F": r"j \d\e F",
        "j F Y": r"j \d\e F \d\e Y",
        "F Y": r"F \d\e Y",
    }
}
SMALL = {"pt-br"}  # writes the names of days and months small


def dated(when: date, letters: str) -> str:
    """A date or a local instant by Django's format letters, as the reader's language has it."""
    language = get_language() or ""
    text = date_format(when, LETTERS.get(language, {}).get(letters, letters), use_l10n=False)
    return text.lower() if language in SMALL else text


def job_number(pk: int) -> str:
    """A job's number as people read it: 48127 is #48 127."""
    return f"#{pk:,}".replace(",", NARROW)


def duration(seconds: int | timedelta | None, style: str = "") -> str:
    """A length of time: 45 s, 12 min, 3 h 58, 2 d 4 h. ``:"short"`` writes 6 h for 6 h 00."""
    if seconds is None:
        return NO_VALUE
    total = int(seconds.total_seconds() if isinstance(seconds, timedelta) else seconds)
    sign, total = ("−" if total < 0 else ""), abs(total)
    return sign + _length(total, short=style == "short")


def _length(total: int, *, short: bool) -> str:
    if total < 60:
        return _("%(n)s s") % {"n": total}
    if total < 3600:
        return _("%(n)s min") % {"n": total // 60}
    hours, minutes = total // 3600, total % 3600 // 60
    if hours >= 48:
        days, hours = divmod(hours, 24)
        text = _("%(n)s d") % {"n": days}
        return text if not hours else f"{text} " + _("%(n)s h") % {"n": hours}
    text = _("%(n)s h") % {"n": hours}
    return text if short and not minutes else f"{text} {minutes:02d}"


def days(seconds: int | None) -> str:
    """Whole days, as runways are told: 14; over 99 it is 99+."""
    if seconds is None:
        return NO_VALUE
    whole = seconds // 86_400
    return "99+" if whole > 99 else str(whole)
