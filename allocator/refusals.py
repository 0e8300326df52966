"""Jobs that a cluster refuses to start: left out of the plan for a while, so that others get the
block, and longer with every refusal.

All of it follows from the job's runs: how often it was refused since a run of it really started,
and when last. A run that starts ends the count.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import groupby
from operator import attrgetter

from allocator.models import Outlook
from ledger.instants import iso
from workloads.models import Job, JobEvent, Run

RULE = "refused"  # of outlooks
# How long a job is left out after its first refusal in a row, its second, …; then the last again.
PAUSES = tuple(timedelta(minutes=minutes) for minutes in (1, 2, 4, 8, 16, 32, 60))
REASON_MAX = 300


@dataclass(frozen=True)
class Refused:
    """Why a waiting job is left alone: who refused it last, how often in a row, until when."""

    cluster: str
    reason: str
    times: int
    until: datetime

    def as_data(self) -> dict[str, object]:
        """As it stands in an outlook."""
        return {
            "cluster": self.cluster,
            "reason": self.reason,
            "times": self.times,
            "until": iso(self.until),
        }


def pause(times: int) -> timedelta:
    """How long a job is left out after so many refusals in a row."""
    return PAUSES[min(times, len(PAUSES)) - 1]


def paused(*, at: datetime) -> dict[int, Refused]:
    """Waiting jobs that are not to be tried yet at an instant, by id. At most two queries."""
    refused = Run.objects.filter(job__state=Job.State.QUEUED, end_reason=Run.EndReason.REFUSED)
    runs = Run.objects.filter(job__in=refused.order_by().values("job"))
    ordered = runs.select_related("pool__cluster").order_by("job_id", "number")
    last: dict[int, tuple[Run, int]] = {}
    for job_id, own in groupby(ordered, key=attrgetter("job_id")):
        in_a_row = _in_a_row(own)
        if in_a_row and (in_a_row[-1].ended_at or at) + pause(len(in_a_row)) > at:
            last[job_id] = in_a_row[-1], len(in_a_row)
    reasons = _reasons([run.pk for run, _ in last.values()])
    return {
        job_id: Refused(
            cluster=run.pool.cluster.name,
            reason=reasons.get(run.pk) or "it gave no reason",
            times=times,
            until=(run.ended_at or at) + pause(times),
        )
        for job_id, (run, times) in last.items()
    }


def _in_a_row(runs: Iterable[Run]) -> list[Run]:
    """The refusals of one job's runs since the last that really started."""
    found: list[Run] = []
    for run in runs:
        if run.started_at is not None:
            found = []
        elif run.end_reason == Run.EndReason.REFUSED:
            found.append(run)
    return found


def _reasons(runs: list[int]) -> dict[int, str]:
    """What the clusters said, by run, from the jobs' stories."""
    if not runs:
        return {}
    told = JobEvent.objects.filter(run_id__in=runs, kind=f"run_{Run.EndReason.REFUSED}")
    return {
        run_id: str(data.get("why", ""))[:REASON_MAX].rstrip(". ")
        for run_id, data in told.values_list("run_id", "data")
        if run_id is not None
    }


def next_try() -> datetime | None:
    """When the first of the jobs that are left out may be tried again."""
    waiting = Outlook.objects.filter(rule=RULE, job__state=Job.State.QUEUED)
    instants = [
        datetime.fromisoformat(data["until"]) for data in waiting.values_list("data", flat=True)
    ]
    return min(instants, default=None)
