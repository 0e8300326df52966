"""The submit form's facts: where one may submit, and what a job would cost before it is sent."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from django.db.models import QuerySet

from allocator.admission import estimate_of, gpu_types, largest, minimum_runtime
from allocator.gaps import Gap, first_gap
from budgets import shares
from budgets.access import Action, Person, standing, visible_q
from budgets.models import Budget
from budgets.periods import active
from clusters.models import Pool
from clusters.saying import say as _
from forecasting import works
from forecasting.asked import Said, of_project
from forecasting.services import Estimate
from ledger.figures import accounts
from ledger.rates import Rates
from workloads.models import Job
from workloads.specs import MAX_GPUS, JobSpec

DAY_MINUTES = 24 * 60


@dataclass(frozen=True)
class Option:
    """The same job on another number of GPUs: seconds, and milli-GPU-seconds at the quote's rate.

    ``in_time``: at p90 it ends by the deadline if it starts at once; None without a deadline.
    """

    gpus: int
    low_s: int
    likely_s: int
    high_s: int
    rate_per_mille: int
    is_asked: bool = False
    is_cheapest: bool = False
    in_time: bool | None = None

    @property
    def likely_mgpus(self) -> int:
        return self.gpus * self.rate_per_mille * self.likely_s

    @property
    def high_mgpus(self) -> int:
        return self.gpus * self.rate_per_mille * self.high_s


@dataclass(frozen=True)
class Quote:
    """What a job would take and cost; amounts in milli-GPU-seconds, times in seconds.

    ``verdict``: funded (its hold fits), short (it doesn't), unfunded (by choice), no_period, or
    service (held timestep by timestep once it runs).
    """

    gpus: int
    estimate: Estimate
    low_s: int
    likely_s: int
    high_s: int
    minimum_runtime_s: int
    rate_per_mille: int
    dearest: str  # the pool whose rate is taken
    hold_mgpus: int
    spendable_mgpus: int | None
    binding: str
    binding_is_own: bool
    verdict: str
    binding_path: str = ""
    day_mgpus: int | None = None  # a service's cost of a day by its profile
    options: tuple[Option, ...] = ()  # what else it fits on, if what it computes is given
    gap: Gap | None = None  # when a block of that size is free; None: no plan tells
    waits_for_funds: bool = False
    deadline: datetime | None = None
    said: Said | None = None  # how the project's declared durations came true

    def _cost(self, seconds: int) -> int:
        return self.gpus * self.rate_per_mille * seconds

    @property
    def likely_gpu_seconds(self) -> int:
        return self.gpus * self.likely_s

    @property
    def high_gpu_seconds(self) -> int:
        return self.gpus * self.high_s

    @property
    def low_mgpus(self) -> int:
        return self._cost(self.low_s)

    @property
    def likely_mgpus(self) -> int:
        return self._cost(self.likely_s)

    @property
    def high_mgpus(self) -> int:
        return self._cost(self.high_s)

    @property
    def least_in_time(self) -> int | None:
        """The fewest GPUs on which it ends by the deadline, if any does."""
        return next((one.gpus for one in self.options if one.in_time), None)

    @property
    def short_mgpus(self) -> int:
        return max(0, self.hold_mgpus - (self.spendable_mgpus or 0))

    @property
    def took_part(self) -> int | None:
        """What jobs of the project took of what was declared, in thousandths of a percent."""
        return self.said.took_per_mille * 100 if self.said else None


def leaves(user: Person, *, now: datetime) -> list[Budget]:
    """Projects that the reader may submit to, in the order of the tree."""
    held = standing(user)
    return [b for b in shares.leaves(at=now) if held.can(Action.SUBMIT, b.path)]


def visible_job_ids(user: Person, ids: tuple[int, ...]) -> set[int]:
    """Which of some jobs the reader may see: only those can be waited for."""
    seen: QuerySet[Job] = Job.objects.filter(visible_q(user, "budget__"), pk__in=ids)
    return set(seen.values_list("pk", flat=True))


def quote(
    *, budget: Budget, spec: JobSpec, now: datetime, deadline: datetime | None = None
) -> Quote | None:
    """Quote a job; None while it lacks what a quote needs. A constant number of queries."""
    gpus = spec.peak_gpus() if not spec.is_realtime or spec.profile else 0
    pools = [p for p in Pool.objects.all() if not spec.pools or p.slug in spec.pools]
    if not 1 <= gpus <= MAX_GPUS or not pools:
        return None
    estimate = estimate_of(budget, spec, now)
    rates = Rates.load()
    dearest = max(pools, key=lambda pool: (rates.highest([pool.pk], now), -pool.pk))
    rate = rates.highest([dearest.pk], now)
    least = minimum_runtime(spec, estimate.p50_s)
    made = Quote(
        gpus=gpus,
        estimate=estimate,
        low_s=_within(estimate.p10_s, spec.time_limit_s),
        likely_s=_within(estimate.p50_s, spec.time_limit_s),
        high_s=_within(estimate.p90_s, spec.time_limit_s),
        minimum_runtime_s=least,
        rate_per_mille=rate,
        dearest=dearest.name,
        hold_mgpus=0 if spec.is_realtime else least * gpus * rate,
        day_mgpus=_day(spec, rate) if spec.is_realtime else None,
        deadline=deadline,
        said=_said(budget, spec, now),
        **_means(budget, now),
    )
    verdict = _verdict(made, spec)
    short = verdict in ("short", "no_period") and spec.when_unfunded == Job.WhenUnfunded.WAIT
    return replace(
        made,
        verdict=verdict,
        waits_for_funds=short,
        gap=None if short else _gap(made, spec, pools, now),
        options=_options(budget, spec, made, pools, now),
    )


def _gap(made: Quote, spec: JobSpec, pools: list[Pool], now: datetime) -> Gap | None:
    if spec.is_realtime:
        return None
    least = min(made.minimum_runtime_s, made.low_s)
    lasts = (max(1, least), max(1, made.likely_s), max(1, made.high_s))
    return first_gap(gpus=made.gpus, durations_s=lasts, pools=[p.slug for p in pools], now=now)


def _options(
    budget: Budget, spec: JobSpec, made: Quote, pools: list[Pool], now: datetime
) -> tuple[Option, ...]:
    """The counts of GPUs that it fits on and a pool has; none where what it computes can't tell."""
    if not spec.work or made.estimate.fits is None:
        return ()
    asked: dict[str, Any] = {"kind": spec.kind, "work": spec.work, "project": budget.path}
    try:
        found = works.options(gpu_types=gpu_types(spec), **asked)
    except works.CannotEstimate:
        return ()
    most = largest(pools, now)
    found = [one for one in found if one.gpus <= most]
    cheapest = min(found, key=lambda one: (one.gpus * one.p50_s, one.gpus), default=None)
    left = None if made.deadline is None else int((made.deadline - now).total_seconds())
    return tuple(
        Option(
            gpus=one.gpus,
            low_s=one.p10_s,
            likely_s=one.p50_s,
            high_s=one.p90_s,
            rate_per_mille=made.rate_per_mille,
            is_asked=one.gpus == made.gpus,
            is_cheapest=one is cheapest,
            in_time=None if left is None else one.p90_s <= left,
        )
        for one in found
    )


def least_gpus(*, budget: Budget, spec: JobSpec) -> int:
    """The fewest GPUs that what a job computes fits on; raises works.CannotEstimate."""
    if not spec.work:
        raise works.CannotEstimate(_("Say how many GPUs, or what it computes."))
    asked: dict[str, Any] = {"kind": spec.kind, "work": spec.work, "project": budget.path}
    found = works.options(gpu_types=gpu_types(spec), **asked)
    if not found:
        raise works.CannotEstimate(_("It fits on no number of GPUs of every type that it accepts."))
    return found[0].gpus


def _said(budget: Budget, spec: JobSpec, now: datetime) -> Said | None:
    if spec.is_realtime:
        return None
    return of_project(budget=budget, declared_s=spec.expected_duration_s, now=now)


def _within(seconds: int, limit: int | None) -> int:
    return seconds if limit is None else min(seconds, limit)


def _day(spec: JobSpec, rate: int) -> int:
    """A day of a service's profile, in milli-GPU-seconds; of a week the mean day."""
    days = max(1, len(spec.profile) * spec.step_minutes // DAY_MINUTES)
    return sum(spec.profile) * spec.step_minutes * 60 * rate // days


def _means(budget: Budget, now: datetime) -> dict[str, Any]:
    """What the budget may still set aside, and whose credits run out first."""
    period = active(now)
    if period is None:
        return {
            "spendable_mgpus": None,
            "binding": "",
            "binding_is_own": True,
            "verdict": "no_period",
        }
    found = accounts(period=period, at=now)
    binding = found.binding(budget.pk)
    bound = Budget.objects.get(pk=binding)
    return {
        "spendable_mgpus": found.spendable(budget.pk),
        "binding": bound.name,
        "binding_path": bound.path,
        "binding_is_own": binding == budget.pk,
        "verdict": "",
    }


def _verdict(made: Quote, spec: JobSpec) -> str:
    if made.verdict:
        return made.verdict
    if spec.is_realtime:
        return "service"
    if made.minimum_runtime_s == 0:
        return "unfunded"
    return "funded" if made.hold_mgpus <= (made.spendable_mgpus or 0) else "short"
