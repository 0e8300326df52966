"""Full mode: against brute force on tiny problems, legal and bounded on random ones, never late."""

import math
import time
from collections.abc import Iterator
from dataclasses import replace
from itertools import combinations, product
from random import Random
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from ortools.sat.python import cp_model

from allocator.core import exact
from allocator.core.bound import priced_bound
from allocator.core.check import Broken, Violation, check, check_guard, objective
from allocator.core.crosscheck import legal_block
from allocator.core.exact_frame import blocked_starts, frame_of
from allocator.core.exact_search import Search
from allocator.core.exact_solver import Clock
from allocator.core.heuristic import Construction
from allocator.core.plan import Assignment, Plan, Result, Status
from allocator.core.problem import BatchJob, Problem, RealtimeJob
from allocator.core.solve import solve
from allocator.core.windows import Windows
from benchmarks.fleets import fleet_problem
from benchmarks.scenarios import family_problem
from tests.core.problems import SEEDED, job, problem, random_problem, run, service, tree


def full(made: Problem, limit: float = 20, **arguments: Any) -> Result:
    """Full mode from a fast plan of a few passes."""
    return solve(made, mode="full", time_limit=limit, **({"iterations": 2} | arguments))


def assert_sound(made: Problem, result: Result) -> None:
    """Legal, guarded, worth what it says, and not above its bound."""
    assert check(made, result.plan) == ()
    assert check_guard(made, result.plan, result.construction) == ()
    assert result.objective == pytest.approx(objective(made, result.plan))
    assert result.bound is not None
    assert result.bound >= result.objective - 1e-9 * abs(result.objective)


# Against brute force


def best_value(made: Problem) -> float:
    """The optimum: every placement of the jobs, and for each the best sets of the one service."""
    best = -math.inf
    for placed in product(*(list(_places(made, waits)) for waits in made.batch)):
        chosen = tuple(a for a in placed if a is not None)
        plan = Plan(made.gpus, made.horizon, chosen, {})
        free = [
            frozenset(range(made.gpus)).difference(
                *(range(a.first_gpu, a.first_gpu + a.gpus) for a in chosen if a.start <= t < a.end)
            )
            for t in range(made.horizon)
        ]
        cells = sum(a.gpus * (a.end - a.start) for a in chosen)
        if cells + sum(map(len, free)) == made.gpus * made.horizon:  # no two jobs collide
            value = objective(made, replace(plan, realtime={}))
            served = sum(_most_served(service, free) for service in made.realtime)
            best = max(best, value + made.shortfall_penalty * served)
    return best


def _places(made: Problem, waits: BatchJob) -> Iterator[Assignment | None]:
    yield None
    for first in range(made.gpus):
        for start in range(waits.arrival, made.horizon):
            end = min(start + waits.duration, made.horizon)
            fits = made.overrun or end - start == waits.duration
            if fits and legal_block(made, first, waits.gpus):
                yield Assignment(waits.name, first, waits.gpus, start, end)


def _most_served(service: RealtimeJob, free: list[frozenset[int]]) -> float:
    """Priority x GPU-timesteps, by dynamic programming over sets of GPUs."""
    held = None if service.held is None else frozenset(service.held)
    reach: dict[frozenset[int] | None, int] = {held: 0}
    for t, (gpus, wanted) in enumerate(zip(free, service.demand, strict=True)):
        cap = service.cap_into(t)
        sets = [frozenset(s) for n in range(wanted + 1) for s in combinations(gpus, n)]
        after: dict[frozenset[int] | None, int] = {}
        for (before, total), now in product(reach.items(), sets):
            few = before is None or max(len(now - before), len(before - now)) <= cap
            if few:
                after[now] = max(after.get(now, -1), total + len(now))
        reach = after
    return service.priority * max(reach.values())


def tiny_problem(rng: Random) -> Problem:
    """At most 4 GPUs, 4 timesteps, 3 jobs and a service."""
    nodes = rng.choice([(4,), (3,), (2, 2), (1, 2), (2, 1, 1)])
    horizon, gpus = rng.randint(2, 4), sum(nodes)
    jobs = [
        job(
            f"j{i}",
            rng.choice([n for n in (1, 2, 4) if n <= gpus]),
            rng.randint(1, 3),
            priority=rng.choice([1, 2, 3, 7]),
            arrival=rng.choice([0, 0, 1]),
        )
        for i in range(rng.randint(1, 3))
    ]
    demand = [rng.randint(0, min(3, gpus)) for _ in range(horizon)]
    serves = service("s", demand, rng.choice([0, 1, 1, 2]), priority=rng.choice([0.25, 1, 3]))
    fields = {"overrun": rng.random() < 0.5, "time_decay": rng.choice([0.5, 0.9, 1.0])}
    return problem(*jobs, serves, nodes=nodes, horizon=horizon, **fields)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(SEEDED)
def test_on_tiny_problems_the_answer_is_the_optimum(rng: Random) -> None:
    made = tiny_problem(rng)
    result = full(made)
    assert_sound(made, result)
    assert result.status is Status.OPTIMAL
    assert result.objective == pytest.approx(best_value(made), abs=1e-3)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(SEEDED)
def test_the_bound_by_prices_is_never_below_the_optimum(rng: Random) -> None:
    made = tiny_problem(rng)
    construction = Construction(made)
    construction.build()
    bound = priced_bound(frame_of(construction), -1e9, lambda: False)
    assert bound >= best_value(made) - 1e-9


def test_a_service_goes_short_where_the_whole_fleet_is_worth_more() -> None:
    """8 GPUs x 10 for two timesteps against 2 x 8 x 1 of shortfall in each."""
    made = problem(
        job("whole", 8, 2, priority=10), service("s", [2, 2, 2, 2], 2), horizon=4, time_decay=1
    )
    result = full(made)
    assert result.status is Status.OPTIMAL
    assert result.objective == pytest.approx(8 * 2 * 10 - 8 * 2 * 2)


def test_services_move_aside_gpu_by_gpu_for_a_block() -> None:
    """It holds the middle four of 8 and may swap one per timestep: a half is free from 1 on."""
    made = problem(
        job("half", 4, 3, priority=9),
        service("s", [4, 4, 4, 4], 1, held=(2, 3, 4, 5), priority=9),
        horizon=4,
        time_decay=1,
    )
    result = full(made)
    assert result.status is Status.OPTIMAL
    assert result.objective == pytest.approx(4 * 3 * 9)
    assert next(a.start for a in result.plan.assignments) == 1


# Random problems


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(SEEDED)
def test_every_plan_is_legal_guarded_bounded_and_no_worse_than_fast(rng: Random) -> None:
    made = random_problem(rng)
    fast = solve(made, iterations=2)
    result = full(made, limit=2)
    assert_sound(made, result)
    assert result.status in (Status.OPTIMAL, Status.FEASIBLE, Status.NO_SOLUTION)
    assert result.objective >= fast.objective - 1e-9


@pytest.mark.parametrize("family", ["mixed-control", "large-mixed", "training-heavy"])
def test_small_families_are_proven_in_seconds(family: str) -> None:
    for seed in range(2):
        made = family_problem(family, seed)
        result = full(made, limit=30)
        assert_sound(made, result)
        assert result.status is Status.OPTIMAL


def test_budgets_runs_and_drains_are_kept_on_a_fleet_in_windows() -> None:
    made = fleet_problem(nodes=16, jobs=80, runs=20, seed=4)
    result = full(made, limit=6)
    assert_sound(made, result)
    assert result.objective >= solve(made, iterations=2).objective - 1e-9


def test_of_two_equal_jobs_of_a_leaf_the_older_starts_first() -> None:
    for seed in range(6):
        rng = Random(seed)
        kinds = [(rng.choice([1, 2, 4]), rng.choice([1, 2, 3]), rng.randint(1, 3)) for _ in "ab"]
        jobs = [
            job(f"j{n:02}", gpus, length, priority=value, budget="org/a")
            for n, (gpus, length, value) in enumerate(rng.choice(kinds) for _ in range(12))
        ]
        made = problem(*jobs, nodes=(4, 4), horizon=8, budgets=tree(a=(100, 0)))
        start = {a.job: a.start for a in full(made).plan.assignments}
        for older, younger in combinations(jobs, 2):
            if replace(older, name="x") == replace(younger, name="x"):
                assert start.get(older.name, 99) <= start.get(younger.name, 99)


# Repeatable, in time


@pytest.mark.parametrize(
    "made", [family_problem("large-mixed", 3), family_problem("scale-test", 1)]
)
def test_one_worker_and_a_seed_repeat_themselves(made: Problem) -> None:
    one, other = (full(made, limit=60, seed=5) for _ in range(2))
    assert one.status is other.status is Status.OPTIMAL
    assert one.plan == other.plan


def test_the_time_limit_is_kept_from_a_small_problem_to_a_fleet() -> None:
    fleet = fleet_problem(nodes=64, jobs=600, runs=80, seed=1)
    solve(fleet, iterations=0)  # compiled code is loaded before the clock runs
    for made, limit in ((fleet, 4.0), (family_problem("scale-test", 2), 0.5)):
        assert any(_in_time(made, limit) for _ in range(4))


def _in_time(made: Problem, limit: float) -> bool:
    """Whether one solve kept within a tenth of its limit. A busy machine may hold it up once or
    twice; what really overruns does so each time."""
    started = time.perf_counter()
    result = full(made, limit=limit)
    took = time.perf_counter() - started
    assert_sound(made, result)
    return took <= 1.1 * limit


def test_no_time_at_all_still_gives_a_bound() -> None:
    made = family_problem("scale-test", 1)
    result = full(made, limit=0)
    assert result.status is Status.NO_SOLUTION
    assert_sound(made, result)


# Failures


def test_a_solver_that_raises_keeps_fasts_plan_and_the_bound(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def broken(*_: object) -> None:
        raise RuntimeError("out of memory")

    monkeypatch.setattr(Clock, "_solver", broken)
    made = family_problem("mixed-control", 1)
    result = full(made)
    assert (result.status, result.plan) == (Status.SOLVER_FAILED, solve(made, iterations=2).plan)
    assert_sound(made, result)


def test_a_solver_that_finds_nothing_is_a_status(monkeypatch: pytest.MonkeyPatch) -> None:
    def nothing(*_: object) -> tuple[cp_model.CpSolver, cp_model.CpSolverStatus]:
        return cp_model.CpSolver(), cp_model.UNKNOWN

    monkeypatch.setattr(Clock, "solve", nothing)
    made = family_problem("mixed-control", 1)
    result = full(made, limit=2)
    assert result.status is Status.NO_SOLUTION
    assert_sound(made, result)


def test_a_plan_that_fails_the_check_is_rejected(monkeypatch: pytest.MonkeyPatch) -> None:
    def illegal(*_: object) -> tuple[Violation, ...]:
        return (Violation(Broken.BLOCK, "j", "no block"),)

    monkeypatch.setattr(exact, "check", illegal)
    made = family_problem("large-mixed", 1)
    result = full(made)
    assert (result.status, result.plan) == (Status.REJECTED, solve(made, iterations=2).plan)
    assert_sound(made, result)


# Parts


@pytest.mark.slow
def test_windows_fill_an_empty_fleet_and_keep_what_is_outside() -> None:
    """From a plan that places nothing; what gains is legal, window after window."""
    rng = Random(3)
    jobs = [job(f"j{i}", rng.choice([1, 4, 8, 16]), rng.randint(1, 4)) for i in range(16)]
    made = problem(*jobs, service("s", [3] * 6, 2), nodes=(8,) * 8, horizon=6)
    construction = Construction(made)
    construction.build()
    fast = solve(made, iterations=0)
    clock = Clock(600.0, lambda: 0.0, 0, 1)
    plan = replace(fast.plan, assignments=())
    search = Search(frame_of(construction), fast.construction, plan, math.inf, clock)
    before, windows = search.value, Windows(search, seed=1)
    for patience in (1, 2, 3):
        windows.run(patience)
        assert check(made, search.best) == ()
        assert search.value == pytest.approx(objective(made, search.best))
    assert windows.tried > 3
    assert search.value > before
    assert len(search.best.assignments) > 8


def test_a_block_that_spans_two_stretches_of_a_window_stays() -> None:
    """A window may be two stretches with nodes between; a job across all three is not inside."""
    made = problem(job("wide", 128, 2), *(job(f"j{i}", 8, 2) for i in range(8)), nodes=(8,) * 24)
    construction = Construction(made)
    construction.build()
    fast = solve(made, iterations=0)
    clock = Clock(600.0, lambda: 0.0, 0, 1)
    search = Search(frame_of(construction), fast.construction, fast.plan, math.inf, clock)
    wide = next(a for a in fast.plan.assignments if a.job == "wide")
    ends = {*range(wide.first_gpu, wide.first_gpu + 8), *range(120, 136)}
    ends |= {wide.first_gpu + 127}
    assert "wide" not in Windows(search, seed=1)._names(ends)
    windows = Windows(search, seed=1)
    windows.run(patience=12)
    assert windows.tried >= 12
    assert check(made, search.best) == ()


def test_starts_are_blocked_as_counted_one_by_one() -> None:
    rng = Random(1)
    for _ in range(200):
        busy, length = rng.getrandbits(20), rng.randint(1, 24)
        blocked = blocked_starts(busy, length)
        for start in range(20):
            assert bool(blocked >> start & 1) == bool(busy >> start & ((1 << length) - 1))


def test_huge_priorities_stay_inside_the_solvers_integers() -> None:
    made = problem(
        job("a", 8, 3, priority=1e9), job("b", 4, 2, priority=1e8),
        service("s", [1, 1, 2, 2], priority=1e9),
    )  # fmt: skip
    result = full(made)
    assert_sound(made, result)
    assert result.status is Status.OPTIMAL


def test_a_protected_run_stays_in_the_way() -> None:
    made = problem(run("r", 0, 4, 2, 2), job("whole", 8, 2, priority=5), horizon=4, time_decay=1)
    result = full(made)
    assert result.status is Status.OPTIMAL
    assert result.objective == pytest.approx(4 * 2 + 8 * 2 * 5)


def test_whole_numbers_are_as_good_as_others() -> None:
    """A decay of 1 and priorities of 1 are integers in a file; prices are not."""
    made = problem(*(job(f"j{i}", 1, 3) for i in range(3)), nodes=(1,), time_decay=1)
    result = full(made)
    assert (result.status, result.objective, result.failure) == (Status.OPTIMAL, 3, "")


@pytest.mark.parametrize("seed", [0, 2**31 - 1])
def test_every_seed_that_is_taken_is_one_for_the_solver(seed: int) -> None:
    result = full(tiny_problem(Random(7)), seed=seed, iterations=0)
    assert result.status == Status.OPTIMAL, result.failure


@pytest.mark.parametrize("times", [1e-8, 1e-3, 1e6])
def test_best_means_best_however_small_or_large_values_are(times: float) -> None:
    """Units are rounded to a part of the value, not to a part of 1."""
    jobs = [job(f"j{i}", 1 + i % 2, 3 + i % 4, priority=(1 + i % 5) * times) for i in range(14)]
    made = problem(*jobs, nodes=(4,), horizon=12)
    result, searched = full(made, iterations=0), solve(made, iterations=20_000)
    assert result.status == Status.OPTIMAL
    assert result.bound is not None
    assert result.bound <= result.objective * (1 + 2e-4)
    assert searched.objective <= result.bound


def test_nothing_is_called_best_that_rounding_could_hide_a_better_plan_from() -> None:
    """One service is worth a billion times what the jobs are, so units are coarse for those."""
    jobs = [job(f"j{i}", 1 << i % 3, 3 + i % 7, priority=1 + i % 5) for i in range(40)]
    huge = service("s", [0] * 47 + [1], priority=1e9)
    made = problem(huge, *jobs, horizon=48, shortfall_penalty=1000)
    result = full(made, limit=2, iterations=0)
    assert result.bound is not None
    gap = (result.bound - result.objective) / result.bound
    assert result.status == (Status.OPTIMAL if gap <= 1e-4 else Status.FEASIBLE)


def test_what_a_solver_raises_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*arguments: object) -> float:
        raise RuntimeError("no memory")

    monkeypatch.setattr(exact, "priced_bound", broken)
    result = full(tiny_problem(Random(3)))
    assert (result.status, result.failure) == (Status.SOLVER_FAILED, "RuntimeError: no memory")
