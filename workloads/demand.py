"""What is asked for and done: a service's demand from its profile, a job's work so far."""

import math
from datetime import datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

from workloads.models import Job, Run, Service
from workloads.specs import WEEK_MINUTES


def demand_at(service: Service, at: datetime) -> int:
    """GPUs that a service wants at an instant: by its forecast if it is calibrated and has one,
    else by the profile that its owner gave.
    """
    if service.calibrated and service.forecast:
        return _forecast_at(service, service.forecast, at)
    return declared_at(service, at)


def declared_at(service: Service, at: datetime) -> int:
    """GPUs that the profile given by its owner wants at an instant."""
    return of_profile(service.profile, service.step_minutes, service.time_zone, at)


def of_profile(profile: list[int], step_minutes: int, zone: str, at: datetime) -> int:
    """GPUs of a profile of a day or a week at an instant, read on the clock of a zone.

    On a day with a clock change the local hour decides, as traffic does: the repeated hour is
    served twice, the skipped one not at all.
    """
    local = at.astimezone(ZoneInfo(zone))
    minute = local.weekday() * 24 * 60 + local.hour * 60 + local.minute
    steps = len(profile)
    assert WEEK_MINUTES % (steps * step_minutes) == 0, "a profile spans a day or a week"
    return int(profile[minute // step_minutes % steps])


def _forecast_at(service: Service, forecast: dict[str, Any], at: datetime) -> int:
    """By the next days' forecast as far as it reaches, else by the forecast week."""
    if (ahead := forecast.get("ahead")) is not None:
        place = (int(at.timestamp()) - ahead["start"]) // (ahead["step_minutes"] * 60)
        if 0 <= place < len(ahead["gpus"]):
            return int(ahead["gpus"][place])
    return of_profile(forecast["week"], forecast["step_minutes"], service.time_zone, at)


def demand_over(
    service: Service, *, start: datetime, step: timedelta, timesteps: int
) -> tuple[int, ...]:
    """GPUs wanted in each timestep: the peak of the profile inside it.

    Shape ``(timesteps,)``. All that plans asks here. The peak, sampled at each profile step, so
    that a profile finer than a timestep isn't served its first minutes only.
    """
    return tuple(
        max(demand_at(service, at) for at in _within(service, start + step * t, step))
        for t in range(timesteps)
    )


def declared_over(service: Service, *, start: datetime, step: timedelta) -> int:
    """GPUs that the profile given by its owner wants in one timestep: its peak, as plans ask it."""
    return max(declared_at(service, at) for at in _within(service, start, step))


def _within(service: Service, start: datetime, step: timedelta) -> list[datetime]:
    """The instants at which a profile is read for its peak in a timestep: all where it may change.

    Its steps begin on the clock of its zone, which differs from UTC by whole quarters of an hour.
    """
    every = timedelta(minutes=math.gcd(5, service.step_minutes, int(step.total_seconds()) // 60))
    return [start + every * n for n in range(step // every)]


def done_s(job: Job, run: Run | None, *, at: datetime) -> int:
    """Seconds of work that a job has done: what earlier runs kept, and its present one."""
    done = job.progress_s
    if run is not None and run.started_at is not None:
        done += int((at - run.started_at).total_seconds())
    return done
