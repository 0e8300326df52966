"""The facts around every page: the organisation's name, the reader's role, what waits."""

from datetime import datetime, timedelta
from zoneinfo import ZoneInfo

from django.contrib.auth.models import User
from django.utils.translation import gettext as _

from allocator.pages import people, requests
from budgets import hues
from budgets.access import RANK, Kind, Person, standing, visible, visible_q
from budgets.hues import Hue
from budgets.models import Budget, Period, Role
from clusters import services as clusters
from clusters.words import worded
from ledger import figures
from workloads.models import Job

SHOWN = 6


def institute() -> str:
    """Return the organisation's name; empty before there is one."""
    return Budget.objects.filter(parent=None).values_list("name", flat=True).first() or ""


def role(user: User) -> str:
    """Return the reader's highest role in words, such as "manager of Science"."""
    if user.is_superuser:
        return _("administrator of everything")
    held = list(Role.objects.filter(user_id=user.pk).select_related("budget"))
    if not held:
        return _("no role yet")
    best = min(held, key=lambda r: (-RANK[Kind(r.kind)], r.budget.path.count("/"), r.budget.path))
    words = {"role": worded(best.get_kind_display()).lower(), "budget": best.budget.name}
    return _("%(role)s of %(budget)s") % words


def counts(user: Person, *, at: datetime) -> dict[str, int]:
    """Return the numbers in the side bar: waiting jobs that the reader may see, nodes in use."""
    waiting = Job.objects.filter(visible_q(user, "budget__"), state=Job.State.QUEUED)
    return {"jobs": waiting.count(), "nodes": clusters.number_of_nodes(at=at)}


def hidden(user: Person) -> frozenset[str]:
    """Return the side bar's entries that lead nowhere for the reader. One query."""
    return frozenset() if people.is_for(standing(user)) else frozenset(("people",))


def waiting(user: Person) -> dict[str, int]:
    """Return the numbers of what waits for the reader: requests to decide, notices to read."""
    return requests.counts(user)


def own_budgets(user: User) -> list[tuple[Budget, Hue]]:
    """Return the budgets that the reader has a role in, a few of them."""
    if standing(user).everything:
        own = visible(user).filter(parent=None)
    else:
        own = visible(user).filter(roles__user_id=user.pk).distinct()
    painted = hues.of_budgets()
    return [(budget, painted[budget.path]) for budget in own.order_by("path")[:SHOWN]]


def day_of(period: Period, at: datetime) -> tuple[int, int]:
    """Return which local day of the period an instant lies in, from 1, and how many it has."""
    zone = ZoneInfo(period.time_zone)
    first = period.starts_at.astimezone(zone).date()
    last = (period.ends_at - timedelta(seconds=1)).astimezone(zone).date()
    return (at.astimezone(zone).date() - first).days + 1, (last - first).days + 1


def closed_until() -> datetime | None:
    """Return the end of the last closed timestep, which all settled figures run up to."""
    return figures.closed_until()
