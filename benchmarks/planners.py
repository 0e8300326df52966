"""The planners that are compared: four baselines, and the product with less and more time."""

from collections.abc import Callable
from dataclasses import dataclass

from allocator.core.plan import Plan
from allocator.core.problem import Problem
from allocator.core.solve import solve

from .baselines import conservative, easy, fifo, priority_first
from .fleets import fleet_problem
from .published import PUBLISHED

FAST_LIMIT = 0.050  # seconds: the fast mode's second time


@dataclass(frozen=True, slots=True)
class Answer:
    """A plan, what the fairness guard measures it against, and what was proven, if anything."""

    plan: Plan
    construction: Plan | None = None
    bound: float | None = None
    status: str = ""


@dataclass(frozen=True, slots=True)
class Planner:
    """`limit` is the time it was given, in seconds, where it was given one."""

    name: str
    run: Callable[[Problem], Answer]
    limit: Callable[[Problem], float | None] = lambda problem: None
    ours: bool = False
    once: bool = False  # too slow to repeat


def baseline(name: str, plan: Callable[[Problem], Plan]) -> Planner:
    return Planner(name, lambda problem: Answer(plan(problem)))


def construction() -> Planner:
    return Planner("construction", lambda problem: _solved(problem, iterations=0), ours=True)


def fast(name: str, limit: Callable[[Problem], float]) -> Planner:
    return Planner(
        name, lambda problem: _solved(problem, time_limit=limit(problem)), limit, ours=True
    )


def full(seconds: float, workers: int) -> Planner:
    return Planner(
        "full",
        lambda problem: _solved(problem, mode="full", time_limit=seconds, workers=workers),
        lambda problem: seconds,
        ours=True,
        once=True,
    )


def all_planners(full_seconds: float = 0, workers: int = 2) -> list[Planner]:
    """In the order of the tables; full mode only where it is given time."""
    found = [
        baseline("fifo", fifo),
        baseline("conservative", conservative),
        baseline("easy", easy),
        baseline("plain", priority_first),
        construction(),
        fast("fast", published_limit),
        fast("fast 50 ms", lambda problem: FAST_LIMIT),
    ]
    return [*found, full(full_seconds, workers)] if full_seconds else found


def warm_up() -> None:
    """What is loaded or compiled once is no plan's time: run everybody on a fleet with budgets and
    runs under way, and on one without."""
    for budgets in (True, False):
        problem = fleet_problem(nodes=8, jobs=30, runs=6 if budgets else 0, budgets=budgets)
        for planner in all_planners():
            planner.run(problem)


def published_limit(problem: Problem) -> float:
    """Seconds that a plan of this size took in the published runs."""
    known = PUBLISHED.get(problem.family)
    published = known.milliseconds if known else 2 if problem.gpus <= 14 else 15
    return published / 1000


def _solved(problem: Problem, **options: object) -> Answer:
    result = solve(problem, **options)  # type: ignore[arg-type]
    return Answer(result.plan, result.construction, result.bound, str(result.status))
