"""Renaming a budget, and telling those whose addresses change with it."""

from datetime import datetime

from django.contrib.auth.models import User
from django.db import transaction
from django.db.models import Q

from budgets import notices, structure
from budgets.models import Budget, Notice, Role
from budgets.notices import name_of
from clusters.saying import joined
from clusters.saying import say as _


def rename_budget(
    *,
    budget: Budget,
    slug: str | None = None,
    name: str | None = None,
    author: User,
    now: datetime,
) -> Budget:
    """Rename a budget as `structure.rename_budget` does, and tell who has a role in it or below."""
    was, slug_before = budget.name, budget.slug
    with transaction.atomic():
        made = structure.rename_budget(budget=budget, slug=slug, name=name, author=author, now=now)
        if (was, slug_before) != (made.name, made.slug):
            above = made.path.removesuffix(made.slug)
            _tell(made, was=was, path=f"{above}{slug_before}", author=author, now=now)
    return made


def _tell(made: Budget, *, was: str, path: str, author: User, now: datetime) -> None:
    """Tell each once, of the highest budget there that they have a role in: they see its page."""
    kept = made.former_names.order_by("until", "pk").last()
    assert kept is not None, "a rename keeps what it ended"
    said = _(
        "%(author)s renamed %(was)s (%(path)s) to %(name)s (%(now)s)",
        author=name_of(author),
        was=was,
        path=path,
        name=made.name,
        now=made.path,
    )
    inside = Q(budget=made) | Q(budget__path__startswith=f"{made.path}/")
    roles = Role.objects.filter(inside).exclude(user=author).select_related("user", "budget")
    by_budget: dict[Budget, list[User]] = {}
    told: set[int] = set()
    for role in sorted(roles, key=lambda one: (one.budget.path.count("/"), one.budget.path)):
        if role.user_id not in told:
            told.add(role.user_id)
            by_budget.setdefault(role.budget, []).append(role.user)
    for own, people in by_budget.items():
        old = f"{path}{own.path.removeprefix(made.path)}"
        notices.tell(
            users=people,
            budget=own,
            kind=Notice.Kind.RENAMED,
            text=joined((said, ".") if own == made else (said, ": ", _address(own, old))),
            key=f"rename:{kept.pk}",
            now=now,
        )


def _address(own: Budget, old: str) -> str:
    if old == own.path:
        return _("%(own)s below it is still at %(old)s.", own=own.name, old=old)
    return _(
        "%(own)s below it was at %(old)s, and is at %(now)s now.",
        own=own.name,
        old=old,
        now=own.path,
    )
