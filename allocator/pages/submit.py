"""The submit form's facts: where one may submit, and what a job would cost before it is sent."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from django.db.models import QuerySet

from allocator.admission import estimate_of, minimum_runtime
from budgets import shares
from budgets.access import Action, Person, standing, visible_q
from budgets.models import Budget
from budgets.periods import active
from clusters.models import Pool
from forecasting.services import Estimate
from ledger.figures import accounts
from ledger.rates import Rates
from workloads.models import Job
from workloads.specs import MAX_GPUS, JobSpec

DAY_MINUTES = 24 * 60


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
    day_mgpus: int | None = None  # a service's cost of a day by its profile

    def _cost(self, seconds: int) -> int:
        return self.gpus * self.rate_per_mille * seconds

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
    def short_mgpus(self) -> int:
        return max(0, self.hold_mgpus - (self.spendable_mgpus or 0))


def leaves(user: Person, *, now: datetime) -> list[Budget]:
    """Projects that the reader may submit to, in the order of the tree."""
    held = standing(user)
    return [b for b in shares.leaves(at=now) if held.can(Action.SUBMIT, b.path)]


def visible_job_ids(user: Person, ids: tuple[int, ...]) -> set[int]:
    """Which of some jobs the reader may see: only those can be waited for."""
    seen: QuerySet[Job] = Job.objects.filter(visible_q(user, "budget__"), pk__in=ids)
    return set(seen.values_list("pk", flat=True))


def quote(*, budget: Budget, spec: JobSpec, now: datetime) -> Quote | None:
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
        **_means(budget, now),
    )
    return replace(made, verdict=_verdict(made, spec))


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
    return {
        "spendable_mgpus": found.spendable(budget.pk),
        "binding": Budget.objects.get(pk=binding).name,
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
