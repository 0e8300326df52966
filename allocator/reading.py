"""Stored cycles as people look at them: a plan's grid as bars."""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from allocator import job_rows
from allocator.job_rows import JobRow
from allocator.models import Cycle
from allocator.packing import unpack
from budgets.access import Standing
from budgets.models import Budget
from workloads.models import Job

Spans = list[tuple[str, int, int]]


@dataclass(frozen=True)
class Bar:
    """GPUs [first_gpu, first_gpu + gpus) of the grid for a job from an instant to another.

    `rest`: the job is stopped first and comes back in this bar. `start` is where the bar begins
    in the plan, so that for what runs already it is the instant of the cycle.
    """

    job_id: int
    rest: bool
    first_gpu: int
    gpus: int
    start: datetime
    end: datetime


@dataclass(frozen=True)
class GridNode:
    """A machine: so many rows of the grid, all of one pool."""

    name: str
    gpus: int
    pool: str


@dataclass(frozen=True)
class PlanView:
    """A committed plan: rows of the grid in order of nodes, and what they hold when."""

    cycle: Cycle
    nodes: list[GridNode]
    bars: list[Bar]
    jobs: dict[int, JobRow]
    horizon_end: datetime
    services: dict[str, dict[str, Any]]  # as the snapshot has them, by name


def newest() -> Cycle | None:
    """Return the newest committed cycle, whose plan is the current one."""
    return Cycle.objects.filter(status=Cycle.Status.COMMITTED).order_by("-pk").first()


def sees_all(held: Standing) -> bool:
    """Say whether someone may see every budget, and so all that is in a cycle. One query."""
    roots = Budget.objects.filter(parent=None).values_list("path", flat=True)
    return all(held.sees(path) for path in roots)


def plan_view(cycle: Cycle) -> PlanView:
    """Return a cycle's plan as bars, with the jobs in it. Two queries for ten thousand jobs."""
    problem = unpack(bytes(cycle.snapshot))
    step = timedelta(minutes=problem["timestep_minutes"])
    bars = [
        Bar(
            job_id=int(name.removeprefix("job-").removesuffix("+")),
            rest=name.endswith("+"),
            first_gpu=first,
            gpus=gpus,
            start=_instant(cycle, start, step),
            end=_instant(cycle, end, step),
        )
        for first, gpus, (name, start, end) in blocks(unpack(bytes(cycle.plan))["grid"])
    ]
    jobs = job_rows.jobs([bar.job_id for bar in bars])
    end = cycle.timestep + step * problem["horizon"]
    nodes = [GridNode(n["name"], n["gpus"], n.get("pool", "default")) for n in problem["nodes"]]
    services = {job["name"]: job for job in problem["jobs"] if job["kind"] == Job.Kind.REALTIME}
    return PlanView(cycle, nodes, bars, jobs, end, services)


def blocks(grid: list[list[str | None]]) -> Iterator[tuple[int, int, tuple[str, int, int]]]:
    """Yield (first row, rows, (job, start, end)): neighbouring rows of equal spans as one."""
    open_at: dict[tuple[str, int, int], int] = {}
    for row, cells in enumerate([*grid, []]):
        spans = set(_spans(cells))
        for span in sorted(set(open_at) - spans):
            first = open_at.pop(span)
            yield first, row - first, span
        for span in spans - set(open_at):
            open_at[span] = row


def _spans(cells: list[str | None]) -> Spans:
    found: Spans = []
    start = 0
    for t in range(1, len(cells) + 1):
        if t == len(cells) or cells[t] != cells[start]:
            name = cells[start]
            if name is not None:
                found.append((name, start, t))
            start = t
    return found


def _instant(cycle: Cycle, timestep: int, step: timedelta) -> datetime:
    return cycle.at if timestep == 0 else cycle.timestep + step * timestep
