"""What a plan is compared with."""

from allocator.core.bits import Busy, lowest, span, starts_at, union
from allocator.core.items import allowed_starts, waiting_item
from allocator.core.layout import lay_out
from allocator.core.plan import Assignment, Plan
from allocator.core.problem import BatchJob, Problem
from allocator.core.realtime import highest_counts


def fifo(problem: Problem) -> Plan:
    """First in, first out, with peak reservation.

    Each service's peak is reserved for the whole horizon at the top of the grid; all others, in
    file order, each at its earliest free start, lowest GPU first. Runs under way keep their blocks.
    Services climb and fall within their swap cap, on the GPUs reserved for them.
    """
    layout = lay_out(problem)
    busy = Busy(layout, layout.drained)
    top, realtime = problem.gpus, {}
    for service in problem.realtime:
        peak = max(service.demand)
        top -= peak
        if top < 0:
            raise ValueError(f"the peaks do not fit: {service.name} finds {top + peak} GPUs left")
        busy.hold(top, peak, layout.within)
        realtime[service.name] = tuple(
            tuple(range(top, top + count)) for count in highest_counts(service)
        )
    assignments = []
    for order, job in enumerate(problem.jobs):
        if not isinstance(job, BatchJob):
            continue
        item = waiting_item(problem, job, order, 0)
        free = busy.free_starts(job.gpus, job.duration, allowed_starts(problem, item), job.pools)
        if not union(free):
            continue
        start = lowest(union(free))
        first = int(starts_at(free, start)[0])
        end = min(start + job.duration, problem.horizon)
        busy.hold(first, job.gpus, span(start, end))
        assignments.append(Assignment(job.name, first, job.gpus, start, end))
    return Plan(problem.gpus, problem.horizon, tuple(assignments), realtime)
