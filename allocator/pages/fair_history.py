"""The level fair share of a budget beside its siblings', over the last days: what explains a
preemption. In the format that static/charts.js draws (docs/ui.md).

Each point is computed as the allocator would have: what was charged in the window that ended there,
by the shares of that instant, of the tree as it stands now. Days are read by their sums, the last
one by the hour.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

import numpy as np
from django.conf import settings
from django.db.models import Q, QuerySet, Sum
from django.urls import reverse

from allocator.pages import fairness
from budgets import hues, periods, shares
from budgets.access import Person, get_budget_or_404, standing
from budgets.models import Budget
from budgets.shares import TreeNode
from clusters import services as clusters
from clusters.reading import reading
from ledger.decay import ONE, Decay
from ledger.instants import from_seconds, to_seconds
from ledger.models import Entry, Rollup
from workloads.models import Run

LOOKS_BACK = timedelta(days=14)
HOUR, DAY = 3600, 86_400
LOST = 40  # marks at most

Amounts = np.ndarray[tuple[int, int], np.dtype[np.float64]]


@dataclass(frozen=True)
class Bucket:
    """An hour or a day of charges, in seconds since 1970."""

    since: int
    size: int

    def is_inside(self, start: int, end: int, first: int, last: int) -> bool:
        """Whether it is a part of [start, end), of which [first, last) is told by days."""
        inside = start <= self.since and self.since + self.size <= end
        return inside and (first <= self.since < last) == (self.size == DAY)


@dataclass(frozen=True)
class Used:
    """What each of some siblings was charged in each bucket: rows are siblings."""

    buckets: list[Bucket]
    amounts: Amounts

    def within(self, start: int, end: int) -> Amounts:
        """Return what each used in [start, end), older use decayed as the allocator's is.

        Whole days where they lie inside, hours at the edges; hours alone where use decays.
        """
        first, last = -(-start // DAY) * DAY, end // DAY * DAY
        decay = Decay(end, settings.USAGE_HALF_LIFE_HOURS)
        if decay.half_life_hours:
            first = last = 0
        weights = [
            decay.weight(one.since) / ONE * one.is_inside(start, end, first, last)
            for one in self.buckets
        ]
        return self.amounts @ np.array(weights)


@reading()
def chart(user: Person, *, path: str, now: datetime) -> dict[str, Any] | None:
    """Return the chart's data for who may see the budget; None where it has no siblings."""
    budget, held = get_budget_or_404(user, path), standing(user)
    tree = shares.tree(at=now)
    node = tree.get(budget.pk)
    if node is None or node.parent_id is None or len(tree[node.parent_id].children) < 2:
        return None
    siblings = [tree[pk] for pk in tree[node.parent_id].children]
    instants = _instants(now)
    levels = _levels(node.parent_id, siblings, tree, instants)
    current = fairness.of_budget(budget=budget, tree=tree, held=held, now=now)
    period = periods.active(now)
    seen = [one for one in siblings if held.sees(one.budget.path)]
    lines = {one.budget.pk: levels[one.budget.pk] for one in seen}
    _end_as_told(lines, current)
    return {
        "hue": hues.of_budgets()[budget.path],
        "zone": period.time_zone if period else "UTC",
        "from": _iso(instants[0]),
        "to": _iso(instants[-1]),
        "lines": [
            {
                "name": one.budget.name,
                "own": one.budget == budget,
                "points": [
                    [_iso(at), level]
                    for at, level in zip(instants, lines[one.budget.pk], strict=True)
                ],
            }
            for one in seen
        ],
        "lost": list(_lost(budget, instants, lines[budget.pk])),
    }


def lost_runs(budget: Budget, *, now: datetime) -> QuerySet[Run]:
    """Return the runs of a budget and all below it that made room for others, the last first."""
    below = Q(job__budget=budget) | Q(job__budget__path__startswith=f"{budget.path}/")
    stopped = Run.objects.filter(below, end_reason=Run.EndReason.PREEMPTED)
    since = stopped.filter(ended_at__gt=now - LOOKS_BACK, ended_at__lte=now)
    return since.select_related("job").order_by("-ended_at", "-pk")


def _instants(now: datetime) -> list[datetime]:
    """Midnights of UTC since there were GPUs, the last day's hours, and now."""
    begun = min(clusters.in_use_since().values(), default=now)
    end, fine = to_seconds(now), to_seconds(now) - DAY
    start = to_seconds(max(begun, now - LOOKS_BACK))
    days = range(-(-start // DAY) * DAY, fine, DAY)
    hours = range(-(-max(start, fine) // HOUR) * HOUR, end, HOUR)
    return [*map(from_seconds, sorted({*days, *hours})), now]


def _levels(
    parent: int,
    siblings: Sequence[TreeNode],
    tree: Mapping[int, TreeNode],
    instants: Sequence[datetime],
) -> dict[int, list[float | None]]:
    """Return the level of each sibling at each instant; None where it used nothing."""
    used = _used(siblings, tree, instants)
    history = shares.History.load(since=instants[0], until=instants[-1] + timedelta(seconds=1))
    window = settings.USAGE_WINDOW_DAYS * DAY
    found: dict[int, list[float | None]] = {one.budget.pk: [] for one in siblings}
    stood: dict[datetime, dict[int, TreeNode]] = {}
    for at in instants:
        second = to_seconds(at)
        nodes = stood.setdefault(history.since(at), history.tree(at))
        parts = [_share(nodes.get(pk), parent) for pk in found]
        amounts = used.within(second - window, second)
        whole, total = sum(parts), float(amounts.sum())
        for pk, part, amount in zip(found, parts, amounts, strict=True):
            level = part * total / (whole * float(amount)) if whole and amount else None
            found[pk].append(None if level is None else round(level, 3))
    return found


def _share(node: TreeNode | None, parent: int) -> int:
    return node.thousandths if node is not None and node.parent_id == parent else 0


def _used(
    siblings: Sequence[TreeNode], tree: Mapping[int, TreeNode], instants: Sequence[datetime]
) -> Used:
    """Read what the siblings' leaves were charged: days, and hours near the ends. One query."""
    row = {
        leaf: number
        for number, sibling in enumerate(siblings)
        for leaf in _leaves(tree, sibling.budget.pk)
    }
    window, end = settings.USAGE_WINDOW_DAYS * DAY, to_seconds(instants[-1])
    start, fine = to_seconds(instants[0]) - window, (end - DAY) // DAY * DAY
    hours = Q(size=Rollup.Size.HOUR)
    if not settings.USAGE_HALF_LIFE_HOURS:
        hours &= Q(since__gte=fine) | Q(since__gte=fine - window, since__lt=end - window + DAY)
    sums = Rollup.objects.filter(
        Q(size=Rollup.Size.DAY) | hours, since__gte=start - DAY, since__lt=end
    )
    charges = sums.filter(budget__in=list(row), kind=Entry.Kind.CHARGE, funded=True)
    rows = charges.order_by().values_list("size", "since", "budget_id").annotate(
        amount=Sum("amount_mgpus")
    )  # fmt: skip
    place: dict[Bucket, int] = {}
    found = [(place.setdefault(Bucket(s, z), len(place)), row[b], a) for z, s, b, a in rows]
    amounts = np.zeros((len(siblings), len(place)))
    for column, number, amount in found:
        amounts[number, column] += amount
    return Used(list(place), amounts)


def _leaves(tree: Mapping[int, TreeNode], pk: int) -> Iterator[int]:
    node = tree[pk]
    if node.is_leaf:
        yield pk
    for child in node.children:
        yield from _leaves(tree, child)


def _end_as_told(
    lines: Mapping[int, list[float | None]], current: fairness.Fairness | None
) -> None:
    """Let each line end in the figure that the page tells, which has what runs in it."""
    for place in current.places if current else ():
        if place.budget is not None:
            lines[place.budget.pk][-1] = None if place.level is None else float(place.level)


def _lost(
    budget: Budget, instants: Sequence[datetime], levels: Sequence[float | None]
) -> Iterator[dict[str, Any]]:
    """Yield where the budget lost a run, at the level it had before."""
    for run in lost_runs(budget, now=instants[-1])[:LOST]:
        assert run.ended_at is not None, "it was preempted"
        known = [
            level
            for at, level in zip(instants, levels, strict=True)
            if at <= run.ended_at and level is not None
        ]
        yield {
            "at": _iso(run.ended_at),
            "level": known[-1] if known else 1.0,
            "label": run.job.name,
            "url": reverse("job", args=[run.job_id]),
        }


def _iso(at: datetime) -> str:
    return at.strftime("%Y-%m-%dT%H:%M:%SZ")
