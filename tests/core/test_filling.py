"""Gaps in front of planned starts are filled with work that may be stopped by then."""

from dataclasses import replace
from random import Random

from allocator.core.check import check, check_guard
from allocator.core.compiled.moving import move_aside
from allocator.core.heuristic import Construction
from allocator.core.improve import Improver
from allocator.core.plan import Assignment, Result
from allocator.core.problem import BatchJob, Problem
from allocator.core.solve import solve
from tests.core.problems import job, problem, run, service, tree


def planned(*waiting: BatchJob, protected: int = 4) -> Result:
    """Two nodes of 8; the second is held and protected, so 16 GPUs are free from there on."""
    held = run("held", 8, 8, remaining=protected, protected=protected, budget="org/a")
    large = job("large", 16, 6, priority=9, budget="org/b")
    jobs = (held, large, *waiting)
    whole = problem(
        *jobs, nodes=(8, 8), horizon=16, overrun=True, budgets=tree(a=(50, 10**6), b=(50, 0))
    )
    result = solve(whole, iterations=20)
    assert not check(whole, result.plan)
    assert not check_guard(whole, result.plan, result.construction)
    return result


def starts(result: Result) -> dict[str, int]:
    return {a.job: a.start for a in result.plan.assignments}


def due(result: Result, name: str) -> int | None:
    return next(reason.start for reason in result.reasons if reason.job == name)


def test_gpus_that_wait_for_a_large_start_run_what_may_be_stopped_by_then():
    result = planned(job("small", 8, 10, minimum=4, budget="org/a"))
    assert starts(result)["small"] == 0
    assert due(result, "large") == 4


def test_what_is_protected_beyond_the_planned_start_does_not_fill_the_gap():
    result = planned(job("small", 8, 10, minimum=5, budget="org/a"))
    assert starts(result)["large"] == 4
    assert starts(result)["small"] > 0


def test_what_can_t_come_back_does_not_fill_a_gap():
    result = planned(job("small", 8, 10, budget="org/a"))
    assert starts(result)["large"] == 4
    assert starts(result)["small"] > 0


def test_a_second_filler_is_measured_against_the_start_that_was_planned_too():
    """Behind the first filler the large job is planned late; that is no licence for the second."""
    first = job("first", 4, 10, minimum=4, priority=5, budget="org/a")
    second = job("second", 4, 10, minimum=5, priority=1, budget="org/a")
    result = planned(first, second)
    assert starts(result)["first"] == 0
    assert starts(result).get("second") != 0
    assert due(result, "large") == 4


def test_the_older_and_better_entitled_fills_first():
    result = planned(
        job("poor", 8, 10, minimum=2, priority=2, budget="org/a"),
        job("rich", 8, 10, minimum=2, priority=1, budget="org/b"),
    )
    assert (starts(result)["rich"], starts(result).get("poor") == 0) == (0, False)


def test_filled_plans_are_legal_and_nothing_is_protected_beyond_what_was_due():
    """Random machines full of runs, large jobs that wait for them, small ones that may fill."""
    filled = 0
    for seed in range(150):
        whole = crowded(Random(seed))
        result = solve(whole, iterations=10, seed=seed)
        assert not check(whole, result.plan)
        assert not check_guard(whole, result.plan, result.construction)
        construction = Construction(whole)
        construction.build()
        if construction.filled:
            bare = Construction(without_minimum(whole))
            filled += fillers_that_leave_in_time(result, bare.build().assignments, bare, whole)
    assert filled > 20, "hardly a gap was filled: the test proves little"


def crowded(rng: Random) -> Problem:
    jobs = []
    for node in range(4):
        left = rng.randint(1, 9)
        jobs.append(run(f"run{node}", 8 * node, rng.choice([2, 4, 8]), left, left, budget="org/a"))
    for number in range(12):
        length = rng.randint(1, 20)
        minimum = rng.choice([None, 1, rng.randint(1, length)])
        fields = {"priority": rng.randint(1, 9), "budget": rng.choice(["org/a", "org/b"])}
        gpus = rng.choice([1, 2, 4, 8, 16, 32])
        jobs.append(job(f"j{number:02}", gpus, length, minimum=minimum, **fields))
    used = rng.choice([0, 10**6]), rng.choice([0, 10**6])
    budgets = tree(a=(50, used[0]), b=(50, used[1]))
    return problem(*jobs, nodes=(8,) * 4, horizon=24, overrun=True, budgets=budgets)


def without_minimum(whole: Problem) -> Problem:
    return replace(whole, jobs=tuple(replace(one, minimum=None) for one in whole.batch))


def fillers_that_leave_in_time(
    result: Result, before: list[Assignment], bare: Construction, whole: Problem
) -> int:
    """How many there are; each one's minimum ends before what came before it was due there."""
    at_once = {a.job for a in before if a.start == 0}
    fillers = [a for a in result.plan.assignments if a.start == 0 and a.job not in at_once]
    minimum = {one.name: one.minimum for one in whole.batch}
    place = {item.name: at for at, item in enumerate(bare.items)}
    now = {filler.job for filler in fillers}
    for filler in fillers:
        least = minimum[filler.job]
        assert least is not None
        last = filler.first_gpu + filler.gpus
        for other in before:
            meets = other.first_gpu < last and filler.first_gpu < other.first_gpu + other.gpus
            after = place.get(other.job, -1) > place[filler.job]
            assert not meets or after or other.job in now or other.start >= least
    return len(fillers)


def test_services_can_move_aside_where_a_gap_was_filled() -> None:
    """What starts now stays; that doesn't take every GPU's first timestep from the services."""
    made = problem(
        run("run", 0, 4, remaining=3, protected=3), job("big", 8, 6, priority=9),
        replace(job("f", 4, 8), minimum=2), service("s", [1, 2, 3, 2] * 6),
        *(job(f"j{i}", 1 << i % 3, 8 + i % 5, priority=1 + i % 4) for i in range(8)),
        nodes=(8, 3), horizon=24,
    )  # fmt: skip
    construction = Construction(made)
    construction.build()
    assert construction.filled
    improver = Improver(construction, seed=0)
    improver.run(1)
    rows, desk = improver.without.rows.copy(), improver.desk
    assert move_aside(improver.fleet, improver.services, rows, desk.serving, improver.room)
    later = solve(made)
    now = {a for a in later.construction.assignments if a.start == 0}
    assert now == {a for a in later.plan.assignments if a.start == 0}
