"""Proposing that a budget moves, is archived or comes back, and approving what was proposed.

Such a proposal is a change set like any other: the whole vector of the one parent whose children
would be others then. That it names one child more than its base, or one less, is what makes it
one. It holds from its approval on, for a budget has one place at a time; where it moves, the set
of the parent that it leaves is written then.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any

from django.contrib.auth.models import User
from django.db import transaction
from django.db.models import F, QuerySet

from budgets import change_sets, places, structure
from budgets import shares as reads
from budgets.change_sets import OPEN, check_base, write_set
from budgets.foreseeing import TreeChange, foresee_archive, foresee_move, foresee_reactivation
from budgets.future import Decided
from budgets.models import Budget, ChangeSet, Share
from budgets.refusals import Refused
from clusters.saying import say as _


class Does(StrEnum):
    """What is to become of a budget."""

    MOVE = "move"
    ARCHIVE = "archive"
    REACTIVATE = "reactivate"


@dataclass(frozen=True)
class Placing:
    """What a change set makes of the tree. ``share`` (thousandths of a percent) is 0 in archiving.

    ``parent`` is the budget whose children it divides; ``siblings`` the other shares that it
    changes of what was in force when it was written.
    """

    does: Does
    budget: Budget
    parent: Budget
    share: int
    siblings: Mapping[Budget, int]

    @property
    def parents(self) -> list[Budget]:
        """Whose children's shares it changes: where it moves, also the parent that it leaves."""
        left = self.budget.parent
        assert left is not None, "the organisation has its place for good"
        return [left] if left == self.parent else [left, self.parent]


def foresee(
    *,
    does: Does,
    budget: Budget,
    now: datetime,
    to: Budget | None = None,
    share: int | None = None,
    siblings: Mapping[Budget, int] | None = None,
) -> TreeChange:
    """Return what it would make of the tree; refused as doing it would be. Writes nothing."""
    given: dict[str, Any] = {"budget": budget, "now": now, "siblings": siblings}
    if does == Does.ARCHIVE:
        return foresee_archive(**given)
    if does == Does.REACTIVATE:
        return foresee_reactivation(**given, share=share or 0)
    assert to is not None, "a move leads somewhere"
    return foresee_move(**given, to=to, share=share or 0)


def propose(
    *,
    does: Does,
    budget: Budget,
    reason: str,
    author: User,
    base_version: int,
    now: datetime,
    to: Budget | None = None,
    share: int | None = None,
    siblings: Mapping[Budget, int] | None = None,
) -> ChangeSet:
    """Put it before who decides: a proposed change set of the parent that it has, or would have.

    Raises Refused as doing it would, and StaleBase if another set of that parent was approved
    since version `base_version`.
    """
    had = places.parent_of(budget, does)
    parent = to if does == Does.MOVE and to is not None else had
    with transaction.atomic():
        # All that doing it locks, and in its order: it may be approved in this very transaction.
        rows = structure.locked_place(budget, had, to)
        parent, budget, to = rows[parent.pk], rows[budget.pk], to and rows[to.pk]
        places.check_below(had, budget)
        base = reads.head(parent)
        check_base(parent, base, base_version)
        change = foresee(does=does, budget=budget, to=to, share=share, siblings=siblings, now=now)
        written = write_set(
            parent=parent,
            vector=change.vectors[parent.pk],
            before=reads.vector_of(base),
            reason=reason,
            author=author,
            base=base,
            effective_at=now,
            now=now,
        )
        return change_sets.propose(change_set=written, now=now)


def of(change_set: ChangeSet) -> Placing | None:
    """Return what a change set makes of the tree; None: it changes shares alone."""
    parent = change_set.parent
    sets = ChangeSet.objects.filter(parent=parent, status=ChangeSet.Status.APPROVED)
    base = reads.vector_of(sets.filter(version=change_set.version - 1).first())
    vector = reads.vector_of(change_set)
    others = vector.keys() ^ base.keys()
    if len(others) != 1:
        return None
    rows = Budget.objects.select_related("parent").in_bulk({*vector, *others})
    (budget,) = (rows[pk] for pk in others)
    was = reads.vector_of(reads.in_force(parent, at=change_set.created_at))
    return Placing(
        does=_does(budget, parent, comes=budget.pk in vector),
        budget=budget,
        parent=parent,
        share=vector.get(budget.pk, {None: 0})[None],
        siblings={
            rows[pk]: row[None]
            for pk, row in vector.items()
            if pk != budget.pk and row[None] != was.get(pk, {None: None})[None]
        },
    )


def parents_of(change_set: ChangeSet) -> list[Budget]:
    """Return the budgets whose children's shares approving it changes; once decided, its parent."""
    found = of(change_set) if change_set.status in OPEN else None
    return found.parents if found else [change_set.parent]


def leaving(parents: Iterable[int]) -> QuerySet[Share]:
    """Return the proposals that a child of these budgets moves below one that is none of them.

    Each as the share that it would have there. Such a set divides the other parent, and yet is
    the business of this one.
    """
    ids = list(parents)
    rows = Share.objects.filter(
        change_set__status=ChangeSet.Status.PROPOSED, pool=None, budget__parent__in=ids
    )
    # A set that is still open names no other budget that isn't its parent's own child.
    moved = rows.exclude(change_set__parent=F("budget__parent"))
    return moved.exclude(change_set__parent__in=ids)


def _does(budget: Budget, parent: Budget, *, comes: bool) -> Does:
    if not comes:
        return Does.ARCHIVE
    return Does.REACTIVATE if budget.parent_id == parent.pk else Does.MOVE


def approve(
    *, change_set: ChangeSet, by: User, now: datetime, parents: Sequence[Budget] | None = None
) -> ChangeSet:
    """Approve any change set, and have the tree follow one that makes another of it.

    Raises what `change_sets.approve` does, and Refused where doing it now would be. `parents` are
    those whose shares the caller knows that `by` may decide on: where the budget has meanwhile come
    below another, it is refused.
    """
    found = of(change_set) if change_set.status in OPEN else None
    if found is None:
        return change_sets.approve(change_set=change_set, by=by, now=now)
    if parents is not None and found.parents != list(parents):
        raise Refused(
            "budget",
            _(
                "%(budget)s has just been moved: look at the proposal again.",
                budget=found.budget.name,
            ),
        )
    given: dict[str, Any] = {
        "budget": found.budget,
        "siblings": found.siblings,
        "reason": change_set.reason,
        "author": change_set.author,
        "decided": Decided(change_set, by),
        "now": now,
    }
    if found.does == Does.MOVE:
        structure.move_budget(**given, to=found.parent, share=found.share)
    elif found.does == Does.ARCHIVE:
        structure.archive_budget(**given)
    else:
        structure.reactivate_budget(**given, share=found.share)
    change_set.refresh_from_db()
    return change_set
