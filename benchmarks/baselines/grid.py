"""A grid of GPUs × timesteps for planners that place one job after another.

A GPU's horizon is one 64-bit word, bit t set where it is taken. It shares nothing with the
allocator's own grid, so that the two can be compared.
"""

import numpy as np
import numpy.typing as npt

from allocator.core.plan import Assignment
from allocator.core.problem import BatchJob, Problem

Words = npt.NDArray[np.uint64]
NO_WORD, ALL = np.uint64(0), np.uint64(2**64 - 1)


def span(start: int, end: int) -> int:
    """The word with bits [start, end) set; bits past 63 are dropped."""
    end = min(end, 64)
    return (1 << end) - (1 << start) if end > start else 0


class Grid:
    """Who may start where; runs under way and drains are on it from the beginning."""

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        self.words: Words = np.zeros(problem.gpus, dtype=np.uint64)
        self.assignments: list[Assignment] = []
        self._legal: dict[tuple[int, tuple[str, ...]], Words] = {}
        self._runs_and_drains()

    def starts(self, job: BatchJob) -> int:
        """The word of timesteps at which the job may start, whatever is taken."""
        horizon = self.problem.horizon
        last = horizon - 1 if self.problem.overrun else horizon - job.duration
        return span(job.arrival, last + 1)

    def earliest(self, job: BatchJob, starts: int) -> tuple[int, int] | None:
        """(timestep, first GPU) of the earliest start among `starts`, on the lowest GPUs."""
        if not starts:
            return None
        busy = _smeared(_united(self.words, job.gpus), job.duration)
        free = ~busy & self._blocks(job)[: len(busy)] & np.uint64(starts)
        found = int(np.bitwise_or.reduce(free))
        if not found:
            return None
        t = (found & -found).bit_length() - 1
        return t, int(np.argmax(free & np.uint64(1 << t) != NO_WORD))

    def place(self, job: BatchJob, t: int, first: int) -> None:
        """The job starts at t on GPUs from `first`, and holds them as long as it lasts."""
        end = min(t + job.duration, self.problem.horizon)
        self.hold(range(first, first + job.gpus), span(t, end))
        self.assignments.append(Assignment(job.name, first, job.gpus, t, end))

    def hold(self, gpus: range, word: int) -> None:
        self.words[gpus.start : gpus.stop] |= np.uint64(word)

    def release(self, gpus: range, word: int) -> None:
        self.words[gpus.start : gpus.stop] &= ~np.uint64(word)

    def _runs_and_drains(self) -> None:
        problem = self.problem
        for drain in problem.drains:
            n = next(n for n, node in enumerate(problem.nodes) if node.name == drain.node)
            first = problem.first_gpu_of[n]
            rows = range(first, first + problem.nodes[n].gpus)
            self.hold(rows, span(drain.start, min(drain.end, problem.horizon)))
        for job in problem.batch:
            if job.running is not None:
                self._go_on(job)

    def _go_on(self, job: BatchJob) -> None:
        """A run keeps its block to its end, or to a drain of its node."""
        assert job.running is not None
        rows = range(job.running.first_gpu, job.running.first_gpu + job.gpus)
        taken = int(np.bitwise_or.reduce(self.words[rows.start : rows.stop]))
        drained = (taken & -taken).bit_length() - 1 if taken else 64
        end = min(job.running.remaining, self.problem.horizon, drained)
        if end:
            self.hold(rows, span(0, end))
            self.assignments.append(Assignment(job.name, rows.start, job.gpus, 0, end))

    def _blocks(self, job: BatchJob) -> Words:
        """Per GPU: all bits set where a legal block of the job's size and pools begins."""
        key = (job.gpus, job.pools)
        if key not in self._legal:
            self._legal[key] = _legal_firsts(self.problem, job.gpus, job.pools)
        return self._legal[key]


def _united(words: Words, size: int) -> Words:
    """Per first GPU: the OR of `size` (a power of two) rows."""
    wide = 1
    while wide < size:
        words = words[:-wide] | words[wide:]
        wide *= 2
    return words


def _smeared(words: Words, length: int) -> Words:
    """Bit t is set where any of bits [t, t + length) is; what lies past bit 63 is free."""
    wide, length = 1, min(length, 64)
    while wide < length:
        step = min(wide, length - wide)
        words = words | (words >> np.uint64(step))
        wide += step
    return words


def _legal_firsts(problem: Problem, size: int, pools: tuple[str, ...]) -> Words:
    legal = np.zeros(problem.gpus, dtype=np.uint64)
    for n, node in enumerate(problem.nodes):
        if pools and node.pool not in pools:
            continue
        first = problem.first_gpu_of[n]
        if node.gpus >= size:
            legal[first : first + node.gpus - size + 1] = ALL
        elif _whole_nodes(problem, n, size):
            legal[first] = ALL
    return legal


def _whole_nodes(problem: Problem, n: int, size: int) -> bool:
    """Whether `size` GPUs from node n on are whole consecutive nodes of one pool."""
    pool, total = problem.nodes[n].pool, 0
    for node in problem.nodes[n:]:
        if total >= size or node.pool != pool:
            break
        total += node.gpus
    return total == size
