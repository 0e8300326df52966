"""What a window does, or would do: who is interrupted, which planned starts move, who waits."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime

from allocator import reading
from allocator.emptying import How, Stay, WindowOutlook
from allocator.job_rows import JobRow
from allocator.models import Outlook
from clusters.models import Node
from clusters.windows import Span
from workloads.models import Job

STOPPED = (How.PROTECTED, How.INTERRUPTIBLE, How.STARTING)


@dataclass(frozen=True)
class PlannedStart:
    """A start of the newest plan on one of the nodes, inside the window."""

    job: JobRow
    at: datetime


@dataclass(frozen=True)
class Effect:
    """A window's outlook, and what follows from it for jobs."""

    outlook: WindowOutlook
    moves: list[PlannedStart]  # planned starts that another plan must place elsewhere
    returns: dict[int, datetime]  # when the plan lets a job that it stops go on, by job's id

    @property
    def interrupted(self) -> list[Stay]:
        """Runs that are stopped, unless they end by themselves before."""
        return [s for s in self.outlook.runs if s.how in STOPPED and not s.ends_first]


def effect(outlook: WindowOutlook) -> Effect:
    """Return what a window does by the newest plan. At most two queries."""
    cycle = reading.newest()
    if cycle is None:
        return Effect(outlook, [], {})
    plan = reading.plan_view(cycle)
    return Effect(outlook, _moves(plan, outlook), _returns(plan))


def waiting(nodes: Collection[str]) -> list[Outlook]:
    """Jobs that wait since one of these nodes is draining. One query."""
    rows = Outlook.objects.filter(rule="draining", job__state=Job.State.QUEUED)
    rows = rows.select_related("job__budget").order_by("job_id")
    return [row for row in rows if row.data.get("node") in nodes]


def _moves(plan: reading.PlanView, outlook: WindowOutlook) -> list[PlannedStart]:
    rows = _rows(plan, outlook.span.nodes)
    firsts: dict[int, PlannedStart] = {}
    for bar in plan.bars:
        job = plan.jobs.get(bar.job_id)
        waits = job is not None and job.state == Job.State.QUEUED and not job.is_realtime
        here = rows.intersection(range(bar.first_gpu, bar.first_gpu + bar.gpus))
        if job is None or not waits or not here or not _overlaps(bar, outlook.span):
            continue
        known = firsts.get(bar.job_id)
        if known is None or bar.start < known.at:
            firsts[bar.job_id] = PlannedStart(job, bar.start)
    return sorted(firsts.values(), key=lambda one: (one.at, one.job.pk))


def _returns(plan: reading.PlanView) -> dict[int, datetime]:
    found: dict[int, datetime] = {}
    for bar in plan.bars:
        if bar.rest:
            found[bar.job_id] = min(found.get(bar.job_id, bar.start), bar.start)
    return found


def _rows(plan: reading.PlanView, nodes: Sequence[Node]) -> set[int]:
    """Rows of the plan's grid that are GPUs of these nodes."""
    wanted, rows, first = {node.name for node in nodes}, set[int](), 0
    for node in plan.nodes:
        if node.name in wanted:
            rows.update(range(first, first + node.gpus))
        first += node.gpus
    return rows


def _overlaps(bar: reading.Bar, span: Span) -> bool:
    return bar.end > span.starts_at and (span.ends_at is None or bar.start < span.ends_at)
