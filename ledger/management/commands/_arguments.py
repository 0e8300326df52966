"""What the ledger's commands share: reading dates, one-line refusals."""

from datetime import UTC, date, datetime, time
from zoneinfo import ZoneInfo

from django.core.management.base import CommandError

from budgets.models import Period
from ledger.instants import LedgerError, whole


def refuse(sentence: str) -> CommandError:
    """Return the error that prints one line and ends the command with status 2."""
    return CommandError(sentence, returncode=2)


def instant(text: str, name: str, zone: ZoneInfo) -> datetime:
    """Read an ISO date (its midnight in a zone) or an ISO instant with a zone or Z."""
    try:
        if len(text) == 10:
            return datetime.combine(date.fromisoformat(text), time(), tzinfo=zone).astimezone(UTC)
        return whole(datetime.fromisoformat(text), name)
    except (ValueError, OverflowError) as error:
        if isinstance(error, LedgerError):
            raise refuse(str(error)) from None
        raise refuse(
            f"{name}: {text!r} is neither a date (2026-10-01) nor an instant "
            "(2026-10-01T00:00:00Z)."
        ) from None


def zone_of(text: str | None, default: ZoneInfo) -> ZoneInfo:
    """Return the zone that a date is meant in: see `zone_at`; an instant needs none."""
    if not text or len(text) != 10:
        return default
    return zone_at(instant(text, "date", ZoneInfo("UTC")).replace(hour=12), default)


def zone_at(at: datetime, default: ZoneInfo) -> ZoneInfo:
    """Return the accounting zone of the period at an instant; else of the next, or the last."""
    started = Period.objects.exclude(status__in=(Period.Status.DRAFT, Period.Status.PROPOSED))
    period = started.filter(ends_at__gt=at).order_by("starts_at").first()
    period = period or started.order_by("starts_at").last()
    return ZoneInfo(period.time_zone) if period else default


def zone_named(name: str) -> ZoneInfo:
    try:
        return ZoneInfo(name)
    except (KeyError, ValueError, OSError):
        raise refuse(f"{name!r} is no time zone: use one such as Europe/Zurich.") from None
