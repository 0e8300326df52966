"""Level fair share of a budget beside its siblings, with the division spelled out."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from decimal import ROUND_HALF_UP, Decimal
from fractions import Fraction

from django.conf import settings

from allocator import entitlements
from budgets.access import Standing
from budgets.models import WHOLE, Budget
from budgets.shares import TreeNode
from ledger.running import Uncharged

CENT = Decimal("0.01")


@dataclass(frozen=True)
class Place:
    """A sibling, or several that the reader may not see, in the order in which they go first.

    Parts are in thousandths of a percent. ``level`` = part of the shares ÷ part of the usage; None
    where nothing was used: then it goes first, unless its share is 0.
    """

    rank: int
    budget: Budget | None  # None: others
    others: int
    is_self: bool
    share_part: int
    usage_part: int
    level: Decimal | None


@dataclass(frozen=True)
class Fairness:
    """A budget's place among its siblings in the last days."""

    places: list[Place]
    own: Place
    count: int
    days: int
    half_life_hours: int  # 0: all use of those days counts in full
    nothing_used: bool

    @property
    def is_over(self) -> bool:
        """Whether it has had more than its share."""
        return self.own.level is not None and self.own.level < 1


def of_budget(
    *,
    budget: Budget,
    tree: Mapping[int, TreeNode],
    held: Standing,
    now: datetime,
    uncharged: Uncharged | None = None,
) -> Fairness | None:
    """Return the standing of a budget among its siblings; None where it has none.

    ``uncharged``: what runs, where that has been read already.
    """
    node = tree.get(budget.pk)
    if node is None or node.parent_id is None or len(tree[node.parent_id].children) < 2:
        return None
    used: dict[str, int] = {}
    for pk, seconds in entitlements.usage(at=now, uncharged=uncharged).items():
        leaf = tree.get(pk)
        if leaf is not None and leaf.is_leaf:  # as the allocator counts it
            for path in _upwards(leaf.budget.path):
                used[path] = used.get(path, 0) + seconds
    siblings = [tree[pk] for pk in tree[node.parent_id].children]
    total = sum(used.get(one.budget.path, 0) for one in siblings)
    places = _ranked(siblings, used, total, budget)
    return Fairness(
        places=_shown(places, held),
        own=next(place for place in places if place.is_self),
        count=len(siblings),
        days=settings.USAGE_WINDOW_DAYS,
        half_life_hours=settings.USAGE_HALF_LIFE_HOURS,
        nothing_used=not total,
    )


def _upwards(path: str) -> list[str]:
    slugs = path.split("/")
    return ["/".join(slugs[: n + 1]) for n in range(len(slugs))]


def _ranked(
    siblings: list[TreeNode], used: Mapping[str, int], total: int, own: Budget
) -> list[Place]:
    """As the allocator compares them: share 0 last, usage 0 first, ties by share, then id."""
    whole = sum(one.thousandths for one in siblings)

    def key(one: TreeNode) -> tuple[bool, bool, Fraction, int, int]:
        usage = used.get(one.budget.path, 0)
        ratio = Fraction(one.thousandths, usage) if usage else Fraction(0)
        return not one.thousandths, bool(usage), -ratio, -one.thousandths, one.budget.pk

    return [
        Place(
            rank=rank,
            budget=one.budget,
            others=0,
            is_self=one.budget == own,
            share_part=one.thousandths * WHOLE // whole if whole else 0,
            usage_part=used.get(one.budget.path, 0) * WHOLE // total if total else 0,
            level=_level(one.thousandths, whole, used.get(one.budget.path, 0), total),
        )
        for rank, one in enumerate(sorted(siblings, key=key), 1)
    ]


def _level(share: int, whole: int, used: int, total: int) -> Decimal | None:
    if not used:
        return None
    exact = Fraction(share * total, whole * used) if whole else Fraction(0)
    value = Decimal(exact.numerator) / Decimal(exact.denominator)
    return value.quantize(CENT, rounding=ROUND_HALF_UP)


def _shown(places: list[Place], held: Standing) -> list[Place]:
    """Keep the siblings that the reader may see; sum up the others in one row at the end."""
    seen = [one for one in places if one.budget and held.sees(one.budget.path)]
    hidden = [one for one in places if one not in seen]
    if not hidden:
        return seen
    rest = Place(
        rank=0,
        budget=None,
        others=len(hidden),
        is_self=False,
        share_part=sum(one.share_part for one in hidden),
        usage_part=sum(one.usage_part for one in hidden),
        level=None,
    )
    return [*seen, rest]
