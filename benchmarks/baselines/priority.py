"""Priority first: what most clusters run, and what every ratio of the bench is against."""

from allocator.core.plan import Plan
from allocator.core.problem import BatchJob, Problem

from .grid import Grid
from .services import serve_elastic


def priority_first(problem: Problem) -> Plan:
    """Highest priority, then arrival, then file order; earliest start, lowest GPU."""
    grid = Grid(problem)
    realtime = serve_elastic(problem, grid)
    for job in sorted(problem.batch, key=_rank):
        if job.running is None and (found := grid.earliest(job, grid.starts(job))):
            grid.place(job, *found)
    return Plan(problem.gpus, problem.horizon, tuple(grid.assignments), realtime)


def _rank(job: BatchJob) -> tuple[float, int]:
    return (-job.priority, job.arrival)
