"""Raising one child's share, for good or until an instant, whatever else is scheduled."""

from datetime import datetime
from typing import NamedTuple

from django.contrib.auth.models import User
from django.db import transaction

from budgets import future
from budgets import shares as reads
from budgets.change_sets import locked
from budgets.future import Step
from budgets.models import Budget, ChangeSet
from budgets.refusals import Refused, StaleBase, percent
from budgets.shares import Row, Vector
from clusters.saying import say as _


class Raise(NamedTuple):
    """The change set that holds from now on, and the one that ends it, if it is to end."""

    now: ChangeSet
    back: ChangeSet | None


@transaction.atomic
def raise_share(
    *,
    budget: Budget,
    by: int,
    source: Budget,
    until: datetime | None,
    reason: str,
    author: User,
    now: datetime,
    base_version: int | None = None,
) -> Raise:
    """Raise a budget's share by thousandths of a percent from `now` on, in every pool.

    `source` is its parent, whose unshared part it then comes from, or the sibling whose share
    falls by as much. At `until` it is set back. `base_version`, if given, is the newest version
    that the author knows: StaleBase if there is a newer one. Refused where the siblings would
    total over 100 %, or the sibling has less than that.
    """
    parent = locked(_parent(budget))
    base = reads.head(parent)
    if base_version is not None and base_version != (base.version if base else 0):
        raise StaleBase(parent=parent, theirs=base, mine=base_version)
    sibling = source if source != parent else None
    steps = [
        Step(at, _raised(vector, budget, by, sibling, at == now))
        if until is None or at < until
        else Step(at, vector)
        for at, vector in _cut(future.steps(parent, now=now), until)
    ]
    made = future.write(parent=parent, steps=steps, reason=reason, author=author, now=now)
    back = next((one for one in made if one.effective_at == until), None)
    return Raise(made[0], back)


def _cut(steps: list[Step], until: datetime | None) -> list[Step]:
    """Return the steps with one more at an instant, where there is none."""
    if until is None or until in dict(steps):
        return steps
    before = [step for step in steps if step.at < until]
    return [*before, Step(until, before[-1].vector), *steps[len(before) :]]


def _raised(
    vector: Vector, budget: Budget, by: int, sibling: Budget | None, at_once: bool
) -> Vector:
    """Return a vector with the raise in it; later ones may lack the budget or the sibling."""
    changed = {child: dict(row) for child, row in vector.items()}
    if budget.pk in changed:
        changed[budget.pk] = {pool: share + by for pool, share in changed[budget.pk].items()}
    if sibling is not None and sibling.pk in changed:
        row = changed[sibling.pk]
        if at_once and min(row.values()) < by:
            raise Refused(
                "source",
                _(
                    "%(sibling)s has %(has)s, not %(by)s: take less, or take it from elsewhere.",
                    sibling=sibling.path,
                    has=percent(min(row.values())),
                    by=percent(by),
                ),
            )
        changed[sibling.pk] = _lowered(row, by)
    return changed


def _lowered(row: Row, by: int) -> Row:
    return {pool: max(0, share - by) for pool, share in row.items()}


def _parent(budget: Budget) -> Budget:
    if budget.parent is None:
        raise Refused(
            "budget", _("%(budget)s is the root of the tree: it has the whole.", budget=budget.path)
        )
    return budget.parent
