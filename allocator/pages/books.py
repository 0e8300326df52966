"""What several parts of a budget's page ask of a period, each read once."""

from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime

from allocator.pages import burning
from allocator.pages.burning import Burn
from budgets import plans
from budgets.models import Budget, Period
from budgets.plans import Plans
from ledger import curves
from ledger.burn import burned
from ledger.figures import uncharged_in
from ledger.membership import Membership
from ledger.running import Uncharged
from ledger.spent import PeriodSpent, Spent, spent_in


@dataclass(frozen=True)
class Books:
    """A period as of now: who stood under whom, what is planned, all its sums, and what runs."""

    period: Period
    now: datetime
    tree: Membership
    planned: Plans
    sums: list[PeriodSpent]
    uncharged: Uncharged

    @classmethod
    def load(cls, period: Period, now: datetime) -> "Books":
        tree = Membership.load()
        return cls(
            period=period,
            now=now,
            tree=tree,
            planned=plans.load(period=period, at=now),
            sums=spent_in(period, tree),
            uncharged=uncharged_in(period, at=now, tree=tree),
        )

    def burns(self, only: Collection[int]) -> dict[int, Burn]:
        return burning.burns(
            period=self.period,
            now=self.now,
            only=only,
            tree=self.tree,
            planned=self.planned,
            sums=self.sums,
            uncharged=self.uncharged,
        )

    def spent(self, budget: Budget) -> Spent:
        """Return what was settled in the period so far, the budget's subtree included."""
        start, now = self.period.starts_at, self.now
        if now <= start:
            return Spent()
        read = {self.period.pk: self.sums}
        return burned(budget=budget, start=start, end=now, now=now, tree=self.tree, read=read)

    def planned_left(self, budget: Budget) -> int:
        steps = curves.granted_steps(
            budget=budget, period=self.period, until=self.now, begins=self.planned.begins
        )
        curve = self.planned.of(budget.pk)
        return curves.planned_left(curve=curve, steps=steps, at=self.now)
