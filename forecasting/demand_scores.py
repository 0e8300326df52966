"""Demand forecasts of services held against what came: day by day, and as a track record.

A timestep's need is the peak of its traffic ÷ the rate of one GPU, rounded up, without the bounds
of the forecast: what was cut off by its owner's most is short all the same. Timesteps without
traffic, or of which nothing was told beforehand, count for nothing.
"""

import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from fractions import Fraction

from django.conf import settings

from budgets.access import Person, visible_q
from clusters.refusals import Refused
from forecasting import gpu_rates, traffic
from forecasting import service_profiles as profiles
from forecasting.core.profile import DemandError
from forecasting.core.ramps import gpus_for
from forecasting.models import DemandForecast, DemandScore
from ledger.instants import timestep
from workloads.demand import declared_over
from workloads.models import Service

logger = logging.getLogger(__name__)
DAY = timedelta(days=1)
LATE_DAYS = 3  # for which traffic may come in late, and a day is scored anew
FIGURES = (
    *("timesteps", "covered", "needed", "forecast", "met", "held", "short", "declared"),
    *("loss_milli", "declared_loss_milli"),
)


@dataclass(frozen=True)
class Timestep:
    """GPUs of one timestep: needed, forecast before it began, held, wanted by the declaration."""

    at: datetime
    needed: int
    forecast: int
    held: int
    declared: int
    by_declared: bool  # the forecast is that of the declared profile


def score_all(*, now: datetime) -> int:
    """Score the last days of every service that has traffic, those that ended lately too."""
    services = Service.objects.select_related("job").exclude(traffic_step_minutes=None)
    first = now - (LATE_DAYS + 1) * DAY
    done = 0
    for service in services.exclude(job__ended_at__lt=first).order_by("job_id"):
        try:
            done += sum(
                score(service=service, day=(now - n * DAY).astimezone(UTC).date(), now=now)
                is not None
                for n in range(1, LATE_DAYS + 1)
            )
        except Exception:
            logger.exception("Forecasts of service %s can't be scored.", service.job_id)
    return done


def score(*, service: Service, day: date, now: datetime) -> DemandScore | None:
    """Score one day of UTC that is over; again, it is what it is now. None: nothing is known."""
    start = datetime(day.year, day.month, day.day, tzinfo=UTC)
    if start + DAY > now:
        return None
    found = timesteps(service, start=start, end=start + DAY)
    if not found:
        return None
    figures = dict(zip(FIGURES, sums(found), strict=True))
    calibrated = not found[-1].by_declared
    written, _ = DemandScore.objects.update_or_create(
        service=service, day=day, defaults={**figures, "calibrated": calibrated}
    )
    return written


def timesteps(service: Service, *, start: datetime, end: datetime) -> list[Timestep]:
    """Return the timesteps of [start, end) whose need is known and that were told beforehand."""
    told = {
        row.at: row
        for row in DemandForecast.objects.filter(service=service, at__gte=start, at__lt=end)
    }
    needs = needed(service, start=start, end=end)
    held = held_at(service, needs, since=start)
    step = timestep()
    return [
        Timestep(
            at=at,
            needed=need,
            forecast=told[at].gpus,
            held=held[at],
            declared=declared_over(service, start=at, step=step),
            by_declared=told[at].source == DemandForecast.Source.DECLARED,
        )
        for at, need in needs.items()
        if at in told
    ]


def needed(service: Service, *, start: datetime, end: datetime) -> dict[datetime, int]:
    """Return the GPUs that the traffic of each timestep needs, at the rate that counts now."""
    try:
        per_gpu = (profiles.rate_of(service).rate_micro or 0) / traffic.MICRO
    except Refused:
        return {}
    step = timestep()
    each = timedelta(minutes=service.traffic_step_minutes or settings.TIMESTEP_MINUTES)
    peaks: dict[datetime, float] = {}
    for at, rate in traffic.between(service, start=start - each, end=end):
        first = start + (at - start) // step * step
        for n in range(max(1, each // step)):
            begins = first + step * n
            if start <= begins < end:
                peaks[begins] = max(peaks.get(begins, 0.0), rate)
    found = {}
    for at, rate in sorted(peaks.items()):
        try:
            found[at] = gpus_for(rate, per_gpu)
        except DemandError as error:  # a rate that can't be right: that timestep isn't known
            logger.warning("A need of service %s isn't known: %s", service.job_id, error)
    return found


def held_at(
    service: Service, instants: Iterable[datetime], *, since: datetime
) -> dict[datetime, int]:
    """Return the GPUs that were held at the middle of each timestep that begins at an instant."""
    spans = gpu_rates.spans(service, since=since)
    half = timestep() / 2
    return {
        at: sum(
            gpus
            for start, end, gpus in spans
            if start <= at + half and (end is None or end > at + half)
        )
        for at in instants
    }


def sums(found: list[Timestep]) -> tuple[int, ...]:
    """Return FIGURES of timesteps, in their order."""
    return (
        len(found),
        sum(one.forecast >= one.needed for one in found),
        sum(one.needed for one in found),
        sum(one.forecast for one in found),
        sum(min(one.forecast, one.needed) for one in found),
        sum(one.held for one in found),
        sum(max(0, one.needed - one.held) for one in found),
        sum(one.declared for one in found),
        sum(_loss(one.forecast, one.needed) for one in found),
        sum(_loss(one.declared, one.needed) for one in found),
    )


def _loss(have: int, need: int) -> int:
    """Pinball loss in thousandths of a GPU, at the percent that is to be covered."""
    percent = settings.CAPACITY_PERCENT
    return 10 * (percent * max(0, need - have) + (100 - percent) * max(0, have - need))


# --- The track record ----------------------------------------------------------------------------


@dataclass(frozen=True)
class RealtimeRecord:
    """How forecasts of a service's demand came true, over the days that were scored.

    Parts are exact: of timesteps with enough forecast, of needed GPU-timesteps that were forecast,
    forecast ÷ needed − 1, the same of the declared profile. None where nothing was needed. Losses
    are thousandths of a GPU a timestep, beside it that of the declared profile.
    """

    job: int
    name: str
    budget: str
    calibrated: bool
    days: int
    timesteps: int
    time_covered: Fraction
    demand_covered: Fraction | None
    over: Fraction | None
    declared_over: Fraction | None
    short: int  # GPU-timesteps that were needed and not held
    loss_milli: Fraction
    declared_loss_milli: Fraction


def realtime_track_record(user: Person, *, since: datetime, now: datetime) -> list[RealtimeRecord]:
    """Return the record of each service that the person may see, those scored since an instant.

    One query. Kind "real time" of the track record: a row a service, by budget and number.
    """
    rows = DemandScore.objects.filter(visible_q(user, "service__job__budget__"))
    rows = rows.filter(day__gte=since.astimezone(UTC).date(), day__lte=now.astimezone(UTC).date())
    related = rows.select_related("service__job__budget").order_by("service_id", "day")
    by_service: dict[int, list[DemandScore]] = {}
    for row in related:
        by_service.setdefault(row.service_id, []).append(row)
    records = [record_of(scores) for scores in by_service.values()]
    return sorted(records, key=lambda record: (record.budget, record.job))


def record_of(scores: list[DemandScore]) -> RealtimeRecord:
    """Return the record of one service's days, of which there is one at least."""
    last = scores[-1]
    total = {name: sum(getattr(one, name) for one in scores) for name in FIGURES}
    count = total["timesteps"]
    return RealtimeRecord(
        job=last.service.job_id,
        name=last.service.job.name,
        budget=last.service.job.budget.path,
        calibrated=last.calibrated,
        days=len(scores),
        timesteps=count,
        time_covered=Fraction(total["covered"], count),
        demand_covered=_part(total, "met"),
        over=_above(total, "forecast"),
        declared_over=_above(total, "declared"),
        short=total["short"],
        loss_milli=Fraction(total["loss_milli"], count),
        declared_loss_milli=Fraction(total["declared_loss_milli"], count),
    )


def _part(total: Mapping[str, int], name: str) -> Fraction | None:
    return Fraction(total[name], total["needed"]) if total["needed"] else None


def _above(total: Mapping[str, int], name: str) -> Fraction | None:
    found = _part(total, name)
    return None if found is None else found - 1
