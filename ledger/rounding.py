"""What a change of shares moves in whole milli-GPU-seconds, so that no reserve falls below 0 by it.

Each budget's change is rounded down. But a parent that loses a fraction by that could then have
less than its children, who lose none: so what children get together is rounded down once more, as
far as their parent's own change was. The units that are too many are taken from those whose own
rounding took least (largest remainder), by id where that is the same.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from fractions import Fraction
from math import ceil, floor
from typing import NamedTuple


class Place(NamedTuple):
    """Below whom a budget stands, and what its share is worth until the period ends."""

    parent: int | None
    worth: Fraction


def dues(before: Mapping[int, Place], after: Mapping[int, Place]) -> dict[int, int]:
    """Return what each budget's grant moves by in one pool, in milli-GPU-seconds by id. Pure.

    Parents stand before their children. With p and c the exact changes of a parent and of the
    children that stay below it, and P what the parent's is rounded to: the children get at most
    ⌊P − p + Σ c⌋ together, so what is left in reserve is never less than it would be unrounded. A
    budget that moves leaves at least what it had, and takes at most what it has.
    """
    found = {pk: -floor(place.worth) for pk, place in before.items() if pk not in after}
    below: dict[int, list[int]] = defaultdict(list)
    for pk, (parent, worth) in after.items():
        old = before.get(pk)
        if old is not None and old.parent != parent:
            found[pk] = floor(worth) - ceil(old.worth)
        elif parent in after:
            assert parent is not None
            below[parent].append(pk)
        else:
            found[pk] = floor(_change(pk, before, after))
    for pk in after:
        stay = {child: _change(child, before, after) for child in below[pk]}
        if stay:
            most = found[pk] - _change(pk, before, after) + sum(stay.values())
            found |= _shared(stay, floor(most))
    return found


def _change(pk: int, before: Mapping[int, Place], after: Mapping[int, Place]) -> Fraction:
    return after[pk].worth - (before[pk].worth if pk in before else 0)


def _shared(exact: Mapping[int, Fraction], most: int) -> dict[int, int]:
    """Return amounts rounded down, and further where they would be more than ``most`` together."""
    amounts = {pk: floor(amount) for pk, amount in exact.items()}
    too_many = sum(amounts.values()) - most
    if too_many > 0:
        each, rest = divmod(too_many, len(amounts))
        for place, pk in enumerate(_by_remainder(exact)):
            amounts[pk] -= each + (place < rest)
    return amounts


def _by_remainder(exact: Mapping[int, Fraction]) -> Sequence[int]:
    """Return who gives first: whom rounding took least, but last those whom nothing moves."""
    return sorted(exact, key=lambda pk: (exact[pk] == 0, exact[pk] - floor(exact[pk]), pk))
