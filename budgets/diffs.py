"""What is different in the tree between two instants, and which change sets made it so.

Like the tree itself it is read from the vectors in force, and what budgets were called from their
former names; so the diff of two past instants never changes.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from fractions import Fraction

from budgets import shares
from budgets.models import Budget, ChangeSet, Share
from budgets.names import Names
from budgets.refusals import Refused, check_instant
from budgets.shares import Row, TreeNode
from clusters.models import Pool
from clusters.saying import say as _

Tree = Mapping[int, TreeNode]
Trees = Mapping[int | None, Tree]


class Kind(StrEnum):
    """What happened to a budget."""

    CREATED = "created"
    REACTIVATED = "reactivated"
    ARCHIVED = "archived"
    MOVED = "moved"
    RENAMED = "renamed"
    SHARE = "share"  # of its parent, overall or in a pool


@dataclass(frozen=True)
class Place:
    """Where a budget stood at an instant. Shares in thousandths of a percent, pools by slug.

    ``path`` and ``name`` are those of then; ``address`` is the same place in today's slugs, which
    says who may see it.
    """

    path: str
    name: str
    address: str
    thousandths: int
    overrides: Mapping[str, int]
    effective: Fraction
    effective_in: Mapping[str, Fraction]  # by pool


@dataclass(frozen=True)
class Difference:
    """One budget that is different; None: it wasn't active. ``by`` in the order of effect.

    What came or went with an ancestor was changed by the sets that brought or took that one.
    """

    budget: Budget
    kinds: tuple[Kind, ...]
    before: Place | None
    after: Place | None
    by: tuple[ChangeSet, ...]


def diff(*, top: Budget, start: datetime, end: datetime) -> list[Difference]:
    """Return what is different at or below a budget at `end` from `start`, in the tree's order.

    What left the subtree is in it too. Raises Refused: an instant without a zone or with a
    fraction of a second, an end before the start. A constant number of queries.
    """
    check_instant(start, "from")
    check_instant(end, "to")
    if end < start:
        raise Refused("to", _("It is before the start: give a later instant."))
    slugs = dict(Pool.objects.values_list("pk", "slug"))
    pools = [None, *slugs]
    before, after = shares.trees(at=start, pools=pools), shares.trees(at=end, pools=pools)
    names = Names.load()
    renamed = {pk for pk, one in before[None].items() if names.differs(one.budget, start, end)}
    changed = [
        pk
        for pk in dict.fromkeys([*after[None], *before[None]])
        if (_below(before[None], pk, top.pk) or _below(after[None], pk, top.pk))
        and (_row(before[None].get(pk)) != _row(after[None].get(pk)) or pk in renamed)
    ]
    known = _known(changed, before[None], start)
    history = _History(start, end)
    return [
        Difference(
            budget=(after[None].get(pk) or before[None][pk]).budget,
            kinds=tuple(
                _kinds(before[None].get(pk), after[None].get(pk), pk in known, pk in renamed)
            ),
            before=_place(before, pk, slugs, names, start),
            after=_place(after, pk, slugs, names, end),
            by=tuple(history.of(pk, before[None], after[None])),
        )
        for pk in changed
    ]


def _row(node: TreeNode | None) -> tuple[int | None, int, dict[int, int]] | None:
    """Return all that may differ of a node, whatever its ancestors have."""
    return (node.parent_id, node.thousandths, dict(node.overrides)) if node else None


def _below(tree: Tree, pk: int, top: int) -> bool:
    return pk in tree and any(node.budget.pk == top for node in shares.path_to_root(tree, pk))


def _known(changed: Iterable[int], before: Tree, start: datetime) -> set[int]:
    """Return which of those that weren't active had been so earlier. One query."""
    new = [pk for pk in changed if pk not in before]
    rows = Share.objects.filter(
        budget_id__in=new,
        change_set__status=ChangeSet.Status.APPROVED,
        change_set__effective_at__lte=start,
    )
    return set(rows.order_by().values_list("budget_id", flat=True).distinct())


def _kinds(
    before: TreeNode | None, after: TreeNode | None, known: bool, renamed: bool
) -> Iterator[Kind]:
    if before is None or after is None:
        came = Kind.REACTIVATED if known else Kind.CREATED
        yield Kind.ARCHIVED if after is None else came
        return
    if before.parent_id != after.parent_id:
        yield Kind.MOVED
    if renamed:
        yield Kind.RENAMED
    if (before.thousandths, before.overrides) != (after.thousandths, after.overrides):
        yield Kind.SHARE


def _place(
    trees: Trees, pk: int, slugs: Mapping[int, str], names: Names, at: datetime
) -> Place | None:
    node = trees[None].get(pk)
    if node is None:
        return None
    chain = [one.budget for one in shares.path_to_root(trees[None], pk)]
    return Place(
        path=names.path(chain, at),
        name=names.at(node.budget, at).name,
        address="/".join(reversed([one.slug for one in chain])),
        thousandths=node.thousandths,
        overrides={slugs[pool]: value for pool, value in node.overrides.items()},
        effective=node.effective,
        effective_in={slug: trees[pool][pk].effective for pool, slug in slugs.items()},
    )


def came_into_force(*, start: datetime, end: datetime) -> list[ChangeSet]:
    """Return the change sets that came into force after `start`, up to `end`. One query.

    Those that a later version stood in for before their instant never did.
    """
    return [one for one, _ in _turns(start, end)]


def _turns(start: datetime, end: datetime) -> Iterator[tuple[ChangeSet, int]]:
    """Yield the sets that came into force, each with the id of the one before it, or 0."""
    approved = ChangeSet.objects.filter(status=ChangeSet.Status.APPROVED, effective_at__lte=end)
    related = approved.select_related("parent", "author", "decided_by")
    in_force: dict[int, ChangeSet] = {}
    for one in related.order_by("effective_at", "pk"):
        last = in_force.get(one.parent_id)
        if last is None or one.version > last.version:
            in_force[one.parent_id] = one
            if one.effective_at > start:
                yield one, last.pk if last else 0


class _History:
    """The sets that came into force up to an instant, each with the one before it. Two queries."""

    def __init__(self, start: datetime, end: datetime) -> None:
        self._turns = list(_turns(start, end))
        wanted = {pk for one, last in self._turns for pk in (one.pk, last)}
        self._rows: dict[tuple[int, int], Row] = {}
        rows = Share.objects.filter(change_set_id__in=wanted).order_by("pk")
        for set_id, child, pool, value in rows.values_list(
            "change_set_id", "budget_id", "pool_id", "thousandths"
        ):
            self._rows.setdefault((set_id, child), {})[pool] = value

    def of(self, pk: int, before: Tree, after: Tree) -> Iterator[ChangeSet]:
        """Yield the sets that changed a budget, or the highest ancestor that went with it."""
        for tree, other in ((before, after), (after, before)):
            if pk not in other:
                pk = _highest_missing(tree, other, pk)
        parents = {tree[pk].parent_id for tree in (before, after) if pk in tree}
        for one, last in self._turns:
            if one.parent_id in parents and self._rows.get((last, pk)) != self._rows.get(
                (one.pk, pk)
            ):
                yield one


def _highest_missing(tree: Tree, other: Tree, pk: int) -> int:
    """Return the highest of a budget and its ancestors in one tree that isn't in the other."""
    chain = [node.budget.pk for node in shares.path_to_root(tree, pk)] if pk in tree else [pk]
    return [one for one in chain if one not in other][-1]
