"""Numbers, money, durations and instants as the pages write them. Nothing here knows a model.

Integers come in (milli-GPU-seconds, GPU-seconds, thousandths of a percent, seconds), text goes out:
grouped by the reader's language, with a true minus sign, in the reader's time zone.
"""

from datetime import UTC, date, datetime, timedelta

from django import template
from django.http import HttpRequest
from django.utils import timezone
from django.utils.html import format_html
from django.utils.safestring import SafeString
from django.utils.translation import gettext as _

from clusters.palette import HUES
from clusters.words import worded as worded
from clusters.writing import NO_VALUE as NO_VALUE
from clusters.writing import credits as credits
from clusters.writing import dated as written_date
from clusters.writing import days as days
from clusters.writing import duration as duration
from clusters.writing import gpu_hours as gpu_hours
from clusters.writing import gpus as gpus
from clusters.writing import job_number as job_number
from clusters.writing import number as number
from clusters.writing import pace as pace
from clusters.writing import percent as percent
from clusters.writing import plain_percent as plain_percent
from clusters.writing import signed as signed
from clusters.writing import signed_credits as signed_credits
from clusters.writing import signed_gpu_hours as signed_gpu_hours
from clusters.writing import signed_percent as signed_percent
from clusters.writing import typed
from clusters.writing import with_sign as with_sign
from clusters.writing import written as written

register = template.Library()

for _written in (
    number,
    signed,
    credits,
    signed_credits,
    gpu_hours,
    gpus,
    signed_gpu_hours,
    pace,
    percent,
    signed_percent,
    plain_percent,
    job_number,
    duration,
    days,
    worded,
):
    register.filter(_written)


@register.filter
def rate(per_mille: int) -> str:
    """A pool's rate, times the reference GPU: 1800 is 1.8."""
    return typed(f"{per_mille / 1000:.3f}".rstrip("0").rstrip("."))


@register.filter
def hue(index: int | str | None) -> str:
    """CSS class of a program by its hue number (1 to 12); "org" is the organisation, else grey."""
    if index == "org":
        return "hue-org"
    in_set = isinstance(index, int) and 1 <= index <= HUES
    return f"hue-{index if in_set else 0}"


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
    return written_date(timezone.localtime(at), STYLES[style])


@register.filter
def dated(when: date | None, letters: str) -> str:
    """A date, or an instant in the reader's zone, by Django's format letters: ``"j F Y"``."""
    if when is None:
        return NO_VALUE
    local = timezone.localtime(when) if isinstance(when, datetime) else when
    return written_date(local, letters)


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
