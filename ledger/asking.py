"""What a report is asked about, from what people type: dates, a zone, child or leaf."""

from collections.abc import Mapping
from datetime import UTC, date, datetime, time, timedelta
from zoneinfo import ZoneInfo

from budgets.access import Standing
from budgets.models import Budget, Period
from clusters.saying import say as _
from ledger.full_report import Asked
from ledger.instants import LedgerError, iso, whole
from ledger.segments import STARTED, periods_in_force

SECOND = timedelta(seconds=1)
YEARS = range(1970, 2200)


def asked(
    budget: Budget, given: Mapping[str, str], now: datetime, *, held: Standing
) -> Asked | None:
    """Return what ``from``, ``to``, ``by`` and ``zone`` ask for; None before any period started.

    Dates are midnights in the zone; left out they are the start of the period that runs (else of
    the last one that did) and now, at most its end. Raises LedgerError, in a sentence.
    """
    zone = zone_named(given["zone"]) if given.get("zone") else None
    period = last_period(now)
    if period is None:
        return None
    clocks = zone or ZoneInfo(period.time_zone)
    start = instant(given["from"], "from", clocks) if given.get("from") else period.starts_at
    until = max(min(now, period.ends_at), period.starts_at + SECOND)
    end = instant(given["to"], "to", clocks) if given.get("to") else until
    if start >= end:
        raise LedgerError(
            _(
                "The start (%(start)s) must come before the end (%(end)s).",
                start=iso(start),
                end=iso(end),
            )
        )
    return Asked(budget, start, end, now, given.get("by") or "child", zone, held)


def last_period(now: datetime) -> Period | None:
    """Return the period that runs at an instant, else the last that did."""
    begun = (one for one in periods_in_force() if one.starts_at <= now)
    started = [one for one in begun if one.status in STARTED]
    return started[-1] if started else None


def zone_named(name: str) -> ZoneInfo:
    try:
        return ZoneInfo(name)
    except (KeyError, ValueError, OSError):
        raise LedgerError(
            _("%(name)s is no time zone: use one such as Europe/Zurich.", name=repr(name))
        ) from None


def instant(text: str, name: str, zone: ZoneInfo) -> datetime:
    """Read an ISO date (its midnight in a zone) or an ISO instant with a zone or Z."""
    try:
        if len(text) == 10:
            at = datetime.combine(date.fromisoformat(text), time(), tzinfo=zone).astimezone(UTC)
        else:
            at = whole(datetime.fromisoformat(text), name)
    except LedgerError:
        raise
    except (ValueError, OverflowError):
        raise LedgerError(
            _(
                "%(name)s: %(text)s is neither a date (2026-10-01) nor an instant "
                "(2026-10-01T00:00:00Z).",
                name=name,
                text=repr(text),
            )
        ) from None
    if at.year not in YEARS:
        raise LedgerError(
            _(
                "%(name)s: %(text)s is no year of ours: give one from 1970 to 2199.",
                name=name,
                text=repr(text),
            )
        )
    return at


def on_clocks(at: datetime, name: str, zone: ZoneInfo) -> datetime:
    """Return the instant at which a zone's clocks show a time. Raises LedgerError for none or two.

    Clocks that go forward leave an hour out, those that go back show one twice.
    """
    try:
        first, second = (at.replace(tzinfo=zone, fold=fold).astimezone(UTC) for fold in (0, 1))
        shows = first.astimezone(zone).replace(tzinfo=None) == at
    except OverflowError:
        raise LedgerError(
            _(
                "%(name)s: %(isoformat)s is no time of ours: give another.",
                name=name,
                isoformat=at.isoformat(),
            )
        ) from None
    where = f"{name}: {at:%Y-%m-%d %H:%M:%S}"
    if not shows:
        raise LedgerError(
            _(
                "%(where)s is left out in %(zone)s, whose clocks go forward then: give an "
                "earlier or a later time.",
                where=where,
                zone=zone.key,
            )
        )
    if first != second:
        raise LedgerError(
            _(
                "%(where)s comes twice in %(zone)s, whose clocks go back then: choose the time "
                "zone UTC, and %(first)s or %(second)s.",
                where=where,
                zone=zone.key,
                first=iso(first),
                second=iso(second),
            )
        )
    return first
