"""Full mode: the fast plan improved by exact models (CP-SAT), with a proven bound.

What fairness decided is not reopened: runs and the jobs that stopped one stay as the construction
placed them, and with budgets every leaf keeps its guarded prefixes. The bound is proven under those
rules, for every legal plan: first by prices (bound.py), then by the counts of GPUs
(exact_counts.py), whose schedules are given GPUs (exact_identity.py). What that leaves open, and
fleets too large for it, are improved in windows (windows.py).

Failure of any kind is a status with the fast plan kept, never an exception and never an illegal
plan.
"""

from collections.abc import Callable
from dataclasses import replace

from .bound import priced_bound
from .check import check, check_guard
from .exact_counts import by_pool, count_starts, start_words
from .exact_frame import Frame, frame_of
from .exact_search import Search
from .exact_solver import Clock
from .explain import explain
from .heuristic import Construction
from .plan import Result, Status
from .problem import Problem
from .windows import Windows

MOST_OPTIONS = 400_000  # jobs x rows: beyond it the whole frame is not put into one model
MOST_STARTS = 10_000  # literals of the counts of a whole frame
ONE_SHARE = 0.8  # of the time left, for the counts of one node; the rest is for windows
POOLS_SHARE, NODES_SHARE = 0.4, 0.7  # where there are several nodes, for the counts by each
ATTEMPTS = 4  # at the nodes of a whole frame, each four times as hard as the one before
FEW_IDLE, MANY_IDLE = 25, 200  # windows in a row without a gain before something else is tried
BOUND_SHARE = 0.1  # of the time, for the bound by prices


def solve_exact(
    problem: Problem,
    fast: Result,
    construction: Construction,
    limit: float,
    seed: int,
    workers: int,
    elapsed: Callable[[], float],
) -> Result:
    """The better of the fast plan and the models', with a proven bound.

    `limit` counts from the zero of `elapsed`, in seconds. With one worker a seed gives one answer,
    unless the time limit, or a part's share of it, cuts the search short.
    """
    full = _Full(problem, fast, construction, Clock(limit, elapsed, seed, workers))
    try:
        return full.solve()
    except Exception as error:  # whatever is raised, the cycle goes on with the fast plan
        failed = full.keep(Status.SOLVER_FAILED)
        return replace(failed, failure=f"{type(error).__name__}: {error}")


class _Full:
    """One call: the bound so far is there whatever fails later."""

    def __init__(
        self, problem: Problem, fast: Result, construction: Construction, clock: Clock
    ) -> None:
        self.problem, self.fast, self.clock = problem, fast, clock
        self.construction = construction
        self.bound = gross_bound(problem)

    def keep(self, status: Status) -> Result:
        """The fast plan."""
        return replace(
            self.fast,
            status=status,
            bound=max(self.bound, self.fast.objective),
            mode="full",
            seconds=self.clock.elapsed(),
        )

    def solve(self) -> Result:
        """Bound, whole frame, windows; then the check that every plan must pass."""
        construction = self.construction
        frame = frame_of(construction)
        until = self.clock.elapsed() + BOUND_SHARE * self.clock.left
        self.bound = priced_bound(frame, self.fast.objective, lambda: self.clock.elapsed() >= until)
        guarded = self.fast.construction
        search = Search(frame, guarded, self.fast.plan, self.bound, self._sparing())
        self._improve(frame, search)
        plan, value = search.best, search.value
        if check(self.problem, plan) or check_guard(self.problem, plan, self.fast.construction):
            return self.keep(Status.REJECTED)
        status = Status.OPTIMAL if search.proven else Status.FEASIBLE
        if not search.found and not search.proven:
            status = Status.NO_SOLUTION
        if plan is self.fast.plan:
            return self.keep(status)
        reasons = explain(construction, plan)
        return replace(self.keep(status), plan=plan, objective=value, reasons=reasons)

    def _sparing(self) -> Clock:
        """The clock less what the check and the reasons will take."""
        before = self.clock.elapsed()
        check(self.problem, self.fast.plan)
        check_guard(self.problem, self.fast.plan, self.fast.construction)
        explain(self.construction, self.fast.plan)
        spare = 2 * (self.clock.elapsed() - before)
        return replace(self.clock, limit=self.clock.limit - spare)

    def _improve(self, frame: Frame, search: Search) -> None:
        """The whole frame as one model, where it is not too large for that, and windows of it."""
        whole, windows = self._fits_one_model(frame), Windows(search, self.clock.seed)
        if whole:
            search.by_pools(POOLS_SHARE if search.several_nodes else ONE_SHARE)
        for attempt in range(ATTEMPTS if whole else 1):
            self.bound = search.bound
            if whole and search.several_nodes:
                search.by_nodes(NODES_SHARE, harder=attempt)
            windows.run(FEW_IDLE if whole and search.several_nodes else MANY_IDLE)
        self.bound = search.bound

    def _fits_one_model(self, frame: Frame) -> bool:
        if self.clock.over or len(frame.works) * len(frame.rows) > MOST_OPTIONS:
            return False
        return count_starts(start_words(frame, by_pool(frame))) <= MOST_STARTS


def gross_bound(problem: Problem) -> float:
    """Every job from the first timestep on, every service served in full."""
    worth = sum(problem.time_decay**t for t in range(problem.horizon))
    return sum(job.priority * job.gpus * worth for job in problem.batch)
