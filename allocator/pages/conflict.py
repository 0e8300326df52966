"""Two changes of the same shares: what both started from, what is in force now, what was typed."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from allocator.pages.editor import Subject
from budgets import shares as reads
from budgets.hues import Hue
from budgets.models import WHOLE, Budget, ChangeSet
from budgets.shares import Vector
from clusters.models import Pool


@dataclass(frozen=True)
class Choice:
    """One share in three versions, in thousandths of a percent; None: as overall, or none.

    ``mine_chosen`` is set beforehand where only one of the two changed it, and where both did,
    for what was typed.
    """

    child: Budget
    pool: Pool | None
    hue: Hue
    base: int | None
    theirs: int | None
    mine: int | None

    @property
    def they_changed(self) -> bool:
        return self.theirs != self.base

    @property
    def i_changed(self) -> bool:
        return self.mine != self.base

    @property
    def both(self) -> bool:
        return self.they_changed and self.i_changed and self.theirs != self.mine

    @property
    def mine_chosen(self) -> bool:
        return self.i_changed

    @property
    def result(self) -> int | None:
        return self.mine if self.mine_chosen else self.theirs

    @property
    def their_change(self) -> int:
        return (self.theirs or 0) - (self.base or 0)

    @property
    def my_change(self) -> int:
        return (self.mine or 0) - (self.base or 0)

    @property
    def name(self) -> str:
        """The field's name in the form, as in `budgets.forms.share_name`."""
        return f"{self.child.slug}.{self.pool.slug}" if self.pool else self.child.slug


@dataclass(frozen=True)
class Conflict:
    """The page that shows both versions; sums in thousandths of a percent."""

    theirs: ChangeSet | None
    base_version: int
    choices: list[Choice]
    both: list[Choice]
    base_sum: int
    theirs_sum: int
    mine_sum: int
    base_rest: int
    theirs_rest: int
    mine_rest: int
    gone: list[str]  # slugs that were typed of children that are not there any more

    @property
    def result_sum(self) -> int:
        """Of what is chosen beforehand."""
        return sum(one.result or 0 for one in self.choices if one.pool is None)

    @property
    def result_rest(self) -> int:
        return WHOLE - self.result_sum


def conflict(
    found: Subject,
    *,
    base_version: int,
    mine: Mapping[Budget, Mapping[int | None, int]],
    gone: list[str],
) -> Conflict:
    """Compare what was typed on an outdated base with what is in force. Four queries."""
    based_on = ChangeSet.objects.filter(
        parent=found.parent, version=base_version, status=ChangeSet.Status.APPROVED
    )
    base = reads.vector_of(based_on.first())
    typed: Vector = {child.pk: dict(row) for child, row in mine.items()}
    choices = list(_choices(found, base, typed))
    sums = [_sum(vector) for vector in (base, found.vector, typed)]
    return Conflict(
        theirs=_with_people(found),
        base_version=base_version,
        choices=choices,
        both=[one for one in choices if one.both],
        base_sum=sums[0],
        theirs_sum=sums[1],
        mine_sum=sums[2],
        base_rest=WHOLE - sums[0],
        theirs_rest=WHOLE - sums[1],
        mine_rest=WHOLE - sums[2],
        gone=gone,
    )


def _with_people(found: Subject) -> ChangeSet | None:
    sets = ChangeSet.objects.select_related("author", "decided_by")
    return sets.filter(pk=found.base.pk).first() if found.base else None


def _choices(found: Subject, base: Vector, mine: Vector) -> Iterator[Choice]:
    pools = {pool.pk: pool for pool in found.pools}
    for child in found.children:
        rows = [vector.get(child.pk, {}) for vector in (base, found.vector, mine)]
        named = {pool for row in rows for pool in row if pool is not None}
        for pool in (None, *sorted(named)):
            values = [row.get(pool) for row in rows]
            if child.pk not in mine:
                values[2] = values[1]  # it came after the form was opened
            yield Choice(child, pools.get(pool) if pool else None, found.hues[child.path], *values)


def _sum(vector: Vector) -> int:
    return sum(row.get(None, 0) for row in vector.values())
