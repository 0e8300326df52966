"""The page of nodes: in what state each is, what runs there, and when it will be free."""

from __future__ import annotations

import itertools
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Any, NamedTuple

from django.utils.translation import gettext as _

from allocator import emptying
from allocator.emptying import NodeOutlook
from allocator.pages.names import Names
from budgets.access import Person, may_administer
from budgets.hues import Hue
from clusters import services as clusters
from clusters import states, windows
from clusters.models import Drain, Node, NodeState, Pool, Window
from workloads.models import Holding, Job, Run

STATES = ("up", "draining", "down")
NAMED = 3  # jobs of a node; the rest are counted
PAST = 5  # windows
SHOWN = 96  # nodes that are up with no window; of a larger fleet the rest is a link away


@dataclass(frozen=True)
class Occupant:
    """GPUs of a node that one job holds; `job` is its key, None where the reader may not see it."""

    job: int | None
    label: str
    hue: Hue
    gpus: int
    pattern: str  # solid, interruptible, unfunded, realtime


class Held(NamedTuple):
    """A live holding, named as in the tables: columns, since thousands are read for one page."""

    node: int
    run: int
    funded: bool
    gpus: int
    protected_until: datetime | None
    job: int
    name: str
    kind: str
    budget: int

    def pattern(self, now: datetime) -> str:
        if self.kind == Job.Kind.REALTIME:
            return "realtime"
        if not self.funded:
            return "unfunded"
        until = self.protected_until
        return "solid" if until is None or until > now else "interruptible"


@dataclass(frozen=True)
class NodeLine:
    """One node: what runs hold of it, and what is down by its cluster's last report."""

    node: Node
    state: str  # up, draining, down
    reason: str
    since: datetime | None
    occupants: list[Occupant]
    down: int
    outlook: NodeOutlook | None  # down, or with a window open or to come
    window: Window | None  # the one that is open, else the next
    ended: int  # runs that its failure ended
    ended_at: datetime | None

    @property
    def held(self) -> int:
        return sum(one.gpus for one in self.occupants)

    @property
    def is_plain(self) -> bool:
        """Whether there is nothing to tell of it but what runs there."""
        return self.state == "up" and self.window is None

    @property
    def named(self) -> list[Occupant]:
        return self.occupants[:NAMED]

    @property
    def more(self) -> int:
        return max(0, len(self.occupants) - NAMED)

    @property
    def bar(self) -> list[dict[str, Any]]:
        """Parts of its bar: what is held by whom, what is down; the rest is free."""
        parts = [{"value": o.gpus, "hue": o.hue, "pattern": o.pattern} for o in self.occupants]
        return [*parts, {"value": self.down, "pattern": "down"}]

    @property
    def says(self) -> str:
        """What the bar shows, in words."""
        told = {"held": self.held, "gpus": self.node.gpus, "down": self.down}
        if self.down:
            return _("%(held)s of %(gpus)s GPUs held, %(down)s down") % told
        return _("%(held)s of %(gpus)s GPUs held") % told


@dataclass(frozen=True)
class WindowLine:
    """A window in the list beside the nodes."""

    window: Window
    state: str
    nodes: list[str]
    free: int | None  # nodes that are free, of one that is open
    free_from: datetime | None


@dataclass(frozen=True)
class PoolLines:
    """The nodes of one pool that the filters let through."""

    pool: Pool
    lines: list[NodeLine]
    folded: int  # that are up and not listed

    @property
    def nodes(self) -> int:
        return len(self.lines) + self.folded


@dataclass(frozen=True)
class NodesPage:
    """All that the page shows; `lines` are those that the filters let through."""

    now: datetime
    lines: list[PoolLines]
    pools: list[Pool]
    counts: Counter[str]  # nodes by state, whatever the filters
    gpus: int
    healthy: int
    ahead: list[WindowLine]
    past: list[WindowLine]
    may_set: bool
    unknown: bool = False  # a filter names a state that there isn't

    @property
    def nodes(self) -> int:
        return sum(self.counts.values())

    @property
    def next(self) -> WindowLine | None:
        return next((one for one in self.ahead if one.state == Window.State.PLANNED), None)


def page(
    user: Person, *, now: datetime, state: str = "", pool: str = "", whole: bool = False
) -> NodesPage:
    """Read the nodes in use; of a large fleet all only if `whole`. A constant number of queries."""
    reader = _Reader(Names.load(user), now)
    every = [reader.line(node) for node in clusters.active_nodes(at=now)]
    shown = [
        line
        for line in every
        if (not state or line.state == state) and (not pool or line.node.pool.slug == pool)
    ]
    pools = {line.node.pool_id: line.node.pool for line in every}
    return NodesPage(
        now=now,
        lines=_by_pool(shown, len(shown) if whole else SHOWN),
        pools=list(pools.values()),
        counts=Counter(line.state for line in every),
        gpus=sum(line.node.gpus for line in every),
        healthy=sum(line.node.gpus for line in every if line.state != "down"),
        ahead=_ahead(reader.outlooks, now),
        past=_past(now),
        may_set=may_administer(user),
    )


def _by_pool(shown: Iterable[NodeLine], most: int) -> list[PoolLines]:
    """Lines by pool: all that there is something to tell of, and the first of the others."""
    listed: dict[Pool, list[NodeLine]] = {}
    folded: Counter[Pool] = Counter()
    for line in shown:
        pool = line.node.pool
        lines = listed.setdefault(pool, [])
        if line.is_plain:
            most -= 1
            if most < 0:
                folded[pool] += 1
                continue
        lines.append(line)
    return [PoolLines(pool, lines, folded[pool]) for pool, lines in listed.items()]


def _ahead(outlooks: emptying.Outlooks, now: datetime) -> list[WindowLine]:
    rows = windows.in_state(Window.State.OPEN, Window.State.PLANNED, at=now)
    found = []
    for row in windows.with_record(rows):
        told = outlooks.windows.get(row.pk)
        found.append(
            WindowLine(
                window=row,
                state=row.state(now),
                nodes=_names(row),
                free=told.free if told else None,
                free_from=told.free_from if told else None,
            )
        )
    return found


def _past(now: datetime) -> list[WindowLine]:
    rows = windows.in_state(Window.State.OVER, Window.State.CALLED_OFF, at=now)
    last = windows.with_record(rows).order_by("-starts_at", "-pk")[:PAST]
    return [WindowLine(row, row.state(now), _names(row), None, None) for row in last]


def _names(window: Window) -> list[str]:
    return list(next(iter(window.events.all())).nodes)


class _Reader:
    """Reads once what all lines are made of."""

    def __init__(self, names: Names, now: datetime) -> None:
        self.names, self.now = names, now
        self.down = clusters.nodes_down(at=now)
        self.last = states.last_gpu_states(at=now)
        self.drains = states.open_drains(at=now)
        self.outlooks = emptying.outlooks(now=now)
        told = NodeState.objects.filter(pk__in=clusters.newest(NodeState, at=now)).order_by()
        self.told_at = {state.node_id: state.at for state in told}
        self.budgets = {budget.pk: budget for budget in names.budgets.values()}
        self.held: dict[int, list[Held]] = defaultdict(list)
        for held in _live():
            self.held[held.node].append(held)
        self.failed: dict[int, list[datetime]] = defaultdict(list)
        since = min((self.told_at.get(pk, now) for pk in self.down), default=now)
        lost = Holding.objects.filter(node__in=self.down, ended_at__gte=since)
        lost = lost.filter(run__end_reason=Run.EndReason.NODE_FAILURE)
        for node_id, at in lost.order_by("ended_at").values_list("node_id", "ended_at"):
            if at is not None:
                self.failed[node_id].append(at)

    def line(self, node: Node) -> NodeLine:
        drain = next(iter(self.drains.get(node.pk, ())), None)
        state = self._state(node, drain)
        reason, since = self._why(node, state, drain)
        ended = [at for at in self.failed[node.pk] if since is None or at >= since]
        return NodeLine(
            node=node,
            state=state,
            reason=reason,
            since=since,
            occupants=list(self._occupants(self.held[node.pk])),
            down=self._gpus_down(node),
            outlook=self.outlooks.nodes.get(node.pk),
            window=drain.window if drain else None,
            ended=len(ended) if state == "down" else 0,
            ended_at=ended[-1] if ended else None,
        )

    def _gpus_down(self, node: Node) -> int:
        if node.pk in self.down:
            return node.gpus
        seen = self.last.get(node.pk)
        return seen.down.bit_count() if seen else 0

    def _state(self, node: Node, drain: Drain | None) -> str:
        if node.pk in self.down:
            return "down"
        return "draining" if drain is not None and drain.starts_at <= self.now else "up"

    def _why(self, node: Node, state: str, drain: Drain | None) -> tuple[str, datetime | None]:
        if state == "down":
            return self.down[node.pk], self.told_at.get(node.pk)
        if state == "draining" and drain is not None:
            return drain.reason, drain.starts_at
        return "", None

    def _occupants(self, holdings: Iterable[Held]) -> Iterator[Occupant]:
        by_run: dict[tuple[int, bool], list[Held]] = defaultdict(list)
        for held in holdings:
            by_run[held.run, held.funded].append(held)
        for mine in by_run.values():
            first = mine[0]
            budget = self.budgets[first.budget]
            known = self.names.sees(budget.path)
            yield Occupant(
                job=first.job if known else None,
                label=f"{budget.slug}/{first.name}" if known else "",
                hue=self.names.hue_of(budget.path) if known else 0,
                gpus=sum(held.gpus for held in mine),
                pattern=first.pattern(self.now),
            )


def _live() -> Iterator[Held]:
    """What live runs hold, by run. One query."""
    live = Holding.objects.filter(ended_at=None, run__state__in=Run.LIVE)
    run = ("run_id", "funded", "gpus", "run__protected_until", "run__job_id")
    job = ("run__job__name", "run__job__kind", "run__job__budget_id")
    rows = live.order_by("run_id", "pk").values_list("node_id", *run, *job)
    return itertools.starmap(Held, rows)
