"""When a node will be free: what still holds its GPUs, until when surely, and until when likely.

Pure reads. The rule is that of allocator.draining, which plans keep to; here it is asked for pages,
the API and previews. Surely: at the latest when protection ends and services have left within their
swap caps, if a cycle comes at each timestep. Likely: sooner, where a run ends by its estimate.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from enum import StrEnum

from django.db.models import Max, Q

from allocator import calls, timesteps
from allocator.draining import Draining, Emptied, protected_steps
from allocator.models import Cycle
from allocator.pages.queue import ends
from clusters import services as clusters
from clusters.models import Drain, Node, Window
from clusters.windows import Span, span_of
from workloads.models import Holding, Job, Run


class How(StrEnum):
    """Why a run leaves a node, or what keeps it there."""

    PROTECTED = "protected"  # stays until its protection ends
    INTERRUPTIBLE = "interruptible"  # is stopped when the window begins
    SERVICE = "service"  # leaves within its swap cap
    STARTING = "starting"  # its protection counts from its start, which isn't confirmed yet
    STOPPING = "stopping"  # was told to stop


@dataclass(frozen=True)
class Stay:
    """What a run holds of a node, and until when."""

    run: Run
    gpus: int
    how: How
    leaves_by: datetime  # surely
    likely: datetime
    ends: datetime | None  # by its estimate; None for a service

    @property
    def job(self) -> Job:
        return self.run.job

    @property
    def ends_first(self) -> bool:
        """Whether it likely ends by itself before it would have to leave."""
        return self.ends is not None and self.ends < self.leaves_by


@dataclass(frozen=True)
class NodeOutlook:
    """When one node is free for its window, or since when."""

    node: Node
    drain: Drain | None  # None: it is down
    asked: datetime  # where its window begins: the timestep that holds it, never before now
    begins_at: datetime  # the window's own begin; of a node that is down, now
    stays: list[Stay]  # the one that stays longest first
    free_from: datetime  # surely
    likely: datetime
    empty_since: datetime | None  # nothing has held it since then, in its open window
    answers: bool  # False: its cluster can't be asked to stop anything
    now: datetime

    @property
    def is_free(self) -> bool:
        """Whether nothing holds it and nothing will: it is empty, and its window has begun."""
        return not self.stays and self.begins_at <= self.now

    @property
    def late_s(self) -> int:
        """Seconds from the window's begin to when it is surely free."""
        return max(0, int((self.free_from - self.begins_at).total_seconds()))

    @property
    def because(self) -> Stay | None:
        """What holds it longest, where that is past the window's begin."""
        return self.stays[0] if self.stays and self.late_s else None


@dataclass(frozen=True)
class WindowOutlook:
    """When all nodes of a window are free."""

    span: Span
    nodes: list[NodeOutlook]  # in the order of the grid
    now: datetime

    @property
    def free_from(self) -> datetime:
        return max((one.free_from for one in self.nodes), default=self.span.starts_at)

    @property
    def likely(self) -> datetime:
        return max((one.likely for one in self.nodes), default=self.span.starts_at)

    @property
    def late_s(self) -> int:
        return max((one.late_s for one in self.nodes), default=0)

    @property
    def last(self) -> NodeOutlook | None:
        """The node that is free last."""
        return max(self.nodes, key=lambda one: one.free_from, default=None)

    @property
    def because(self) -> Stay | None:
        """What the window waits for longest."""
        return self.last.because if self.last else None

    @property
    def free(self) -> int:
        return sum(one.is_free for one in self.nodes)

    @property
    def has_begun(self) -> bool:
        return self.span.starts_at <= self.now

    @property
    def never_free(self) -> bool:
        """Whether it would be over before all its nodes are surely free."""
        return self.span.ends_at is not None and self.span.ends_at <= self.free_from

    @property
    def runs(self) -> list[Stay]:
        """Each run that holds a GPU of it, once: where it stays longest."""
        found: dict[int, Stay] = {}
        for stay in (stay for one in self.nodes for stay in one.stays):
            known = found.get(stay.run.pk)
            if known is None:
                found[stay.run.pk] = stay
            else:
                last = max(known, stay, key=lambda s: s.leaves_by)
                found[stay.run.pk] = replace(last, gpus=known.gpus + stay.gpus)
        return sorted(found.values(), key=lambda s: (-s.leaves_by.timestamp(), s.run.pk))


@dataclass(frozen=True)
class Outlooks:
    """By node's and by window's id."""

    nodes: dict[int, NodeOutlook]
    windows: dict[int, WindowOutlook]


def of_window(window: Window, *, now: datetime) -> WindowOutlook:
    """When the nodes of a window are free. A constant number of queries."""
    found = of_windows(now=now).get(window.pk)
    return found or WindowOutlook(span_of(window), [], now)


def of_windows(*, now: datetime) -> dict[int, WindowOutlook]:
    """The same for all that are open or to come, by id. A constant number of queries."""
    return outlooks(now=now).windows


def of_span(span: Span, *, now: datetime, instead_of: Window | None = None) -> WindowOutlook:
    """The same for one that would be set, or that a window would become."""
    others = [d for d in _open(now) if instead_of is None or d.window_id != instead_of.pk]
    mine = [
        Drain(node=n, starts_at=span.starts_at, ends_at=span.ends_at, reason=span.reason)
        for n in span.nodes
    ]
    return _Reader(now, [*others, *mine]).outlook(span, mine)


def of_nodes(*, now: datetime) -> dict[int, NodeOutlook]:
    """When each node is free that is down or has a window open or to come, by node's id.

    Of several windows the first counts. A constant number of queries.
    """
    return outlooks(now=now).nodes


def outlooks(*, now: datetime) -> Outlooks:
    """Both of all nodes and of all windows, read at once."""
    drains = _open(now)
    by_window: dict[int, list[Drain]] = defaultdict(list)
    for drain in drains:
        if drain.window_id is not None:
            by_window[drain.window_id].append(drain)
    reader = _Reader(now, drains)
    nodes: dict[int, NodeOutlook] = {}
    for one in reader.all():
        nodes.setdefault(one.node.pk, one)
    found = {pk: reader.outlook(reader.span(mine), mine) for pk, mine in by_window.items()}
    return Outlooks(nodes, found)


def _open(now: datetime) -> list[Drain]:
    drains = Drain.objects.exclude(ends_at__lte=now).select_related("node", "window")
    return list(drains.order_by("starts_at", "pk"))


class _Reader:
    """Reads once what holds GPUs; then each node's outlook follows without a query."""

    def __init__(self, now: datetime, windows: Sequence[Drain]) -> None:
        self.now = now
        self.step = timesteps.step()
        self.origin = timesteps.floor(now)
        self.unsure = calls.unplanned()
        self.down = clusters.nodes_down(at=now)
        self.runs = self._runs_on({drain.node_id for drain in windows} | set(self.down))
        self.on: dict[int, list[tuple[Run, int]]] = defaultdict(list)
        for run in self.runs:
            for node_id, gpus in _held(run).items():
                self.on[node_id].append((run, gpus))
        known = clusters.all_nodes()
        self.row = {node.pk: n for n, node in enumerate(known)}
        nodes = [node for node in known if node.is_active(now)]
        self.last = self._last_ended(windows)
        self.emptied = self._draining(nodes).emptied(windows)

    def _runs_on(self, nodes: Collection[int]) -> list[Run]:
        """The live runs on these nodes, and all services: the order in which they leave is one."""
        here = Holding.objects.filter(node__in=nodes, ended_at=None).order_by()
        concerned = Q(pk__in=here.values("run")) | Q(job__kind=Job.Kind.REALTIME)
        live = Run.objects.filter(concerned, state__in=Run.LIVE).select_related(
            "job__budget", "job__service", "pool__cluster"
        )
        return list(live.prefetch_related("holdings").order_by("pk"))

    def _last_ended(self, windows: Sequence[Drain]) -> dict[int, datetime]:
        """When what nodes held last in their open windows ended, by node's id.

        Of a node that was empty before, when its window began: older rows are not looked at.
        """
        begun = {d.node_id: d.starts_at for d in windows if d.starts_at <= self.now}
        if not begun:
            return {}
        span = (min(begun.values()), self.now)
        ended = Holding.objects.filter(node__in=begun, ended_at__range=span).order_by()
        last = dict(ended.values_list("node_id").annotate(Max("ended_at")))
        return {pk: max(since, last.get(pk) or since) for pk, since in begun.items()}

    def _draining(self, nodes: Sequence[Node]) -> Draining:
        protected: dict[int, int] = defaultdict(int)
        for node_id, held in self.on.items():
            protected[node_id] = max(self._protected(run) for run, _ in held)
        committed = Cycle.objects.filter(at__gte=self.origin, status=Cycle.Status.COMMITTED)
        return Draining(
            at=self.now,
            origin=self.origin,
            horizon=0,
            nodes=nodes,
            down=self.down,
            protected=protected,
            services=[(run.job, run) for run in self.runs if run.job.is_realtime],
            # Where no cycle has come in this timestep yet, none is promised before the next one.
            settled=self.now > self.origin or committed.exists(),
            relaxed=[],
        )

    def _protected(self, run: Run) -> int:
        """Timesteps: one that starts is protected for its minimum runtime from about now."""
        steps = protected_steps(run, at=self.now, origin=self.origin)
        if run.state == Run.State.STARTING and run.job.funded:
            least = timedelta(seconds=run.job.minimum_runtime_s)
            steps = max(steps, timesteps.ceil_steps(self.now + least - self.origin))
        return steps

    def all(self) -> Iterable[NodeOutlook]:
        """What is down first, then by the windows' begins."""
        first = sorted(self.emptied, key=lambda e: (e.drain is not None, e.asked))
        return (self._node(one) for one in first)

    def span(self, drains: Sequence[Drain]) -> Span:
        """What a window is, of its drains."""
        first = drains[0]
        nodes = sorted((drain.node for drain in drains), key=lambda node: self.row[node.pk])
        return Span(tuple(nodes), first.starts_at, first.ends_at, first.reason)

    def outlook(self, span: Span, drains: Sequence[Drain]) -> WindowOutlook:
        wanted = {id(drain) for drain in drains} | {drain.pk for drain in drains if drain.pk}
        mine = [e for e in self.emptied if e.drain and (e.drain.pk or id(e.drain)) in wanted]
        nodes = {one.node.pk: one for one in map(self._node, mine)}
        for one in self.emptied:  # what is down has nothing to leave
            if one.drain is None:
                down = self._node(one)
                nodes[one.node.pk] = replace(down, begins_at=max(self.now, span.starts_at))
        kept = [nodes[node.pk] for node in span.nodes if node.pk in nodes]
        return WindowOutlook(span, kept, self.now)

    def _node(self, one: Emptied) -> NodeOutlook:
        stays = sorted(
            (self._stay(one, run, gpus) for run, gpus in self.on[one.node.pk]),
            key=lambda stay: (-stay.leaves_by.timestamp(), stay.run.pk),
        )
        asked = self._instant(one.asked)
        begins = one.drain.starts_at if one.drain else self.now
        return NodeOutlook(
            node=one.node,
            drain=one.drain,
            asked=asked,
            begins_at=begins,
            stays=stays,
            free_from=max([asked, *(stay.leaves_by for stay in stays)]),
            likely=max([asked, *(stay.likely for stay in stays)]),
            empty_since=None if stays or not one.drain else self.last.get(one.node.pk),
            answers=one.node.pool.cluster.slug not in self.unsure,
            now=self.now,
        )

    def _stay(self, one: Emptied, run: Run, gpus: int) -> Stay:
        how = self._how(run)
        wait = one.start if how == How.SERVICE else self._protected(run)
        step = max(one.asked, wait)
        span = ends(run.job, run, self.now)
        end = None
        if span is not None:  # one that is past its likely end goes by the late one
            end = span[1] if span[1] > self.now else span[2]
        # What a cycle at this very instant would stop is gone at the latest with the next one.
        surely = self._instant(max(1, step))
        likely = self._instant(step)
        if end is not None and end > self.now:
            likely = min(likely, end)
        return Stay(run, gpus, how, surely, likely, end)

    def _how(self, run: Run) -> How:
        if run.state == Run.State.STARTING:
            return How.STARTING
        if run.state == Run.State.STOPPING:
            return How.STOPPING
        if run.job.is_realtime:
            return How.SERVICE
        is_protected = protected_steps(run, at=self.now, origin=self.origin) > 0
        return How.PROTECTED if is_protected else How.INTERRUPTIBLE

    def _instant(self, step: int) -> datetime:
        return self.now if step == 0 else self.origin + self.step * step


def _held(run: Run) -> dict[int, int]:
    """GPUs that a run holds, by node's id."""
    found: dict[int, int] = defaultdict(int)
    for holding in run.holdings.all():
        if holding.ended_at is None:
            found[holding.node_id] += holding.gpus
    return found
