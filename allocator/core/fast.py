"""Fast mode: the construction, then as many improving passes as the budget allows."""

from collections.abc import Callable

from .check import objective
from .explain import explain
from .heuristic import Construction
from .improve import Hint, Improver
from .plan import Assignment, Plan, Result, Status
from .problem import Problem
from .realtime import Sets
from .settings import Settings

WORK = 20_000_000  # blocks looked at by the passes where no number of iterations is given
MOST = 1 << 40  # passes: as many as fit the time
ENDS = 1.0  # of what the construction took: what writing the plan down takes
FIRST = 4  # passes in the first batch
PART = 0.7  # of the time left for the next one
Stopwatch = Callable[[], float]


def default_passes(problem: Problem, items: int) -> int:
    """Improving passes where neither time nor number is given: about 1 ms for 8 GPUs."""
    most = 100 + 12 * problem.gpus
    return min(most, max(WORK // max(items * problem.gpus, 1), 1))


def solve_fast(
    problem: Problem,
    settings: Settings | None,
    seed: int,
    iterations: int | None,
    time_limit: float | None,
    elapsed: Stopwatch,
    hint: Hint | None = None,
) -> tuple[Result, Construction]:
    """The best plan of so many passes, or of those that fit the time (seconds by `elapsed`).

    With it the construction that it began with.
    """
    problem.prepare()
    known = elapsed()
    construction = Construction(problem, settings)
    placed = construction.build()
    built = elapsed() - known
    improver = Improver(construction, seed, hint)
    if time_limit is None:
        if iterations is None:
            iterations = default_passes(problem, len(improver.rows))
        improver.run(iterations)
    else:
        most = MOST if iterations is None else iterations
        _run_for(improver, built, time_limit - ENDS * built, most, elapsed)

    def plan(assignments: list[Assignment], realtime: dict[str, Sets]) -> Plan:
        return Plan(problem.gpus, problem.horizon, tuple(assignments), realtime)

    best = plan(improver.assignments(), improver.realtime())
    result = Result(
        plan=best,
        status=Status.HEURISTIC,
        objective=objective(problem, best),
        bound=None,
        seconds=elapsed(),
        reasons=explain(construction, best),
        mode="fast",
        preemptions=tuple(placed.preemptions),
        construction=plan(placed.assignments, placed.realtime),
        iterations=improver.iterations,
    )
    return result, construction


def _run_for(
    improver: Improver, setting_up: float, until: float, most: int, elapsed: Stopwatch
) -> None:
    """Passes until the time is up, in batches that are judged by the batch before.

    None where setting them up would take all of it (seconds).
    """
    batch = FIRST
    if not most or not len(improver.rows) or elapsed() + setting_up > until:
        return
    improver.prepare()
    while elapsed() < until and improver.iterations < most:
        batch = min(batch, most - improver.iterations)
        began = elapsed()
        improver.run(batch)
        each = max(elapsed() - began, 1e-9) / batch
        batch = max(1, min(16 * batch, int(PART * (until - elapsed()) / each)))
