"""The simulator's pages: what was simulated, what may be, and one simulation on its way."""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta

from django.core.exceptions import PermissionDenied
from django.http import Http404
from django.utils import timezone
from django.utils.translation import gettext as _

from allocator.models import Simulation
from allocator.simulating import asking, given, history, running, trees
from allocator.simulating.history import Past
from budgets import period_plans
from budgets.access import Action, Person, Standing, simulated_q, simulates, standing, visible_q
from budgets.models import Budget, ChangeSet, Period
from clusters import services as clusters
from clusters.writing import dated

LISTED = 50
MOST_DRAFTS = 30
SECOND = timedelta(seconds=1)
OPEN = (ChangeSet.Status.DRAFT, ChangeSet.Status.PROPOSED)


@dataclass(frozen=True)
class Listing:
    """Those that the reader sees, the newest first, and for which budget they may ask."""

    rows: list[Simulation]
    budget: Budget | None
    drafts: list[ChangeSet]
    periods: list[Period]
    nodes: list[str]  # those of ours
    planned: int  # times that one of them is to be drained

    @property
    def may(self) -> bool:
        """Say whether the reader may ask for one at all."""
        return self.budget is not None or bool(self.drafts)

    @property
    def running(self) -> int:
        return sum(row.is_open for row in self.rows)


@dataclass(frozen=True)
class One:
    """One simulation as the reader sees it before it is done."""

    row: Simulation
    title: str
    budget: str
    may_cancel: bool
    ahead: int  # simulations that are played before it

    @property
    def percent(self) -> int:
        return self.row.progress_per_mille // 10

    @property
    def minutes_left(self) -> int | None:
        """About how long it still runs, a minute begun counting; None where that isn't known."""
        left = self.row.left_s if self.row.state == Simulation.State.RUNNING else None
        return None if left is None else max(1, -(-left // 60))

    @property
    def spent_s(self) -> int | None:
        """Seconds that it was played."""
        if self.row.started_at is None or self.row.ended_at is None:
            return None
        return (self.row.ended_at - self.row.started_at) // SECOND


def listing(user: Person, *, now: datetime) -> Listing:
    """Return the page of all simulations."""
    held = standing(user)
    seen = Simulation.objects.filter(simulated_q(user)).select_related("asked_by", "budget")
    rows = list(seen.defer("trace", "events", "trees", "picture", "result")[:LISTED])
    for row in rows:
        row.title = title(row)  # type: ignore[attr-defined]  # for the template
        row.for_whom = _for_whom(held, row)  # type: ignore[attr-defined]
    budget = simulates(held)
    nodes = [node.name for node in clusters.all_nodes() if node.is_active(now)]
    return Listing(
        rows=rows,
        budget=budget,
        drafts=list(_drafts(user, held)),
        periods=list(_periods(held, now)) if budget else [],
        nodes=nodes,
        planned=sum(1 for _window in given.planned(nodes, now=now)),
    )


def _drafts(user: Person, held: Standing) -> Iterator[ChangeSet]:
    """Open change sets whose parent's shares the reader may propose."""
    sets = ChangeSet.objects.filter(visible_q(user, "parent__"), status__in=OPEN)
    for one in sets.select_related("parent").order_by("-pk")[:MOST_DRAFTS]:
        if held.can(Action.PROPOSE_SHARES, one.parent.path):
            yield one


def _periods(held: Standing, now: datetime) -> Iterator[Period]:
    """Periods to come that have a plan of their own, which the reader may see."""
    ahead = Period.objects.filter(status__in=period_plans.PLANNABLE, starts_at__gt=now)
    for one in ahead.order_by("starts_at"):
        if period_plans.sets_of(one).exists() and asking.may_plan(held, one):
            yield one


def one(user: Person, *, pk: int) -> One:
    """Return one that the reader may see; else Http404."""
    row = asking.find(user, pk)
    return One(
        row=row,
        title=title(row),
        budget=_for_whom(standing(user), row),
        may_cancel=row.is_open and asking.may_cancel(user, row),
        ahead=_ahead(row),
    )


def _ahead(row: Simulation) -> int:
    """How many are played before it, as things are."""
    if row.state != Simulation.State.QUEUED:
        return 0
    waiting = list(running.queue().values_list("pk", flat=True))
    runs = Simulation.objects.filter(state=Simulation.State.RUNNING).count()
    return runs + (waiting.index(row.pk) if row.pk in waiting else 0)


def _for_whom(held: Standing, row: Simulation) -> str:
    """What the budget is called that it is for, unless it has moved out of the reader's sight."""
    return row.budget.name if held.knows(row.budget.path) else held.named(row.budget.path)


def title(row: Simulation) -> str:
    """What a simulation is called: as who asked for it said, else by its jobs."""
    if row.name:
        return row.name
    if row.starts_at is None or row.ends_at is None:
        return row.trace_name or _("A trace")
    words = {"first": _day(row.starts_at), "last": _day(row.ends_at - SECOND)}
    if words["first"] == words["last"]:
        return _("History, %(first)s") % words
    return _("History, %(first)s to %(last)s") % words


def _day(at: datetime) -> str:
    return dated(timezone.localtime(at), "j M")


def window(user: Person, *, days: int, of: int | None, now: datetime) -> tuple[datetime, datetime]:
    """Return the window of a simulation that the reader sees; without one of the last days, for
    who may simulate."""
    if of is None:
        if simulates(standing(user)) is None:
            raise PermissionDenied(asking.NOT_YOURS)
        return asking.last_days(max(1, min(asking.MOST_DAYS, days)), now=now)
    row = asking.find(user, of)
    if row.starts_at is None or row.ends_at is None:
        raise Http404(_("That simulation is not of the history."))
    return row.starts_at, row.ends_at


def window_file(user: Person, *, start: datetime, end: datetime, now: datetime) -> Past:
    """Return a window's jobs of the budgets that the reader sees; Refused if it has too many."""
    held = standing(user)
    asking.check_jobs(history.jobs_of(start, end).count())
    leaves = trees.at_instant(now, history.pool_gpus(at=now)).leaves
    seen = {pk: path for pk, path in leaves.items() if held.sees(path)}
    return history.read(start=start, end=end, now=now, leaves=seen)
