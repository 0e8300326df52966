"""Drains as the plan sees them: a window, or a node that is down, from when its GPUs are free.

For the snapshot and for pages that say when a node will be empty. The rule is the core's
(`allocator/core/draining.py`), since the simulator keeps it too.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from allocator import timesteps
from allocator.core import problem as core
from allocator.core.draining import Ask, starts
from allocator.models import Cycle
from allocator.packing import unpack
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
    until: int | None  # None: no end is given
    start: int = 0


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
        """From when each of these windows, and each node that is down, is empty.

        One query, where services are on several of the nodes: what the newest plan gave them to
        leave each is kept, or else an instant that was told would slip when the order changes.
        """
        by_node = {node.pk: node for node in self.nodes}
        down = [node for node in self.nodes if node.pk in self.down]
        asked = [Emptied(node, None, 0, self._protected(node), None) for node in down]
        asked += [self._asked(w, by_node) for w in windows if self._counts(w, by_node)]
        row = {node.pk: n for n, node in enumerate(self.nodes)}
        placed = starts(
            [Ask(one.node.pk, row[one.node.pk], one.asked, one.protected) for one in asked],
            served=self._served({one.node.pk for one in asked}),
            settled=self.settled,
            given=self._given,
        )
        return [replace(asked[n], start=start) for n, start in placed]

    def _given(self) -> dict[int, float]:
        """The timestep from which the newest plan has each drained node empty. One query."""
        at = planned_starts()
        return {
            node.pk: (at[node.name] - self.origin) / self._step
            for node in self.nodes
            if node.name in at
        }

    def _served(self, drained: Collection[int]) -> dict[int, dict[int, tuple[int, int]]]:
        """By drained node and service: GPUs that it holds there, and its swap cap."""
        found: dict[int, dict[int, tuple[int, int]]] = defaultdict(dict)
        for job, run in self.services:
            for holding in run.holdings.all():
                if holding.ended_at is None and holding.node_id in drained:
                    gpus, _ = found[holding.node_id].get(job.pk, (0, 0))
                    found[holding.node_id][job.pk] = (gpus + holding.gpus, job.service.swap_cap)
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
        return Emptied(node, window, start, self._protected(node), until)


def planned_starts() -> dict[str, datetime]:
    """From when the newest plan has each of its drained nodes empty. One query."""
    committed = Cycle.objects.filter(status=Cycle.Status.COMMITTED).order_by("-pk")
    newest = committed.only("timestep", "snapshot").first()
    if newest is None:
        return {}
    found: dict[str, datetime] = {}
    for drain in unpack(bytes(newest.snapshot)).get("drains", ()):
        at = newest.timestep + timesteps.step() * drain["from"]
        found[drain["node"]] = min(at, found.get(drain["node"], at))
    return found


def _late(one: Emptied) -> str:
    """Why a drain starts later than it was asked for."""
    later = f"The drain of {one.node.name} starts {one.start - one.asked} timesteps later, "
    if one.start <= one.protected:
        return later + "when the protection of its runs ends."
    return later + "when services have left it within their swap caps."
