"""What is to have a run's GPUs after it, by the newest plan: who is better entitled, and drains."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from django.db.models import Q

from allocator import reading, timesteps
from allocator.core.problem import Problem, RealtimeJob
from allocator.core.turns import Turns
from allocator.job_rows import JobRow
from allocator.packing import unpack
from allocator.reading import Bar, PlanView
from allocator.snapshot import name_of
from clusters.models import Drain
from workloads.models import Job, Run


@dataclass(frozen=True)
class Promise:
    """GPUs of a run are another's from an instant on, to the end of the span or for good."""

    start: datetime
    end: datetime | None
    rule: str  # promised or draining
    data: dict[str, Any] = field(default_factory=dict)

    def is_in(self, start: datetime, end: datetime) -> bool:
        """Say whether it has a part of [start, end)."""
        return self.start < end and (self.end is None or self.end > start)


def promises(*, run: Run, now: datetime) -> list[Promise]:
    """Return who is promised GPUs of a run and comes before it, and drains; the earliest first."""
    found = [*_drains(run, now), *_planned(run)]
    return sorted(found, key=lambda one: one.start)


def _drains(run: Run, now: datetime) -> Iterator[Promise]:
    """Windows in which nothing may be placed on its nodes, those that wait for it included."""
    nodes = run.holdings.filter(ended_at=None).values("node")
    windows = Drain.objects.filter(Q(ends_at=None) | Q(ends_at__gt=now), node__in=nodes)
    for window in windows.select_related("node"):
        begins = timesteps.floor(window.starts_at)  # a plan drains whole timesteps
        yield Promise(begins, window.ends_at, "draining", {"node": window.node.name})


def _planned(run: Run) -> Iterator[Promise]:
    cycle = reading.newest()
    if cycle is None:
        return
    view = reading.plan_view(cycle)
    mine = _rows(run, view)
    after = [
        bar
        for bar in view.bars
        if bar.job_id != run.job_id and mine & set(range(bar.first_gpu, bar.first_gpu + bar.gpus))
    ]
    if not after:
        return
    order = _Order(Problem.from_dict(unpack(bytes(cycle.snapshot))), run)
    for bar in after:
        job = view.jobs.get(bar.job_id)
        if job is not None and _still_comes(bar, job) and order.comes_before(bar):
            data = {"job": job.pk, "name": job.name, "budget": job.budget.path}
            yield Promise(bar.start, bar.end, "promised", data)


def _rows(run: Run, view: PlanView) -> set[int]:
    """Rows of the plan's grid that a run holds."""
    first, row = {}, 0
    for node in view.nodes:
        first[node.name] = row
        row += node.gpus
    return {
        first[one.node.name] + bit
        for one in run.holdings.filter(ended_at=None).select_related("node")
        if one.node.name in first
        for bit in range(one.mask.bit_length())
        if one.mask >> bit & 1
    }


def _still_comes(bar: Bar, job: JobRow) -> bool:
    """Whether a job is still to begin there: it may have ended or started since the plan."""
    if job.cancel_requested_at is not None:
        return False
    moves = (job.is_realtime or bar.rest) and not job.has_ended
    return moves or job.state == Job.State.QUEUED


class _Order:
    """Who comes before a run, as the cycle compares them before its plan gives anything."""

    def __init__(self, problem: Problem, run: Run) -> None:
        self.step_s = problem.timestep_seconds
        self.turns = Turns(problem, problem.gpus * problem.horizon * self.step_s)
        self.jobs = {job.name: job for job in problem.jobs}
        own = self.jobs.get(name_of(run.job_id))
        self.own = self.turns.leaf_of.get(own.budget) if own else None
        self.keeps = run.job.gpus * self.step_s

    def comes_before(self, bar: Bar) -> bool:
        """Whether a bar's job is better entitled: funded, inside its entitlement, and first.

        Jobs of the run's own budget aren't: what it spends its credits on is its own affair.
        """
        other = self.jobs.get(name_of(bar.job_id))
        leaf = self.turns.leaf_of.get(other.budget) if other else None
        if other is None or leaf is None or self.own is None:
            return False
        if not (isinstance(other, RealtimeJob) or other.funded):
            return False
        # Neither side of one leaf is anything.
        theirs, _ = self.turns.compared(leaf, bar.gpus * self.step_s, self.own, self.keeps)
        return theirs is not None and theirs.inside and self.turns.outranks(leaf, self.own)
