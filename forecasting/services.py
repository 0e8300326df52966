"""Estimates of how long jobs take: asked at submission, recorded, and scored when they end."""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from datetime import datetime
from typing import Any

from django.db.models import QuerySet

from budgets.models import Budget
from clusters.saying import Said, in_english, joined, kept, state
from clusters.saying import say as _
from forecasting import works
from forecasting.core import scoring
from forecasting.core.quantiles import ENDLESS_S, VERSION, Range, from_declared, from_history
from forecasting.models import Forecast
from workloads.models import Job

Kind = Job.Kind
ENOUGH = 3  # like jobs that make a history
RECENT = 200  # like jobs that are looked at, newest first

# What a job of a kind takes as long as nothing is known: wide on purpose.
DEFAULTS: dict[str, Range] = {
    Kind.TRAINING: Range(1800, 7200, 28800),
    Kind.BATCH_INFERENCE: Range(600, 3600, 14400),
    Kind.QUANTIZATION: Range(600, 1800, 7200),
    Kind.REALTIME: Range(ENDLESS_S, ENDLESS_S, ENDLESS_S),
}


@dataclass(frozen=True)
class Estimate:
    """The whole duration of a job as a range, in seconds, and how it came about.

    `method`: "declared" (nothing else known), "declared_history" (corrected by how declarations of
    like jobs came true), "physics" and "physics+history" (by what it computes), "history" (of like
    jobs) or "default" (of the kind). `variant` is that of what it computes; `fits` whether that
    fits in memory, None where it isn't known. `beside` is the estimate by what it computes where a
    declared duration is planned with.
    """

    p10_s: int
    p50_s: int
    p90_s: int
    method: str
    version: str
    reasons: tuple[str, ...]
    variant: str = ""
    fits: bool | None = None
    beside: "Estimate | None" = None


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
    work: Mapping[str, Any] | None = None,
    gpu_types: Iterable[str] = (),
    now: datetime,
) -> Estimate:
    """Estimate how long a job will take, before it runs. At most five queries.

    What counts is the first of these that there is: a declared duration, what the job computes
    (`work`, on the `gpu_types` of its pools), what like jobs took. `reasons` say which, and why
    `work` gives no estimate where it doesn't.
    """
    if kind == Kind.REALTIME:
        return _answer(DEFAULTS[kind], "default", _("A service runs until it is stopped."))
    by_work: Estimate | None = None
    why: tuple[str, ...] = ()
    if work:
        asked: dict[str, Any] = {"kind": kind, "work": work, "gpus": gpus, "project": budget.path}
        try:
            by_work = by_physics(works.physical(gpu_types=gpu_types, **asked))
        except works.CannotEstimate as error:
            why = (_("What it computes gives no estimate: %(error)s", error=error.args[0]),)
    if by_work is not None and declared_s is None:
        return replace(by_work, reasons=(_("By what it computes."), *by_work.reasons))
    found = _by_likeness(budget, kind, gpus, declared_s, name, now)
    if by_work is None or declared_s is None:
        return replace(found, reasons=(*found.reasons, *why))
    reasons = (*found.reasons, _compared(by_work, declared_s))
    return replace(
        found, reasons=reasons, variant=by_work.variant, fits=by_work.fits, beside=by_work
    )


def by_physics(found: works.Physical) -> Estimate:
    """An estimate by what a job computes, as it is kept."""
    return Estimate(
        p10_s=found.p10_s,
        p50_s=found.p50_s,
        p90_s=found.p90_s,
        method=found.method,
        version=found.version,
        reasons=found.reasons,
        variant=found.variant,
        fits=found.fits,
    )


def _compared(found: Estimate, declared_s: int) -> str:
    percent = (200 * found.p50_s + declared_s) // (2 * declared_s)
    return _(
        "By what it computes: %(low)s to %(high)s s, likely %(likely)s s, %(percent)s %% of what "
        "is declared; the declared duration is planned with.",
        low=found.p10_s,
        high=found.p90_s,
        likely=found.p50_s,
        percent=percent,
    )


def _by_likeness(
    budget: Budget, kind: str, gpus: int, declared_s: int | None, name: str, now: datetime
) -> Estimate:
    """By what is declared and what like jobs took. At most three queries.

    The history is that of the first of these with three jobs that ran to their end before `now`:
    the same name (but for its number), the same GPUs and kind in this budget; the same GPUs and
    kind in this budget; the same GPUs and kind; the same kind.
    """
    for where, past in _histories(budget, kind, gpus, name, now):
        ratios = _ratios(past)
        if declared_s is not None and len(ratios) >= ENOUGH:
            text = _(
                "%(number)s like jobs (%(where)s) show how declared durations came true.",
                number=len(ratios),
                where=where,
            )
            found = from_declared(declared_s, ratios)
            return _answer(found, "declared_history", _declared(declared_s), text)
        if declared_s is None and len(past) >= ENOUGH:
            found = from_history([job.actual_s for job in past], DEFAULTS[kind])
            text = _("%(number)s like jobs: %(where)s.", number=len(past), where=where)
            return _answer(found, "history", text)
    if declared_s is not None:
        return _answer(from_declared(declared_s, ()), "declared", _declared(declared_s))
    text = _("Nothing is known of like jobs: usual for %(kind)s.", kind=state(Kind(kind).label))
    return _answer(DEFAULTS[kind], "default", text)


def _declared(seconds: int) -> Said:
    return _("Declared: %(seconds)s s.", seconds=seconds)


def record(*, job: Job, estimate: Estimate, now: datetime) -> Forecast:
    """Keep an estimate and the one beside it, so that both can be scored; return the former."""
    kept = _kept(job, estimate, now, planned=True)
    if estimate.beside is not None:
        _kept(job, estimate.beside, now, planned=False)
    return kept


def _kept(job: Job, estimate: Estimate, now: datetime, *, planned: bool) -> Forecast:
    return Forecast.objects.create(
        job=job,
        made_at=now,
        planned=planned,
        method=estimate.method,
        version=estimate.version,
        variant=estimate.variant,
        reasons=[in_english(one) for one in estimate.reasons],
        sentences=[kept(one) if isinstance(one, Said) else None for one in estimate.reasons],
        p10_s=estimate.p10_s,
        p50_s=estimate.p50_s,
        p90_s=estimate.p90_s,
    )


def score(*, job: Job, actual_s: int, now: datetime) -> int:
    """Write what a job took (seconds of all its runs that counted) beside its estimates.

    Returns how many it scored; a second score changes nothing, and an estimate made after `now`
    is left alone. Of a job that took no whole second only that is written.
    """
    if actual_s < 0:
        raise ValueError(f"A job can't have taken {actual_s} s.")
    unscored = Forecast.objects.filter(job=job, actual_s__isnull=True, made_at__lte=now)
    return sum(
        unscored.filter(pk=row.pk).update(**_scored(row, actual_s), scored_at=now)
        for row in unscored
    )


def _scored(row: Forecast, actual_s: int) -> dict[str, Any]:
    known: dict[str, Any] = {"actual_s": actual_s}
    if actual_s:
        known |= asdict(scoring.score(row.p10_s, row.p50_s, row.p90_s, actual_s))
    return known


def _answer(found: Range, method: str, *reasons: str) -> Estimate:
    return Estimate(found.p10, found.p50, found.p90, method, VERSION, reasons)


def _histories(
    budget: Budget, kind: str, gpus: int, name: str, now: datetime
) -> Iterator[tuple[str, list[_Past]]]:
    """Yield histories of ever less like jobs, each fetched only if the last did not do."""
    same_kind = _ended(kind, now)
    of_budget = _past(same_kind.filter(budget=budget, gpus=gpus))
    what, many = state(Kind(kind).label), _gpus(gpus)
    named = [job for job in of_budget if _stem(job.name) == _stem(name)]
    here = {"gpus": many, "budget": budget.path}
    yield _("%(kind)s, %(gpus)s, in %(budget)s", kind=_stem(name), **here), named
    yield _("%(kind)s, %(gpus)s, in %(budget)s", kind=what, **here), of_budget
    yield joined((what, many), ", "), _past(same_kind.filter(gpus=gpus))
    yield what, _past(same_kind)


def _gpus(number: int) -> Said:
    return _("1 GPU") if number == 1 else _("%(gpus)s GPUs", gpus=number)


def _ended(kind: str, now: datetime) -> QuerySet[Job]:
    """Jobs that ran to their end. One at its time limit took that long at least; failed and
    cancelled ones say nothing of how long the work takes, nor sessions, which end at will."""
    ran = Job.objects.filter(
        kind=kind, session=False, state__in=(Job.State.COMPLETED, Job.State.TIMED_OUT)
    )
    scored = ran.filter(forecasts__actual_s__gt=0, forecasts__planned=True)
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
