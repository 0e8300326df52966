"""What is asked for and done: a service's demand from its profile, a job's work so far."""

from datetime import datetime, timedelta
from zoneinfo import ZoneInfo

from workloads.models import Job, Run, Service
from workloads.specs import WEEK_MINUTES


def demand_at(service: Service, at: datetime) -> int:
    """GPUs that the profile wants at an instant, read on the clock of the service's zone.

    On a day with a clock change the local hour decides, as traffic does: the repeated hour is
    served twice, the skipped one not at all.
    """
    local = at.astimezone(ZoneInfo(service.time_zone))
    minute = local.weekday() * 24 * 60 + local.hour * 60 + local.minute
    steps = len(service.profile)
    assert WEEK_MINUTES % (steps * service.step_minutes) == 0, "a profile spans a day or a week"
    return int(service.profile[minute // service.step_minutes % steps])


def demand_over(
    service: Service, *, start: datetime, step: timedelta, timesteps: int
) -> tuple[int, ...]:
    """GPUs wanted in each timestep: the peak of the profile inside it.

    Shape ``(timesteps,)``. The peak, sampled at each profile step, so that a profile finer than a
    timestep isn't served its first minutes only.
    """
    every = timedelta(minutes=min(service.step_minutes, 5))
    samples = max(1, step // every)
    return tuple(
        max(demand_at(service, start + step * t + every * n) for n in range(samples))
        for t in range(timesteps)
    )


def done_s(job: Job, run: Run | None, *, at: datetime) -> int:
    """Seconds of work that a job has done: what earlier runs kept, and its present one."""
    done = job.progress_s
    if run is not None and run.started_at is not None:
        done += int((at - run.started_at).total_seconds())
    return done
