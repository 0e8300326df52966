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
from .realtime import Sets

MODES = ("fast", "full")
WORK = 20_000_000  # blocks looked at by the passes where no number of iterations is given
FULL_SHARE = 0.1  # of full mode's time that fast may take for its warm start
MOST = 1 << 40  # passes: as many as fit the time
Stopwatch = Callable[[], float]


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
    passes; by default it follows from the size of the problem, so that it does not depend on the
    machine, or, where a time limit is given, from the time. 0 is the construction alone. `workers`
    is for full mode; 1 is repeatable.
    """
    if mode not in MODES:
        raise ValueError(f"mode must be fast or full, not {mode!r}.")
    if time_limit is not None and not time_limit >= 0:
        raise ValueError(f"time_limit must be 0 or more seconds, not {time_limit}.")
    started = time.perf_counter()

    def elapsed() -> float:
        return time.perf_counter() - started

    if mode == "fast":
        return _fast(problem, settings, seed, iterations, time_limit, elapsed)
    from .exact import solve_exact  # OR-Tools is only imported where it is used

    limit = 60.0 if time_limit is None else time_limit
    fast = _fast(problem, settings, seed, iterations, FULL_SHARE * limit, elapsed)
    return solve_exact(problem, fast, limit, seed, workers, elapsed, settings)


def default_passes(problem: Problem, items: int) -> int:
    """Improving passes where neither time nor number is given: about 1 ms for 8 GPUs."""
    most = 100 + 12 * problem.gpus
    return min(most, max(WORK // max(items * problem.gpus, 1), 1))


def _fast(
    problem: Problem,
    settings: Settings | None,
    seed: int,
    iterations: int | None,
    time_limit: float | None,
    elapsed: Stopwatch,
) -> Result:
    construction = Construction(problem, settings)
    placed = construction.build()
    improver = Improver(construction, seed)
    if time_limit is None:
        count = len(improver.rows)
        improver.run(default_passes(problem, count) if iterations is None else iterations)
    else:
        _run_for(improver, time_limit, MOST if iterations is None else iterations, elapsed)

    def plan(assignments: list[Assignment], realtime: dict[str, Sets]) -> Plan:
        return Plan(problem.gpus, problem.horizon, tuple(assignments), realtime)

    best = plan(improver.assignments(), improver.realtime())
    return Result(
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


def _run_for(improver: Improver, limit: float, most: int, elapsed: Stopwatch) -> None:
    """Passes until the time is up, keeping as much for the end as the beginning took.

    They run in batches, each for half of the time that is left, judged by the batch before.
    """
    limit -= elapsed()  # for the end
    batch = 1
    while elapsed() < limit and improver.iterations < most and len(improver.rows) > 1:
        batch = min(batch, most - improver.iterations)
        began = elapsed()
        improver.run(batch)
        each = max(elapsed() - began, 1e-9) / batch
        batch = max(1, min(16 * batch, int((limit - elapsed()) / 2 / each)))
