"""Aligned UTC timesteps: planned and charged as one, named by their start."""

from collections.abc import Iterator
from datetime import datetime, timedelta

from ledger.instants import timestep, timestep_at

step, floor = timestep, timestep_at


def between(start: datetime, end: datetime) -> Iterator[datetime]:
    """Starts of the whole timesteps in [start, end); ``start`` is one itself."""
    while start + step() <= end:
        yield start
        start += step()


def ceil_steps(span: timedelta) -> int:
    """Timesteps that a span touches when it begins with one: rounded up, at least 0."""
    return max(0, -(-span // step()))
