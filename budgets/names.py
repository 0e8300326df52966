"""What budgets were called at an instant. The only reading of former names.

A budget's row has the slug and name of today; each rename keeps those it ended. So the past says
what it said then, and a budget that was never renamed costs nothing.
"""

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

from django.db.models import Count, Max, Min, Q, QuerySet

from budgets.models import Budget, ChangeSet, FormerName, Share

SECOND = timedelta(seconds=1)
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

    def turns_of(self, budget_id: int) -> list[datetime]:
        """Return when a budget was given another name or slug."""
        return [until for until, _ in self._former.get(budget_id, [])]

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


class Former(NamedTuple):
    """What a budget was called, and its path, until something of it changed."""

    name: str
    path: str
    said: str  # what of both is no more, as readers are told it

    @property
    def text(self) -> str:
        """What searches look at."""
        return f"{self.name} {self.path}".casefold()


class Past:
    """The names and paths that budgets had before renames and moves, of them or above them."""

    def __init__(
        self,
        budgets: Mapping[int, Budget],
        names: Names,
        born: Mapping[int, datetime],
        stays: Mapping[int, list[tuple[datetime, int]]],
    ) -> None:
        self._budgets, self._names, self._born, self._stays = budgets, names, born, stays
        self._turns = {
            pk: {*names.turns_of(pk), *(since for since, _ in stays.get(pk, [])[1:])}
            for pk in budgets
        }

    @classmethod
    def load(cls, budgets: Mapping[int, Budget] | None = None) -> "Past":
        """Read it, with all budgets by id where they are at hand. Two to four queries."""
        approved = Share.objects.filter(pool=None, change_set__status=ChangeSet.Status.APPROVED)
        rows = approved.order_by().values_list("budget_id")
        first, parents = Min("change_set__decided_at"), Count("change_set__parent", distinct=True)
        lives = list(rows.annotate(first=first, parents=parents))
        moved = [pk for pk, _, parents_had in lives if parents_had > 1]
        born = {pk: since for pk, since, _ in lives}
        every = Budget.objects.in_bulk() if budgets is None else budgets
        return cls(every, Names.load(), born, _stays(approved, moved))

    def changed(self) -> list[int]:
        """Return the ids of the budgets that had another name or path."""
        return [pk for pk in self._budgets if self._ends(pk)]

    def of(self, budget: Budget, *, known: Callable[[Budget], bool]) -> list[Former]:
        """Return what a budget was called and where it stood, the latest first.

        Without paths that name a budget of which `known` says no.
        """
        found: dict[Former, None] = {}
        for end in sorted(self._ends(budget.pk), reverse=True):
            at = end - SECOND
            chain = list(self._chain(budget.pk, at))
            name, path = self._names.at(budget, at).name, self._names.path(chain, at)
            others = [
                *([name] if name != budget.name else []),
                *([path] if path != budget.path else []),
            ]
            if others and all(map(known, chain)):
                found[Former(name, path, ", ".join(others))] = None
        return list(found)

    def _ends(self, pk: int) -> set[datetime]:
        """When something of its name or path ended, since it was there."""
        above, wanted = {pk}, [pk]
        while wanted:
            for parent in self._parents(wanted.pop()):
                if parent not in above:
                    above.add(parent)
                    wanted.append(parent)
        born = self._born.get(pk, LONG_AGO)
        return {end for one in above for end in self._turns[one] if end > born}

    def _parents(self, pk: int) -> list[int]:
        """All that a budget ever stood right under."""
        now = self._budgets[pk].parent_id
        had = [parent for _, parent in self._stays.get(pk, [])]
        return [*had, *([now] if now is not None else [])]

    def _chain(self, pk: int, at: datetime) -> Iterator[Budget]:
        """Yield a budget and its ancestors at an instant, the root last."""
        step: int | None = pk
        seen: set[int] = set()
        while step is not None and step not in seen:
            seen.add(step)
            yield self._budgets[step]
            stays = self._stays.get(step)
            number = bisect_right(stays, at, key=lambda stay: stay[0]) if stays else 0
            step = stays[max(0, number - 1)][1] if stays else self._budgets[step].parent_id


def _stays(approved: QuerySet[Share], moved: list[int]) -> dict[int, list[tuple[datetime, int]]]:
    """Return under whom budgets that moved stood, each from an instant on.

    A budget is under the parent whose set that names it was approved last.
    """
    stays: dict[int, list[tuple[datetime, int]]] = defaultdict(list)
    rows = approved.filter(budget_id__in=moved) if moved else approved.none()
    columns = ("budget_id", "change_set__decided_at", "change_set__parent_id")
    order = ("change_set__decided_at", "change_set__version", "change_set_id")
    for pk, since, parent in rows.order_by(*order).values_list(*columns):
        assert since is not None, "what is approved was decided"
        if not stays[pk] or stays[pk][-1][1] != parent:
            stays[pk].append((since, parent))
    return dict(stays)
