"""Aligned UTC timesteps: planned and charged as one, named by their start."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

from django.conf import settings


def step() -> timedelta:
    return timedelta(minutes=settings.TIMESTEP_MINUTES)


def floor(at: datetime) -> datetime:
    """Start of the timestep that an instant lies in."""
    day = at.astimezone(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
    return day + (at - day) // step() * step()


def between(start: datetime, end: datetime) -> Iterator[datetime]:
    """Starts of the whole timesteps in [start, end); ``start`` is one itself."""
    while start + step() <= end:
        yield start
        start += step()


def ceil_steps(span: timedelta) -> int:
    """Timesteps that a span touches when it begins with one: rounded up, at least 0."""
    return max(0, -(-span // step()))
