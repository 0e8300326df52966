"""What budgets were called at an instant. The only reading of former names.

A budget's row has the slug and name of today; each rename keeps those it ended. So the past says
what it said then, and a budget that was never renamed costs nothing.
"""

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import NamedTuple

from budgets.models import Budget, FormerName


class Called(NamedTuple):
    """A budget's slug and name."""

    slug: str
    name: str


class Names:
    """The slugs and names that were given up, by budget, each with the instant it ended at."""

    def __init__(self, former: Mapping[int, list[tuple[datetime, Called]]]) -> None:
        self._former = former
        self._turns = sorted({until for rows in former.values() for until, _ in rows})

    @classmethod
    def load(cls) -> "Names":
        """Read them all. One query."""
        former: dict[int, list[tuple[datetime, Called]]] = defaultdict(list)
        rows = FormerName.objects.order_by("until", "pk")
        for budget_id, until, slug, name in rows.values_list("budget_id", "until", "slug", "name"):
            former[budget_id].append((until, Called(slug, name)))
        return cls(dict(former))

    def at(self, budget: Budget, at: datetime) -> Called:
        """Return what a budget was called at an instant; at that of a rename it is the new one."""
        rows = self._former.get(budget.pk, [])
        number = bisect_right(rows, at, key=lambda row: row[0])
        return rows[number][1] if number < len(rows) else Called(budget.slug, budget.name)

    def differs(self, budget: Budget, start: datetime, end: datetime) -> bool:
        """Say whether a budget was called otherwise at the one instant than at the other."""
        return self.at(budget, start) != self.at(budget, end)

    def path(self, chain: Iterable[Budget], at: datetime) -> str:
        """Return the path that a budget had, of it and its ancestors then, the root last."""
        return "/".join(reversed([self.at(one, at).slug for one in chain]))

    def epoch(self, at: datetime) -> int:
        """Return how many renames came before: between two of them all names stay the same."""
        return bisect_right(self._turns, at)
