"""What a budget takes along when it moves below another one: the credits it saved.

A budget's figures are part of those of everything above it. What it had settled and in flight
before it moved stays with the branch that it left; what it hasn't used yet goes along, by entries
like a transfer's on either branch up to, not including, the common ancestor.
"""

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime

from django.db.models import Sum

from budgets.models import Period
from ledger.figures import GRANTED, SETTLES, Accounts
from ledger.instants import to_seconds
from ledger.membership import Membership
from ledger.models import Entry
from ledger.stretches import period_sums

Kind = Entry.Kind


@dataclass(frozen=True, slots=True)
class Move:
    """A budget that has other ancestors from an instant on; both chains go from it to the root."""

    budget_id: int
    old: tuple[int, ...]
    new: tuple[int, ...]

    @property
    def left(self) -> tuple[int, ...]:
        return tuple(node for node in self.old if node not in self.new)

    @property
    def joined(self) -> tuple[int, ...]:
        return tuple(node for node in self.new if node not in self.old)

    def amounts(self, amount: int) -> dict[int, int]:
        """Return what each node of either branch gets."""
        return dict.fromkeys(self.left, -amount) | dict.fromkeys(self.joined, amount)


def moves_at(*, at: datetime, tree: Membership, followed: Mapping[int, int]) -> list[Move]:
    """Return the moves of an instant that the ledger has yet to follow, the deepest first.

    ``followed``: below whom the ledger has budgets already that moved at that very instant.
    """
    seconds = to_seconds(at)
    if seconds not in tree.moves and not followed:
        return []

    def before(budget_id: int) -> int | None:
        return followed.get(budget_id, tree.parent(budget_id, seconds - 1))

    found = [
        Move(budget_id, tuple(_climb(budget_id, before)), tree.chain(budget_id, seconds))
        for budget_id in tree
        if before(budget_id) != tree.parent(budget_id, seconds)
    ]
    return sorted(found, key=lambda move: (-len(move.old), move.budget_id))


def _climb(budget_id: int, parent: Callable[[int], int | None]) -> Iterator[int]:
    seen: set[int] = set()
    node: int | None = budget_id
    while node is not None and node not in seen:
        seen.add(node)
        yield node
        node = parent(node)


class Used:
    """What of a budget's grant counts for the branch that it left at an instant."""

    def __init__(self, *, period: Period, at: datetime, found: Accounts) -> None:
        self.period, self.at, self.tree = period, at, found.tree
        self._granted = found.granted
        self._spent = _spent_before(period, at, found)
        self._still = set(found.tree) - found.tree.wanderers()

    def unused(self, budget_id: int) -> int:
        """Return what the budget had been granted and had not used when it moved."""
        later = Entry.objects.filter(period=self.period, budget_id=budget_id, at__gt=self.at)
        since = later.filter(kind__in=GRANTED).aggregate(total=Sum("amount_mgpus"))["total"]
        spent = self._spent[budget_id] - self._spent_since(budget_id)
        return self._granted[budget_id] - (since or 0) - spent

    def _spent_since(self, budget_id: int) -> int:
        """Return what is settled since of a budget that is back where it was within a second: sums
        don't tell that from what was settled before."""
        seconds = to_seconds(self.at)
        below = [one for one in self._still if budget_id in self.tree.chain(one, seconds)]
        rows = Entry.objects.filter(period=self.period, budget_id__in=below, at__gte=self.at)
        sums = rows.filter(kind__in=SETTLES).order_by().values_list("kind")
        return sum(
            SETTLES[Kind(kind)] * total for kind, total in sums.annotate(total=Sum("amount_mgpus"))
        )


def taken_along(*, unused: int, worth: int, room: int | None) -> int:
    """Return what a budget takes along when it moves. Pure.

    All it has and hasn't used, ``unused``, but for what its new share is ``worth`` until the
    period ends: that comes out of the new parent's reserve, as the old share's worth has gone back
    to the old one's. At most what is free in all of the branch that it leaves, ``room`` (None: it
    leaves none).
    """
    saved = unused - worth
    return max(0, saved if room is None else min(saved, room))


def _spent_before(period: Period, at: datetime, found: Accounts) -> Mapping[int, int]:
    """Return settled + in flight by budget, subtree included, of what stood there before."""
    seconds, total, tree = to_seconds(at), defaultdict[int, int](int), found.tree
    for one in period_sums(period, tree):
        if one.kind in SETTLES and one.since < seconds:
            for node in tree.chain(one.budget_id, one.since):
                total[node] += SETTLES[Kind(one.kind)] * one.amount_mgpus
    for (budget_id, start), amount in found.running_of.items():
        if start < seconds:
            for node in tree.chain(budget_id, start):
                total[node] += amount
    return total
