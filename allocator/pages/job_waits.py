"""What bound a job's waits, and for how long, as far as the reader may know it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime

from allocator.models import Wait
from allocator.pages import queue
from allocator.pages.names import Names
from allocator.pages.queue import Why
from ledger.instants import to_seconds
from workloads.models import Job

SHORTEST = 60  # seconds that are told


@dataclass(frozen=True)
class Bound:
    """A rule that bound a wait, for so many seconds in all, and its particulars at last."""

    why: Why
    seconds: int


def seconds_of(wait: Wait, *, now: datetime) -> int:
    """How long a rule has bound an attempt up to now."""
    running = 0 if wait.since is None else max(0, to_seconds(now) - to_seconds(wait.since))
    return wait.seconds + running


class Waits:
    """The rules that bound a job, to be asked by spans of time; they were fetched with it."""

    def __init__(self, job: Job, names: Names, *, now: datetime) -> None:
        self.job, self.names, self.now = job, names, now
        self.rows = sorted(job.waits.all(), key=lambda one: (one.first_at, one.pk))

    def over(self, since: datetime, until: datetime) -> tuple[Bound, ...]:
        """What bound a wait that is over. Its last reason may be noted moments after its end."""
        return self._bound(row for row in self.rows if since <= row.first_at < until)

    def before(self, since: datetime) -> tuple[Bound, ...]:
        """What has bound the present wait before what binds it now."""
        rows = [row for row in self.rows if since <= row.first_at]
        binding = {row.rule for row in rows if row.since is not None}
        return self._bound(row for row in rows if row.rule not in binding)

    def _bound(self, rows: Iterable[Wait]) -> tuple[Bound, ...]:
        """One for each rule: an attempt may have passed without a run."""
        last: dict[str, Wait] = {}
        seconds: dict[str, int] = {}
        for row in rows:
            last[row.rule] = row
            seconds[row.rule] = seconds.get(row.rule, 0) + seconds_of(row, now=self.now)
        return tuple(
            Bound(queue.why_waited(self.job, row, self.names), seconds[rule])
            for rule, row in last.items()
            if seconds[rule] >= SHORTEST
        )
