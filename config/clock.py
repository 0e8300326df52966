"""The clock of the interfaces. Domain code never reads one: time is an argument there."""

from datetime import datetime

from django.utils import timezone


def now() -> datetime:
    """Return this instant in UTC, in whole seconds."""
    return timezone.now().replace(microsecond=0)
