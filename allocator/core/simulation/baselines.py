"""Policies that others use, on the same blocks. None of them stops a run once it has started."""

from bisect import bisect_left, insort
from collections.abc import Iterator, Sequence
from heapq import merge

import numpy as np

from ..problem import Node
from ..traces import TraceJob
from ..weights import RAW_URGENCY
from .fleet import Fleet, block
from .policy import Decision
from .world import SimJob, World

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

    def decide(self) -> Decision:
        """One job after another, each on the fullest node that has a block for it."""
        found, fleet, free = Decision(), self.world.fleet, self.world.fleet.free
        shut: set[int] = set()
        for _, number in self.queue.in_order():
            job = self.world.waiting[number]
            if job.gpus in shut:
                continue
            starts = fleet.starts(free, job.gpus)
            if starts:
                first = fleet.best(starts, job.gpus, free)
                free &= ~block(first, job.gpus)
                found.starts.append((job, first))
            elif self.strict:
                return found
            else:
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
            starts = fleet.starts(free & ~reserved, job.gpus)
            if not starts and job.expected[0] <= spare_s:
                starts = fleet.starts(free, job.gpus)
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


class PeakReserve(Ordered):
    """Each group has nodes of its own for its peak, first in, first out among its own jobs.

    Where peaks add up to more than there is, nodes are divided in proportion to them.
    """

    strict = False

    def __init__(self, world: World, rows: Sequence[TraceJob]) -> None:
        super().__init__(world)
        self.own = _divided(world.setup.nodes, peaks(rows))

    def decide(self) -> Decision:
        found, fleet, free = Decision(), self.world.fleet, self.world.fleet.free
        held_up: set[str] = set()
        for _, number in self.queue.in_order():
            job = self.world.waiting[number]
            group = job.row.group
            if group in held_up or not fleet.starts(self.own[group], job.gpus):
                continue  # what never fits its group's nodes holds up nobody
            starts = fleet.starts(free & self.own[group], job.gpus)
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
        [(row.submit_time_s, row.group, row.block) for row in rows]
        + [(row.submit_time_s + row.duration_s, row.group, -row.block) for row in rows]
    )
    held: dict[str, int] = {}
    most: dict[str, int] = {}
    for _, group, change in steps:
        held[group] = held.get(group, 0) + change
        most[group] = max(most.get(group, 0), held[group])
    return most


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
