"""Numbers, money, durations and instants as the pages write them. Nothing here knows a model.

Integers come in (milli-GPU-seconds, GPU-seconds, thousandths of a percent, seconds), text goes out:
grouped by the reader's language, with a true minus sign, in the reader's time zone.
"""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from decimal import ROUND_HALF_UP, Decimal

from django import template
from django.http import HttpRequest
from django.utils import timezone
from django.utils.formats import date_format, number_format
from django.utils.html import format_html
from django.utils.safestring import SafeString
from django.utils.translation import gettext as _

from clusters.palette import HUES

register = template.Library()

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


@register.filter
def number(value: Number | None, places: int = 0) -> str:
    """A plain number: ``{{ pace|number:2 }}``. None is a dash."""
    return NO_VALUE if value is None else written(value, places)


@register.filter
def signed(value: Number | None, places: int = 0) -> str:
    """A difference: +5, −5, ±0."""
    return NO_VALUE if value is None else with_sign(value, places)


@register.filter
def credits(mgpus: int | None, places: int = 0) -> str:
    """Milli-GPU-seconds as credits (÷ 3,600,000), without the unit."""
    return _divided(mgpus, MGPUS_PER_CREDIT, places)


@register.filter
def signed_credits(mgpus: int | None, places: int = 0) -> str:
    """A difference of milli-GPU-seconds as credits, with its sign."""
    return _divided(mgpus, MGPUS_PER_CREDIT, places, with_sign)


@register.filter
def gpu_hours(gpu_seconds: int | None, places: int = 0) -> str:
    """GPU-seconds as GPU-hours, without the unit."""
    return _divided(gpu_seconds, 3600, places)


@register.filter
def signed_gpu_hours(gpu_seconds: int | None, places: int = 0) -> str:
    """A difference of GPU-seconds as GPU-hours, with its sign."""
    return _divided(gpu_seconds, 3600, places, with_sign)


@register.filter
def percent(thousandths: int | None, places: int = 1) -> str:
    """Thousandths of a percent as a percent, without the sign: 8750 is 8.8, with :2 8.75."""
    return _divided(thousandths, 1000, places)


@register.filter
def signed_percent(thousandths: int | None, places: int = 1) -> str:
    """A difference in thousandths of a percent, with its sign."""
    return _divided(thousandths, 1000, places, with_sign)


@register.filter
def plain_percent(thousandths: int) -> str:
    """Thousandths of a percent as an input field holds them: 33.333, in every language."""
    return f"{thousandths // 1000}.{thousandths % 1000:03d}"


@register.filter
def job_number(pk: int) -> str:
    """A job's number as people read it: 48127 is #48 127."""
    return f"#{pk:,}".replace(",", NARROW)


@register.filter
def hue(index: int | str | None) -> str:
    """CSS class of a program by its hue number (1 to 12); "org" is the organisation, else grey."""
    if index == "org":
        return "hue-org"
    in_set = isinstance(index, int) and 1 <= index <= HUES
    return f"hue-{index if in_set else 0}"


@register.filter
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


@register.filter
def days(seconds: int | None) -> str:
    """Whole days, as runways are told: 14; over 99 it is 99+."""
    if seconds is None:
        return NO_VALUE
    whole = seconds // 86_400
    return "99+" if whole > 99 else str(whole)


# Django's format letters, by style.
STYLES = {
    "full": "D j M H:i",
    "time": "H:i",
    "seconds": "H:i:s",
    "weekday": "D H:i",
    "day": "l j F",
    "date": "j M",
    "year": "j M Y",
    "moment": "j M Y H:i",
}


@register.filter
def instant(at: datetime | None, style: str = "full") -> str:
    """An instant in the reader's zone: Wed 25 Nov 18:02; other styles are the keys of STYLES."""
    if at is None:
        return NO_VALUE
    return date_format(timezone.localtime(at), STYLES[style], use_l10n=False)


@register.simple_tag
def at(when: datetime | None, style: str = "full") -> SafeString | str:
    """``<time>`` with the exact instant in UTC behind it: ``{% at job.submitted_at "time" %}``."""
    if when is None:
        return NO_VALUE
    return format_html(
        '<time datetime="{}" title="{}">{}</time>',
        f"{when.astimezone(UTC):%Y-%m-%dT%H:%M:%SZ}",
        f"{instant(when, 'moment')}, {timezone.localtime(when):%Z}",
        instant(when, style),
    )


@register.filter
def near(when: datetime | None, reference: datetime | None) -> str:
    """``when`` as short as is clear beside ``reference``: 18:02, Fri 02:30, 10 Dec 02:30."""
    if when is None or reference is None:
        return instant(when)
    apart = timezone.localtime(when).date() - timezone.localtime(reference).date()
    if not apart:
        return instant(when, "time")
    if abs(apart) < timedelta(days=6):
        return instant(when, "weekday")
    return f"{instant(when, 'date')} {instant(when, 'time')}"


def span(start: datetime, end: datetime, now: datetime | None = None) -> str:
    """A range: 17:15 – 20:30, or 20:30 – Fri 04:00 where the day turns."""
    return f"{near(start, now)} – {near(end, start)}"


@register.simple_tag
def window(
    start: datetime | None,
    end: datetime | None,
    likely: datetime | None = None,
    now: datetime | None = None,
) -> SafeString | str:
    """An estimate in a table: 17:15 – 01:00 and, quieter, likely 20:30."""
    if start is None or end is None:
        return NO_VALUE
    text = span(start, end, now)
    if likely is None:
        return format_html('<span class="rng">{}</span>', text)
    word = _("likely %(at)s") % {"at": near(likely, now or start)}
    return format_html('<span class="rng">{} <small>{}</small></span>', text, word)


@register.simple_tag
def window_text(
    start: datetime | None,
    end: datetime | None,
    likely: datetime | None = None,
    now: datetime | None = None,
) -> str:
    """The same in a sentence: 17:15 – 01:00, likely 20:30."""
    if start is None or end is None:
        return NO_VALUE
    text = span(start, end, now)
    if likely is None:
        return text
    return f"{text}, " + _("likely %(at)s") % {"at": near(likely, now or start)}


@register.simple_tag(takes_context=True)
def sort_url(context: template.Context, key: str) -> str:
    """Address that sorts by ``key``: first down, then up, then as it was; the page starts anew.

    The choice lives in the URL as ``?sort=-key`` (down) or ``?sort=key`` (up).
    """
    query = context["request"].GET.copy()
    query.pop("page", None)
    following = {f"-{key}": key, key: None}.get(query.pop("sort", [""])[-1], f"-{key}")
    if following:
        query["sort"] = following
    return f"?{query.urlencode()}"


@register.simple_tag(takes_context=True)
def with_query(context: template.Context, **changes: object) -> str:
    """Address of this page with some filters changed; None or "" drops one.

    ``{% with_query pool="h100" %}`` keeps all other filters and starts at the first page.
    """
    query = context["request"].GET.copy()
    query.pop("page", None)
    for name, value in changes.items():
        query.pop(name, None)
        if value not in (None, ""):
            query[name] = str(value)
    return f"?{query.urlencode()}" if query else "?"


@register.filter
def sorted_as(request: HttpRequest, key: str) -> str:
    """``aria-sort`` of a column: ascending, descending or empty."""
    chosen = request.GET.get("sort", "")
    return {key: "ascending", f"-{key}": "descending"}.get(chosen, "")
