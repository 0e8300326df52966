"""One budget: will it last, where did it go, and who goes first."""

from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import dropwhile
from typing import Any
from zoneinfo import ZoneInfo

from django.db.models import Count

from allocator.pages import (
    by_hand,
    changes,
    fair_history,
    fairness,
    planning,
    requests,
    transfers,
    tree,
)
from allocator.pages.books import Books
from allocator.pages.burning import Burn
from allocator.pages.changes import Change
from allocator.pages.fairness import Fairness
from allocator.pages.planning import Ahead
from budgets import hues, periods, shares
from budgets.access import (
    RANK,
    Action,
    Kind,
    Person,
    Standing,
    get_budget_or_404,
    is_within,
    may_place,
    standing,
)
from budgets.hues import Hue
from budgets.models import WHOLE, Budget, Period, Role
from budgets.shares import TreeNode
from clusters.reading import reading
from ledger import rankings, reports
from ledger.instants import midnight
from ledger.models import Entry
from ledger.reports import DayBurn
from ledger.spent import Spent
from workloads.models import Job, Run

DAYS = 14
TOP_JOBS = 8
CHANGES = 6
BY_HAND = 6
LOST = 4


@dataclass(frozen=True)
class Link:
    """A budget of the chain from the root; free = granted − settled − in flight − held."""

    budget: Budget
    is_seen: bool
    is_self: bool
    binds: bool
    free_mgpus: int | None


@dataclass(frozen=True)
class Day:
    """GPU-time of one local day; `parts` as the tag `bar` takes them."""

    burn: DayBurn
    held_gpu_seconds: int
    parts: list[dict[str, Any]]


@dataclass(frozen=True)
class Split:
    """GPU-seconds of the period by what became of them; parts of the funded, in thousandths."""

    busy: int
    parked: int
    realtime: int
    unfunded: int
    busy_part: int
    parked_part: int
    realtime_part: int
    strip: list[dict[str, Any]]
    funded: int


@dataclass(frozen=True)
class TopJob:
    job: Job
    settled_mgpus: int
    gpu_seconds: int


@dataclass(frozen=True)
class Page:
    """All that a budget's page says."""

    budget: Budget
    hue: Hue
    node: TreeNode | None
    chain: list[Link]
    above: list[Budget]
    burn: Burn | None
    period: Period | None
    elapsed: int | None
    days: list[Day]
    split: Split | None
    fair: Fairness | None
    lost: list[Run]  # that made room for others lately, the last first
    lines: list[tree.Line]
    jobs: list[TopJob]
    running: int
    waiting: int
    people: list[Role]
    own_changes: list[Change]
    changes: list[Change]
    can_edit: bool
    can_propose: bool
    can_submit: bool
    can_ask: bool
    can_transfer: bool
    can_rename: bool
    can_place: bool
    can_give_roles: bool
    can_write_by_hand: bool
    by_hand: list[Entry]
    asked: list[requests.Row]
    effective: int | None
    planned_mgpus: int | None  # to be left now
    ahead: Ahead | None  # what the next checkpoint would take

    @property
    def binding(self) -> Budget | None:
        """Whose spendable is the least of all above, and so its own."""
        return next((link.budget for link in self.chain if link.binds), None)

    @property
    def most_gpu_seconds(self) -> int:
        """Of the day that held most."""
        return max((day.held_gpu_seconds for day in self.days), default=0)

    @property
    def is_leaf(self) -> bool:
        return self.node is not None and self.node.is_leaf

    @property
    def has_children(self) -> bool:
        return self.node is not None and not self.node.is_leaf

    @property
    def has_reserve(self) -> bool:
        return bool(self.has_children and self.burn and self.burn.figures.reserve_mgpus > 0)

    @property
    def crumbs(self) -> list[Budget]:
        """The ancestors that the reader may see, from the root."""
        return self.above[::-1]

    @property
    def left_mgpus(self) -> int | None:
        one = self.burn.figures if self.burn else None
        return one.granted_mgpus - one.settled_mgpus - one.in_flight_mgpus if one else None


@reading()
def page(user: Person, *, path: str, now: datetime, sort: str = "") -> Page:
    """Read one budget as one person may see it; Http404 if they may not. Constant queries."""
    budget = get_budget_or_404(user, path)
    held, every = standing(user), shares.every_budget()
    nodes = shares.tree(at=now, budgets=every)
    node = nodes.get(budget.pk)
    period = periods.active(now)
    books = Books.load(period, now) if period else None
    burns = books.burns(_shown(nodes, budget)) if books else {}
    chain = _chain(nodes, budget, burns, held)
    painted = hues.of_budgets(every.values())
    spent = books.spent(budget) if books else Spent()
    days = _days(books, budget, spent, painted[path]) if books else []
    below = _below(budget, every)
    live = _live(below)
    return Page(
        budget=budget,
        hue=painted[path],
        node=node,
        chain=chain,
        above=[link.budget for link in chain if link.is_seen and not link.is_self],
        burn=burns.get(budget.pk),
        period=period,
        elapsed=int(books.planned.elapsed(now) * WHOLE) if books else None,
        days=days,
        split=_split(spent, painted[path]) if period else None,
        fair=_fair(books, budget, nodes, held, now),
        lost=list(fair_history.lost_runs(budget, now=now)[:LOST]),
        lines=_lines(held, budget, nodes, burns, period, painted, sort),
        jobs=_top_jobs(below, period),
        running=live[Job.State.RUNNING] + live[Job.State.STARTING],
        waiting=live[Job.State.QUEUED],
        people=_people(budget),
        own_changes=changes.of_child(budget, limit=CHANGES),
        changes=changes.history([budget.pk], held=held, limit=CHANGES),
        can_edit=bool(node and node.children) and held.can(Action.EDIT_SHARES, path),
        can_propose=bool(node and node.children) and held.can(Action.PROPOSE_SHARES, path),
        can_submit=bool(node and node.is_leaf) and held.can(Action.SUBMIT, path),
        can_ask=bool(node) and _asks(held, budget, every),
        can_give_roles=bool(node) and held.can(Action.MANAGE_ROLES, path),
        can_write_by_hand=period is not None and held.can(Action.ADMINISTER, path),
        can_transfer=period is not None and transfers.may_transfer(held, node, nodes),
        can_rename=held.can(Action.RENAME, path),
        can_place=may_place(held, Action.PROPOSE_SHARES, budget),
        by_hand=by_hand.lately(budget, limit=BY_HAND),
        asked=requests.open_for(user, budget=budget, now=now),
        effective=int(node.effective * WHOLE) if node else None,
        planned_mgpus=books.planned_left(budget) if books else None,
        ahead=planning.ahead(budget, period=period, now=now) if period else None,
    )


def _shown(nodes: Mapping[int, TreeNode], budget: Budget) -> set[int]:
    """Whose figures the page has: the budget's, of all above it, and of its children."""
    node = nodes.get(budget.pk)
    if node is None:
        return {budget.pk}
    return {one.budget.pk for one in shares.path_to_root(nodes, budget.pk)} | set(node.children)


def _fair(
    books: Books | None,
    budget: Budget,
    nodes: Mapping[int, TreeNode],
    held: Standing,
    now: datetime,
) -> Fairness | None:
    uncharged = books.uncharged if books else None
    return fairness.of_budget(budget=budget, tree=nodes, held=held, now=now, uncharged=uncharged)


def _lines(
    held: Standing,
    budget: Budget,
    nodes: Mapping[int, TreeNode],
    burns: Mapping[int, Burn],
    period: Period | None,
    painted: Mapping[str, Hue],
    sort: str,
) -> list[tree.Line]:
    node = nodes.get(budget.pk)
    if node is None or not node.children:
        return []
    return tree.children(
        held,
        budget=budget,
        nodes=nodes,
        burns=burns,
        period=period,
        painted=painted,
        sort=sort,
    )


def _asks(held: Standing, budget: Budget, every: Mapping[int, Budget]) -> bool:
    """Whether someone asks for more for a budget; who decides on it needn't ask."""
    parent = every.get(budget.parent_id) if budget.parent_id else None
    decides = parent is not None and held.can(Action.DECIDE_REQUESTS, parent.path)
    return parent is not None and held.can(Action.ASK, budget.path) and not decides


def _below(budget: Budget, every: Mapping[int, Budget]) -> set[int] | None:
    """Return the ids of a budget and all below it; None where that is all there are."""
    ids = {pk for pk, one in every.items() if is_within(one.path, budget.path)}
    return None if len(ids) == len(every) else ids


def _live(below: Collection[int] | None) -> Mapping[str, int]:
    """Return how many jobs are in each state that hasn't ended."""
    jobs = Job.objects.exclude(state__in=Job.ENDED).order_by()
    mine = jobs if below is None else jobs.filter(budget_id__in=below)
    return Counter(dict(mine.values_list("state").annotate(count=Count("pk"))))


def _chain(
    nodes: Mapping[int, TreeNode], budget: Budget, burns: Mapping[int, Burn], held: Standing
) -> list[Link]:
    """From the budget to the root; of what the reader may not see, only the name that binds."""
    if budget.pk not in nodes:
        return []
    rows = [node.budget for node in shares.path_to_root(nodes, budget.pk)]
    free = {row.pk: _free(burns[row.pk]) for row in rows if row.pk in burns}
    least = min(free, key=lambda pk: free[pk], default=None)
    links = [
        Link(
            budget=row,
            is_seen=held.sees(row.path),
            is_self=row == budget,
            binds=row.pk == least,
            free_mgpus=free.get(row.pk),
        )
        for row in rows
    ]
    return [link for link in links if link.is_seen or link.binds]


def _free(burn: Burn) -> int:
    one = burn.figures
    return one.granted_mgpus - one.settled_mgpus - one.in_flight_mgpus - one.held_mgpus


def _days(books: Books, budget: Budget, spent: Spent, hue: Hue) -> list[Day]:
    """Return the last days of the period, from the first on which anything ran."""
    period, now, zone = books.period, books.now, ZoneInfo(books.period.time_zone)
    first = midnight(now.astimezone(zone).date() - timedelta(days=DAYS - 1), zone)
    start = min(now, max(period.starts_at, first))
    rows = reports.burn_by_day(budget=budget, start=start, end=now, zone=zone, tree=books.tree)
    days = [_day(row, hue) for row in rows]
    if sum(day.held_gpu_seconds for day in days) < _held(spent):
        return days  # something ran before them
    return list(dropwhile(lambda day: not day.held_gpu_seconds, days))


def _day(burn: DayBurn, hue: Hue) -> Day:
    held = _held(burn)
    parts: list[dict[str, Any]] = [
        {"value": burn.busy_gpu_seconds, "hue": hue},
        {"value": burn.realtime_gpu_seconds, "hue": hue, "pattern": "realtime"},
        {"value": burn.parked_gpu_seconds, "pattern": "parked"},
        {"value": burn.unfunded_gpu_seconds, "hue": hue, "pattern": "unfunded"},
    ]
    return Day(burn, held, parts)


def _held(burn: DayBurn | Spent) -> int:
    return (
        burn.busy_gpu_seconds
        + burn.parked_gpu_seconds
        + burn.realtime_gpu_seconds
        + burn.unfunded_gpu_seconds
    )


def _split(spent: Spent, hue: Hue) -> Split:
    busy, parked = spent.busy_gpu_seconds, spent.parked_gpu_seconds
    realtime, unfunded = spent.realtime_gpu_seconds, spent.unfunded_gpu_seconds
    funded = busy + parked + realtime

    def part(seconds: int) -> int:
        return seconds * WHOLE // funded if funded else 0

    strip: list[dict[str, Any]] = [
        {"value": busy, "hue": hue},
        {"value": realtime, "hue": hue, "pattern": "realtime"},
        {"value": parked, "pattern": "parked"},
    ]
    return Split(
        busy=busy,
        parked=parked,
        realtime=realtime,
        unfunded=unfunded,
        busy_part=part(busy),
        parked_part=part(parked),
        realtime_part=part(realtime),
        strip=strip,
        funded=funded,
    )


def _top_jobs(below: set[int] | None, period: Period | None) -> list[TopJob]:
    if period is None:
        return []
    ranked = rankings.dearest_jobs(budget_ids=below, periods=[period], limit=TOP_JOBS)
    jobs = Job.objects.select_related("budget", "submitted_by").in_bulk([row[0] for row in ranked])
    return [TopJob(jobs[pk], settled, seconds) for pk, settled, seconds in ranked]


def _people(budget: Budget) -> list[Role]:
    """Return who has a role here or above, the nearest first, then by rank and name."""
    slugs = budget.path.split("/")
    above = ["/".join(slugs[: n + 1]) for n in range(len(slugs))]
    roles = Role.objects.filter(budget__path__in=above).select_related("user", "budget")
    return sorted(
        roles,
        key=lambda r: (-len(r.budget.path), -RANK[Kind(r.kind)], r.user.get_full_name(), r.pk),
    )
