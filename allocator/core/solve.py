"""`solve(problem) -> Result`: the one entrance to the allocator.

Fast mode is the construction and then as many improving passes as the budget allows. Full mode adds
the exact model, warm-started by fast, and answers the better of both with a proven bound. The same
problem, seed and number of iterations give the same plan; a time limit can only cut passes short.
The stopwatch is the only thing read from outside.
"""

import time
from collections.abc import Callable

from .check import objective
from .explain import explain
from .heuristic import Construction
from .improve import Improver
from .items import Settings
from .plan import Assignment, Plan, Result, Status
from .problem import Problem

MODES = ("fast", "full")
WORK = 1500  # jobs placed by the improvement where no number of iterations is given
MOST = 200  # passes


def solve(
    problem: Problem,
    *,
    mode: str = "fast",
    time_limit: float | None = None,
    seed: int = 0,
    iterations: int | None = None,
    settings: Settings | None = None,
    workers: int = 1,
) -> Result:
    """Plan the problem.

    `time_limit` is in seconds (fast: none by default; full: 60). `iterations` bounds the improving
    passes; by default it follows from the number of jobs, so that it does not depend on the
    machine. 0 is the construction alone. `workers` is for full mode; 1 is repeatable.
    """
    if mode not in MODES:
        raise ValueError(f"mode must be fast or full, not {mode!r}.")
    if time_limit is not None and not time_limit >= 0:
        raise ValueError(f"time_limit must be 0 or more seconds, not {time_limit}.")
    started = time.perf_counter()

    def elapsed() -> float:
        return time.perf_counter() - started

    fast = _fast(problem, settings, seed, iterations, time_limit, elapsed)
    if mode == "fast":
        return fast
    from .exact import solve_exact  # OR-Tools is only imported where it is used

    limit = 60.0 if time_limit is None else time_limit
    return solve_exact(problem, fast, limit, seed, workers, elapsed, settings)


def _fast(
    problem: Problem,
    settings: Settings | None,
    seed: int,
    iterations: int | None,
    time_limit: float | None,
    elapsed: Callable[[], float],
) -> Result:
    construction = Construction(problem, settings)
    placed = construction.build()
    improver = Improver(construction, seed)
    if iterations is None:
        iterations = min(MOST, WORK // max(len(improver.items), 1))
    improver.run(iterations, lambda: time_limit is not None and elapsed() >= time_limit)

    def plan(assignments: list[Assignment]) -> Plan:
        return Plan(problem.gpus, problem.horizon, tuple(assignments), placed.realtime)

    best = plan(improver.assignments)
    reasons = explain(construction, improver.assignments)
    return Result(
        plan=best,
        status=Status.HEURISTIC,
        objective=objective(problem, best),
        bound=None,
        seconds=elapsed(),
        reasons=reasons,
        mode="fast",
        preemptions=tuple(placed.preemptions),
        construction=plan(placed.assignments),
        iterations=improver.iterations,
    )
