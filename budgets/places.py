"""Where a budget may stand and what it may be called: what every change of the tree asks first."""

import re

from django.db.models import QuerySet
from django.utils.translation import gettext_noop

from budgets.models import Budget
from budgets.refusals import Refused
from clusters.saying import say as _

SLUG = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*")
SLUG_MAX, NAME_MAX, PATH_MAX = 50, 100, 400
# Words that addresses of pages and of the API put behind a budget's path.
RESERVED = frozenset(
    (
        *("archive", "asked", "burn", "change-sets", "diff", "edit", "exemptions", "export"),
        *("jobs", "move", "new", "periods", "plan", "reactivate", "rename", "report", "requests"),
        *("roles", "by-hand", "shares", "transfers"),
    )
)


def check_archive(parent: Budget, budget: Budget) -> None:
    """Refuse to archive what is archived, or has work of any kind."""
    check_below(parent, budget)
    if budget.archived_at is not None:
        raise Refused("budget", _("%(budget)s is archived already.", budget=budget.path))
    live = subtree(budget).filter(jobs__isnull=False, jobs__ended_at__isnull=True)
    if count := live.count():
        raise Refused(
            "budget",
            _(
                "%(count)s jobs of %(budget)s wait or run: cancel them or let them end first.",
                count=count,
                budget=budget.path,
            ),
        )


def check_reactivation(parent: Budget, budget: Budget) -> None:
    """Refuse to re-activate what is active, or below what is archived or has jobs."""
    check_below(parent, budget)
    if budget.archived_at is None:
        raise Refused("budget", _("%(budget)s is not archived.", budget=budget.path))
    check_active(parent)
    check_undivided(parent)


def check_move(source: Budget, to: Budget, budget: Budget) -> None:
    """Refuse a move of what is archived, or to where it can't be."""
    check_below(source, budget)
    if budget.archived_at is not None:
        raise Refused(
            "budget", _("%(budget)s is archived: re-activate it first.", budget=budget.path)
        )
    if to == source or to in subtree(budget):
        raise Refused(
            "to", _("%(budget)s can't move below %(to)s.", budget=budget.path, to=to.path)
        )
    check_place(to, budget.slug)
    if to.jobs.exists():
        raise Refused(
            "to", _("%(to)s has jobs, which belong to leaves: choose another.", to=to.path)
        )
    rewritten(budget.path, f"{to.path}/{budget.slug}")


def check_place(parent: Budget, slug: str) -> None:
    check_active(parent)
    check_slug(slug)
    check_free(f"{parent.path}/{slug}")


def check_active(parent: Budget) -> None:
    names = parent.path.split("/")
    above = ["/".join(names[: n + 1]) for n in range(len(names))]
    gone = Budget.objects.filter(path__in=above, archived_at__isnull=False).first()
    if gone is not None:
        raise Refused("parent", _("%(gone)s is archived: re-activate it first.", gone=gone.path))


def check_undivided(parent: Budget) -> None:
    if parent.jobs.exists():
        raise Refused(
            "parent",
            _(
                "%(parent)s has jobs, which belong to leaves: it can't be divided.",
                parent=parent.path,
            ),
        )


def check_slug(slug: str) -> None:
    if not SLUG.fullmatch(slug) or len(slug) > SLUG_MAX:
        raise Refused(
            "slug",
            _(
                "The slug must be 1 to %(most)s of a-z, 0-9 and single hyphens inside, such as "
                "petrel-2.",
                most=SLUG_MAX,
            ),
        )
    if slug in RESERVED:
        raise Refused(
            "slug", _("%(slug)s is a word of our addresses: choose another slug.", slug=slug)
        )


def check_free(path: str) -> None:
    if len(path) > PATH_MAX:
        raise Refused(
            "slug",
            _("The path would be over %(most)s characters: use shorter slugs.", most=PATH_MAX),
        )
    other = Budget.objects.filter(path=path).first()
    if other is not None:
        words = (
            gettext_noop(
                "There is a budget %(path)s already, archived: re-activate it, or choose another "
                "slug."
            )
            if other.archived_at
            else gettext_noop("There is a budget %(path)s already: choose another slug.")
        )
        raise Refused("slug", _(words, path=path))


def checked_name(name: str) -> str:
    name = name.strip()
    if not name or len(name) > NAME_MAX or not name.isprintable():
        raise Refused(
            "name", _("Give a name of 1 to %(most)s printable characters.", most=NAME_MAX)
        )
    return name


def parent_of(budget: Budget, verb: str) -> Budget:
    if budget.parent is None:
        raise Refused(
            "budget",
            _(
                "%(budget)s is the root of the tree: it can't be %(verb)s.",
                budget=budget.path,
                verb=verb,
            ),
        )
    return budget.parent


def check_below(parent: Budget, budget: Budget) -> None:
    """Whoever comes second may know it where it stood before."""
    if budget.parent_id != parent.pk:
        raise Refused(
            "budget",
            _("It has just been moved to %(budget)s: look at it there.", budget=budget.path),
        )


def subtree(budget: Budget) -> QuerySet[Budget]:
    return Budget.objects.filter(path=budget.path) | Budget.objects.filter(
        path__startswith=f"{budget.path}/"
    )


def rewritten(old: str, new: str) -> list[Budget]:
    """Return a whole subtree with its new paths, unwritten; refuses one that is too long."""
    rows = list(Budget.objects.filter(path=old) | Budget.objects.filter(path__startswith=f"{old}/"))
    for row in rows:
        row.path = new + row.path.removeprefix(old)
        if len(row.path) > PATH_MAX:
            raise Refused(
                "slug",
                _("%(path)s would be over %(most)s characters.", path=row.path, most=PATH_MAX),
            )
    return rows
