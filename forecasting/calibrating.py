"""Recalibration: a service's traffic makes the next version of its profile, tried and put in force.

What is put in force is written into the service's own row, since plans read nothing else; a plan
sees the version before or the new one, never a part of either.
"""

import logging
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any, cast

from django.conf import settings
from django.contrib.auth.models import User
from django.db import transaction

from clusters.refusals import Refused
from clusters.saying import in_english, number
from clusters.saying import say as _
from forecasting import gpu_rates, looking_ahead, traffic
from forecasting import service_profiles as profiles
from forecasting.core import calibrating as core
from forecasting.core.demand import VERSION, Model, learn
from forecasting.core.profile import DemandError, Traffic
from forecasting.models import RatePerGpu, ServiceProfile
from workloads.demand import declared_over
from workloads.models import Service
from workloads.specs import MAX_GPUS

logger = logging.getLogger(__name__)
TRIES = 3  # as often terms may change while a profile is made; whoever changes them makes one, too


@dataclass(frozen=True)
class Made:
    """A profile that was fitted and tried, before it is written."""

    model: Model
    week: tuple[int, ...]
    terms: core.Terms
    rate: RatePerGpu
    tried: core.Tried
    present: core.Tried  # the same days by what is in force
    reason: str  # why it isn't put in force


def recalibrate(*, service: Service, now: datetime, by: User | None = None) -> ServiceProfile:
    """Make the next version, put it in force unless it is worse, and look ahead with it.

    Of two at once one writes, and both answer with what it wrote, unless it was made with other
    terms; terms that were changed meanwhile count, or whoever is slower would put old ones in
    force. Raises Refused where traffic or a GPU's rate don't suffice.
    """
    _check_lives(service)
    row = service
    for left in reversed(range(TRIES)):
        seen = profiles.newest(row)
        gpu_rates.measure(service=row, now=now)
        made = make(row, now)
        with transaction.atomic():
            row = Service.objects.select_for_update(no_key=True).get(pk=service.pk)
            latest = profiles.newest(row)
            if latest is not None and latest != seen and latest.terms == asdict(made.terms):
                return latest
            if left and _terms_now(row) != asdict(made.terms):
                continue
            written = _write(row, latest, made, by, now)
            break
    looking_ahead.look(service=row, now=now)
    return written


def recalibrate_all(*, now: datetime) -> int:
    """Recalibrate every service that wants it; what one can't be keeps no other waiting.

    Where no step has come since the newest version, none is made.
    """
    done = 0
    for service in profiles.live().filter(calibrated=True):
        try:
            if _has_come(service, now):
                recalibrate(service=service, now=now)
                done += 1
        except Refused as refused:
            logger.info("Service of job %s keeps its profile: %s", service.job_id, refused.sentence)
        except Exception:
            logger.exception("The service of job %s can't be recalibrated.", service.job_id)
    return done


def configure(
    *,
    service: Service,
    calibrated: bool | None = None,
    least_gpus: int | None = None,
    most_gpus: int | None = None,
) -> Service:
    """Opt in or out, or change between which GPUs forecasts may move; None leaves as it is."""
    _check_lives(service)
    with transaction.atomic():
        row = Service.objects.select_for_update(no_key=True).get(pk=service.pk)
        row.least_gpus = row.least_gpus if least_gpus is None else least_gpus
        row.most_gpus = row.most_gpus if most_gpus is None else most_gpus
        least, most = profiles.bounds(row)
        if not 0 <= least <= most or not 1 <= most <= MAX_GPUS:
            raise Refused(
                "most_gpus",
                _(
                    "Give least_gpus from 0 to %(most)s, and most_gpus from %(value)s to "
                    "%(max_gpus)s: forecasts move between them.",
                    most=most,
                    value=max(1, least),
                    max_gpus=number(MAX_GPUS),
                ),
            )
        if calibrated is not None and calibrated != row.calibrated:
            row.calibrated = calibrated
            if row.forecast is not None:  # what it was told before is over
                row.forecast = {**row.forecast, "ahead": None}
        row.save(update_fields=["least_gpus", "most_gpus", "calibrated", "forecast"])
    return row


def _check_lives(service: Service) -> None:
    if service.job.has_ended:
        raise Refused(
            "job", _("Job %(job_id)s has ended: its profile counts no more.", job_id=service.job_id)
        )


KEEP = object()


def change(
    *,
    service: Service,
    by: User,
    now: datetime,
    rate_per_gpu: Decimal | object | None = KEEP,
    **asked: Any,
) -> Service:
    """Declare what a GPU does (None withdraws it) and configure, all of it or nothing.

    What changes counts at once: the profile is made anew, where that can be. What is saved as it
    was makes none.
    """
    was = service.calibrated
    with transaction.atomic():
        if rate_per_gpu is not KEEP:
            rate = cast("Decimal | None", rate_per_gpu)
            gpu_rates.declare(service=service, rate=rate, by=by, now=now)
        row = configure(service=service, **asked)
    if row.calibrated and not problem(row, now=now) and (not was or _has_other_terms(row)):
        try:
            recalibrate(service=row, now=now, by=by)
        except Refused as refused:  # what was asked is saved all the same
            logger.info("Service of job %s keeps its profile: %s", row.job_id, refused.sentence)
    return row


def _has_other_terms(service: Service) -> bool:
    """Whether the newest version, if there is one, was made with other terms than count now."""
    newest = profiles.newest(service)
    if newest is None:
        return True
    return bool(newest.terms != _terms_now(service))


def _terms_now(service: Service) -> dict[str, Any]:
    return asdict(profiles.terms_of(service, profiles.rate_of(service)))


def problem(service: Service, *, now: datetime) -> str:
    """Return why no profile can be made now; empty: it can."""
    try:
        _check_enough(service, now)
        _terms(service, now)
    except Refused as refused:
        return refused.sentence
    return ""


def _terms(service: Service, now: datetime) -> tuple[core.Terms, RatePerGpu]:
    """What turns rates into GPUs now; refuses what would make too many of the traffic there was."""
    rate = profiles.rate_of(service)
    terms = profiles.terms_of(service, rate)
    gpu_rates.check_against_traffic(service, terms.per_gpu, now)
    return terms, rate


def make(service: Service, now: datetime) -> Made:
    """Fit a profile and try it on the last days beside what is in force. Writes nothing."""
    history = _enough(service, now)
    terms, rate = _terms(service, now)
    before = profiles.in_force(service)
    cap = terms.cap * max(1, history.step_s // terms.timestep_s)
    try:
        model = learn(history)
        tried = core.tried(core.follow(history, terms), history, terms, cap)
        follows = _present(service, before, history, terms)
        present = core.tried(follows, history, terms, None)
        week = core.week(model, history, terms)
    except DemandError as error:
        raise Refused("traffic", str(error)) from None
    # Of what was made with other terms the GPUs say nothing any more.
    other_terms = before is not None and service.calibrated and before.terms != asdict(terms)
    is_sound = core.is_sound(tried, None if other_terms else present)
    reason = "" if is_sound else profiles.why_not(tried.to_dict(), present.to_dict())
    return Made(model, week, terms, rate, tried, present, reason)


def _enough(service: Service, now: datetime) -> Traffic:
    _check_enough(service, now)
    found = profiles.history(service, until=now)
    assert found is not None, "it was there a moment ago"
    return found


def _check_enough(service: Service, now: datetime) -> None:
    """Refuse traffic that is too short, or known too seldom. One query."""
    extent = traffic.extent(service, until=now)
    if extent is None:
        raise Refused(
            "traffic",
            _(
                "There is no traffic yet: send some, of %(enough_days)s days at least.",
                enough_days=core.ENOUGH_DAYS,
            ),
        )
    try:
        core.check_steps(60 * extent.step_minutes, 60 * settings.TIMESTEP_MINUTES)
        core.check_enough(days=extent.span / timedelta(days=1), known=extent.known, of=extent.steps)
    except DemandError as error:
        raise Refused("traffic", str(error)) from None


def _has_come(service: Service, now: datetime) -> bool:
    newest, known = profiles.newest(service), profiles.history(service, until=now)
    if newest is None or known is None:
        return True
    return bool(newest.fitted.get("until") != known.end.astimezone(UTC).isoformat())


def _present(
    service: Service, before: ServiceProfile | None, history: Traffic, terms: core.Terms
) -> Sequence[int]:
    """GPUs of the held-out steps by the version in force, else by what the owner gave."""
    if before is not None and service.calibrated:
        model = core.unpacked(before.fitted)
        if (model.step_s, model.zone) == (history.step_s, history.zone):
            return core.follow(history, terms, model)
    train = core.held_out(history)
    first = history.start + timedelta(seconds=history.step_s * train)
    step = timedelta(seconds=history.step_s)
    return [
        declared_over(service, start=first + step * n, step=step)
        for n in range(len(history.rates) - train)
    ]


def _write(
    service: Service,
    latest: ServiceProfile | None,
    made: Made,
    by: User | None,
    now: datetime,
) -> ServiceProfile:
    """Write the version, and what plans read of it. The caller holds the service's row."""
    version = 1 if latest is None else latest.version + 1
    if not made.reason:
        replaced = ServiceProfile.objects.filter(service=service, replaced_at=None)
        replaced.exclude(in_force_at=None).update(replaced_at=now)
    written = ServiceProfile.objects.create(
        service=service,
        version=version,
        made_at=now,
        made_by=by,
        in_force_at=None if made.reason else now,
        reason=in_english(made.reason),
        method=VERSION,
        step_minutes=settings.TIMESTEP_MINUTES,
        week=list(made.week),
        fitted=core.packed(made.model, made.terms.quantile),
        terms=asdict(made.terms),
        tried=made.tried.to_dict(),
        present=made.present.to_dict(),
        rate=made.rate,
    )
    if not made.reason:
        service.forecast = {
            "version": version,
            "step_minutes": settings.TIMESTEP_MINUTES,
            "week": list(made.week),
            "ahead": (service.forecast or {}).get("ahead"),
        }
        service.save(update_fields=["forecast"])
    return written
