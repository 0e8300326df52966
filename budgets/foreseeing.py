"""What moving, archiving and re-activating a budget would make of the tree. Nothing is written.

Each raises Refused where the change itself would, in the same words.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime

from budgets import future, places, structure
from budgets.models import Budget
from budgets.refusals import check_instant
from budgets.shares import Vector
from clusters.saying import say as _


@dataclass(frozen=True)
class TreeChange:
    """A budget that would have another place: the vectors of the parents concerned, from then on.

    ``vectors`` by parent id; ``moved``: the new parent by the id of the budget that moves.
    """

    budget: Budget
    vectors: Mapping[int, Vector]
    moved: Mapping[int, int] = field(default_factory=dict)


def foresee_move(
    *,
    budget: Budget,
    to: Budget,
    share: int,
    now: datetime,
    siblings: Mapping[Budget, int] | None = None,
) -> TreeChange:
    """Return what `move_budget` would change; arguments and refusals as it has them."""
    source = places.parent_of(budget, _("moved"))
    places.check_move(source, to, budget)
    vectors = {
        source.pk: _vector(source, now, None, removing=budget),
        to.pk: _vector(to, now, siblings, adding={budget: share}),
    }
    return TreeChange(budget, vectors, {budget.pk: to.pk})


def foresee_archive(
    *, budget: Budget, now: datetime, siblings: Mapping[Budget, int] | None = None
) -> TreeChange:
    """Return what `archive_budget` would change; arguments and refusals as it has them."""
    parent = places.parent_of(budget, _("archived"))
    places.check_archive(parent, budget)
    return TreeChange(budget, {parent.pk: _vector(parent, now, siblings, removing=budget)})


def foresee_reactivation(
    *, budget: Budget, share: int, now: datetime, siblings: Mapping[Budget, int] | None = None
) -> TreeChange:
    """Return what `reactivate_budget` would change; arguments and refusals as it has them."""
    parent = places.parent_of(budget, _("re-activated"))
    places.check_reactivation(parent, budget)
    return TreeChange(budget, {parent.pk: _vector(parent, now, siblings, adding={budget: share})})


def _vector(
    parent: Budget,
    now: datetime,
    siblings: Mapping[Budget, int] | None,
    *,
    adding: Mapping[Budget, int] | None = None,
    removing: Budget | None = None,
) -> Vector:
    check_instant(now, "now")
    steps = structure.changed_steps(parent, now, siblings, adding=adding, removing=removing)
    future.check(parent=parent, steps=steps, now=now)
    return steps[0].vector
