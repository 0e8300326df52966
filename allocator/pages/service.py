"""A real-time service: its traffic, what it was forecast to want, what it held, how good it was."""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from fractions import Fraction
from typing import Any

from django.http import Http404
from django.utils import timezone

from allocator import timesteps
from budgets.access import Action, Person, can
from clusters.saying import say as _
from forecasting import calibrating, demand_scores, gpu_rates, traffic
from forecasting import service_profiles as profiles
from forecasting.demand_scores import RealtimeRecord
from forecasting.models import DemandForecast, RatePerGpu, ServiceProfile, TrafficBucket
from ledger.instants import iso
from workloads.demand import demand_over
from workloads.models import Job, Service

BEHIND = timedelta(days=7)
AHEAD = timedelta(hours=24)
STALE = timedelta(hours=24)


@dataclass(frozen=True)
class ServicePage:
    """All that the part of the page shows. Parts are thousandths of a percent, None: not known."""

    job: Job
    now: datetime
    may_change: bool
    version: ServiceProfile | None  # in force, where it follows its traffic
    refused: ServiceProfile | None  # a newer one that isn't
    problem: str  # why none can be made now
    rate: RatePerGpu | None
    least: int
    most: int
    last: datetime | None  # when the last known step of its traffic ended
    record: RealtimeRecord | None  # of the last 7 days

    @property
    def service(self) -> Service:
        return self.job.service

    @property
    def why_not(self) -> str:
        """Why the newest version isn't in force, in the reader's language."""
        one = self.refused
        return profiles.why_not(one.tried, one.present or {}) if one is not None else ""

    @property
    def follows(self) -> bool:
        return self.service.calibrated and self.version is not None

    @property
    def is_stale(self) -> bool:
        """Whether the traffic that it follows has stopped: the level isn't known any more."""
        return self.follows and self.last is not None and self.last < self.now - STALE

    @property
    def per_gpu(self) -> str:
        """The rate of one GPU as a field holds it: exact, so that saved again it is the same."""
        micro = self.rate.rate_micro if self.rate else None
        return "" if micro is None else f"{(Decimal(micro) / traffic.MICRO).normalize():f}"

    @property
    def declared_rate(self) -> str:
        declared = self.rate is not None and self.rate.source == RatePerGpu.Source.DECLARED
        return self.per_gpu if declared else ""

    @property
    def time_covered(self) -> int | None:
        return thousandths(self.record.time_covered) if self.record else None

    @property
    def demand_covered(self) -> int | None:
        return thousandths(self.record.demand_covered) if self.record else None

    @property
    def over(self) -> int | None:
        return thousandths(self.record.over) if self.record else None

    @property
    def declared_over(self) -> int | None:
        return thousandths(self.record.declared_over) if self.record else None


def thousandths(part: Fraction | None) -> int | None:
    """Return a part of 1 in thousandths of a percent."""
    return None if part is None else round(part * 100_000)


def page(user: Person, job: Job, *, now: datetime) -> ServicePage:
    """Read what the page shows of a service. A constant number of queries."""
    service = job.service
    present, newest = profiles.in_force(service), profiles.newest(service)
    least, most = profiles.bounds(service)
    scores = list(
        service.demand_scores.select_related("service__job__budget").filter(
            day__gte=(now - BEHIND).astimezone(UTC).date()
        )
    )
    return ServicePage(
        job=job,
        now=now,
        may_change=not job.has_ended and can(user, Action.SUBMIT, job.budget),
        version=present if service.calibrated else None,
        refused=newest if newest is not None and newest.reason else None,
        problem=calibrating.problem(service, now=now),
        rate=gpu_rates.in_force(service),
        least=least,
        most=most,
        last=_last(service),
        record=demand_scores.record_of(scores) if scores else None,
    )


def of(job: Job) -> Job:
    """Return the job if it is a service; else Http404."""
    if not job.is_realtime:
        raise Http404(_("This job is no real-time service."))
    return job


def _last(service: Service) -> datetime | None:
    if service.traffic_step_minutes is None:
        return None
    rows = TrafficBucket.objects.filter(service=service).order_by("-at")
    at = rows.values_list("at", flat=True).first()
    return None if at is None else at + timedelta(minutes=service.traffic_step_minutes)


def chart(job: Job, *, now: datetime) -> dict[str, Any]:
    """Return the last 7 days and the next 24 h for static/charts.js: `demand`."""
    service, step = job.service, timesteps.step()
    origin = timesteps.floor(now)
    start, end = origin - BEHIND, origin + AHEAD
    told = DemandForecast.objects.filter(service=service, at__gte=start, at__lt=origin)
    wanted = demand_over(service, start=origin, step=step, timesteps=AHEAD // step)
    rate = gpu_rates.in_force(service)
    micro = rate.rate_micro if rate is not None else None
    return {
        "zone": timezone.get_current_timezone_name(),
        "from": iso(start),
        "to": iso(end),
        "now": iso(now),
        "step_minutes": step // timedelta(minutes=1),
        "traffic_step_minutes": service.traffic_step_minutes,
        "per_gpu": None if micro is None else micro / traffic.MICRO,
        "traffic": [
            [iso(at), value] for at, value in traffic.between(service, start=start, end=now)
        ],
        "told": [[iso(row.at), row.gpus] for row in told],
        "ahead": [[iso(origin + step * t), gpus] for t, gpus in enumerate(wanted)],
        "held": [[iso(at), gpus] for at, gpus in _held(service, start, now)],
    }


def _held(service: Service, start: datetime, now: datetime) -> Iterator[tuple[datetime, int]]:
    """Yield the GPUs that are held from each instant at which their number changes."""
    changes: dict[datetime, int] = {start: 0}
    for begins, ends, gpus in gpu_rates.spans(service, since=start):
        at = max(begins, start)
        changes[at] = changes.get(at, 0) + gpus
        if ends is not None:
            changes[ends] = changes.get(ends, 0) - gpus
    count, before = 0, None
    for at in sorted(changes):
        count += changes[at]
        if count != before:
            yield at, count
        before = count
    yield now, count
