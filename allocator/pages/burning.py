"""How every budget stands in a period: the ledger's figures, and what is out of line in them.

No verdict is given before a twentieth of the period has passed: until then a single job decides.
"""

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from decimal import ROUND_HALF_UP, Decimal
from fractions import Fraction

from allocator import delivery
from allocator.delivery import Delivered
from budgets import plans
from budgets.models import WHOLE, Period
from budgets.plans import Plans
from ledger import burn, reports
from ledger.membership import Membership
from ledger.reports import Figures
from ledger.running import Uncharged
from ledger.spent import PeriodSpent, amounts_between

HIGH_PACE, LOW_PACE = Decimal("1.10"), Decimal("0.90")
SHORT = timedelta(days=7)  # a runway that ends so long before the period is too short
DELIVERED_AIM = 95_000  # thousandths of a percent of what was owed
FIRST_VERDICT = Fraction(1, 20)  # of the period
WINDOW = timedelta(days=7)  # of delivered
DAY = 86_400
CENT = Decimal("0.01")


@dataclass(frozen=True)
class Burn:
    """One budget, all below it included. Parts are in thousandths of a percent, None: no value.

    ``planned`` is what part of the grant is planned to be used by now, by the budget's own plan if
    it ``has_plan``. ``pace`` has two decimals; ``runway_s`` is spendable ÷ burn rate, in seconds.
    """

    figures: Figures
    rate_mgpus: int  # a day
    settled_part: int | None
    planned: Fraction
    has_plan: bool
    pace: Decimal | None
    runway_s: int | None
    delivered: Delivered
    runs_out: datetime | None  # inside the period
    judged: bool
    ends_at: datetime
    now: datetime

    @property
    def delivered_part(self) -> int | None:
        owed = self.delivered.owed_gpu_seconds
        return self.delivered.delivered_gpu_seconds * WHOLE // owed if owed else None

    @property
    def is_high(self) -> bool:
        return self.judged and self.pace is not None and self.pace >= HIGH_PACE

    @property
    def is_low(self) -> bool:
        return self.judged and self.pace is not None and self.pace <= LOW_PACE

    @property
    def is_short(self) -> bool:
        if not self.judged or self.runway_s is None:
            return False
        # A runway may be longer than the calendar: seconds are compared, not instants.
        return self.runway_s <= (self.ends_at - SHORT - self.now).total_seconds()

    @property
    def is_behind(self) -> bool:
        """Whether less than the aim was delivered of what was owed."""
        part = self.delivered_part
        return part is not None and part < DELIVERED_AIM


def burns(
    *,
    period: Period,
    now: datetime,
    only: Collection[int] | None = None,
    tree: Membership | None = None,
    planned: Plans | None = None,
    sums: Sequence[PeriodSpent] | None = None,
    uncharged: Uncharged | None = None,
) -> dict[int, Burn]:
    """Return every budget's figures and pace by id, or those of some; constant queries.

    ``tree``: who stood under whom; ``planned``: the plans of now; ``sums``: the period's;
    ``uncharged``: what runs in it; where they are loaded already.
    """
    tree = tree or Membership.load()
    found = planned or plans.load(period=period, at=now)
    rates = daily_rates(period, now, tree)
    delivered = delivery.summary(start=now - WINDOW, end=now)
    return {
        pk: _burn(period, now, pk, found, one, rates.get(pk, 0), delivered.get(pk, Delivered()))
        for pk, one in reports.figures(
            period=period, now=now, tree=tree, only=only, sums=sums, uncharged=uncharged
        ).items()
    }


def daily_rates(period: Period, now: datetime, tree: Membership | None = None) -> Mapping[int, int]:
    """Return the burn rate of every budget by id, in milli-GPU-seconds a day."""
    window = burn.rate_window(period, now)
    if window is None:
        return {}
    tree = tree or Membership.load()
    spent: dict[int, int] = defaultdict(int)
    for budget_id, at, amount in amounts_between(*window, tree=tree):
        for node in tree.chain(budget_id, at):
            spent[node] += amount
    return {pk: burn.per_day(amount, window) for pk, amount in spent.items()}


def _burn(
    period: Period,
    now: datetime,
    budget_id: int,
    found: Plans,
    figures: Figures,
    rate: int,
    delivered: Delivered,
) -> Burn:
    granted = figures.granted_mgpus
    used = figures.settled_mgpus + figures.in_flight_mgpus
    planned = found.planned(budget_id, now)
    runway = reports.runway_days(spendable_mgpus=figures.spendable_mgpus, burn_rate_mgpus=rate)
    runway_s = None if runway is None else int(runway * DAY)
    return Burn(
        figures=figures,
        rate_mgpus=rate,
        settled_part=figures.settled_mgpus * WHOLE // granted if granted > 0 else None,
        planned=planned,
        has_plan=budget_id in found.own,
        pace=_rounded(reports.pace(used_mgpus=used, granted_mgpus=granted, planned=planned)),
        runway_s=runway_s,
        delivered=delivered,
        runs_out=_runs_out(runway_s, now, period),
        judged=found.elapsed(now) >= FIRST_VERDICT,
        ends_at=period.ends_at,
        now=now,
    )


def _rounded(value: Fraction | None) -> Decimal | None:
    if value is None:
        return None
    exact = Decimal(value.numerator) / Decimal(value.denominator)
    return exact.quantize(CENT, rounding=ROUND_HALF_UP)


def _runs_out(runway_s: int | None, now: datetime, period: Period) -> datetime | None:
    left = int((period.ends_at - now).total_seconds())
    return None if runway_s is None or runway_s >= left else now + timedelta(seconds=runway_s)
