"""First come, first served with backfill, and real time along its curve."""

from collections.abc import Sequence

from allocator.core.plan import Plan
from allocator.core.problem import BatchJob, Problem

from .grid import Grid, span
from .services import serve_elastic

Failed = dict[tuple[int, tuple[str, ...]], int]  # (GPUs, pools): a length that fits nowhere now


def conservative(problem: Problem) -> Plan:
    """Every job in its turn gets a reservation that no later one delays: arrival, file order."""
    grid = Grid(problem)
    realtime = serve_elastic(problem, grid)
    for job in _queue(problem):
        if found := grid.earliest(job, grid.starts(job)):
            grid.place(job, *found)
    return Plan(problem.gpus, problem.horizon, tuple(grid.assignments), realtime)


def easy(problem: Problem) -> Plan:
    """EASY: only the head of the queue has a reservation; who comes after it starts where it can
    without delaying that. A head that can't start inside the horizon gives way to the next."""
    grid = Grid(problem)
    realtime = serve_elastic(problem, grid)
    queue: Sequence[BatchJob] = _queue(problem)
    for t in range(problem.horizon):
        here = _one_timestep(grid, [job for job in queue if job.arrival <= t], t)
        queue = [*here, *(job for job in queue if job.arrival > t)]
    return Plan(problem.gpus, problem.horizon, tuple(grid.assignments), realtime)


def _queue(problem: Problem) -> list[BatchJob]:
    waiting = [job for job in problem.batch if job.running is None]
    return sorted(waiting, key=lambda job: job.arrival)


def _one_timestep(grid: Grid, queue: Sequence[BatchJob], t: int) -> list[BatchJob]:
    """Start whoever may start at t; returns who still waits, in the same order."""
    for i, head in enumerate(queue):
        found = grid.earliest(head, grid.starts(head) >> t << t)
        if found is not None and found[0] > t:
            return [head, *_behind(grid, head, found, queue[i + 1 :], t)]
        if found is not None:
            grid.place(head, *found)
    return []


def _behind(
    grid: Grid, head: BatchJob, found: tuple[int, int], others: Sequence[BatchJob], t: int
) -> list[BatchJob]:
    """Start those who fit at t beside the head's reservation; returns the rest."""
    start, first = found
    rows, word = range(first, first + head.gpus), span(start, min(start + head.duration, 64))
    grid.hold(rows, word)
    failed: Failed = {}
    rest = [job for job in others if not _starts_now(grid, job, t, failed)]
    grid.release(rows, word)
    return rest


def _starts_now(grid: Grid, job: BatchJob, t: int, failed: Failed) -> bool:
    kind = (job.gpus, job.pools)
    allowed = grid.starts(job) & (1 << t)
    if not allowed or job.duration >= failed.get(kind, job.duration + 1):
        return False
    found = grid.earliest(job, allowed)
    if found is None:
        failed[kind] = job.duration
        return False
    grid.place(job, *found)
    return True
