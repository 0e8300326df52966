"""Drains as the plan sees them: a window, or a node that is down, from when its GPUs are free.

The one rule of it, for the snapshot and for pages that say when a node will be empty: a node is
drained from where its window begins, or from where the protection of its runs ends, or from where
services can have left all drained nodes within their swap caps, whichever is last.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from allocator import timesteps
from allocator.core import problem as core
from clusters.models import Drain, Node
from workloads.models import Job, Run


def protected_steps(run: Run, *, at: datetime, origin: datetime) -> int:
    """Timesteps, from the one that starts at `origin`, for which a live run can't be stopped."""
    if run.state != Run.State.RUNNING:
        return 1  # decided already: its GPUs are its own until the connector answers
    if run.protected_until is not None and run.protected_until > at:
        return timesteps.ceil_steps(run.protected_until - origin)
    return 0


@dataclass(frozen=True)
class Emptied:
    """From which timestep on a node holds nothing. Timesteps count from the present one, 0."""

    node: Node
    drain: Drain | None  # None: the node is down
    asked: int  # where its window begins
    protected: int  # where the protection of its runs ends
    start: int
    until: int | None  # None: no end is given
    shed: Mapping[int, int] = field(default_factory=dict)  # by when services leave it, by job's id


@dataclass(frozen=True)
class Draining:
    """What decides when each node is free. ``relaxed`` takes a sentence for each late start."""

    at: datetime
    origin: datetime  # start of timestep 0
    horizon: int  # timesteps
    nodes: Sequence[Node]
    down: Collection[int]  # nodes
    protected: Mapping[int, int]  # node → timesteps that its runs are still protected for
    services: Sequence[tuple[Job, Run]]  # that run
    settled: bool  # an earlier cycle was committed in this timestep
    relaxed: list[str]

    @property
    def _step(self) -> timedelta:
        return timesteps.step()

    def drains(self) -> list[core.Drain]:
        """All drains of the horizon. One query."""
        end = self.origin + self._step * self.horizon
        windows = Drain.objects.filter(starts_at__lt=end).select_related("node")
        drains = []
        for one in self.emptied(windows):
            until = self.horizon if one.until is None else min(one.until, self.horizon)
            if one.start > one.asked:
                self.relaxed.append(_late(one))
            if one.start < until:
                drains.append(core.Drain(one.node.name, one.start, until))
        return drains

    def emptied(self, windows: Iterable[Drain]) -> list[Emptied]:
        """From when each of these windows, and each node that is down, is empty. No query.

        Services leave one node after another, in the order in which the nodes could be free.
        """
        row = {node.pk: n for n, node in enumerate(self.nodes)}
        by_node = {node.pk: node for node in self.nodes}
        down = [node for node in self.nodes if node.pk in self.down]
        asked = [Emptied(node, None, 0, self._protected(node), 0, None) for node in down]
        asked += [self._asked(w, by_node) for w in windows if self._counts(w, by_node)]
        ready = sorted(asked, key=lambda e: (max(e.asked, e.protected), row[e.node.pk]))
        left: dict[int, int] = defaultdict(int)  # GPUs that a service has left so far, by job's id
        sheds: dict[int, dict[int, int]] = {}  # by node
        found = []
        for one in ready:
            if one.node.pk not in sheds:
                sheds[one.node.pk] = dict(self._shed(one.node.pk, left))
            shed = sheds[one.node.pk]
            start = max(one.asked, one.protected, *shed.values(), 0)
            found.append(
                Emptied(one.node, one.drain, one.asked, one.protected, start, one.until, shed)
            )
        return found

    def _protected(self, node: Node) -> int:
        return self.protected.get(node.pk, 0)

    def _counts(self, window: Drain, here: Collection[int]) -> bool:
        over = window.ends_at is not None and window.ends_at <= self.at
        return window.node_id in here and window.node_id not in self.down and not over

    def _asked(self, window: Drain, nodes: Mapping[int, Node]) -> Emptied:
        """A window before anything holds it up."""
        node = nodes[window.node_id]
        until = None
        if window.ends_at is not None:
            until = timesteps.ceil_steps(window.ends_at - self.origin)
        start = max(0, (window.starts_at - self.origin) // self._step)
        return Emptied(node, window, start, self._protected(node), start, until)

    def _shed(self, node_id: int, left: dict[int, int]) -> Iterable[tuple[int, int]]:
        """By which timestep each service can have left a node, after those that it left before.

        Its swap cap is for all of them together: one that is on two drained nodes needs longer.
        """
        for job, run in self.services:
            there = sum(
                h.gpus for h in run.holdings.all() if h.node_id == node_id and h.ended_at is None
            )
            if there:
                left[job.pk] += there
                frozen = 1 if self.settled else 0
                yield job.pk, -(-left[job.pk] // job.service.swap_cap) - 1 + frozen


def _late(one: Emptied) -> str:
    """Why a drain starts later than it was asked for."""
    later = f"The drain of {one.node.name} starts {one.start - one.asked} timesteps later, "
    if one.start == one.protected:
        return later + "when the protection of its runs ends."
    return later + "when services have left it within their swap caps."
