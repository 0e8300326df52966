"""What differs between two packs of the same budget and period, figure by figure."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from allocator.reviews.pack import Pack, Row

# Figures of a row: their name in the pack, and what they are counted in.
OF_TOTAL = {
    "granted_mgpus": "credits",
    "settled_mgpus": "credits",
    "pace_per_mille": "pace",
    "owed_gpu_seconds": "gpu_hours",
    "delivered_gpu_seconds": "gpu_hours",
    "runway_hours": "hours",
    "spendable_mgpus": "credits",
    "in_flight_mgpus": "credits",
    "held_mgpus": "credits",
    "parked_mgpus": "credits",
    "unfunded_gpu_seconds": "gpu_hours",
    "forecast_low_mgpus": "credits",
    "forecast_high_mgpus": "credits",
}
OF_ROWS = ("granted_mgpus", "settled_mgpus")
# Lists of the pack, and what says how many more there are than it shows.
COUNTED = {"asked": "more_asked", "changes": "more_changes", "by_hand": "", "comments": ""}


@dataclass(frozen=True)
class Difference:
    """One figure before and after; None: there was none. ``where`` is a row's label, or empty.

    ``unit``: credits (mGPU-s), gpu_hours (GPU-s), hours, pace (per mille), percent, number.
    """

    where: str
    figure: str
    unit: str
    before: int | None
    after: int | None


def differences(before: Pack, after: Pack) -> tuple[Difference, ...]:
    """Return what differs: of the whole, of each row, and how much was asked, decided, said."""
    return tuple(_all(before, after))


def _all(before: Pack, after: Pack) -> Iterator[Difference]:
    for figure, unit in OF_TOTAL.items():
        yield from _one("", figure, unit, before.total.burn, after.total.burn)
    yield from _one("", "corrected_later_mgpus", "credits", before, after)
    was, now = _by_budget(before), _by_budget(after)
    for key in sorted(was.keys() | now.keys()):
        old, new = was.get(key), now.get(key)
        named = new or old
        assert named is not None
        for figure in OF_ROWS:
            one, two = (row.burn if row else None for row in (old, new))
            yield from _one(named.label, figure, "credits", one, two)
        yield from _one(named.label, "share", "percent", old, new)
    for figure, more in COUNTED.items():
        first, then = (len(getattr(one, figure)) + _more(one, more) for one in (before, after))
        if first != then:
            yield Difference("", figure, "number", first, then)


def _more(pack: Pack, figure: str) -> int:
    return getattr(pack, figure) if figure else 0


def _by_budget(pack: Pack) -> dict[int, Row]:
    return {row.budget: row for row in pack.rows if row.budget and not row.burn.is_reserve}


def _one(where: str, figure: str, unit: str, before: Any, after: Any) -> Iterator[Difference]:
    was, now = (getattr(one, figure) if one is not None else None for one in (before, after))
    if was != now:
        yield Difference(where, figure, unit, was, now)
