"""A job's charges as bars: joined where there are more than a picture can tell apart."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timedelta

from django.utils import timezone

from ledger.reports import ChargeLine

MOST = 240  # bars; more would be narrower than the gaps between them
HOURS = (1, 2, 4, 6, 12, 24, 48, 168)


def joined(lines: Sequence[ChargeLine]) -> tuple[int, list[ChargeLine]]:
    """Return the hours that each line stands for, and the lines; 0: they are the charges.

    Joined lines begin at round hours of the reader's zone; those of one span begin and end alike,
    what is funded apart from what isn't.
    """
    if len(lines) <= MOST:
        return 0, list(lines)
    first, last = lines[0].start, max(line.end for line in lines)
    hours = next((n for n in HOURS if (last - first) / timedelta(hours=n) < MOST), HOURS[-1])
    span = timedelta(hours=hours)
    midnight = timezone.localtime(first).replace(hour=0, minute=0, second=0, microsecond=0)
    parts: dict[tuple[int, bool], list[ChargeLine]] = {}
    for line in lines:
        parts.setdefault(((line.start - midnight) // span, line.funded), []).append(line)
    return hours, [
        _sum(part, max(first, midnight + span * n), min(last, midnight + span * (n + 1)))
        for (n, _), part in parts.items()
    ]


def _sum(lines: Sequence[ChargeLine], start: datetime, end: datetime) -> ChargeLine:
    return replace(
        lines[0],
        start=start,
        end=end,
        gpu_seconds=sum(line.gpu_seconds for line in lines),
        parked_gpu_seconds=sum(line.parked_gpu_seconds for line in lines),
        amount_mgpus=sum(line.amount_mgpus for line in lines),
    )
