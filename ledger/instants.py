"""Instants as the ledger keeps them: UTC, whole seconds; and the one error it raises."""

from datetime import UTC, datetime, timedelta, tzinfo
from functools import lru_cache

from django.conf import settings

from budgets.calendars import midnight as midnight  # also for those who read the ledger
from clusters.saying import say as _


class LedgerError(ValueError):
    """A refusal; its text is one sentence that says what to change."""


def whole(instant: datetime, name: str) -> datetime:
    """Return the instant in UTC; refuse one without a zone or with a fraction of a second."""
    if instant.tzinfo is None:
        raise LedgerError(
            _("%(name)s has no time zone: give one, as in 2026-10-01T00:00:00Z.", name=name)
        )
    if instant.microsecond:
        raise LedgerError(
            _("%(name)s has a fraction of a second: give a whole second of UTC.", name=name)
        )
    return instant.astimezone(UTC)


@lru_cache(maxsize=1024)  # a tick names the same few instants in thousands of keys
def iso(instant: datetime) -> str:
    """Return the instant as it stands in keys and files, such as 2026-10-01T00:00:00Z."""
    return instant.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def to_seconds(instant: datetime) -> int:
    """Return whole seconds since 1970."""
    return int(instant.timestamp())


@lru_cache(maxsize=1024)
def from_seconds(seconds: int) -> datetime:
    return datetime.fromtimestamp(seconds, UTC)


@lru_cache(maxsize=4096)
def local_day(seconds: int, zone: tzinfo) -> int:
    """Return the midnight (seconds since 1970) that an instant follows on a zone's clocks."""
    day = datetime.fromtimestamp(seconds, zone).date()
    around = (to_seconds(midnight(day + timedelta(days=n), zone)) for n in (1, 0, -1))
    return next(at for at in around if at <= seconds)


def timestep_seconds() -> int:
    """Return the length of a timestep; timesteps are aligned to the hour in UTC."""
    return settings.TIMESTEP_MINUTES * 60


def timestep() -> timedelta:
    """Return the same as a length of time."""
    return timedelta(seconds=timestep_seconds())


def timestep_at(at: datetime) -> datetime:
    """Return the start of the timestep that an instant lies in."""
    day = at.astimezone(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
    return day + (at - day) // timestep() * timestep()


def span(start: datetime, end: datetime) -> tuple[datetime, datetime]:
    """Return both ends of a half-open interval in UTC; refuse one that ends before it starts."""
    start, end = whole(start, "start"), whole(end, "end")
    if end < start:
        raise LedgerError(
            _(
                "The interval ends (%(end)s) before it starts (%(start)s).",
                end=iso(end),
                start=iso(start),
            )
        )
    return start, end
