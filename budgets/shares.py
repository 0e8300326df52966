"""What shares were in force at an instant: pure reads, in a constant number of queries.

The tree is whatever the vectors say. A parent's vector at an instant is its approved change set
of the highest version among those effective by then; a budget without a row in the vector in
force is not active then, nor is anything below it. Rows of approved sets never change, and no set
is effective before it was approved, so the tree of a past instant never moves.
"""

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from fractions import Fraction
from functools import lru_cache
from typing import NamedTuple

from django.db.models import Max

from budgets.models import WHOLE, Budget, ChangeSet, Share
from clusters.models import Pool
from clusters.reading import once

# One child's shares: pool, or None for every pool without an override → thousandths.
Row = dict[int | None, int]
Vector = dict[int, Row]  # one parent's children


@dataclass(frozen=True)
class TreeNode:
    """A budget as it stood in the tree at an instant.

    ``thousandths`` is its share of its parent (100,000 at the root), ``effective`` the product of
    the shares from the root, ``overrides`` its share in single pools by pool id. A parent stands
    before its children in every listing.
    """

    budget: Budget
    parent_id: int | None
    depth: int
    thousandths: int
    effective: Fraction
    children: tuple[int, ...]
    overrides: Mapping[int, int] = field(default_factory=dict)

    @property
    def is_leaf(self) -> bool:
        return not self.children


@dataclass(frozen=True)
class CapacitySlice:
    """Healthy (or planned) GPU-seconds of a pool in [start, end)."""

    pool_id: int
    start: datetime
    end: datetime
    gpu_seconds: int


def head(parent: Budget) -> ChangeSet | None:
    """Return the parent's newest approved change set, whether effective yet or scheduled."""
    approved = ChangeSet.objects.filter(parent=parent, status=ChangeSet.Status.APPROVED)
    return approved.order_by("-version").first()


def version(parent: Budget) -> int:
    """Return the version that a new change set of the parent must be based on; 0 at first."""
    newest = head(parent)
    return newest.version if newest else 0


def versions() -> dict[int, int]:
    """Return the same of every parent that has shares, by its id. One query."""
    approved = ChangeSet.objects.filter(status=ChangeSet.Status.APPROVED).order_by()
    return dict(approved.values_list("parent_id").annotate(newest=Max("version")))


def in_force(parent: Budget, *, at: datetime) -> ChangeSet | None:
    """Return the change set whose vector divides the parent at an instant, if it has one."""
    approved = ChangeSet.objects.filter(parent=parent, status=ChangeSet.Status.APPROVED)
    return approved.filter(effective_at__lte=at).order_by("-version").first()


def vector_of(change_set: ChangeSet | None) -> Vector:
    """Return the rows of a change set, by child and pool; empty for none."""
    if change_set is None:
        return {}
    return _vectors([change_set.pk]).get(change_set.parent_id, {})


def vectors_of(change_sets: Iterable[ChangeSet]) -> dict[int, Vector]:
    """Return the rows of change sets of different parents, by parent. One query."""
    return _vectors([one.pk for one in change_sets])


def share_of(budget: Budget, at: datetime, pool: Pool | None = None) -> int | None:
    """Return a budget's share of its parent in thousandths of a percent; None if not active."""
    node = tree(at=at, pool=pool).get(budget.pk)
    return node.thousandths if node else None


def effective_shares(*, at: datetime, pool: Pool | None = None) -> dict[int, Fraction]:
    """Return the effective share of every active budget by id: 1 at the root, exact.

    With `pool`, that pool's overrides count. Siblings that all have 0 are equal and unfunded:
    their effective share is 0.
    """
    return {pk: node.effective for pk, node in tree(at=at, pool=pool).items()}


def parent_map(*, at: datetime) -> dict[int, int | None]:
    """Return the parent of every active budget at an instant, by id; None for the root."""
    return {pk: node.parent_id for pk, node in tree(at=at).items()}


def tree(
    *, at: datetime, pool: Pool | None = None, budgets: Mapping[int, Budget] | None = None
) -> dict[int, TreeNode]:
    """Return every active budget by id, depth first, siblings by slug. Three queries.

    ``budgets``: all there are, as ``every_budget`` has them, where they are loaded already.
    """
    sets = _sets_in_force(at)
    rows = every_budget() if budgets is None else budgets
    return _walk(rows, _vectors(sets), pool.pk if pool else None)


def trees(
    *, at: datetime, pools: Iterable[int | None], instead: Mapping[int, Vector] | None = None
) -> dict[int | None, dict[int, TreeNode]]:
    """Return the tree as it is in each pool (None: without overrides), by pool id. Three queries.

    `instead` has other vectors for some parents, by their id: what a change would make of it.
    """
    budgets, vectors = every_budget(), _vectors(_sets_in_force(at)) | dict(instead or {})
    return {pool: _walk(budgets, vectors, pool) for pool in pools}


def leaves(*, at: datetime) -> list[Budget]:
    """Return the active budgets that work may be submitted to, in the order of the tree."""
    return [node.budget for node in tree(at=at).values() if node.is_leaf]


def path_to_root(nodes: Mapping[int, TreeNode], budget_id: int) -> Iterator[TreeNode]:
    """Yield a budget and its ancestors, the root last."""
    step: int | None = budget_id
    while step is not None:
        yield nodes[step]
        step = nodes[step].parent_id


def entitled_gpu_seconds(
    *, slices: Iterable[CapacitySlice], history: "History | None" = None
) -> dict[tuple[int, int], int]:
    """Return what each budget is entitled to over the slices, in GPU-seconds by (budget, pool).

    Effective share × capacity, cut wherever a vector takes effect inside a slice (capacity is
    then taken as even over the slice); summed exactly, rounded down once. Three queries, or none
    with a ``history`` that covers the slices.
    """
    slices = sorted(slices, key=lambda s: (s.pool_id, s.start))
    if not slices:
        return {}
    if history is None:
        since, until = min(s.start for s in slices), max(s.end for s in slices)
        history = History.load(since=since, until=until)
    # What each state of the tree holds for is added up first: fractions are slow.
    held_for: dict[tuple[datetime, int], Fraction] = {}
    for piece in slices:
        whole = _seconds(piece.start, piece.end)
        for start, end in history.cut(piece.start, piece.end):
            key = (history.since(start), piece.pool_id)
            part = Fraction(piece.gpu_seconds * _seconds(start, end), whole)
            held_for[key] = held_for.get(key, Fraction(0)) + part
    totals: dict[tuple[int, int], Fraction] = {}
    for (since, pool_id), gpu_seconds in held_for.items():
        for budget_id, share in history.effective(since, pool_id).items():
            owner = (budget_id, pool_id)
            totals[owner] = totals.get(owner, Fraction(0)) + share * gpu_seconds
    return {owner: int(total) for owner, total in totals.items()}


class History:
    """The approved vectors in force in [since, until), to ask for many instants of it."""

    def __init__(
        self,
        budgets: dict[int, Budget],
        sets: list[tuple[datetime, int, int]],
        vectors: dict[int, Vector],
    ) -> None:
        self._budgets, self._sets, self._vectors = budgets, sets, vectors
        self._changes = sorted({effective_at for effective_at, _, _ in sets})

    @classmethod
    def load(cls, *, since: datetime, until: datetime) -> "History":
        """Read it. Three queries."""
        approved = ChangeSet.objects.filter(
            status=ChangeSet.Status.APPROVED, effective_at__lt=until
        )
        every = list(
            approved.order_by("parent_id", "version").values_list("effective_at", "parent_id", "pk")
        )
        # Of what came before only the last counts: a long history costs no more.
        first = {parent: pk for effective_at, parent, pk in every if effective_at <= since}
        sets = [one for one in every if one[0] > since or first[one[1]] == one[2]]
        by_set: dict[int, Vector] = {}
        rows = Share.objects.filter(change_set__in=[pk for _, _, pk in sets]).order_by("pk")
        for set_id, child, pool, value in rows.values_list(
            "change_set_id", "budget_id", "pool_id", "thousandths"
        ):
            by_set.setdefault(set_id, {}).setdefault(child, {})[pool] = value
        return cls(every_budget(), sets, by_set)

    def cut(self, start: datetime, end: datetime) -> list[tuple[datetime, datetime]]:
        inside = [change for change in self._changes if start < change < end]
        return list(zip([start, *inside], [*inside, end], strict=True))

    def since(self, at: datetime) -> datetime:
        """Return the last change by an instant: the tree has stood since then."""
        number = bisect_right(self._changes, at)
        return self._changes[number - 1] if number else datetime.min.replace(tzinfo=UTC)

    def tree(self, at: datetime, pool_id: int | None = None) -> dict[int, TreeNode]:
        """Return what ``shares.tree`` does."""
        last = {parent: pk for effective_at, parent, pk in self._sets if effective_at <= at}
        vectors = {parent: self._vectors.get(pk, {}) for parent, pk in last.items()}
        return _walk(self._budgets, vectors, pool_id)

    def effective(self, at: datetime, pool_id: int) -> dict[int, Fraction]:
        return {pk: node.effective for pk, node in self.tree(at, pool_id).items()}


def _sets_in_force(at: datetime) -> list[int]:
    approved = ChangeSet.objects.filter(status=ChangeSet.Status.APPROVED, effective_at__lte=at)
    # Ordered by version, so that each parent keeps its last.
    return list(dict(approved.order_by("version").values_list("parent_id", "pk")).values())


def _vectors(set_ids: Iterable[int]) -> dict[int, Vector]:
    vectors: dict[int, Vector] = {}
    rows = Share.objects.filter(change_set_id__in=set_ids).order_by("pk")
    columns = ("change_set__parent_id", "budget_id", "pool_id", "thousandths")
    for parent, child, pool, value in rows.values_list(*columns):
        assert parent is not None, "a set of shares divides a parent"
        vectors.setdefault(parent, {}).setdefault(child, {})[pool] = value
    return vectors


class Place(NamedTuple):
    """Where a budget's row stands: under which parent, None for the organisation, and its path."""

    budget_id: int
    parent_id: int | None
    path: str


@once
def every_place() -> Sequence[Place]:
    """Return the places of all budgets, archived ones too, in order of path. One query."""
    rows = Budget.objects.order_by("path").values_list("pk", "parent_id", "path")
    return [Place(*row) for row in rows]


def every_budget() -> dict[int, Budget]:
    """Return all budgets by id, archived ones too, in the order that siblings have. One query."""
    return {budget.pk: budget for budget in Budget.objects.order_by("slug", "pk")}


def _walk(
    budgets: Mapping[int, Budget], vectors: Mapping[int, Vector], pool_id: int | None
) -> dict[int, TreeNode]:
    """Build the nodes depth first from the root; a budget is placed once at most."""
    rank = {pk: number for number, pk in enumerate(budgets)}
    nodes: dict[int, TreeNode] = {}

    def place(pk: int, parent_id: int | None, depth: int, row: Row, above: Fraction) -> None:
        vector = vectors.get(pk, {})
        children = tuple(sorted((c for c in vector if c in rank), key=rank.__getitem__))
        value = row.get(pool_id, row[None])
        effective = above * _part(value)
        overrides = {pool: share for pool, share in row.items() if pool is not None}
        nodes[pk] = TreeNode(budgets[pk], parent_id, depth, value, effective, children, overrides)
        for child in children:
            if child not in nodes:
                place(child, pk, depth + 1, vector[child], effective)

    for pk, budget in budgets.items():
        if budget.is_root:
            place(pk, None, 0, {None: WHOLE}, Fraction(1))
    return nodes


@lru_cache(maxsize=1024)  # many have the same share
def _part(thousandths: int) -> Fraction:
    return Fraction(thousandths, WHOLE)


def _seconds(start: datetime, end: datetime) -> int:
    return int((end - start).total_seconds())
