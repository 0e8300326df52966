"""Creating, moving, archiving and re-activating budgets. Each is a change set of the parent.

A budget has a row for ever and is active while the vector in force names it; so all of these
write the whole new vector of the parent (or of both parents), under its lock, and approve it at
once. What shares the other children then have is `siblings`: left out, they stay as they are.
With `decided` it was proposed before (`budgets.placing`), and the proposal is that vector.
"""

from collections.abc import Mapping
from datetime import datetime

from django.contrib.auth.models import User
from django.db import transaction

from budgets import future
from budgets.change_sets import locked, locked_all
from budgets.future import Decided, Step
from budgets.models import Budget, ChangeSet
from budgets.places import (
    check_archive,
    check_below,
    check_free,
    check_move,
    check_place,
    check_reactivation,
    check_slug,
    check_undivided,
    checked_name,
    parent_of,
    rewritten,
    subtree,
)
from budgets.refusals import Refused, check_instant
from budgets.shares import Vector
from budgets.vectors import vector_from
from clusters.saying import say as _


def create_organisation(*, slug: str, name: str, now: datetime, description: str = "") -> Budget:
    """Create the root of the tree; it has the whole capacity, so there is one."""
    check_instant(now, "now")
    check_slug(slug)
    root = Budget.objects.filter(parent=None).first()
    if root is not None:
        raise Refused(
            "parent",
            _(
                "There is an organisation already: put %(slug)s below %(root)s.",
                slug=slug,
                root=root.path,
            ),
        )
    return Budget.objects.create(
        slug=slug, name=checked_name(name), path=slug, description=description
    )


def create_budget(
    *,
    parent: Budget,
    slug: str,
    name: str,
    share: int,
    author: User,
    reason: str,
    now: datetime,
    description: str = "",
    siblings: Mapping[Budget, int] | None = None,
) -> Budget:
    """Create a budget below `parent` with a share in thousandths of a percent, from `now` on.

    Raises Refused: a slug that is taken or not of the form, a parent that is archived or has
    jobs of its own (jobs belong to leaves), siblings that leave too little.
    """
    with transaction.atomic():
        parent = locked(parent)
        check_place(parent, slug)
        check_undivided(parent)
        budget = Budget.objects.create(
            parent=parent,
            slug=slug,
            name=checked_name(name),
            path=f"{parent.path}/{slug}",
            description=description,
        )
        _change(parent, author, reason, now, siblings, adding={budget: share})
    return budget


def archive_budget(
    *,
    budget: Budget,
    author: User,
    reason: str,
    now: datetime,
    siblings: Mapping[Budget, int] | None = None,
    decided: Decided | None = None,
) -> Budget:
    """Take a budget and all below it out of the tree from `now` on; its history stays.

    Refused while anything in it waits or runs.
    """
    parent = parent_of(budget, _("archived"))
    with transaction.atomic():
        rows = locked_place(budget, parent)
        parent, budget = rows[parent.pk], rows[budget.pk]
        check_archive(parent, budget)
        budget.archived_at = now
        budget.save(update_fields=["archived_at"])
        _change(parent, author, reason, now, siblings, removing=budget, decided=decided)
    return budget


def reactivate_budget(
    *,
    budget: Budget,
    share: int,
    author: User,
    reason: str,
    now: datetime,
    siblings: Mapping[Budget, int] | None = None,
    decided: Decided | None = None,
) -> Budget:
    """Put an archived budget back below its parent with a share; what was below it comes back."""
    parent = parent_of(budget, _("re-activated"))
    with transaction.atomic():
        rows = locked_place(budget, parent)
        parent, budget = rows[parent.pk], rows[budget.pk]
        check_reactivation(parent, budget)
        budget.archived_at = None
        budget.save(update_fields=["archived_at"])
        _change(parent, author, reason, now, siblings, adding={budget: share}, decided=decided)
    return budget


def move_budget(
    *,
    budget: Budget,
    to: Budget,
    share: int,
    author: User,
    reason: str,
    now: datetime,
    siblings: Mapping[Budget, int] | None = None,
    decided: Decided | None = None,
) -> Budget:
    """Move a budget with all below it to another parent, with a share of that one.

    Two change sets, one of either parent, effective at `now`. `siblings` are the shares of the
    new parent's other children; those of the old parent's stay as they are.
    """
    source = parent_of(budget, _("moved"))
    with transaction.atomic():
        rows = locked_place(budget, source, to)
        source, to, budget = rows[source.pk], rows[to.pk], rows[budget.pk]
        check_move(source, to, budget)
        old = budget.path
        Budget.objects.filter(pk=budget.pk).update(parent=to)
        _rewrite_paths(old, f"{to.path}/{budget.slug}")
        _change(source, author, reason, now, None, removing=budget, decided=decided)
        _change(to, author, reason, now, siblings, adding={budget: share}, decided=decided)
    budget.refresh_from_db()
    return budget


def rename_budget(
    *,
    budget: Budget,
    slug: str | None = None,
    name: str | None = None,
    author: User,
    now: datetime,
) -> Budget:
    """Give a budget another slug, name or both from `now` on; the paths of all below it follow.

    What it was called until then is kept, for what is shown of the past. No figure moves.
    Raises Refused: a slug that a sibling has, archived ones too, or not of the form; a budget
    that was moved or renamed since `budget` was read.
    """
    check_instant(now, "now")
    known, parent = budget, budget.parent
    with transaction.atomic():
        budget = _locked_subtree(known, *([parent] if parent else []))[known.pk]
        if parent is not None:
            check_below(parent, budget)
        if (budget.slug, budget.name) != (known.slug, known.name):
            called = f"{budget.name} ({budget.path})"
            raise Refused(
                "budget",
                _("It has just been renamed to %(called)s: look at it there.", called=called),
            )
        slug = budget.slug if slug is None else slug
        name = budget.name if name is None else checked_name(name)
        old, new = budget.path, f"{budget.path.removesuffix(budget.slug)}{slug}"
        if slug != budget.slug:
            check_slug(slug)
            check_free(new)
        if (slug, name) != (budget.slug, budget.name):
            _keep_name(budget, author, now)
        budget.slug, budget.name = slug, name
        budget.save(update_fields=["slug", "name"])
        _rewrite_paths(old, new)
    budget.refresh_from_db()
    return budget


def _keep_name(budget: Budget, author: User, now: datetime) -> None:
    """Keep what a locked budget is called until now; who waited for the lock comes after."""
    last = budget.former_names.order_by("until", "pk").last()
    until = max(now, last.until) if last else now
    budget.former_names.create(slug=budget.slug, name=budget.name, until=until, author=author)


def _change(
    parent: Budget,
    author: User,
    reason: str,
    now: datetime,
    siblings: Mapping[Budget, int] | None,
    *,
    adding: Mapping[Budget, int] | None = None,
    removing: Budget | None = None,
    decided: Decided | None = None,
) -> ChangeSet:
    """Write and approve the parent's vectors, less one child or plus one, from `now` on.

    What is scheduled stays so, each vector with the same change in it.
    """
    steps = changed_steps(parent, now, siblings, adding=adding, removing=removing)
    return future.write(
        parent=parent, steps=steps, reason=reason, author=author, now=now, decided=decided
    )[0]


def changed_steps(
    parent: Budget,
    now: datetime,
    siblings: Mapping[Budget, int] | None,
    *,
    adding: Mapping[Budget, int] | None = None,
    removing: Budget | None = None,
) -> list[Step]:
    """Return the parent's vectors from `now` on, less one child or plus one."""
    named = vector_from(siblings or {}, {})
    return [
        Step(at, _next(parent, vector, named, adding or {}, removing, at == now))
        for at, vector in future.steps(parent, now=now)
    ]


def _next(
    parent: Budget,
    before: Vector,
    siblings: Vector,
    adding: Mapping[Budget, int],
    removing: Budget | None,
    at_once: bool,
) -> Vector:
    vector: Vector = {child: dict(row) for child, row in before.items()}
    if removing is not None:
        vector.pop(removing.pk, None)
    for child, row in siblings.items():
        if child in vector:
            vector[child].update(row)
        elif at_once:
            raise Refused(
                "siblings",
                _(
                    "Budget %(child)s is not an active child of %(parent)s.",
                    child=child,
                    parent=parent.path,
                ),
            )
    return vector | vector_from(adding, {})


def locked_place(budget: Budget, parent: Budget, to: Budget | None = None) -> dict[int, Budget]:
    """Lock what another place of a budget writes, by id; `to`: where it moves."""
    if to is None:
        return locked_all([parent.pk, budget.pk])
    return _locked_subtree(budget, parent, to)


def _locked_subtree(budget: Budget, *others: Budget) -> dict[int, Budget]:
    """Lock what a change of paths writes, and others with it: a budget, all below it, the root.

    The root too, since whoever writes to the ledger holds its row when his entries are checked
    against the budgets that they name. Of two moves below each other one waits for the other.
    """
    roots = set(Budget.objects.filter(parent=None).values_list("pk", flat=True))
    named = {one.pk for one in others}
    wanted = (_ids_below(budget) | named) - roots
    while True:
        before = transaction.savepoint()
        rows = locked_all(wanted)
        now = (_ids_below(budget) | named) - roots
        if now <= rows.keys():
            transaction.savepoint_commit(before)
            return rows | locked_all(roots)
        # Others have moved there meanwhile. All rows go back before more are locked: in two goes
        # they would come in another order than everyone's.
        transaction.savepoint_rollback(before)
        wanted = now


def _ids_below(budget: Budget) -> set[int]:
    """Return the ids of a budget and all below it, wherever it stands by now."""
    return set(subtree(Budget.objects.get(pk=budget.pk)).values_list("pk", flat=True))


def _rewrite_paths(old: str, new: str) -> None:
    """Keep the paths of a whole subtree true, in one statement."""
    if old != new:
        Budget.objects.bulk_update(rewritten(old, new), ["path"])
