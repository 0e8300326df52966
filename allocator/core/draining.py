"""From when on nodes that are to be empty are: the rule of it, for the cycle and the simulator.

A node is drained from where its window begins, or from where the protection of its runs ends, or
from where services can have left all drained nodes within their swap caps, whichever is last.
"""

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

Served = Mapping[int, Mapping[int, tuple[int, int]]]  # node → service → GPUs there, swap cap


@dataclass(frozen=True)
class Ask:
    """A node (by a number) that is to be empty. Timesteps count from the present one, 0."""

    node: int
    row: int  # its place in the grid
    asked: int  # where its window begins
    protected: int  # where the protection of its runs ends

    @property
    def ready(self) -> int:
        """Where it is empty if no service is on it."""
        return max(self.asked, self.protected)


def starts(
    asks: Sequence[Ask],
    *,
    served: Served,
    settled: bool,
    given: Callable[[], Mapping[int, float]],
) -> list[tuple[int, int]]:
    """(which ask, first timestep in which its node is empty), in the order of placing them.

    ``given`` is asked where services are on several of the nodes: what the newest plan gave them to
    leave each is kept, or else an instant that was told would slip when the order changes. It
    gives timesteps by node.
    """
    leaving = _Leaving(served, 1 if settled else 0)
    planned = given() if leaving.is_shared else {}

    def key(n: int) -> tuple[bool, float, int]:
        at = planned.get(asks[n].node)
        return at is None, asks[n].ready if at is None else at, asks[n].row

    found: dict[int, int] = {}  # timestep by node
    placed = []
    for n in sorted(range(len(asks)), key=key):
        node = asks[n].node
        start = max(asks[n].ready, found.get(node, 0))
        if node not in found:
            start = found[node] = leaving.place(node, start)
        placed.append((n, start))
    return placed


@dataclass
class _Leaving:
    """By when services leave nodes, one node placed after another.

    A swap cap is for all nodes together: by timestep t a service has left at most (t + 1) × cap
    GPUs, or t × cap where it is settled in the present timestep (`frozen` 1). A node gets the first
    timestep that holds this for it, and for all that were placed before.
    """

    served: Served
    frozen: int
    placed: dict[int, list[tuple[int, int]]] = field(default_factory=lambda: defaultdict(list))

    @property
    def is_shared(self) -> bool:
        """Whether a service is on several of the nodes."""
        services = [service for there in self.served.values() for service in there]
        return len(services) > len(set(services))

    def place(self, node: int, start: int) -> int:
        """Return the first timestep from ``start`` on by which all services can have left."""
        there = self.served.get(node, {})
        while not all(self._fits(s, start, gpus, cap) for s, (gpus, cap) in there.items()):
            start += 1
        for service, (gpus, _) in there.items():
            self.placed[service].append((start, gpus))
        return start

    def _fits(self, service: int, step: int, gpus: int, cap: int) -> bool:
        leaves = [*self.placed[service], (step, gpus)]
        return all(
            sum(n for at, n in leaves if at <= t) <= cap * (t + 1 - self.frozen)
            for t, _ in leaves
            if t >= step
        )
