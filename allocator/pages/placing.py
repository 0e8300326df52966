"""Moving, archiving and re-activating a budget: where it may go, and what that would do."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta

from django.db.models import Exists, OuterRef
from django.http import Http404
from django.urls import reverse

from allocator.pages.changes import first_name
from allocator.pages.effects import Effect, Look, look_at_place
from budgets import hues, shares
from budgets.access import (
    NOT_HERE,
    Action,
    Person,
    Standing,
    get_budget_or_404,
    may_decline,
    may_place,
    standing,
    visible,
)
from budgets.hues import Hue
from budgets.models import WHOLE, Budget, ChangeSet
from budgets.services import Does, Placing, Refused, placing_of
from budgets.shares import TreeNode, Vector
from workloads.models import Job

SECOND = timedelta(seconds=1)
OPEN = (ChangeSet.Status.DRAFT, ChangeSet.Status.PROPOSED)


@dataclass(frozen=True)
class Place:
    """A budget that it may move below; its depth in the tree."""

    budget: Budget
    depth: int


@dataclass(frozen=True)
class Proposal:
    """An open proposal about the budget, and whether the reader decides on it."""

    change_set: ChangeSet
    placing: Placing
    may_approve: bool
    may_decline: bool

    @property
    def author(self) -> str:
        return first_name(self.change_set.author)


@dataclass(frozen=True)
class Subject:
    """The budget, where it is now, and what may become of it; shares in thousandths."""

    budget: Budget
    parent: Budget
    hue: Hue
    hues: Mapping[str, Hue]
    held: Standing
    node: TreeNode | None  # None: it is archived
    places: list[Place]
    proposal: Proposal | None
    now: datetime

    @property
    def choices(self) -> tuple[Does, ...]:
        if self.budget.archived_at is not None:
            return (Does.REACTIVATE,)
        return (Does.MOVE, Does.ARCHIVE) if self.places else (Does.ARCHIVE,)

    @property
    def effective(self) -> int | None:
        return int(self.node.effective * WHOLE) if self.node else None

    def parent_then(self, does: Does, to: Budget | None) -> Budget | None:
        """Return whose children would be others; None where it isn't said yet."""
        return to if does == Does.MOVE else self.parent

    def may_approve(self, to: Budget | None) -> bool:
        """Say whether the reader may do it, too; else only propose it."""
        return may_place(self.held, Action.EDIT_SHARES, self.budget, to)


@dataclass(frozen=True)
class Siblings:
    """Who is below a parent beside the budget, and what each has now; thousandths of a percent."""

    parent: Budget
    version: int
    vector: Vector
    children: list[Budget]

    @property
    def rest(self) -> int:
        """What the parent keeps in reserve beside them."""
        return WHOLE - sum(row[None] for row in self.vector.values())


@dataclass(frozen=True)
class Preview:
    """What it would do, or the sentence that refuses it."""

    look: Look | None
    problem: str = ""

    @property
    def ends_on(self) -> datetime | None:
        """The last second of the period: its last day, as people name it."""
        return self.look.period.ends_at - SECOND if self.look and self.look.period else None

    @property
    def rows(self) -> list[Effect]:
        return self.look.effects if self.look else []


def subject(user: Person, *, path: str, now: datetime, pk: str = "") -> Subject:
    """Return what may become of a budget; Http404 for who may not propose it.

    ``pk``: the number of an open proposal about it, to be looked at.
    """
    budget, held = get_budget_or_404(user, path), standing(user)
    if budget.parent is None or not may_place(held, Action.PROPOSE_SHARES, budget):
        raise Http404(NOT_HERE)
    painted, nodes = hues.of_budgets(), shares.tree(at=now)
    return Subject(
        budget=budget,
        parent=budget.parent,
        hue=painted[path],
        hues=painted,
        held=held,
        node=nodes.get(budget.pk),
        places=list(_places(held, budget, nodes)),
        proposal=_proposal(held, budget, pk),
        now=now,
    )


def address(user: Person, *, parent: Budget, pk: str) -> str | None:
    """Return the page that shows an open proposal about a parent, if it makes another tree.

    None for a change of shares alone, and where the reader may not propose the same.
    """
    found = _open(pk)
    placing = placing_of(found) if found else None
    if placing is None or parent not in placing.parents:
        return None
    if not visible(user).filter(pk=placing.budget.pk).exists():
        return None
    if not may_place(standing(user), Action.PROPOSE_SHARES, placing.budget, placing.parent):
        return None
    return f"{reverse('place', kwargs={'path': placing.budget.path})}?set={pk}"


def siblings(found: Subject, parent: Budget) -> Siblings:
    """Return who would be beside the budget below a parent."""
    vector = shares.vector_of(shares.in_force(parent, at=found.now))
    beside = {pk: row for pk, row in vector.items() if pk != found.budget.pk}
    rows = Budget.objects.filter(pk__in=beside).order_by("slug", "pk")
    return Siblings(parent, shares.version(parent), beside, list(rows))


def preview(
    user: Person,
    found: Subject,
    *,
    does: Does,
    to: Budget | None,
    share: int,
    siblings: Mapping[Budget, int],
) -> Preview:
    """Return what it would do from now on, by the rules and in the words of doing it."""
    asked = {"share": share, "siblings": siblings}
    try:
        look = look_at_place(user, does=does, budget=found.budget, to=to, now=found.now, **asked)
    except Refused as refused:
        return Preview(None, refused.sentence)
    return Preview(look)


def _places(held: Standing, budget: Budget, nodes: Mapping[int, TreeNode]) -> Iterator[Place]:
    """Where it may move: where the reader may propose shares, nothing runs and the slug is free.

    Whatever else stands against it, the move itself refuses.
    """
    if budget.pk not in nodes:
        return
    jobs = Exists(Job.objects.filter(budget=OuterRef("pk")))
    working = set(Budget.objects.filter(jobs).values_list("pk", flat=True))
    taken = set(Budget.objects.filter(slug=budget.slug).values_list("parent_id", flat=True))
    for pk, node in nodes.items():
        inside = any(one.budget.pk == budget.pk for one in shares.path_to_root(nodes, pk))
        fits = not inside and pk not in working | taken
        if fits and may_place(held, Action.PROPOSE_SHARES, budget, node.budget):
            yield Place(node.budget, node.depth)


def _proposal(held: Standing, budget: Budget, pk: str) -> Proposal | None:
    found = _open(pk)
    placing = placing_of(found) if found else None
    if found is None or placing is None or placing.budget != budget:
        return None
    if not held.can(Action.PROPOSE_SHARES, placing.parent.path):
        return None
    return Proposal(
        change_set=found,
        placing=placing,
        may_approve=may_place(held, Action.EDIT_SHARES, budget, placing.parent),
        may_decline=may_decline(held, placing.parents),
    )


def _open(pk: str) -> ChangeSet | None:
    if not pk.isascii() or not pk.isdigit() or len(pk) > 9:
        return None
    sets = ChangeSet.objects.select_related("parent", "author").filter(status__in=OPEN)
    return sets.filter(pk=int(pk)).first()
