"""The overview: is it healthy, who burns too fast, why do jobs wait, what does parking cost?"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any

from django.utils.translation import gettext as _

from allocator import delivery
from allocator.models import Cycle
from allocator.pages import burning, first_steps, overview_parked, overview_trends, queue
from allocator.pages.burning import Burn
from allocator.pages.first_steps import Step
from allocator.pages.names import Names
from allocator.pages.overview_alarms import Notice, notices
from allocator.pages.overview_gpus import Census, census
from allocator.pages.overview_parked import Parked
from allocator.pages.overview_queue import Waiting, waiting
from allocator.pages.overview_trends import Measure, Span
from allocator.pages.queue import Line
from allocator.reading import newest
from budgets import periods, shares
from budgets.access import Person
from budgets.hues import Hue
from budgets.models import WHOLE, Budget, Period
from clusters import services as clusters
from clusters.models import Pool
from ledger.models import ClosedTimestep

SPANS = {"24h": 24, "7d": 7 * 24, "28d": 28 * 24}
WORDS = {"24h": "24 h", "7d": "7 d", "28d": "28 d"}
DEFAULT_SPAN = "7d"
WEEK = timedelta(days=7)
MOST_PROJECTS = 12  # that the table names; the tree has them all
NEXT = 4
BEHIND = 95_000  # delivered below it is red; thousandths of a percent


@dataclass(frozen=True)
class BurnLine:
    """A budget's burn against the period's pace. ``over_mgpus``: above plan, or below it."""

    budget: Budget
    hue: Hue
    burn: Burn
    over_mgpus: int


@dataclass(frozen=True)
class Worst:
    """The leaf that got the least of what it was owed."""

    name: str
    part: int


@dataclass(frozen=True)
class Overview:
    """All that the page says; ratios in thousandths of a percent."""

    now: datetime
    names: Names
    span: str
    pools: list[Pool]
    pool: Pool | None
    census: Census
    availability: Measure
    occupancy: Measure
    delivered: Measure
    utilization: Measure
    worst: Worst | None
    period: Period | None
    elapsed: int | None
    programs: list[BurnLine]
    projects: list[BurnLine]
    notices: list[Notice]
    parked: Parked
    waiting: Waiting
    next_starts: list[Line]
    cycle: Cycle | None
    tick: Cycle | None
    closed: ClosedTimestep | None
    first_steps: list[Step] | None  # None: nothing is left to set up

    @property
    def is_empty(self) -> bool:
        """Whether there is no cluster yet."""
        return not self.census.inventory and self.pool is None

    @property
    def span_words(self) -> str:
        return WORDS[self.span]

    @property
    def availability_now(self) -> int | None:
        return overview_trends.ratio(self.census.healthy, self.census.inventory)

    @property
    def occupancy_now(self) -> int | None:
        return overview_trends.ratio(self.census.held, self.census.healthy)

    @property
    def is_behind(self) -> bool:
        return self.delivered.mean is not None and self.delivered.mean < BEHIND

    @property
    def ahead(self) -> BurnLine | None:
        """The project that has burned most above plan; no verdict before that is `judged`."""
        above = [line for line in self.projects if line.over_mgpus > 0]
        return max(above, key=lambda line: (line.over_mgpus, -line.budget.pk), default=None)

    @property
    def first_projects(self) -> list[BurnLine]:
        """Those the most above plan; all are in the budgets' page."""
        return self.projects[:MOST_PROJECTS]

    @property
    def has_more_projects(self) -> bool:
        return len(self.projects) > MOST_PROJECTS

    @property
    def top(self) -> Budget | None:
        """The one budget that holds all others that the reader sees, if there is one."""
        seen = [one for path, one in self.names.budgets.items() if self.names.sees(path)]
        tops = [one for one in seen if not self.names.sees(one.path.rpartition("/")[0])]
        return tops[0] if len(tops) == 1 else None

    @property
    def open_alarms(self) -> int:
        """As many as `/healthz` says."""
        return sum(not one.is_warning for one in self.notices)

    @property
    def warnings(self) -> int:
        return len(self.notices) - self.open_alarms

    @property
    def week_ago(self) -> datetime:
        return self.now - WEEK

    @property
    def demand(self) -> Decimal | None:
        """GPUs held and asked for ÷ healthy GPUs, over what the reader may see."""
        if not self.census.healthy:
            return None
        return Decimal(self.census.held + self.waiting.gpus) / self.census.healthy

    @property
    def strip_parts(self) -> list[dict[str, Any]]:
        """Every GPU once: by program, then parked, unfunded, free, not reported, down."""
        c = self.census
        known = [{"label": u.name, "value": u.funded, "hue": u.hue} for u in c.uses if u.path]
        others = sum(use.funded for use in c.uses if not use.path)
        unknown = max(0, c.held - c.funded - c.unfunded - c.parked)
        return [
            *known,
            {"label": _("Others"), "value": others + unknown, "hue": 0},
            {"label": _("Parked"), "value": c.parked, "pattern": "parked"},
            {"label": _("Unfunded"), "value": c.unfunded, "pattern": "unfunded"},
            {"label": _("Free"), "value": c.free, "pattern": "free"},
            {"label": _("Not reported"), "value": c.unseen, "pattern": "free"},
            {"label": _("Down"), "value": c.down, "pattern": "down"},
        ]


def page(user: Person, *, now: datetime, query: Mapping[str, Any]) -> Overview:
    """Read the overview as one person may see it. A constant number of queries."""
    names = Names.load(user)
    pools = list(Pool.objects.all())
    pool = next((one for one in pools if one.slug == query.get("pool")), None)
    pool_ids = None if pool is None else [pool.pk]
    span = str(query.get("span", ""))
    span = span if span in SPANS else DEFAULT_SPAN
    cut = Span.until(now, hours=SPANS[span], since=_since())
    availability, occupancy = overview_trends.of_gpus(cut, now=now, pool_ids=pool_ids)
    period = periods.active(now)
    programs, projects = _burns(names, period, now) if period else ([], [])
    counted = census(names, at=now, pool_ids=pool_ids)
    return Overview(
        now=now,
        names=names,
        span=span,
        pools=pools,
        pool=pool,
        census=counted,
        availability=availability,
        occupancy=occupancy,
        delivered=overview_trends.of_delivery(cut, pool_ids=pool_ids),
        utilization=overview_trends.of_charges(cut, pool_ids=pool_ids),
        worst=_worst(names, now),
        period=period,
        elapsed=int(periods.elapsed(period, now) * WHOLE) if period else None,
        programs=programs,
        projects=projects,
        notices=notices(names, projects, now=now),
        parked=overview_parked.parked(names, start=now - WEEK, end=now),
        waiting=waiting(user, names, now=now),
        next_starts=_next_starts(user, names, now),
        cycle=newest(),
        tick=Cycle.objects.filter(kind=Cycle.Kind.TICK).order_by("-pk").first(),
        closed=ClosedTimestep.objects.order_by("-start").first(),
        first_steps=first_steps.steps(
            user, names, has_nodes=bool(counted.inventory or pool), period=period
        ),
    )


def _since() -> datetime | None:
    """When the first node came into use."""
    return min(clusters.in_use_since().values(), default=None)


def _burns(names: Names, period: Period, now: datetime) -> tuple[list[BurnLine], list[BurnLine]]:
    """Programs in order of the tree, and projects, the most above plan first."""
    nodes = shares.tree(at=now)
    found = burning.burns(period=period, now=now)
    lines = {
        pk: BurnLine(
            budget=node.budget,
            hue=names.hue_of(node.budget.path),
            burn=found[pk],
            over_mgpus=found[pk].figures.settled_mgpus
            + found[pk].figures.in_flight_mgpus
            - int(found[pk].figures.granted_mgpus * found[pk].planned),
        )
        for pk, node in nodes.items()
        if pk in found and names.sees(node.budget.path)
    }
    programs = [line for pk, line in lines.items() if nodes[pk].depth == 1]
    projects = [line for pk, line in lines.items() if nodes[pk].is_leaf and nodes[pk].depth != 1]
    programs.sort(key=lambda line: line.budget.pk)
    projects.sort(key=lambda line: (-line.over_mgpus, line.budget.path))
    return programs, projects


def _worst(names: Names, now: datetime) -> Worst | None:
    """Which leaf that the reader sees got the least of what it was owed in seven days."""
    parents = {budget.parent_id for budget in names.budgets.values()}
    by_pk = {budget.pk: budget for budget in names.budgets.values()}
    found = []
    for pk, got in delivery.summary(start=now - WEEK, end=now).items():
        budget = by_pk.get(pk)
        part = overview_trends.ratio(got.delivered_gpu_seconds, got.owed_gpu_seconds)
        if budget and part is not None and pk not in parents and names.sees(budget.path):
            found.append((part, budget.path, budget.name))
    return Worst(min(found)[2], min(found)[0]) if found else None


def _next_starts(user: Person, names: Names, now: datetime) -> list[Line]:
    """Waiting jobs that the newest plan starts, the soonest first."""
    planned = queue.visible_jobs(user).filter(state="queued", outlook__start_likely__isnull=False)
    soon = planned.order_by("outlook__start_likely", "-gpus", "pk")[:NEXT]
    return [queue.line(job, names, now=now) for job in soon]
