"""What an installation still lacks before anything is planned and charged, step by step."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from django.urls import reverse
from django.utils.translation import gettext as _

from allocator.pages.jobs import may_submit
from allocator.pages.names import Names
from budgets.access import Action, Person
from budgets.models import Period
from clusters.models import Cluster
from workloads.models import Job


@dataclass(frozen=True)
class Step:
    """One step: ``url`` and ``action`` where the reader may do it now."""

    number: int
    title: str
    text: str
    is_done: bool
    is_current: bool = False
    url: str = ""
    action: str = ""


def steps(
    user: Person, names: Names, *, has_nodes: bool, period: Period | None
) -> list[Step] | None:
    """Return the steps with the first that is left as the present one; None: there are none left.

    Three queries where there are some, else none.
    """
    has_tree = any("/" in path and not one.archived_at for path, one in names.budgets.items())
    if has_nodes and has_tree and period is not None:
        return None
    has_job = Job.objects.exists()
    made = [
        (
            _("Connect a cluster"),
            _("Its pools with their rates, and their nodes."),
            has_nodes,
            *_cluster(user, names),
        ),
        (
            _("Draw the tree"),
            _("Programs and projects with their shares, and who manages them."),
            has_tree,
            *_tree(names),
        ),
        (
            _("Start a period"),
            _("Shares become grants, counted in credits; without one everything runs unfunded."),
            period is not None,
            *_period(names),
        ),
        (
            _("Submit"),
            _("The next tick plans, starts and charges."),
            has_job,
            *_job(names),
        ),
    ]
    current = next((i for i, step in enumerate(made) if not step[2]), len(made))
    return list(_numbered(made, current))


def _numbered(made: Iterable[tuple[str, str, bool, str, str]], current: int) -> Iterable[Step]:
    for i, (title, text, is_done, url, action) in enumerate(made):
        now = i == current
        yield Step(i + 1, title, text, is_done, now, url if now else "", action if now else "")


def _cluster(user: Person, names: Names) -> tuple[str, str]:
    """Clusters are named in Django's administration, their pools and nodes on pages."""
    if Cluster.objects.exists():
        return (reverse("pools"), _("Make a pool")) if _administers(names) else ("", "")
    if not getattr(user, "is_staff", False):
        return "", ""
    return reverse("admin:clusters_cluster_add"), _("Open the administration")


def _root(names: Names) -> str:
    return next((path for path in names.budgets if "/" not in path), "")


def _administers(names: Names) -> bool:
    root = _root(names)
    return names.held.can(Action.ADMINISTER, root) if root else names.held.everything


def _tree(names: Names) -> tuple[str, str]:
    """Budgets are created over the API: the organisation first, by a superuser."""
    root = _root(names)
    may = names.held.can(Action.EDIT_SHARES, root) if root else names.held.everything
    return (reverse("docs"), _("Create it over the API")) if may else ("", "")


def _period(names: Names) -> tuple[str, str]:
    if not (_root(names) and _administers(names)):
        return "", ""
    upcoming = Period.objects.exclude(status__in=("active", "closed")).order_by("starts_at").first()
    if upcoming is None:
        return reverse("periods"), _("Draft a period")
    return reverse("period", args=[upcoming.pk]), _("Open %(name)s") % {"name": upcoming.name}


def _job(names: Names) -> tuple[str, str]:
    return (reverse("job-new"), _("Submit a job")) if may_submit(names) else ("", "")
