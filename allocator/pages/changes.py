"""Changes of shares as people read them: who, when, why, and what was before and after."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property

from django.contrib.auth.models import User
from django.db.models import Prefetch, Q, QuerySet

from budgets.access import Action, Standing
from budgets.models import WHOLE, Budget, ChangeSet, Share
from budgets.names import Called, Names
from budgets.services import leaving

Status = ChangeSet.Status
FAR = 4  # how many times as many sets are looked at for those that move one child


@dataclass(frozen=True)
class Move:
    """One child's share before and after, in thousandths of a percent; None: it had none.

    `pool` is set where the share is of one pool alone, and then None says "as overall".
    `arrives` says of a child that had none, in a set that isn't in force, how it would come here:
    by a "move", or "back" from being archived.
    """

    budget_id: int
    slug: str
    name: str
    before: int | None
    after: int | None
    pool: str = ""
    pool_slug: str = ""
    arrives: str = ""


@dataclass(frozen=True)
class Leaving:
    """A child that a proposal would take from `left`, and what of that the reader may do.

    `to` is the new parent's name; empty where they may not know it.
    """

    child: Budget
    left: Budget
    to: str
    may_look: bool
    may_approve: bool


@dataclass(frozen=True)
class Change:
    """A change set, with only what it moves; `leaving` where it divides another parent."""

    change_set: ChangeSet
    moves: tuple[Move, ...]
    rest_before: int
    rest_after: int
    leaving: Leaving | None = None

    @property
    def place(self) -> Budget:
        """Whose children it is about, to who reads it here."""
        return self.leaving.left if self.leaving else self.change_set.parent

    @property
    def may_look(self) -> bool:
        return self.leaving is None or self.leaving.may_look

    @property
    def may_approve(self) -> bool:
        """Whether who decides here may approve it, as far as the other parent goes."""
        return self.leaving is None or self.leaving.may_approve

    @property
    def moves_rest(self) -> bool:
        return self.rest_before != self.rest_after

    @property
    def is_open(self) -> bool:
        return self.change_set.status in (Status.DRAFT, Status.PROPOSED)

    @property
    def author(self) -> str:
        return first_name(self.change_set.author)

    @property
    def decider(self) -> str:
        by = self.change_set.decided_by
        return first_name(by) if by else ""

    @property
    def decided_by_another(self) -> bool:
        return self.change_set.decided_by_id not in (None, self.change_set.author_id)

    @property
    def is_later(self) -> bool:
        """Whether it takes effect later than it was decided."""
        decided = self.change_set.decided_at
        return decided is not None and self.change_set.effective_at > decided


def first_name(user: User) -> str:
    """Return how people are called in lists: the first name, else the account's."""
    return user.first_name or user.username


def history(parent_ids: Iterable[int], *, held: Standing, limit: int) -> list[Change]:
    """Return the newest proposals and changes of these budgets' children. Six queries.

    Among them the proposals that a child goes elsewhere: of the other parent the reader learns no
    more than they may. Drafts are their author's own and left out.
    """
    ids = list(parent_ids)
    found = [*of_sets(_with_shares(_newest(ids))[:limit]), *_leaving(ids, held)]
    found.sort(key=lambda one: (one.change_set.created_at, one.change_set.pk), reverse=True)
    return found[:limit]


def _leaving(parent_ids: list[int], held: Standing) -> Iterator[Change]:
    related = ("parent", "author", "decided_by")
    rows = leaving(parent_ids).select_related(
        "budget__parent", *(f"change_set__{name}" for name in related)
    )
    for row in rows:
        to, left = row.change_set.parent, row.budget.parent
        assert left is not None, "the organisation has its place for good"
        gone = Leaving(
            child=row.budget,
            left=left,
            to=to.name if held.knows(to.path) else "",
            may_look=held.can(Action.PROPOSE_SHARES, to.path),
            may_approve=held.can(Action.EDIT_SHARES, to.path),
        )
        yield Change(row.change_set, (), 0, 0, leaving=gone)


def _newest(parent_ids: Iterable[int]) -> QuerySet[ChangeSet]:
    sets = ChangeSet.objects.filter(parent_id__in=list(parent_ids)).exclude(status=Status.DRAFT)
    return sets.select_related("parent", "author", "decided_by").order_by("-created_at", "-pk")


def _with_shares(sets: QuerySet[ChangeSet], child: Budget | None = None) -> QuerySet[ChangeSet]:
    """Have the shares at hand: all, or those of one child alone."""
    if child is None:
        return sets.prefetch_related("shares__budget", "shares__pool")
    own = Share.objects.filter(budget=child).select_related("budget", "pool")
    return sets.prefetch_related(Prefetch("shares", queryset=own))


def of_sets(
    sets: Iterable[ChangeSet], *, names: Names | None = None, child: Budget | None = None
) -> list[Change]:
    """Return change sets with what each moves from its base. Two queries, if shares are at hand.

    With `child`, only what each moves of that one's share. With `names`, budgets are called what
    they were called when the set took effect; else only those that have moved away since, whose
    later names may be none of the reader's.
    """
    sets = list(sets)
    bases = _bases(sets, child)
    called = _Calls(names)
    return [_change(one, bases.get((one.parent_id, one.version - 1)), called) for one in sets]


class _Calls:
    """What budgets are called in a change set."""

    def __init__(self, names: Names | None) -> None:
        self._given = names

    def of(self, child: Budget, change_set: ChangeSet) -> Called:
        if self._given is None and child.parent_id == change_set.parent_id:
            return Called.of(child)
        if self._given is None and change_set.status != Status.APPROVED:
            return Called.of(child)  # it is to come here
        return self._names.at(child, change_set.effective_at)

    @cached_property
    def _names(self) -> Names:
        return self._given or Names.load()


def of_child(budget: Budget, *, limit: int, within: Q | None = None) -> list[Change]:
    """Return the newest changes of one budget's own share, with nothing of its siblings'.

    ``within`` says among which change sets: those of a time are not hidden by what came later.
    """
    if budget.parent_id is None:
        return []
    sets = _newest([budget.parent_id]).filter(within or Q())
    sets = sets.filter(shares__budget=budget, shares__pool=None)
    found = of_sets(_with_shares(sets, budget)[: limit * FAR], child=budget)
    own = [replace(change, rest_before=0, rest_after=0) for change in found if change.moves]
    return own[:limit]


def _bases(sets: Iterable[ChangeSet], child: Budget | None) -> dict[tuple[int, int], ChangeSet]:
    wanted = Q(pk__in=())
    for one in sets:
        wanted |= Q(parent_id=one.parent_id, version=one.version - 1)
    found = ChangeSet.objects.filter(wanted, status=Status.APPROVED)
    return {(base.parent_id, base.version): base for base in _with_shares(found, child)}


def _change(change_set: ChangeSet, base: ChangeSet | None, calls: _Calls) -> Change:
    after = _by_place(change_set)
    before = _by_place(base) if base else {}
    moves = []
    for place in {**after, **before}:
        old, new = before.get(place), after.get(place)
        was = old.thousandths if old else None
        becomes = new.thousandths if new else None
        row = new or old
        if was != becomes and row is not None:
            pool = (row.pool.name, row.pool.slug) if row.pool else ("", "")
            child = row.budget
            called = calls.of(child, change_set)
            comes = _arrives(change_set, child) if was is None and not row.pool else ""
            moves.append(Move(child.pk, *called, was, becomes, *pool, arrives=comes))
    moves.sort(key=lambda move: (move.pool_slug, move.slug, move.budget_id))
    return Change(change_set, tuple(moves), _rest(before.values()), _rest(after.values()))


def _arrives(change_set: ChangeSet, child: Budget) -> str:
    if change_set.status == Status.APPROVED:
        return ""
    return "back" if child.parent_id == change_set.parent_id else "move"


def _by_place(change_set: ChangeSet) -> dict[tuple[int, int | None], Share]:
    """Return shares by budget and pool. Not by slug: what moved away may have another's by now."""
    return {(row.budget_id, row.pool_id): row for row in change_set.shares.all()}


def _rest(rows: Iterable[Share]) -> int:
    return WHOLE - sum(row.thousandths for row in rows if row.pool_id is None)
