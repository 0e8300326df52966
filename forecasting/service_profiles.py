"""Versions of services' profiles: which is in force, and what turns a service's rates into GPUs."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from django.conf import settings
from django.db.models import QuerySet

from clusters.refusals import Refused
from clusters.saying import Said, hundredths
from clusters.saying import say as _
from forecasting import gpu_rates, traffic
from forecasting.core import calibrating as core
from forecasting.core.profile import KEPT_DAYS, DemandError, Traffic
from forecasting.models import RatePerGpu, ServiceProfile
from workloads.models import Job, Service


def live() -> QuerySet[Service]:
    """Return the services that have not ended and have traffic."""
    services = Service.objects.select_related("job").exclude(traffic_step_minutes=None)
    return services.exclude(job__state__in=Job.ENDED).order_by("job_id")


def newest(service: Service) -> ServiceProfile | None:
    """Return the version that was made last, in force or not."""
    return ServiceProfile.objects.filter(service=service).order_by("-version").first()


def in_force(service: Service) -> ServiceProfile | None:
    """Return the version in force, if there is one."""
    versions = ServiceProfile.objects.filter(service=service, replaced_at=None)
    return versions.exclude(in_force_at=None).select_related("rate").first()


def why_not(tried: Mapping[str, Any], present: Mapping[str, Any]) -> Said:
    """Say why a version isn't in force, from how it did and how the one in force did."""
    if tried["broken"]:
        return _(
            "It would have changed by more than the swap cap %(times)s times.",
            times=tried["broken"],
        )
    return _(
        "On the last %(days)s days it would have done worse than the profile in force: a loss of "
        "%(loss)s GPUs a timestep, against %(against)s.",
        days=core.HELD_OUT_DAYS,
        loss=hundredths(round(100 * tried["loss"])),
        against=hundredths(round(100 * present["loss"])),
    )


def bounds(service: Service) -> tuple[int, int]:
    """Return the least and the most GPUs of forecasts: as given, else the declared profile's."""
    least = min(service.profile) if service.least_gpus is None else service.least_gpus
    most = max(service.profile) if service.most_gpus is None else service.most_gpus
    return least, most


def rate_of(service: Service) -> RatePerGpu:
    """Return what a GPU does; refuse where nobody knows."""
    rate = gpu_rates.in_force(service)
    if rate is None:
        raise Refused(
            "rate_per_gpu",
            _(
                "Nobody knows what one GPU does of this service's traffic: declare it, or send "
                "the traffic of %(enough_busy)s busy steps in which it held GPUs.",
                enough_busy=gpu_rates.ENOUGH_BUSY,
            ),
        )
    return rate


def terms_of(service: Service, rate: RatePerGpu) -> core.Terms:
    """Return what turns rates into GPUs now."""
    least, most = bounds(service)
    try:
        return core.Terms(
            per_gpu=(rate.rate_micro or 0) / traffic.MICRO,
            cap=service.swap_cap,
            quantile=settings.CAPACITY_PERCENT / 100,
            least=least,
            most=most,
            timestep_s=settings.TIMESTEP_MINUTES * 60,
        )
    except DemandError as error:
        raise Refused("rate_per_gpu", str(error)) from None


def history(service: Service, *, until: datetime, days: int = KEPT_DAYS) -> Traffic | None:
    """Return the service's newest traffic by timesteps, or by multiples of one; None: none."""
    found = traffic.series(service, until=until, days=days)
    if found is None:
        return None
    try:
        return core.by_timestep(found, settings.TIMESTEP_MINUTES * 60)
    except DemandError as error:
        raise Refused("traffic", str(error)) from None
