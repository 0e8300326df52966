"""What a project has free that was divided into others after a checkpoint was announced."""

from collections.abc import Collection, Iterable, Iterator
from typing import TypeVar

from ledger.figures import Accounts

T = TypeVar("T")


def sources(found: Accounts, budget_id: int, *, others: Collection[int]) -> list[tuple[int, int]]:
    """Return out of which budgets a project's free credits can be taken, and how much of each.

    Its own reserve first, then what is below it, by id; `others` stand for themselves. No budget
    on the way up to the project falls below what it has claimed. Of one that is not divided: all
    that it has free.
    """
    left: dict[int, int] = {}
    taken = []
    for node, way in _below(found, budget_id, (budget_id,), others):
        amount = min(found.own(node), *(left.setdefault(pk, found.free(pk)) for pk in way))
        if amount > 0:
            left |= {pk: left[pk] - amount for pk in way}
            taken.append((node, amount))
    return taken


def first_of(free: Iterable[tuple[T, int]], amount: int) -> list[tuple[T, int]]:
    """Return how much of an amount comes out of each, in order. Pure."""
    parts, left = [], amount
    for one, most in free:
        if part := min(most, left):
            parts.append((one, part))
        left -= part
    return parts


def _below(
    found: Accounts, node: int, way: tuple[int, ...], others: Collection[int]
) -> Iterator[tuple[int, tuple[int, ...]]]:
    """Yield a budget and all below it with the way down to each, the upper ones first."""
    yield node, way
    for child in sorted(found.tree.children(node, found.at)):
        if child not in others:
            yield from _below(found, child, (*way, child), others)
