"""Drains as the plan sees them: a window, or a node that is down, from when its GPUs are free."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from allocator import timesteps
from allocator.core import problem as core
from clusters.models import Drain, Node
from workloads.models import Job, Run


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
        here = {node.pk for node in self.nodes}
        drains = []
        for node in self.nodes:
            if node.pk in self.down:
                drains.extend(self._from_when_free(node, 0, self.horizon))
        end = self.origin + self._step * self.horizon
        windows = Drain.objects.filter(starts_at__lt=end).select_related("node")
        for window in windows:
            if window.node_id not in here or window.node_id in self.down:
                continue
            if window.ends_at is not None and window.ends_at <= self.at:
                continue
            drains.extend(self._drain(window))
        return drains

    def _drain(self, window: Drain) -> list[core.Drain]:
        """A window starts when the protection of what runs there ends."""
        start = max(0, (window.starts_at - self.origin) // self._step)
        until = self.horizon
        if window.ends_at is not None:
            until = min(until, timesteps.ceil_steps(window.ends_at - self.origin))
        return self._from_when_free(window.node, start, until)

    def _from_when_free(self, node: Node, start: int, until: int) -> list[core.Drain]:
        free_from = max(self.protected.get(node.pk, 0), self._shed_by(node.pk))
        if free_from > start:
            self.relaxed.append(
                f"The drain of {node.name} starts {free_from - start} timesteps later, "
                "when the protection of its runs ends."
            )
            start = free_from
        return [core.Drain(node.name, start, until)] if start < until else []

    def _shed_by(self, node_id: int) -> int:
        """Timesteps until real-time services can have left a node within their swap caps."""
        latest = 0
        for job, run in self.services:
            there = sum(
                h.gpus for h in run.holdings.all() if h.node_id == node_id and h.ended_at is None
            )
            frozen = 1 if self.settled else 0
            if there:
                latest = max(latest, -(-there // job.service.swap_cap) - 1 + frozen)
        return latest
