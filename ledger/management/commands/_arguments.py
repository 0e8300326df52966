"""What the ledger's commands share: reading dates, one-line refusals."""

from datetime import datetime
from zoneinfo import ZoneInfo

from django.core.management.base import CommandError

from budgets.models import Period
from ledger import asking
from ledger.instants import LedgerError


def refuse(sentence: str) -> CommandError:
    """Return the error that prints one line and ends the command with status 2."""
    return CommandError(sentence, returncode=2)


def instant(text: str, name: str, zone: ZoneInfo) -> datetime:
    """Read an ISO date (its midnight in a zone) or an ISO instant with a zone or Z."""
    try:
        return asking.instant(text, name, zone)
    except LedgerError as error:
        raise refuse(str(error)) from None


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
        return asking.zone_named(name)
    except LedgerError as error:
        raise refuse(str(error)) from None
