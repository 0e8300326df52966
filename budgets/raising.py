"""Raising one child's share, for good or until an instant, whatever else is scheduled.

A set of a later version stands in for those scheduled before it. So a raise writes the parent's
whole future anew: for each vector that is in force or scheduled, the same vector with the raise in
it, at the same instant; and one more at the raise's end.
"""

from collections.abc import Iterator
from datetime import datetime
from typing import NamedTuple

from django.contrib.auth.models import User
from django.db import transaction

from budgets import shares as reads
from budgets.change_sets import approve, locked, write_set
from budgets.models import Budget, ChangeSet
from budgets.refusals import Refused, StaleBase, percent
from budgets.shares import Row, Vector


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
    made: list[ChangeSet] = []
    for at, vector, raised in _future(parent, now, until):
        if raised:
            vector = _raised(vector, budget, by, source if source != parent else None, at == now)
        try:
            made.append(_write(parent, vector, at, reason, author, now))
        except Refused as refused:
            if at == now:
                raise
            raise Refused("until", _scheduled(at, refused)) from refused
    back = next((one for one in made if one.effective_at == until), None)
    return Raise(made[0], back)


def timeline(parent: Budget, *, now: datetime) -> list[tuple[datetime, ChangeSet | None]]:
    """Return which change set holds from `now` on, and which from each later instant."""
    scheduled = ChangeSet.objects.filter(
        parent=parent, status=ChangeSet.Status.APPROVED, effective_at__gt=now
    )
    found = [(now, reads.in_force(parent, at=now))]
    for at in sorted(set(scheduled.values_list("effective_at", flat=True))):
        then = reads.in_force(parent, at=at)
        if then != found[-1][1]:
            found.append((at, then))
    return found


def _future(
    parent: Budget, now: datetime, until: datetime | None
) -> Iterator[tuple[datetime, Vector, bool]]:
    """Yield each vector to come with its instant, and whether the raise holds then."""
    steps = [(at, reads.vector_of(one)) for at, one in timeline(parent, now=now)]
    if until is not None and until not in dict(steps):
        before = [vector for at, vector in steps if at < until]
        steps.insert(len(before), (until, before[-1]))
    for at, vector in steps:
        yield at, vector, until is None or at < until


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
                f"{sibling.path} has {percent(min(row.values()))}, not {percent(by)}: take less, "
                "or take it from elsewhere.",
            )
        changed[sibling.pk] = _lowered(row, by)
    return changed


def _lowered(row: Row, by: int) -> Row:
    return {pool: max(0, share - by) for pool, share in row.items()}


def _write(
    parent: Budget, vector: Vector, at: datetime, reason: str, author: User, now: datetime
) -> ChangeSet:
    base = reads.head(parent)
    made = write_set(
        parent=parent,
        vector=vector,
        before=reads.vector_of(base),
        reason=reason,
        author=author,
        base=base,
        effective_at=at,
        now=now,
    )
    return approve(change_set=made, by=author, now=now)


def _scheduled(at: datetime, refused: Refused) -> str:
    return f"It does not fit what is scheduled for {at:%d %b %Y %H:%M} UTC: {refused.sentence}"


def _parent(budget: Budget) -> Budget:
    if budget.parent is None:
        raise Refused("budget", f"{budget.path} is the root of the tree: it has the whole.")
    return budget.parent
