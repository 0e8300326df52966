"""What services will want in the next days, told again and again as their traffic comes in.

Every few minutes: the recent level for the next 24 h, the week's profile after that, within the
swap cap from what the present timestep was told. It is written into the service's row, whence plans
read it, and kept of the next timestep, so that it can be held against what came.
"""

import logging
from dataclasses import dataclass
from datetime import datetime, timedelta

from django.conf import settings
from django.db import transaction

from clusters.refusals import Refused
from forecasting import service_profiles as profiles
from forecasting.core import calibrating as core
from forecasting.core.demand import Ahead, ahead
from forecasting.core.profile import DemandError
from forecasting.models import DemandForecast, ServiceProfile
from ledger.instants import timestep, timestep_at
from workloads.demand import demand_over, of_profile
from workloads.models import Holding, Service

logger = logging.getLogger(__name__)
Source = DemandForecast.Source
NEAR = timedelta(hours=24)  # followed by the recent level
FAR = timedelta(hours=72)  # told at all: longer than any horizon, and a worker's day off
RECENT_DAYS = 8  # of traffic: all that tells the level
FRESH = timedelta(hours=24)  # older traffic says nothing of the level


@dataclass(frozen=True)
class Told:
    """GPUs of each timestep from an instant on, and by what the first ones are known."""

    start: datetime
    gpus: tuple[int, ...]
    source: str


def look_all(*, now: datetime) -> int:
    """Look ahead for every service that has traffic; return for how many it could be done."""
    done = 0
    for service in profiles.live():
        try:
            look(service=service, now=now)
            done += 1
        except Exception:
            logger.exception("What service %s will need can't be told.", service.job_id)
    return done


def look(*, service: Service, now: datetime) -> Told | None:
    """Tell what a service will want, and keep it of the next timestep.

    None: it follows its owner's profile, of which only what it says of the next one is kept.
    """
    profile = profiles.in_force(service)
    if not service.calibrated or profile is None or service.forecast is None:
        _keep_declared(service, now)
        return None
    told = tell(service, profile, now)
    with transaction.atomic():
        row = Service.objects.select_for_update(no_key=True).get(pk=service.pk)
        if not row.calibrated or (row.forecast or {}).get("version") != profile.version:
            return None  # another version has come meanwhile, and was looked ahead with
        row.forecast = {
            **(row.forecast or {}),
            "ahead": {
                "start": int(told.start.timestamp()),
                "step_minutes": settings.TIMESTEP_MINUTES,
                "gpus": list(told.gpus),
            },
        }
        row.save(update_fields=["forecast"])
        _keep(row, told.start, told.gpus[0], told.source, profile.version, anew=False)
        _keep(row, told.start + timestep(), told.gpus[1], told.source, profile.version, anew=True)
    service.forecast = row.forecast
    return told


def tell(service: Service, profile: ServiceProfile, now: datetime) -> Told:
    """Work out what a service will want from the present timestep on. Writes nothing."""
    start = timestep_at(now)
    terms = profiles.terms_of(service, profile.rate)
    found = _recent(service, profile, now)
    gpus = core.compose(
        found=found,
        of_week=lambda at: of_profile(profile.week, profile.step_minutes, service.time_zone, at),
        start=start,
        timesteps=FAR // timestep(),
        base=_base(service, start),
        terms=terms,
    )
    return Told(start, gpus, Source.WEEK if found is None else Source.RECENT)


def _recent(service: Service, profile: ServiceProfile, now: datetime) -> Ahead | None:
    """The forecast by the recent level; None where the traffic is too old, or too little."""
    model = core.unpacked(profile.fitted)
    try:
        known = profiles.history(service, until=now, days=RECENT_DAYS)
        if known is None or known.end < now - FRESH:
            return None
        steps = int((now + NEAR + timestep() - known.end).total_seconds()) // known.step_s + 1
        return ahead(model, known, steps, profile.fitted["quantile"])
    except (DemandError, Refused) as error:
        logger.info("Service of job %s follows its week: %s", service.job_id, error)
        return None


def _base(service: Service, start: datetime) -> int | None:
    """What the present timestep was told before, or what is held now; None: it doesn't run."""
    told = (service.forecast or {}).get("ahead")
    if told is not None and told["step_minutes"] == settings.TIMESTEP_MINUTES:
        place = (int(start.timestamp()) - told["start"]) // (told["step_minutes"] * 60)
        if 0 <= place < len(told["gpus"]):
            return int(told["gpus"][place])
    held = Holding.objects.filter(run__job_id=service.job_id, ended_at=None)
    gpus = sum(held.values_list("gpus", flat=True))
    return gpus or None


def _keep_declared(service: Service, now: datetime) -> None:
    start = timestep_at(now)
    this, following = demand_over(service, start=start, step=timestep(), timesteps=2)
    with transaction.atomic():
        _keep(service, start, this, Source.DECLARED, None, anew=False)
        _keep(service, start + timestep(), following, Source.DECLARED, None, anew=True)


def _keep(
    service: Service, at: datetime, gpus: int, source: str, version: int | None, *, anew: bool
) -> None:
    """Keep what was told of a timestep: what was told last before it began, once it has."""
    row = DemandForecast(service=service, at=at, gpus=gpus, source=source, version=version)
    if anew:
        DemandForecast.objects.bulk_create(
            [row],
            update_conflicts=True,
            unique_fields=["service", "at"],
            update_fields=["gpus", "source", "version"],
        )
    else:
        DemandForecast.objects.bulk_create([row], ignore_conflicts=True)
