"""The share editor: one parent's children side by side, what a change would move, and why."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from django.http import Http404

from allocator.pages import changes
from allocator.pages.changes import Change
from allocator.pages.effects import SURE, Effect, effects, of_parent, period_of
from budgets import hues, services
from budgets import shares as reads
from budgets.access import (
    NOT_HERE,
    Action,
    Person,
    Standing,
    get_budget_or_404,
    may_decline,
    standing,
)
from budgets.hues import Hue
from budgets.models import WHOLE, Budget, ChangeSet, Period
from budgets.shares import Vector
from clusters.models import Pool

EARLIER = 12
SECOND = timedelta(seconds=1)


@dataclass(frozen=True)
class Subject:
    """Whose children's shares are edited, by whom, and what they are now."""

    parent: Budget
    base: ChangeSet | None
    vector: Vector
    children: list[Budget]
    pools: list[Pool]
    hues: Mapping[str, Hue]
    held: Standing
    may_approve: bool

    @property
    def base_version(self) -> int:
        return self.base.version if self.base else 0

    @property
    def single_pools(self) -> list[Pool]:
        """Pools that may have shares of their own: where there is one, it is the whole."""
        return self.pools if len(self.pools) > 1 else []


@dataclass(frozen=True)
class Row:
    """A child: its share now, in thousandths of a percent, and what the change would do."""

    child: Budget
    hue: Hue
    now: int
    delta: int
    own: Effect | None
    below: list[Effect]


@dataclass(frozen=True)
class Total:
    """The sum of the children's shares, overall or in one pool; thousandths of a percent."""

    pool: Pool | None
    total: int
    rest: int
    is_over: bool


@dataclass(frozen=True)
class Page:
    """All that the editor says besides the form."""

    subject: Subject
    rows: list[Row]
    parts: list[dict[str, Any]]
    totals: list[Total]
    data: dict[str, Any]
    effects: list[Effect]
    worth: list[tuple[str, int | None]]
    kept: list[Effect]
    gains: Effect | None
    loses: Effect | None
    closest: Effect | None
    period: Period | None
    at: datetime
    is_later: bool  # than now: the change is to take effect on a date
    scheduled: bool
    earlier: list[Change]

    @property
    def is_ahead(self) -> bool:
        """Whether the period has yet to start: its grants are planned, and nothing is spent."""
        return self.period is not None and self.period.status in SURE

    @property
    def counts_from(self) -> datetime:
        """From when on the change counts in the period."""
        return max(self.at, self.period.starts_at) if self.period else self.at

    @property
    def ends_on(self) -> datetime | None:
        """The last second of the period: its last day, as people name it."""
        return self.period.ends_at - SECOND if self.period else None

    @property
    def middle(self) -> int:
        """Columns between a child's name and what it is entitled to."""
        return 3 + len(self.subject.single_pools)

    @property
    def columns(self) -> int:
        return self.middle + 4


def subject(user: Person, *, path: str) -> Subject:
    """Return what is edited; Http404 for who may neither propose nor approve here."""
    parent = get_budget_or_404(user, path)
    held = standing(user)
    if not held.can(Action.PROPOSE_SHARES, parent.path):
        raise Http404(NOT_HERE)
    base = reads.head(parent)
    vector = reads.vector_of(base)
    rows = Budget.objects.all()
    painted = hues.of_budgets(rows)
    return Subject(
        parent=parent,
        base=base,
        vector=vector,
        children=sorted((b for b in rows if b.pk in vector), key=lambda b: b.pk),
        pools=list(Pool.objects.all()),
        hues=painted,
        held=held,
        may_approve=held.can(Action.EDIT_SHARES, parent.path),
    )


def proposal(found: Subject, *, pk: str) -> Vector | None:
    """Return the vector of an open change set of the parent, to look at it; None without one.

    None, too, for one that names other children: it is looked at on a page of its own.
    """
    if not pk.isascii() or not pk.isdigit() or len(pk) > 9:
        return None
    open_sets = ChangeSet.objects.filter(parent=found.parent, status__in=("draft", "proposed"))
    vector = reads.vector_of(open_sets.filter(pk=int(pk)).first())
    return vector if vector and vector.keys() == found.vector.keys() else None


def page(found: Subject, *, vector: Vector, effective_at: datetime | None, now: datetime) -> Page:
    """Return the editor's facts for the vector that is being typed."""
    at = max(now, effective_at or now)
    period = period_of(at=at, now=now)
    all_effects = effects(parent=found.parent, vector=vector, period=period, at=at, now=now)
    worth = of_parent(parent=found.parent, period=period, at=at)
    changed = [one for one in all_effects if one.change_mgpus]
    gaining = [one for one in changed if (one.change_mgpus or 0) > 0]
    losing = [one for one in changed if (one.change_mgpus or 0) < 0]
    return Page(
        subject=found,
        rows=_rows(found, vector, all_effects),
        parts=_parts(found, vector),
        totals=[_total(found, vector, pool) for pool in (None, *found.single_pools)],
        data=_data(found, worth, period),
        effects=all_effects,
        worth=[(pool.slug, _worth(pool, worth, period)) for pool in found.pools],
        kept=[one for one in all_effects if one.kept_mgpus],
        gains=max(gaining, key=_change, default=None),
        loses=min(losing, key=_change, default=None),
        closest=min(losing, key=lambda one: one.spendable_after or 0, default=None),
        period=period,
        at=at,
        is_later=at > now,
        scheduled=found.base is not None and found.base.effective_at > now,
        earlier=changes.history([found.parent.pk], held=found.held, limit=EARLIER),
    )


@dataclass(frozen=True)
class Decided:
    """A change set that is decided on, and whose children's shares it changes.

    `back` is the parent in whose editor the person stands.
    """

    change_set: ChangeSet
    parents: list[Budget]
    back: Budget


def to_decide(user: Person, *, pk: int) -> Decided:
    """Return a change set that the person may decide on; else Http404."""
    one, held = ChangeSet.objects.select_related("parent").filter(pk=pk).first(), standing(user)
    parents = services.parents_of(one) if one is not None else []
    if one is None or not may_decline(held, parents):
        raise Http404(NOT_HERE)
    mine = [each for each in (one.parent, *parents) if held.can(Action.EDIT_SHARES, each.path)]
    return Decided(one, parents, mine[0])


def _change(one: Effect) -> int:
    return one.change_mgpus or 0


def _rows(found: Subject, vector: Vector, all_effects: list[Effect]) -> list[Row]:
    rows = []
    for child in found.children:
        top = f"{child.path}/"
        now, typed = found.vector[child.pk][None], vector[child.pk][None]
        rows.append(
            Row(
                child=child,
                hue=found.hues[child.path],
                now=now,
                delta=typed - now,
                own=next((one for one in all_effects if one.budget == child), None),
                below=[one for one in all_effects if one.budget.path.startswith(top)],
            )
        )
    return rows


def _parts(found: Subject, vector: Vector) -> list[dict[str, Any]]:
    return [
        {
            "slug": child.slug,
            "name": child.name,
            "share": vector[child.pk][None],
            "hue": found.hues[child.path],
        }
        for child in found.children
    ]


def _total(found: Subject, vector: Vector, pool: Pool | None) -> Total:
    key = pool.pk if pool else None
    total = sum(row.get(key, row[None]) for row in vector.values())
    return Total(pool, total, WHOLE - total, total > WHOLE)


def _worth(pool: Pool, worth: Mapping[int, int], period: Period | None) -> int | None:
    return None if period is None else worth.get(pool.pk, 0)


def _data(found: Subject, worth: Mapping[int, int], period: Period | None) -> dict[str, Any]:
    """Return what static/editor.js reads: the shares now, and what 100 % is worth per pool."""
    slugs = {pool.pk: pool.slug for pool in found.pools}
    return {
        "pools": [
            {
                "slug": pool.slug,
                "name": pool.name,
                "entitled_mgpus": _worth(pool, worth, period),
            }
            for pool in found.pools
        ],
        "rows": [
            {
                "slug": child.slug,
                "name": child.name,
                "share": found.vector[child.pk][None],
                "overrides": {
                    slugs[pool]: value
                    for pool, value in found.vector[child.pk].items()
                    if pool is not None
                },
            }
            for child in found.children
        ],
    }
