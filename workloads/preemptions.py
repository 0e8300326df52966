"""Who stopped whom lately, from the jobs' own stories."""

from collections import defaultdict
from collections.abc import Iterable
from datetime import datetime

from workloads.models import Job, JobEvent, Run

DECIDED = f"{Run.EndReason.PREEMPTED}_decided"


def stopped_lately(*, jobs: Iterable[int], since: datetime, at: datetime) -> dict[int, set[str]]:
    """Per job (by id): paths of the budgets whose jobs stopped it in (since, at].

    Paths as they are now: a budget may have been renamed or moved since.
    """
    stops = _stops(jobs, since, at)
    stoppers = Job.objects.filter(pk__in={by for _, by in stops})
    paths = dict(stoppers.values_list("pk", "budget__path")) if stops else {}
    found: dict[int, set[str]] = defaultdict(set)
    for job, by in stops:
        found[job].add(paths[by])
    return dict(found)


def changed_places(*, jobs: Iterable[int], since: datetime, at: datetime) -> dict[int, set[int]]:
    """Per job (by id): jobs that stopped it in (since, at] and were stopped by it then."""
    stops = _stops(jobs, since, at)
    back = _stops({by for _, by in stops}, since, at) if stops else set()
    found: dict[int, set[int]] = defaultdict(set)
    for job, by in stops:
        if (by, job) in back:
            found[job].add(by)
    return dict(found)


def took_a_place(*, jobs: Iterable[int], since: datetime, at: datetime) -> set[int]:
    """Those of the jobs (by id) that took the place of their own budget's runs in [since, at]."""
    events = JobEvent.objects.filter(kind=DECIDED, at__gte=since, at__lte=at, data__cause="debug")
    return {data["by_job"] for data in events.values_list("data", flat=True)} & set(jobs)


def _stops(jobs: Iterable[int], since: datetime, at: datetime) -> set[tuple[int, int]]:
    """(job, the job that stopped it), by ids."""
    events = JobEvent.objects.filter(job__in=jobs, kind=DECIDED, at__gt=since, at__lte=at)
    rows = events.values_list("job_id", "data")
    return {(job, data["by_job"]) for job, data in rows if data.get("by_job")}
