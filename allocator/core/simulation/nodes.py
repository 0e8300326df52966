"""Which nodes are down when, how many GPUs are healthy, and which nodes are to be empty."""

from bisect import bisect_right
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from ..draining import Ask, Served, starts
from ..events import Events, Window, check_nodes
from ..problem import Drain, Node
from .fleet import Fleet


@dataclass(frozen=True)
class Outage:
    """A node, by its place, that is down in [down, up)."""

    node: int
    down_s: int
    up_s: int


class Availability:
    """The healthy GPUs of a span as a function of time; what fails is known here beforehand."""

    def __init__(self, nodes: tuple[Node, ...], events: Events, seconds: int) -> None:
        check_nodes(events, (node.name for node in nodes))
        self.outages = _outages(nodes, events, seconds)
        changes: dict[int, int] = {}
        for one in self.outages:
            gpus = nodes[one.node].gpus
            changes[one.down_s] = changes.get(one.down_s, 0) - gpus
            changes[one.up_s] = changes.get(one.up_s, 0) + gpus
        self._at, self._gpus = [0], [sum(node.gpus for node in nodes)]
        self._before = [0]  # GPU-seconds up to each instant
        for at in sorted(changes):
            self._before.append(self._before[-1] + self._gpus[-1] * (at - self._at[-1]))
            self._at.append(at)
            self._gpus.append(self._gpus[-1] + changes[at])

    def gpus(self, now: int) -> int:
        """Healthy GPUs at an instant."""
        return self._gpus[bisect_right(self._at, now) - 1]

    def gpu_seconds(self, start: int, end: int) -> int:
        """Healthy GPU-seconds of [start, end)."""
        return self._until(end) - self._until(start)

    def expected(self, start: int, now: int, until: int) -> int:
        """The same of [start, until) as it looks now: nothing fails or comes back any more."""
        return self.gpu_seconds(start, now) + self.gpus(now) * (until - now)

    def _until(self, at: int) -> int:
        n = bisect_right(self._at, at) - 1
        return self._before[n] + self._gpus[n] * (at - self._at[n])


def _outages(nodes: tuple[Node, ...], events: Events, seconds: int) -> list[Outage]:
    """By their beginnings; those of one node that touch are one."""
    place = {node.name: n for n, node in enumerate(nodes)}
    spans: dict[int, list[tuple[int, int]]] = {}
    for one in events.failures:
        up = seconds if one.up_s is None else min(one.up_s, seconds)
        if one.down_s < up:
            spans.setdefault(place[one.node], []).append((one.down_s, up))
    found = []
    for node, mine in spans.items():
        merged: list[tuple[int, int]] = []
        for down, up in sorted(mine):
            if merged and down <= merged[-1][1]:
                merged[-1] = (merged[-1][0], max(up, merged[-1][1]))
            else:
                merged.append((down, up))
        found += [Outage(node, down, up) for down, up in merged]
    return sorted(found, key=lambda one: (one.down_s, one.node))


class Nodes:
    """The nodes of a simulated fleet as they are now."""

    def __init__(self, nodes: tuple[Node, ...], events: Events, fleet: Fleet) -> None:
        self._names = [node.name for node in nodes]
        self._place = {node.name: n for n, node in enumerate(nodes)}
        self._windows = sorted(events.windows, key=lambda one: one.start_s)
        self._fleet = fleet
        self.down: set[int] = set()
        self._given: dict[int, int] = {}  # node → since when the newest plan has it empty

    def windows(self, now: int) -> list[Window]:
        """Those that are known and not over, by their beginnings."""
        return [one for one in self._windows if one.counts(now)]

    def fail(self, node: int) -> None:
        """It is down, and holds nothing any more."""
        self.down.add(node)
        self._fleet.withdraw(self._fleet.node_bits[node])

    def come_back(self, node: int) -> None:
        self.down.discard(node)
        self._fleet.restore(self._fleet.node_bits[node])

    def closed(self, now: int, until: int) -> int:
        """The mask of nodes of which a window begins before `until`."""
        found = 0
        for one in self.windows(now):
            if one.start_s < until:
                found |= self._fleet.node_bits[self._place[one.node]]
        return found

    def drains(
        self,
        now: int,
        *,
        step_s: int,
        horizon: int,
        protected: Mapping[int, int],
        served: Served,
        settled: bool,
    ) -> tuple[Drain, ...]:
        """What the plan of an instant is told, as the cycle's snapshot tells it.

        ``protected``: timesteps for which runs of a node can't be stopped; ``served``: GPUs of a
        node that services hold, with their swap caps.
        """
        origin = now - now % step_s
        asks = [(Ask(n, n, 0, protected.get(n, 0)), horizon) for n in sorted(self.down)]
        for one in self.windows(now):
            n = self._place[one.node]
            if n in self.down or one.start_s >= origin + horizon * step_s:
                continue
            until = horizon if one.end_s is None else -((origin - one.end_s) // step_s)
            asked = max(0, (one.start_s - origin) // step_s)
            asks.append((Ask(n, n, asked, protected.get(n, 0)), min(until, horizon)))
        given = {n: (at - origin) / step_s for n, at in self._given.items()}
        placed = starts(
            [ask for ask, _ in asks], served=served, settled=settled, given=lambda: given
        )
        found = [(asks[n][0].node, start, asks[n][1]) for n, start in placed if start < asks[n][1]]
        self._given = _first((n, origin + start * step_s) for n, start, _ in found)
        return tuple(Drain(self._names[n], start, until) for n, start, until in found)

    def asked(self, now: int, until: int) -> set[int]:
        """Nodes that are down, or of which a window begins before an instant."""
        windows = (one for one in self.windows(now) if one.start_s < until)
        return self.down | {self._place[one.node] for one in windows}


def _first(instants: Iterable[tuple[int, int]]) -> dict[int, int]:
    found: dict[int, int] = {}
    for node, at in instants:
        found[node] = min(at, found.get(node, at))
    return found
