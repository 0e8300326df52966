"""One budget: will it last, where did it go, and who goes first."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import dropwhile
from typing import Any
from zoneinfo import ZoneInfo

from allocator.pages import burning, by_hand, changes, fairness, planning, requests, transfers, tree
from allocator.pages.burning import Burn
from allocator.pages.changes import Change
from allocator.pages.fairness import Fairness
from allocator.pages.planning import Ahead
from budgets import hues, periods, plans, shares
from budgets.access import RANK, Action, Kind, Person, Standing, get_budget_or_404, standing
from budgets.hues import Hue
from budgets.models import WHOLE, Budget, Period, Role
from budgets.shares import TreeNode
from ledger import curves, rankings, reports
from ledger.burn import burned
from ledger.instants import midnight
from ledger.membership import Membership
from ledger.models import Entry
from ledger.reports import DayBurn
from ledger.spent import Spent
from workloads.models import Job

DAYS = 14
TOP_JOBS = 8
CHANGES = 6
BY_HAND = 6


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
    binding: Budget | None
    period: Period | None
    elapsed: int | None
    days: list[Day]
    most_gpu_seconds: int
    split: Split | None
    fair: Fairness | None
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
    can_write_by_hand: bool
    by_hand: list[Entry]
    asked: list[requests.Row]
    effective: int | None
    planned_mgpus: int | None  # to be left now
    ahead: Ahead | None  # what the next checkpoint would take

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


def page(user: Person, *, path: str, now: datetime, sort: str = "") -> Page:
    """Read one budget as one person may see it; Http404 if they may not. Constant queries."""
    budget = get_budget_or_404(user, path)
    held = standing(user)
    nodes = shares.tree(at=now)
    node = nodes.get(budget.pk)
    period = periods.active(now)
    members = Membership.load()
    burns = _burns(nodes, budget, period, members, now)
    chain = _chain(nodes, budget, burns, held)
    painted = hues.of_budgets()
    spent = _spent(budget, period, members, now)
    days = _days(budget, period, spent, painted[path], members, now) if period else []
    below = [one.pk for one in _subtree(budget)]
    jobs = Job.objects.filter(budget_id__in=below)
    return Page(
        budget=budget,
        hue=painted[path],
        node=node,
        chain=chain,
        above=[link.budget for link in chain if link.is_seen and not link.is_self],
        burn=burns.get(budget.pk),
        binding=next((link.budget for link in chain if link.binds), None),
        period=period,
        elapsed=int(periods.elapsed(period, now) * WHOLE) if period else None,
        days=days,
        most_gpu_seconds=max((day.held_gpu_seconds for day in days), default=0),
        split=_split(spent, painted[path]) if period else None,
        fair=fairness.of_budget(budget=budget, tree=nodes, held=held, now=now),
        lines=_lines(held, budget, nodes, burns, period, sort),
        jobs=_top_jobs(below, period),
        running=jobs.filter(state__in=(Job.State.RUNNING, Job.State.STARTING)).count(),
        waiting=jobs.filter(state=Job.State.QUEUED).count(),
        people=_people(budget),
        own_changes=changes.of_child(budget, limit=CHANGES),
        changes=changes.history([budget.pk], limit=CHANGES),
        can_edit=bool(node and node.children) and held.can(Action.EDIT_SHARES, path),
        can_propose=bool(node and node.children) and held.can(Action.PROPOSE_SHARES, path),
        can_submit=bool(node and node.is_leaf) and held.can(Action.SUBMIT, path),
        can_ask=bool(node) and _asks(held, budget),
        can_write_by_hand=period is not None and held.can(Action.ADMINISTER, path),
        can_transfer=period is not None and transfers.may_transfer(held, node, nodes),
        can_rename=held.can(Action.RENAME, path),
        by_hand=by_hand.lately(budget, limit=BY_HAND),
        asked=requests.open_for(user, budget=budget, now=now),
        effective=int(node.effective * WHOLE) if node else None,
        planned_mgpus=_planned(budget, period, now),
        ahead=planning.ahead(budget, period=period, now=now) if period else None,
    )


def _shown(nodes: Mapping[int, TreeNode], budget: Budget) -> set[int]:
    """Whose figures the page has: the budget's, of all above it, and of its children."""
    node = nodes.get(budget.pk)
    if node is None:
        return {budget.pk}
    return {one.budget.pk for one in shares.path_to_root(nodes, budget.pk)} | set(node.children)


def _burns(
    nodes: Mapping[int, TreeNode],
    budget: Budget,
    period: Period | None,
    members: Membership,
    now: datetime,
) -> dict[int, Burn]:
    if period is None:
        return {}
    return burning.burns(period=period, now=now, only=_shown(nodes, budget), tree=members)


def _lines(
    held: Standing,
    budget: Budget,
    nodes: Mapping[int, TreeNode],
    burns: Mapping[int, Burn],
    period: Period | None,
    sort: str,
) -> list[tree.Line]:
    node = nodes.get(budget.pk)
    if node is None or not node.children:
        return []
    return tree.children(held, budget=budget, nodes=nodes, burns=burns, period=period, sort=sort)


def _asks(held: Standing, budget: Budget) -> bool:
    """Whether someone asks for more for a budget; who decides on it needn't ask."""
    parent = budget.parent
    decides = parent is not None and held.can(Action.DECIDE_REQUESTS, parent.path)
    return parent is not None and held.can(Action.ASK, budget.path) and not decides


def _planned(budget: Budget, period: Period | None, now: datetime) -> int | None:
    if period is None:
        return None
    steps = curves.granted_steps(budget=budget, period=period, until=now)
    curve = plans.load(period=period, at=now).of(budget.pk)
    return curves.planned_left(curve=curve, steps=steps, at=now)


def _subtree(budget: Budget) -> list[Budget]:
    rows = Budget.objects.filter(path=budget.path) | Budget.objects.filter(
        path__startswith=f"{budget.path}/"
    )
    return list(rows)


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


def _spent(budget: Budget, period: Period | None, tree: Membership, now: datetime) -> Spent:
    """Return what was settled in the period so far, the budget's subtree included."""
    if period is None or now <= period.starts_at:
        return Spent()
    return burned(budget=budget, start=period.starts_at, end=now, now=now, tree=tree)


def _days(
    budget: Budget, period: Period, spent: Spent, hue: Hue, tree: Membership, now: datetime
) -> list[Day]:
    """Return the last days of the period, from the first on which anything ran."""
    zone = ZoneInfo(period.time_zone)
    first = midnight(now.astimezone(zone).date() - timedelta(days=DAYS - 1), zone)
    start = min(now, max(period.starts_at, first))
    rows = reports.burn_by_day(budget=budget, start=start, end=now, zone=zone, tree=tree)
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


def _top_jobs(below: list[int], period: Period | None) -> list[TopJob]:
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
