"""Full mode in the background: it plans a snapshot for as long as it is given, and leaves a hint.

It never holds the cycle's lock and commits nothing. What it found is written down by instants and
nodes; each later cycle reads it against its own fresh snapshot, tries it first, and keeps of it
what is legal and better.
"""

import logging
import time
from datetime import datetime, timedelta

from django.conf import settings

from allocator import requests, snapshot, timesteps
from allocator.core.check import check, check_guard
from allocator.core.plan import Result
from allocator.core.problem import REST
from allocator.core.settings import Settings
from allocator.core.solve import solve
from allocator.models import FullPlan

logger = logging.getLogger(__name__)

KEPT = timedelta(days=7)
Hint = dict[str, tuple[int, int]]


def plan_ahead(*, at: datetime) -> FullPlan | None:
    """Plan the snapshot of an instant in full mode; None where there is nothing to plan.

    Takes up to ``FULL_PLAN_SECONDS``. A plan that fails the check is logged and left.
    """
    try:
        taken = snapshot.take(at=at, version=requests.state().version)
    except snapshot.NothingToPlan:
        return None
    began = time.perf_counter()
    result = solve(
        taken.problem,
        mode="full",
        time_limit=settings.FULL_PLAN_SECONDS,
        settings=Settings(preempted_percent=settings.PREEMPTION_CAP_PERCENT),
    )
    if result.failure:
        logger.error("Full mode failed at %s and kept fast's plan: %s", at, result.failure)
    broken = check(taken.problem, result.plan)
    broken += check_guard(taken.problem, result.plan, result.construction)
    if broken:
        logger.error("Full mode made an illegal plan at %s: %s", at, broken[0].text)
        return None
    FullPlan.objects.filter(at__lt=at - KEPT).delete()
    return FullPlan.objects.create(
        at=at,
        solver_status=str(result.status),
        objective=result.objective,
        bound=result.bound,
        solve_ms=round((time.perf_counter() - began) * 1000, 3),
        starts=_starts(taken, result),
    )


def hint(taken: snapshot.Snapshot) -> Hint:
    """Where the newest full plan puts jobs, in the snapshot's own timesteps and rows.

    Empty where there is none that is younger than two intervals. A start that is over counts as
    now; nodes that are gone are left out.
    """
    newest = FullPlan.objects.filter(at__lte=taken.at).order_by("-at", "-id").first()
    lifetime = timedelta(minutes=2 * settings.FULL_PLAN_MINUTES)
    if newest is None or newest.at < taken.at - lifetime:
        return {}
    first = dict(zip((node.pk for node in taken.nodes), taken.problem.first_gpu_of, strict=True))
    step = timesteps.step()
    found: Hint = {}
    for job, start, node, gpu in newest.starts:
        if node in first:
            late = (datetime.fromisoformat(start) - taken.origin) // step
            found[job] = max(late, 0), first[node] + gpu
    return found


def _starts(taken: snapshot.Snapshot, result: Result) -> list[list[object]]:
    """Job, instant, node and first GPU in the node, of all that waits."""
    problem, rows = taken.problem, []
    for a in result.plan.assignments:
        if a.job.endswith(REST) or a.job in taken.runs:
            continue
        n = problem.node_of[a.first_gpu]
        start = taken.origin + timesteps.step() * a.start
        node = taken.nodes[n].pk
        rows.append([a.job, start.isoformat(), node, a.first_gpu - problem.first_gpu_of[n]])
    return rows
