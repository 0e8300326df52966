"""The own real-time services of a window: what each wanted, timestep by timestep, as it was told.

That is what was forecast for a timestep before it began, as plans asked it then; where nothing was
told, what its owner's profile says.
"""

from collections import defaultdict
from collections.abc import Mapping
from datetime import datetime, timedelta

from django.conf import settings

from allocator.core.traces import TraceJob
from forecasting.models import DemandForecast
from workloads.demand import declared_over
from workloads.models import Job

SECOND = timedelta(seconds=1)
Told = Mapping[int, Mapping[datetime, int]]  # GPUs by job and timestep


def told(start: datetime, end: datetime) -> Told:
    """Return what was forecast for the timesteps of [start, end). One query."""
    found: dict[int, dict[datetime, int]] = defaultdict(dict)
    rows = DemandForecast.objects.filter(at__gte=start, at__lt=end)
    for job, at, gpus in rows.values_list("service__job_id", "at", "gpus"):
        found[job][at] = gpus
    return found


def written(job: Job, path: str, forecast: Told, start: datetime, end: datetime) -> TraceJob | None:
    """Return a service as a row of a trace of [start, end); None if it wanted nothing in it."""
    began, ended = max(job.submitted_at, start), min(job.ended_at or end, end)
    if began >= ended:
        return None
    step = timedelta(minutes=settings.TIMESTEP_MINUTES)
    mine = forecast.get(job.pk, {})
    slots = (start + step * n for n in range(-((start - ended) // step)))
    demand = tuple(
        0
        if at + step <= began
        else mine[at]
        if at in mine
        else declared_over(job.service, start=at, step=step)
        for at in slots
    )
    if not any(demand):
        return None
    return TraceJob(
        job_id=str(job.pk),
        submit_time_s=(began - start) // SECOND,
        gpus=job.gpus,
        duration_s=(ended - began) // SECOND,
        group=path,
        kind=job.kind,
        urgency=job.urgency,
        demand=demand,
        demand_step_s=step // SECOND,
        swap_cap=job.service.swap_cap,
    )
