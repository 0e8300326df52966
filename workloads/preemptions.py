"""Who stopped whom lately, from the jobs' own stories."""

from collections import defaultdict
from collections.abc import Iterable
from datetime import datetime

from workloads.models import JobEvent, Run

DECIDED = f"{Run.EndReason.PREEMPTED}_decided"


def stopped_lately(*, jobs: Iterable[int], since: datetime, at: datetime) -> dict[int, set[str]]:
    """Per job (by id): paths of the budgets whose jobs stopped it in (since, at]."""
    events = JobEvent.objects.filter(job__in=jobs, kind=DECIDED, at__gt=since, at__lte=at)
    found: dict[int, set[str]] = defaultdict(set)
    for job, data in events.values_list("job_id", "data"):
        if data.get("by_budget"):
            found[job].add(data["by_budget"])
    return dict(found)
