"""What budgets were called at an instant. The only reading of former names.

A budget's row has the slug and name of today; each rename keeps those it ended. So the past says
what it said then, and a budget that was never renamed costs nothing.
"""

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import NamedTuple

from django.db.models import Max, Q

from budgets.models import Budget, ChangeSet, FormerName, Share

LONG_AGO = datetime.min.replace(tzinfo=UTC)


class Called(NamedTuple):
    """A budget's slug and name."""

    slug: str
    name: str

    @classmethod
    def of(cls, budget: Budget) -> "Called":
        """Return what it is called today."""
        return cls(budget.slug, budget.name)


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
        return rows[number][1] if number < len(rows) else Called.of(budget)

    def differs(self, budget: Budget, start: datetime, end: datetime) -> bool:
        """Say whether a budget was called otherwise at the one instant than at the other."""
        return self.at(budget, start) != self.at(budget, end)

    def path(self, chain: Iterable[Budget], at: datetime) -> str:
        """Return the path that a budget had, of it and its ancestors then, the root last."""
        return "/".join(reversed([self.at(one, at).slug for one in chain]))

    def epoch(self, at: datetime) -> int:
        """Return how many renames came before: between two of them all names stay the same."""
        return bisect_right(self._turns, at)


def formerly(path: str, *, known: Callable[[Budget], bool]) -> list[Budget]:
    """Return the budgets that a path led to before renames and moves, the likeliest first.

    Each slug of the path is one that the budget has or had, below one that is or was its parent;
    that it had them all at one instant is not asked. `known` says of each on the way whether it
    may be used. A query for each slug, up to the first that nothing has.
    """
    found: list[Budget] = []
    for depth, slug in enumerate(path.split("/")):
        found = [one for one in _called(slug, found if depth else None) if known(one)]
        if not found:
            break
    return found


def _called(slug: str, parents: Sequence[Budget] | None) -> list[Budget]:
    """Return what has or had a slug below these (None: the root), those who have it now first."""
    rank = {one.pk: number for number, one in enumerate(parents or [])}
    approved = ChangeSet.Status.APPROVED
    ever = Share.objects.filter(change_set__parent__in=rank, change_set__status=approved)
    below = Q(parent__in=rank) | Q(pk__in=ever.values("budget"))
    rows = Budget.objects.filter(Q(parent=None) if parents is None else below)
    until = Max("former_names__until", filter=Q(former_names__slug=slug))
    rows = rows.annotate(until=until).filter(Q(slug=slug) | Q(until__isnull=False))
    return sorted(
        rows.order_by("pk"),
        key=lambda one: (
            -rank.get(one.parent_id or 0, len(rank)),  # what has moved away comes last
            one.slug == slug,
            getattr(one, "until") or LONG_AGO,  # noqa: B009  # the annotation
        ),
        reverse=True,
    )
