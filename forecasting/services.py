"""Estimates of how long jobs take: asked at submission, recorded, and scored when they end."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime

from django.db.models import QuerySet

from budgets.models import Budget
from forecasting.core.quantiles import VERSION, Range, from_declared, from_history
from forecasting.models import Forecast
from workloads.models import Job

Kind = Job.Kind
ENOUGH = 3  # like jobs that make a history
RECENT = 200  # like jobs that are looked at, newest first

# What a job of a kind takes as long as nothing is known: wide on purpose. A service has no end
# of its own; 30 days is past every horizon.
A_MONTH = 30 * 24 * 3600
DEFAULTS: dict[str, Range] = {
    Kind.TRAINING: Range(1800, 7200, 28800),
    Kind.BATCH_INFERENCE: Range(600, 3600, 14400),
    Kind.QUANTIZATION: Range(600, 1800, 7200),
    Kind.REALTIME: Range(A_MONTH, A_MONTH, A_MONTH),
}


@dataclass(frozen=True)
class Estimate:
    """The whole duration of a job as a range, in seconds, and how it came about.

    `method`: "declared" (nothing else known), "declared_history" (corrected by how declarations of
    like jobs came true), "history" (of like jobs) or "default" (of the kind).
    """

    p10_s: int
    p50_s: int
    p90_s: int
    method: str
    version: str
    reasons: tuple[str, ...]


@dataclass(frozen=True)
class _Past:
    """What one job took, and what had been declared for it."""

    name: str
    declared_s: int | None
    actual_s: int


def estimate(
    *,
    budget: Budget,
    kind: str,
    gpus: int,
    declared_s: int | None = None,
    name: str = "",
    now: datetime,
) -> Estimate:
    """Estimate how long a job will take, before it runs. At most three queries.

    The history is that of the first of these with three jobs that ran to their end before `now`:
    the same name (but for its number), the same GPUs and kind in this budget; the same GPUs and
    kind in this budget; the same GPUs and kind; the same kind.
    """
    if kind == Kind.REALTIME:
        return _answer(DEFAULTS[kind], "default", "A service runs until it is stopped.")
    for where, past in _histories(budget, kind, gpus, name, now):
        ratios = _ratios(past)
        if declared_s is not None and len(ratios) >= ENOUGH:
            text = f"{len(ratios)} like jobs ({where}) show how declared durations came true."
            found = from_declared(declared_s, ratios)
            return _answer(found, "declared_history", f"Declared: {declared_s} s.", text)
        if declared_s is None and len(past) >= ENOUGH:
            found = from_history([job.actual_s for job in past], DEFAULTS[kind])
            return _answer(found, "history", f"{len(past)} like jobs: {where}.")
    if declared_s is not None:
        return _answer(from_declared(declared_s, ()), "declared", f"Declared: {declared_s} s.")
    label = Kind(kind).label.lower()
    return _answer(DEFAULTS[kind], "default", f"Nothing is known of like jobs: usual for {label}.")


def record(*, job: Job, estimate: Estimate, now: datetime) -> Forecast:
    """Keep an estimate, so that it can be scored."""
    return Forecast.objects.create(
        job=job,
        made_at=now,
        method=estimate.method,
        version=estimate.version,
        reasons=list(estimate.reasons),
        p10_s=estimate.p10_s,
        p50_s=estimate.p50_s,
        p90_s=estimate.p90_s,
    )


def score(*, job: Job, actual_s: int, now: datetime) -> int:
    """Write what a job took (seconds of all its runs that counted) beside its estimates.

    Returns how many it scored; a second score changes nothing, and an estimate made after `now`
    is left alone.
    """
    if actual_s < 0:
        raise ValueError(f"A job can't have taken {actual_s} s.")
    unscored = Forecast.objects.filter(job=job, actual_s__isnull=True, made_at__lte=now)
    return unscored.update(actual_s=actual_s)


def _answer(found: Range, method: str, *reasons: str) -> Estimate:
    return Estimate(found.p10, found.p50, found.p90, method, VERSION, reasons)


def _histories(
    budget: Budget, kind: str, gpus: int, name: str, now: datetime
) -> Iterator[tuple[str, list[_Past]]]:
    """Yield histories of ever less like jobs, each fetched only if the last did not do."""
    same_kind = _ended(kind, now)
    of_budget = _past(same_kind.filter(budget=budget, gpus=gpus))
    label = Kind(kind).label.lower()
    named = [job for job in of_budget if _stem(job.name) == _stem(name)]
    yield f"{_stem(name)}, {gpus} GPUs, in {budget.path}", named
    yield f"{label}, {gpus} GPUs, in {budget.path}", of_budget
    yield f"{label}, {gpus} GPUs", _past(same_kind.filter(gpus=gpus))
    yield label, _past(same_kind)


def _ended(kind: str, now: datetime) -> QuerySet[Job]:
    """Jobs that ran to their end. One at its time limit took that long at least; failed and
    cancelled ones say nothing of how long the work takes."""
    ran = (Job.State.COMPLETED, Job.State.TIMED_OUT)
    scored = Job.objects.filter(kind=kind, state__in=ran, forecasts__actual_s__gt=0)
    return scored.filter(ended_at__lte=now).order_by("-pk")


def _past(jobs: QuerySet[Job]) -> list[_Past]:
    rows = jobs.values_list("pk", "name", "expected_duration_s", "forecasts__actual_s")
    # A job that was forecast again has several rows of the same truth.
    found = {pk: _Past(name, said, took) for pk, name, said, took in rows[:RECENT] if took}
    return list(found.values())


def _ratios(past: list[_Past]) -> list[int]:
    """What jobs took per mille of what was declared, at least 1."""
    return [max(1, job.actual_s * 1000 // job.declared_s) for job in past if job.declared_s]


def _stem(name: str) -> str:
    """The name without the number at its end: sweep-12 and sweep-13 are like."""
    return re.sub(r"[-_ .#]*\d+$", "", name)
