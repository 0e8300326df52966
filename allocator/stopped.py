"""What a snapshot tells of who stopped whom lately, and of debug runs ahead of their order."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TypedDict

from django.conf import settings

from allocator.core import contract
from workloads.models import Job, Run
from workloads.preemptions import changed_places, stopped_lately, took_a_place


class Told(TypedDict):
    """Fields of `core.Running`."""

    shielded: tuple[str, ...]
    barred: tuple[str, ...]
    ahead: bool


@dataclass(frozen=True)
class Stopped:
    """By job: paths of the budgets that stopped it, jobs with which it changed places."""

    by: Mapping[int, set[str]]
    exchanged: Mapping[int, set[int]]
    ahead: set[int]

    @classmethod
    def lately(cls, *, runs: Mapping[int, Run], live: Sequence[Job], at: datetime) -> "Stopped":
        """Read it for live runs (by job) and their jobs: in up to four queries."""
        shield = timedelta(minutes=settings.PREEMPTED_AGAIN_MINUTES)
        exchange = timedelta(seconds=contract.EXCHANGE_S)
        return cls(
            by=stopped_lately(jobs=runs, since=at - shield, at=at),
            exchanged=changed_places(jobs=runs, since=at - exchange, at=at),
            ahead=_ahead(runs, live, at),
        )

    def told(self, job_id: int, name_of: Callable[[int], str]) -> Told:
        """What the problem says of the job's run."""
        return Told(
            shielded=tuple(sorted(self.by.get(job_id, ()))),
            barred=tuple(name_of(pk) for pk in sorted(self.exchanged.get(job_id, ()))),
            ahead=job_id in self.ahead,
        )


def _ahead(runs: Mapping[int, Run], live: Sequence[Job], at: datetime) -> set[int]:
    """Jobs of live debug runs that took the place of their own budget's runs."""
    debug = [runs[job.pk] for job in live if contract.is_debug(job.gpus, job.time_limit_s)]
    if not debug:
        return set()
    since = min(run.decided_at for run in debug)
    return took_a_place(jobs=[run.job_id for run in debug], since=since, at=at)
