"""`solve(problem) -> Result`: the one entrance to the allocator.

Fast mode is the construction and then as many improving passes as the budget allows. Full mode adds
the exact model, warm-started by fast, and answers the better of both with a proven bound. The same
problem, seed and number of iterations give the same plan; a time limit can only cut passes short.
The stopwatch is the only thing read from outside.
"""

import math
import time
from collections.abc import Mapping

from .plan import Result
from .problem import Problem
from .settings import Settings

MODES = ("fast", "full")
FULL_SHARE = 0.1  # of full mode's time that fast may take for its warm start,
FULL_SECONDS = 1.0  # and no longer than this


def solve(
    problem: Problem,
    *,
    mode: str = "fast",
    time_limit: float | None = None,
    seed: int = 0,
    iterations: int | None = None,
    settings: Settings | None = None,
    workers: int = 1,
    hint: Mapping[str, tuple[int, int]] | None = None,
) -> Result:
    """Plan the problem.

    `time_limit` is in seconds (fast: none by default; full: 60). `iterations` bounds the improving
    passes; by default it follows from the size of the problem, so that it does not depend on the
    machine, or, where a time limit is given, from the time. 0 is the construction alone. `workers`
    is for full mode; 1 is repeatable. `hint` is where an earlier plan put jobs (start, first GPU):
    it is tried first, and kept as far as it is legal and better.
    """
    if mode not in MODES:
        raise ValueError(f"mode must be fast or full, not {mode!r}.")
    if time_limit is not None and not 0 <= time_limit < math.inf:
        raise ValueError(f"time_limit must be 0 or more seconds, not {time_limit}.")
    # Compiled code and OR-Tools are only loaded where something is planned with them.
    from .fast import solve_fast

    if mode == "full":
        from .exact import solve_exact
    started = time.perf_counter()

    def elapsed() -> float:
        return time.perf_counter() - started

    if mode == "fast":
        return solve_fast(problem, settings, seed, iterations, time_limit, elapsed, hint)[0]
    limit = 60.0 if time_limit is None else time_limit
    share = min(FULL_SHARE * limit, FULL_SECONDS)
    fast, begun = solve_fast(problem, settings, seed, iterations, share, elapsed, hint)
    return solve_exact(problem, fast, begun, limit, seed, workers, elapsed)
