"""The page of nodes: in what state each is, what runs there, and when it will be free."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Any

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


@dataclass(frozen=True)
class Occupant:
    """GPUs of a node that one job holds; job is None where the reader may not see it."""

    job: Job | None
    label: str
    hue: Hue
    gpus: int
    pattern: str  # solid, interruptible, unfunded, realtime


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
class NodesPage:
    """All that the page shows; `lines` are those that the filters let through."""

    now: datetime
    lines: list[tuple[Pool, list[NodeLine]]]
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


def page(user: Person, *, now: datetime, state: str = "", pool: str = "") -> NodesPage:
    """Read the nodes in use. A constant number of queries."""
    reader = _Reader(Names.load(user), now)
    every = [reader.line(node) for node in clusters.active_nodes(at=now)]
    shown = [
        line
        for line in every
        if (not state or line.state == state) and (not pool or line.node.pool.slug == pool)
    ]
    by_pool: dict[int, list[NodeLine]] = defaultdict(list)
    for line in shown:
        by_pool[line.node.pool_id].append(line)
    pools = {line.node.pool_id: line.node.pool for line in every}
    return NodesPage(
        now=now,
        lines=[(pools[pk], lines) for pk, lines in by_pool.items()],
        pools=list(pools.values()),
        counts=Counter(line.state for line in every),
        gpus=sum(line.node.gpus for line in every),
        healthy=sum(line.node.gpus for line in every if line.state != "down"),
        ahead=_ahead(reader.outlooks, now),
        past=_past(now),
        may_set=may_administer(user),
    )


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
        self.held: dict[int, list[Holding]] = defaultdict(list)
        live = Holding.objects.filter(ended_at=None, run__state__in=Run.LIVE)
        for holding in live.select_related("run__job__budget").order_by("run_id", "pk"):
            self.held[holding.node_id].append(holding)
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

    def _occupants(self, holdings: Iterable[Holding]) -> Iterator[Occupant]:
        by_run: dict[tuple[int, bool], list[Holding]] = defaultdict(list)
        for holding in holdings:
            by_run[holding.run_id, holding.funded].append(holding)
        for (_run, funded), mine in by_run.items():
            run, job = mine[0].run, mine[0].run.job
            known = self.names.sees(job.budget.path)
            yield Occupant(
                job=job if known else None,
                label=f"{job.budget.slug}/{job.name}" if known else "",
                hue=self.names.hue_of(job.budget.path) if known else 0,
                gpus=sum(holding.gpus for holding in mine),
                pattern=self._pattern(run, funded),
            )

    def _pattern(self, run: Run, funded: bool) -> str:
        if run.job.is_realtime:
            return "realtime"
        if not funded:
            return "unfunded"
        until = run.protected_until
        return "solid" if until is None or until > self.now else "interruptible"
