"""Who stood under whom at an instant, so that a move never changes totals of the past."""

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import pairwise

from django.db.models import Exists, OuterRef, QuerySet

from budgets.models import ChangeSet, Share
from budgets.shares import every_place
from ledger.instants import to_seconds


@dataclass(slots=True)
class _Stays:
    """The parents of one budget, each from an instant on."""

    since: list[int] = field(default_factory=list)
    parents: list[int] = field(default_factory=list)

    def at(self, seconds: int) -> int:
        return self.parents[max(0, bisect_right(self.since, seconds) - 1)]


class Membership:
    """Dated parents of every budget there ever was.

    A budget's parent at an instant is the one whose latest vector of shares named it. An archived
    budget keeps the place it had, since its entries still count there; a budget that no vector
    ever named has the parent of its row.
    """

    def __init__(self, parents: Mapping[int, int | None], moved: Mapping[int, _Stays]) -> None:
        self._parents = parents
        self._moved = moved
        self._chains: dict[int, dict[int, tuple[int, ...]]] = defaultdict(dict)  # by epoch
        self.moves = sorted({since for stays in moved.values() for since in stays.since[1:]})

    @classmethod
    def load(cls, *, without: Collection[int] = ()) -> "Membership":
        """Read who stood under whom; ``without``: as if change sets of these ids didn't hold."""
        parents = {one.budget_id: one.parent_id for one in every_place()}
        named: dict[int, set[int]] = defaultdict(set)
        for budget_id, parent_id in (
            _named(without).values_list("budget_id", "change_set__parent_id").distinct()
        ):
            assert parent_id is not None
            named[budget_id].add(parent_id)
        parents |= {budget: next(iter(ids)) for budget, ids in named.items() if len(ids) == 1}
        moved = [budget for budget, ids in named.items() if len(ids) > 1]
        return cls(parents, _stays(moved, without) if moved else {})

    def with_moves(self, parents: Mapping[int, int], seconds: int) -> "Membership":
        """Return what it would be if budgets stood below other parents from an instant on."""
        moved = dict(self._moved)
        for budget_id, parent_id in parents.items():
            old = moved.get(budget_id) or self._only_stay(budget_id)
            moved[budget_id] = _Stays([*old.since, seconds], [*old.parents, parent_id])
        return Membership(self._parents, moved)

    def _only_stay(self, budget_id: int) -> _Stays:
        parent = self._parents[budget_id]
        assert parent is not None, "the organisation does not move"
        return _Stays([0], [parent])

    def __iter__(self) -> Iterator[int]:
        return iter(self._parents)

    def parent(self, budget_id: int, seconds: int) -> int | None:
        stays = self._moved.get(budget_id)
        return stays.at(seconds) if stays else self._parents[budget_id]

    def chain(self, budget_id: int, seconds: int) -> tuple[int, ...]:
        """Return the budget and its ancestors at an instant, from the budget to the root."""
        known = self._chains[bisect_right(self.moves, seconds) if self.moves else 0]
        chain = known.get(budget_id)
        if chain is None:
            chain = known[budget_id] = tuple(self._climb(budget_id, seconds))
        return chain

    def epoch(self, seconds: int) -> int:
        """Return how many moves came before: between two moves every chain stays the same."""
        return bisect_right(self.moves, seconds)

    def begin(self, epoch: int) -> int:
        """Return an instant (seconds) from which on that many moves have been made."""
        return self.moves[epoch - 1] if epoch else 0

    def moves_between(self, start: int, end: int) -> list[int]:
        return [move for move in self.moves if start < move < end]

    def moves_of(self, budget_id: int, start: int, end: int) -> list[int]:
        """Return when, inside an interval, a budget came to have other ancestors."""
        return [
            move
            for move in self.moves_between(start, end)
            if self.chain(budget_id, move - 1) != self.chain(budget_id, move)
        ]

    def children(self, budget_id: int, seconds: int) -> list[int]:
        """Return the ids of the budgets that stood right under a budget, in order."""
        return sorted(child for child in self if self.parent(child, seconds) == budget_id)

    def wanderers(self) -> set[int]:
        """Return the budgets that did not always have the ancestors they have."""
        instants = [0, *self.moves]
        return {one for one in self if len({self.chain(one, at) for at in instants}) > 1}

    def below(self, budget_id: int, start: int, end: int) -> list[tuple[int, int, set[int]]]:
        """Return what stood below a budget, it included, in [start, end): from, until, ids."""
        marks = [start, *self.moves_between(start, end), end]
        spells: list[tuple[int, int, set[int]]] = []
        for low, high in pairwise(marks):
            ids = {one for one in self if budget_id in self.chain(one, low)}
            if spells and spells[-1][2] == ids:
                low = spells.pop()[0]
            spells.append((low, high, ids))
        return spells

    def _climb(self, budget_id: int, seconds: int) -> Iterator[int]:
        seen: set[int] = set()
        node: int | None = budget_id
        while node is not None and node not in seen:
            seen.add(node)
            yield node
            node = self.parent(node, seconds)


def _named(without: Collection[int]) -> QuerySet[Share]:
    approved = Share.objects.filter(pool__isnull=True, change_set__status=ChangeSet.Status.APPROVED)
    return approved.exclude(change_set__in=without).order_by()


def _stays(budget_ids: list[int], without: Collection[int]) -> dict[int, _Stays]:
    # A set that was scheduled, and for which a later version stood in by then, never held.
    stood_in = ChangeSet.objects.filter(
        parent=OuterRef("change_set__parent"),
        status=ChangeSet.Status.APPROVED,
        version__gt=OuterRef("change_set__version"),
        effective_at__lte=OuterRef("change_set__effective_at"),
    ).exclude(pk__in=without)
    rows = (
        _named(without)
        .filter(~Exists(stood_in), budget_id__in=budget_ids)
        .order_by("change_set__effective_at", "change_set__version", "change_set_id")
        .values_list("budget_id", "change_set__parent_id", "change_set__effective_at")
    )
    stays: dict[int, _Stays] = defaultdict(_Stays)
    for budget_id, parent_id, since in rows:
        assert parent_id is not None
        stays[budget_id].since.append(to_seconds(since))
        stays[budget_id].parents.append(parent_id)
    return dict(stays)
