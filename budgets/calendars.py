"""Local dates as instants: where days, months and quarters of an accounting zone begin.

Borders are half-open UTC instants, so a day on which clocks change has 23 or 25 hours and still
begins once.
"""

import re
from datetime import UTC, date, datetime, time, timedelta, tzinfo
from zoneinfo import ZoneInfo

from budgets.refusals import Refused
from clusters.saying import say as _

YEARS = range(1970, 2200)
MONTH, QUARTER = re.compile(r"(\d{4})-(\d\d)"), re.compile(r"(\d{4})-Q([1-4])")
LIKE = "2026-11-01 America/New_York"


def zone(name: str) -> ZoneInfo:
    """Return a time zone by its name; refuses what is none."""
    try:
        return ZoneInfo(name)
    except (KeyError, ValueError, OSError):
        raise Refused(
            "time_zone", _("%(name)s is no time zone: use one such as UTC.", name=repr(name))
        ) from None


def midnight(day: date, zone: tzinfo) -> datetime:
    """Return the instant at which a day begins on a zone's clocks.

    Where clocks skip midnight that is the first instant of the day, where they show it twice the
    first of the two.
    """
    return datetime.combine(day, time(), tzinfo=zone).astimezone(UTC)


def border(text: str) -> datetime:
    """Return the instant that a local date names, given as "2026-11-01 America/New_York"."""
    day, _, name = text.strip().partition(" ")
    return midnight(local_date(day), zone(name.strip()))


def local_date(text: str) -> date:
    """Return a date from 1970 to 2199, given as 2026-11-01."""
    try:
        day = date.fromisoformat(text)
    except ValueError:
        day = date.min
    if day.year not in YEARS:
        raise Refused(
            "calendar",
            _(
                "%(text)s is no date of a border: give one like %(like)s.",
                text=repr(text),
                like=LIKE,
            ),
        )
    return day


def days(first: date, until: date, zone: tzinfo) -> tuple[datetime, datetime]:
    """Return [start, end) of the local days from `first` up to, not including, `until`."""
    return midnight(first, zone), midnight(until, zone)


def calendar(text: str, zone: tzinfo) -> tuple[datetime, datetime]:
    """Return [start, end) of a month (2026-11) or a quarter (2026-Q4) of a zone."""
    if found := MONTH.fullmatch(text):
        year, month, months = int(found[1]), int(found[2]), 1
    elif found := QUARTER.fullmatch(text):
        year, month, months = int(found[1]), 3 * int(found[2]) - 2, 3
    else:
        year = month = months = 0
    if year not in YEARS or not 1 <= month <= 12:
        raise Refused(
            "calendar",
            _("%(text)s is no month or quarter: give 2026-11, or 2026-Q4.", text=repr(text)),
        )
    over, last = divmod(month - 1 + months, 12)
    return days(date(year, month, 1), date(year + over, last + 1, 1), zone)


def span(
    *,
    zone: tzinfo,
    calendar_name: str = "",
    starts_on: date | None = None,
    ends_on: date | None = None,
    starts_at: datetime | None = None,
    ends_at: datetime | None = None,
) -> tuple[datetime, datetime]:
    """Return [start, end), given in one of three ways: a month or quarter by its name, local days
    (`ends_on` is the first day after), or instants.
    """
    by_day, by_instant = (starts_on, ends_on), (starts_at, ends_at)
    ways = [bool(calendar_name), any(by_day), any(by_instant)]
    if ways == [True, False, False]:
        return calendar(calendar_name, zone)
    if ways == [False, True, False] and starts_on and ends_on:
        _check_years(starts_on=starts_on, ends_on=ends_on)
        return days(starts_on, ends_on, zone)
    if ways == [False, False, True] and starts_at and ends_at:
        return starts_at, ends_at
    raise Refused(
        "calendar",
        _(
            "Give either a calendar (2026-11 or 2026-Q4), or starts_on and ends_on, or "
            "starts_at and ends_at."
        ),
    )


def _check_years(**dates: date) -> None:
    for field, day in dates.items():
        if day.year not in YEARS:
            raise Refused(
                field,
                _(
                    "Give a date of the years %(start)s to %(stop)s.",
                    start=YEARS.start,
                    stop=YEARS.stop - 1,
                ),
            )


def length_days(start: datetime, end: datetime, zone: tzinfo) -> int:
    """Return how many local days an interval touches; a day of 23 or 25 hours is one."""
    last = (end - timedelta(seconds=1)).astimezone(zone).date()
    return (last - start.astimezone(zone).date()).days + 1
