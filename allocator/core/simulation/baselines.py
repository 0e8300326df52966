"""Policies that others use, on the same blocks. None of them stops a run once it has started.

Each service holds its peak, from the top of the grid, and takes it ahead of all jobs. Nothing is
started that is declared to run into a window of maintenance; what runs there goes on.
"""

from bisect import bisect_left, insort
from collections.abc import Iterator, Sequence
from heapq import merge

import numpy as np

from ..problem import Node
from ..traces import TraceJob
from ..weights import RAW_URGENCY
from .fleet import Fleet, block
from .policy import Decision
from .services import SimService, mask_of
from .world import SimJob, World

NEVER = 1 << 40  # a second that no simulation reaches
Rank = tuple[int, int]  # the second is the job's number


class _Queue:
    """The waiting jobs by number of GPUs, each list in the policy's order."""

    def __init__(self) -> None:
        self.by_gpus: dict[int, list[Rank]] = {}

    def add(self, rank: Rank, gpus: int) -> None:
        insort(self.by_gpus.setdefault(gpus, []), rank)

    def remove(self, rank: Rank, gpus: int) -> None:
        ranks = self.by_gpus[gpus]
        del ranks[bisect_left(ranks, rank)]
        if not ranks:
            del self.by_gpus[gpus]

    def in_order(self) -> Iterator[Rank]:
        return merge(*self.by_gpus.values())


class Ordered:
    """One queue: strictly in its order, so that a job that doesn't fit holds up all behind it."""

    strict = True

    def __init__(self, world: World) -> None:
        self.world = world
        self.queue = _Queue()
        self._has_windows = bool(world.setup.events.windows)
        self._timestep = -1

    def rank(self, job: SimJob) -> Rank:
        """First in, first out."""
        return (0, job.number)

    def added(self, job: SimJob) -> None:
        self.queue.add(self.rank(job), job.gpus)

    def left(self, job: SimJob) -> None:
        self.queue.remove(self.rank(job), job.gpus)

    def started(self, job: SimJob) -> None:
        """Nothing to note."""

    def stopped(self, job: SimJob) -> None:
        """Nothing to note."""

    def serves(self, service: SimService) -> None:
        """Nothing to note."""

    def serves_no_more(self, service: SimService) -> None:
        """Nothing to note."""

    def place_of(self, group: str) -> int:
        """The mask of the GPUs that a group may have."""
        return self.world.fleet.whole

    def open_to(self, job: SimJob, free: int) -> int:
        """Of free GPUs those of which no window begins before the job is declared to end."""
        if not self._has_windows:
            return free
        now = self.world.now
        return free & ~self.world.nodes.closed(now, now + job.expected[0])

    def reserve(self) -> tuple[Decision, int]:
        """Give each service what it lacks of its peak; the decision so far, and what is free."""
        world, timestep = self.world, self.world.now // self.world.setup.step_s
        found = Decision(renewed=timestep != self._timestep)
        self._timestep, free = timestep, world.fleet.free
        for service in world.services.here:
            held = service.held or ()
            own = self.open_for_good(free) & self.place_of(service.row.group)
            more = highest(own, service.gpus - len(held))
            free &= ~mask_of(more)
            if more or (found.renewed and service.held is not None):
                found.serves.append((service, tuple(sorted((*held, *more)))))
        return found, free

    def open_for_good(self, free: int) -> int:
        """Of free GPUs those of which no window is known."""
        if not self._has_windows:
            return free
        return free & ~self.world.nodes.closed(self.world.now, self.world.setup.seconds)

    def decide(self) -> Decision:
        """One job after another, each on the fullest node that has a block for it."""
        fleet = self.world.fleet
        found, free = self.reserve()
        shut: set[int] = set()
        for _, number in self.queue.in_order():
            job = self.world.waiting[number]
            if job.gpus in shut:
                continue
            starts = fleet.starts(self.open_to(job, free), job.gpus)
            if starts:
                first = fleet.best(starts, job.gpus, free)
                free &= ~block(first, job.gpus)
                found.starts.append((job, first))
            elif self.strict:
                return found
            elif not fleet.starts(free, job.gpus):
                shut.add(job.gpus)
                if shut >= self.queue.by_gpus.keys():
                    return found
        return found


class Fifo(Ordered):
    """First in, first out."""


class Priority(Ordered):
    """The more urgent first, then the older; strictly."""

    def rank(self, job: SimJob) -> Rank:
        return (-RAW_URGENCY[job.row.urgency], job.number)


class ShortestFirst(Ordered):
    """Whatever is declared shortest and fits."""

    strict = False

    def rank(self, job: SimJob) -> Rank:
        return (job.expected[0], job.number)


class Backfill(Ordered):
    """EASY: the head of the queue has a block reserved for when it will be free at the latest.

    Others start beside it, or before it where they are thought to end in time.
    """

    def decide(self) -> Decision:
        found = super().decide()
        world, now = self.world, self.world.now
        taken = {job.number for job, _ in found.starts}
        waiting = (n for _, n in self.queue.in_order() if n not in taken)
        head = next(waiting, None)
        if head is None:
            return found
        free = world.fleet.free
        for job, first in found.starts:
            free &= ~block(first, job.gpus)
        for _, gpus in found.serves:
            free &= ~mask_of(gpus)
        if not free:
            return found
        at, first = self._reservation(world.waiting[head], found)
        reserved = block(first, world.waiting[head].gpus) if first >= 0 else 0
        self._beside(found, waiting, free, reserved, at - now)
        return found

    def _beside(
        self, found: Decision, waiting: Iterator[int], free: int, reserved: int, spare_s: int
    ) -> None:
        fleet = self.world.fleet
        for number in waiting:
            if not free:
                return
            job = self.world.waiting[number]
            allowed = self.open_to(job, free)
            starts = fleet.starts(allowed & ~reserved, job.gpus)
            if not starts and job.expected[0] <= spare_s:
                starts = fleet.starts(allowed, job.gpus)
            if starts:
                first = fleet.best(starts, job.gpus, free)
                free &= ~block(first, job.gpus)
                found.starts.append((job, first))

    def _reservation(self, head: SimJob, found: Decision) -> tuple[int, int]:
        """(when, first GPU) of the block that will be free first, by what runs declare."""
        world, now = self.world, self.world.now
        ends = np.full(world.fleet.gpus, now, np.int64)
        runs = [(job, job.run.first, job.run.since) for job in world.running.values() if job.run]
        runs += [(job, first, now) for job, first in found.starts]
        for job, first, since in runs:
            end = max(since + job.expected[0], now + 1)
            ends[first : first + job.gpus] = end
        ends[self._never(found)] = NEVER
        wide = 1
        while wide < head.gpus:
            ends = np.maximum(ends[:-wide], ends[wide:])
            wide *= 2
        legal = world.fleet.legal(head.gpus)
        firsts = [g for g in range(len(ends)) if legal >> g & 1]
        if not firsts:
            return now, -1
        best = min(firsts, key=lambda g: (int(ends[g]), g))
        return int(ends[best]), best

    def _never(self, found: Decision) -> list[int]:
        """GPUs that services have, that are down, or that are to be empty."""
        world = self.world
        bits = world.fleet.whole & ~self.open_for_good(world.fleet.whole)
        for n in world.nodes.down:
            bits |= world.fleet.node_bits[n]
        for service in world.services.here:
            bits |= mask_of(service.held or ())
        for _, gpus in found.serves:
            bits |= mask_of(gpus)
        return highest(bits, bits.bit_count())


class PeakReserve(Ordered):
    """Each group has nodes of its own for its peak, first in, first out among its own jobs.

    Where peaks add up to more than there is, nodes are divided in proportion to them.
    """

    strict = False

    def __init__(self, world: World, rows: Sequence[TraceJob]) -> None:
        super().__init__(world)
        self.own = _divided(world.setup.nodes, peaks(rows))

    def place_of(self, group: str) -> int:
        return self.own[group]

    def decide(self) -> Decision:
        fleet = self.world.fleet
        found, free = self.reserve()
        held_up: set[str] = set()
        for _, number in self.queue.in_order():
            job = self.world.waiting[number]
            group = job.row.group
            if group in held_up or not fleet.starts(self.own[group], job.gpus):
                continue  # what never fits its group's nodes holds up nobody
            starts = fleet.starts(self.open_to(job, free & self.own[group]), job.gpus)
            if not starts:
                held_up.add(group)
                if len(held_up) == len(self.own):
                    break
                continue
            first = fleet.best(starts, job.gpus, free)
            free &= ~block(first, job.gpus)
            found.starts.append((job, first))
        return found


def peaks(rows: Sequence[TraceJob]) -> dict[str, int]:
    """The most GPUs each group would hold at once if its jobs never waited."""
    steps = sorted(
        [(row.submit_time_s, row.group, _gpus(row)) for row in rows]
        + [(row.submit_time_s + row.duration_s, row.group, -_gpus(row)) for row in rows]
    )
    held: dict[str, int] = {}
    most: dict[str, int] = {}
    for _, group, change in steps:
        held[group] = held.get(group, 0) + change
        most[group] = max(most.get(group, 0), held[group])
    return most


def _gpus(row: TraceJob) -> int:
    return row.peak if row.is_realtime else row.block


def highest(bits: int, count: int) -> list[int]:
    """The last GPUs of a mask, so many at most."""
    found: list[int] = []
    while bits and len(found) < count:
        found.append(bits.bit_length() - 1)
        bits ^= 1 << found[-1]
    return found


def _divided(nodes: Sequence[Node], most: dict[str, int]) -> dict[str, int]:
    """Masks of consecutive nodes in proportion to peaks, the remainders to the largest."""
    total = sum(most.values()) or 1
    counts = {group: len(nodes) * peak // total for group, peak in most.items()}
    by_rest = sorted(most, key=lambda group: (-(len(nodes) * most[group] % total), group))
    for group in by_rest[: len(nodes) - sum(counts.values())]:
        counts[group] += 1
    bits, n, found = Fleet(nodes).node_bits, 0, {}
    for group in sorted(counts):
        found[group] = sum(bits[n : n + counts[group]])
        n += counts[group]
    return found
