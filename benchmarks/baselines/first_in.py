"""First in, first out, with peak reservation: what the published gains are measured against."""

from allocator.core.plan import Plan
from allocator.core.problem import Problem

from .grid import Grid
from .services import serve_reserved


def fifo(problem: Problem) -> Plan:
    """Peaks reserved at the top of the grid; the rest in file order, each at its earliest start."""
    grid = Grid(problem)
    realtime = serve_reserved(problem, grid)
    for job in problem.batch:
        if job.running is None and (found := grid.earliest(job, grid.starts(job))):
            grid.place(job, *found)
    return Plan(problem.gpus, problem.horizon, tuple(grid.assignments), realtime)
