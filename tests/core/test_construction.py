"""What the construction does, situation by situation; every plan is checked as well."""

from collections import Counter
from dataclasses import replace
from typing import Any

import pytest

from allocator.core.check import check
from allocator.core.plan import Assignment, Result
from allocator.core.problem import Drain, Node, Problem
from allocator.core.settings import Settings
from allocator.core.solve import solve
from tests.core.problems import job, problem, run, service, tree

A = Assignment


def built(made: Problem, **fields: Any) -> Result:
    """The construction alone, checked."""
    result = solve(made, iterations=0, **fields)
    assert check(made, result.plan) == ()
    return result


def where(result: Result, name: str) -> tuple[int, int, int] | None:
    """(first GPU, start, end) of a job."""
    found = result.plan.of(name)
    return (found[0].first_gpu, found[0].start, found[0].end) if found else None


def test_the_job_worth_most_starts_first() -> None:
    result = built(problem(job("low", 8, 2, priority=1), job("high", 8, 2, priority=2)))
    assert where(result, "high") == (0, 0, 2)
    assert where(result, "low") == (0, 2, 4)


def test_a_job_too_big_for_what_is_left_holds_up_nobody() -> None:
    made = problem(job("first", 4, 4, priority=9), job("big", 8, 4, priority=8), job("small", 4, 4))
    result = built(made)
    assert where(result, "big") is None
    assert where(result, "small") == (4, 0, 4)


def test_small_work_fills_the_hole_before_a_block() -> None:
    made = problem(
        job("half", 4, 2, priority=9), job("whole", 8, 2, priority=8), job("short", 4, 2)
    )
    result = built(made)
    assert where(result, "whole") == (0, 2, 4)
    assert where(result, "short") == (4, 0, 2)


def test_a_single_gpu_goes_where_it_breaks_no_node() -> None:
    made = problem(
        job("a", 2, 4, priority=9), job("b", 1, 4, priority=8), job("c", 8, 4, priority=7),
        nodes=(8, 8),
    )  # fmt: skip
    result = built(made)
    assert where(result, "c") == (8, 0, 4)


def test_a_job_larger_than_a_node_takes_whole_consecutive_nodes_of_one_pool() -> None:
    made = problem(job("wide", 8, 1))
    nodes = (Node("x", 4, "a"), Node("y", 4, "b"), Node("z", 4, "b"))
    result = built(Problem("p", 2, 30, nodes, made.jobs))
    assert where(result, "wide") == (4, 0, 1)


def test_pools_are_kept() -> None:
    nodes = (Node("x", 4, "a"), Node("y", 4, "b"))
    jobs = (job("only", 4, 1, pools=("b",)), job("any", 4, 1))
    result = built(Problem("p", 2, 30, nodes, jobs))
    assert where(result, "only") == (4, 0, 1)
    assert where(result, "any") == (0, 0, 1)


def test_nothing_is_placed_on_a_drained_node() -> None:
    made = problem(job("j", 8, 2), horizon=6, drains=(Drain("n0", 1, 3),))
    assert where(built(made), "j") == (0, 3, 5)


def test_a_job_ends_inside_the_horizon_unless_it_may_overrun() -> None:
    jobs = (job("now", 8, 2, priority=9), job("long", 8, 9))
    assert where(built(problem(*jobs)), "long") is None
    assert where(built(problem(*jobs, overrun=True)), "long") == (0, 2, 4)


def test_an_arrival_is_awaited() -> None:
    assert where(built(problem(job("j", 8, 1, arrival=2))), "j") == (0, 2, 3)


def test_a_protected_run_keeps_its_block_for_its_whole_remainder() -> None:
    made = problem(run("r", 4, 4, remaining=3, protected=3), job("j", 8, 1, priority=9))
    result = built(made)
    assert where(result, "r") == (4, 0, 3)
    assert where(result, "j") == (0, 3, 4)
    assert result.preemptions == ()


# Real time


def test_real_time_follows_its_curve_in_one_corner() -> None:
    result = built(problem(service("s", [1, 2, 3, 1], swap_cap=2)))
    assert result.plan.realtime["s"] == ((7,), (6, 7), (5, 6, 7), (7,))


def test_real_time_climbs_early_to_meet_a_peak_it_could_not_reach_at_once() -> None:
    """Cap 1: it can't hold more than demand, so a jump of 3 is met one GPU at a time."""
    result = built(problem(service("s", [0, 3, 3, 3], swap_cap=1)))
    assert [len(rows) for rows in result.plan.realtime["s"]] == [0, 1, 2, 3]


def test_real_time_sheds_early_for_a_drop_steeper_than_its_cap() -> None:
    result = built(problem(service("s", [3, 3, 3, 0], swap_cap=1)))
    assert [len(rows) for rows in result.plan.realtime["s"]] == [3, 2, 1, 0]


def test_held_gpus_count_against_the_swap_cap_from_the_first_timestep() -> None:
    made = problem(service("s", [4, 4, 4, 4], swap_cap=1, held=(2,)))
    steps = built(made).plan.realtime["s"]
    assert [len(rows) for rows in steps] == [2, 3, 4, 4]
    assert [2 in rows for rows in steps] == [True, True, True, False]


def test_within_a_timestep_a_steady_service_keeps_its_gpus_whoever_wants_them() -> None:
    """8 GPUs are wanted at once, and the service could be elsewhere at once."""
    serves = service("s", [2] * 5, swap_cap=2, held=(3, 8), priority=0)
    made = problem(replace(serves, steady=True), job("j", 8, 3), nodes=(8, 8), horizon=5)
    assert built(made).plan.realtime["s"][0] == (3, 8)
    for result in (solve(made), solve(made, mode="full", time_limit=5)):
        assert check(made, result.plan) == ()
        assert result.plan.realtime["s"][0] == (3, 8)
        assert result.plan.of("j")[0].start == 1
    at_once = solve(replace(made, jobs=(serves, made.jobs[1])))
    assert at_once.plan.of("j")[0].start == 0


def test_a_steady_service_grows_and_sheds_from_the_next_timestep_on() -> None:
    grows = problem(service("s", [4] * 4, swap_cap=1, held=(2,), steady=True))
    assert [len(rows) for rows in built(grows).plan.realtime["s"]] == [1, 2, 3, 4]
    sheds = service("s", [3, 1, 1, 1], 2, held=(1, 2, 3), steady=True, funded=False)
    result = built(problem(sheds, job("j", 8, 2)))
    assert [len(rows) for rows in result.plan.realtime["s"]] == [3, 1, 0, 0]
    assert where(result, "j") == (0, 2, 4)


SCATTERED = service("s", [3] * 6, swap_cap=1, held=(3, 9, 17))


@pytest.mark.parametrize("mode", [{"iterations": 0}, {}])
def test_a_scattered_service_gathers_in_a_corner_within_its_cap(mode: dict[str, Any]) -> None:
    """One GPU a timestep, lowest first; 16 GPUs become whole again, then 24."""
    made = problem(
        SCATTERED, job("j", 16, 4), job("k", 8, 3), nodes=(8,) * 4, horizon=6, overrun=True
    )
    result = solve(made, **mode)
    assert check(made, result.plan) == ()
    steps = result.plan.realtime["s"]
    assert [sum(gpu < 24 for gpu in rows) for rows in steps] == [2, 1, 0, 0, 0, 0]
    assert all(len(rows) == 3 for rows in steps)
    assert where(result, "j") == (0, 1, 5)


def test_a_service_gathers_once_what_is_in_its_corner_is_over() -> None:
    busy = run("r", 24, 8, remaining=3, protected=3)
    made = problem(SCATTERED, busy, nodes=(8,) * 4, horizon=6)
    steps = built(made).plan.realtime["s"]
    assert steps[:3] == ((3, 9, 17),) * 3
    assert [sum(gpu < 24 for gpu in rows) for rows in steps[3:]] == [2, 1, 0]


def test_a_service_in_its_corner_stays_where_it_is() -> None:
    """Which of the corner's GPUs it holds makes no difference to blocks, and each swap is one."""
    held = (28, 29, 31)
    made = problem(
        service("s", [3, 4, 4, 3, 3, 3], 1, held=held), job("j", 8, 4), nodes=(8,) * 4, horizon=6
    )
    for result in (built(made), solve(made)):
        steps = result.plan.realtime["s"]
        assert steps == (held, *[(28, 29, 30, 31)] * 2, held, held, held)


def test_a_service_whose_cap_its_own_growth_takes_up_gathers_afterwards() -> None:
    made = problem(
        service("s", [2, 3, 4, 4, 4, 4], 1, held=(3,)), job("j", 8, 4), nodes=(8,) * 4, horizon=6
    )
    steps = built(made).plan.realtime["s"]
    assert [3 in rows for rows in steps] == [True, True, True, False, False, False]


def test_real_time_leaves_a_node_before_it_drains() -> None:
    made = problem(
        service("s", [2] * 5, swap_cap=1, held=(8, 9)), nodes=(8, 8), horizon=5,
        drains=(Drain("n1", 2, 5),),
    )  # fmt: skip
    steps = built(made).plan.realtime["s"]
    assert all(len(rows) == 2 for rows in steps)
    assert set(steps[2]) <= set(range(8))


def test_real_time_never_takes_a_protected_runs_gpus() -> None:
    made = problem(run("r", 0, 8, remaining=2, protected=2), service("s", [2, 2, 2, 2], 2))
    steps = built(made).plan.realtime["s"]
    assert [len(rows) for rows in steps] == [0, 0, 2, 2]


def test_a_service_never_takes_what_another_holds() -> None:
    made = problem(
        service("big", [8, 8, 8, 8], 8, priority=9), service("small", [2] * 4, 0, held=(6, 7))
    )
    steps = built(made).plan.realtime
    assert steps["small"] == ((6, 7),) * 4
    assert [len(rows) for rows in steps["big"]] == [6] * 4


def test_an_unfunded_service_is_served_after_funded_work() -> None:
    made = problem(service("s", [4] * 4, 4, funded=False), job("j", 8, 2))
    result = built(made)
    assert where(result, "j") == (0, 0, 2)
    assert [len(rows) for rows in result.plan.realtime["s"]] == [0, 0, 4, 4]


def test_an_unfunded_service_sheds_what_it_holds_at_its_cap() -> None:
    """4 held, 2 shed a timestep: the funded block starts once the last is gone."""
    made = problem(service("s", [4] * 4, 2, held=(4, 5, 6, 7), funded=False), job("j", 8, 2))
    result = built(made)
    assert where(result, "j") == (0, 1, 3)
    assert [len(rows) for rows in result.plan.realtime["s"]] == [2, 0, 0, 2]


def test_a_service_stops_only_the_runs_whose_gpus_it_takes() -> None:
    """One a timestep, for 5 % of 8 GPUs are none and one may always be stopped."""
    runs = [run(f"r{i}", 2 * i, 2, remaining=4, protected=0, funded=False) for i in range(4)]
    result = built(problem(*runs, service("s", [3] * 4, 3, held=())))
    assert [len(rows) for rows in result.plan.realtime["s"]] == [2, 3, 3, 3]
    stops = sorted((stop.timestep, stop.victim) for stop in result.preemptions)
    assert stops == [(0, "r0"), (1, "r1")]


def test_a_service_grows_onto_runs_in_waves_of_5_percent() -> None:
    """64 runs of a GPU each: 3 are 5 %."""
    runs = [run(f"r{i}", i, 1, remaining=8, protected=0, funded=False) for i in range(64)]
    wants = service("s", [40] * 8, 40, held=())
    result = built(problem(*runs, wants, nodes=(8,) * 8, horizon=8))
    assert [len(rows) for rows in result.plan.realtime["s"]] == [3, 6, 9, 12, 15, 18, 21, 24]
    stopped = Counter(stop.timestep for stop in result.preemptions)
    assert stopped == dict.fromkeys(range(8), 3)


# Turns of budgets


def test_the_under_served_leaf_starts_first_whatever_the_others_priority() -> None:
    made = problem(
        job("rich", 8, 2, priority=10, budget="org/a"),
        job("poor", 8, 2, priority=1, budget="org/b"),
        budgets=tree(a=(50, 1000), b=(50, 10)),
    )
    result = built(made)
    assert where(result, "poor") == (0, 0, 2)
    assert where(result, "rich") == (0, 2, 4)


def test_leaves_take_turns_as_the_plan_gives() -> None:
    jobs = [job(f"{leaf}{i}", 8, 1, budget=f"org/{leaf}") for leaf in "ab" for i in range(2)]
    made = problem(*jobs, budgets=tree(a=(50, 100), b=(50, 100)))
    result = built(made)
    order = sorted(result.plan.assignments, key=lambda a: a.start)
    assert [a.job for a in order] == ["a0", "b0", "a1", "b1"]


def test_funded_work_comes_before_unfunded() -> None:
    made = problem(
        job("free", 8, 2, priority=10, funded=False, budget="org/b"),
        job("paid", 8, 2, priority=1, budget="org/a"),
        budgets=tree(a=(50, 1000), b=(50, 0)),
    )
    assert where(built(made), "paid") == (0, 0, 2)
    assert where(built(made), "free") == (0, 2, 4)


# Preemption


def contested(used_by_runs: int, used_by_waits: int, **fields: Any) -> Problem:
    """Leaf `runs` holds all 8 GPUs, unprotected; leaf `waits` asks for 8 for 2 timesteps."""
    running = run("r", 0, 8, remaining=4, protected=0, budget="org/runs")
    waiting = job("w", 8, 2, budget="org/waits")
    budgets = tree(runs=(50, used_by_runs), waits=(50, used_by_waits))
    given: dict[str, Any] = {"budgets": budgets, "horizon": 8, **fields}
    return problem(running, waiting, **given)


def test_a_more_deserving_job_stops_an_unprotected_run_whose_rest_comes_later() -> None:
    result = built(contested(used_by_runs=90_000, used_by_waits=0))
    assert where(result, "w") == (0, 0, 2)
    assert where(result, "r") is None
    assert where(result, "r+") == (0, 2, 6)
    (stopped,) = result.preemptions
    assert (stopped.victim, stopped.preemptor, stopped.timestep) == ("r", "w", 0)
    assert stopped.victim_share is not None
    assert stopped.preemptor_share is not None
    assert (stopped.victim_share.path, stopped.victim_share.inside) == ("org/runs", False)
    assert (stopped.preemptor_share.path, stopped.preemptor_share.inside) == ("org/waits", True)
    assert stopped.victim_share.usage == 90_000
    assert stopped.victim_share.siblings_usage == 90_000


def test_a_run_inside_its_entitlement_is_not_stopped_by_a_job_outside_its_own() -> None:
    """Both are entitled to 57,600; the waiting leaf outranks but is over, the runs are not."""
    made = contested(used_by_runs=40_000, used_by_waits=0)
    leaves = [
        b if b.path != "org/waits" else type(b)(b.path, b.parent, b.shares, 0, entitled=1)
        for b in made.budgets
    ]
    result = built(contested(40_000, 0, budgets=tuple(leaves)))
    assert where(result, "r") == (0, 0, 4)
    assert where(result, "w") == (0, 4, 6)
    assert result.preemptions == ()


def test_a_run_within_ten_percent_stays() -> None:
    result = built(contested(used_by_runs=105_000, used_by_waits=100_000))
    assert where(result, "r") == (0, 0, 4)


def test_an_unfunded_run_gives_way_to_funded_work_of_any_leaf() -> None:
    running = run("r", 0, 8, remaining=4, protected=0, budget="org/a", funded=False)
    waiting = job("w", 8, 2, budget="org/b")
    made = problem(running, waiting, budgets=tree(a=(50, 0), b=(50, 10**6)), horizon=8)
    result = built(made)
    assert where(result, "w") == (0, 0, 2)
    assert where(result, "r+") == (0, 2, 6)
    assert result.preemptions[0].victim_share is None


def test_a_budget_that_stopped_a_job_lately_does_not_stop_it_again() -> None:
    """Its other siblings may."""
    for shielded, starts in ((("org/b",), 4), (("org/c",), 0)):
        held = run("held", 0, 8, remaining=4, protected=0, budget="org/a")
        assert held.running is not None
        held = replace(held, running=replace(held.running, shielded=shielded))
        made = problem(
            held, job("asks", 8, 2, budget="org/b"), horizon=8,
            budgets=tree(a=(40, 10**6), b=(40, 0), c=(20, 0)),
        )  # fmt: skip
        assert where(built(made), "asks") == (0, starts, starts + 2)
        assert Problem.from_dict(made.to_dict()) == made


def test_a_job_that_changed_places_with_a_run_does_not_stop_it_again() -> None:
    """Another job of its budget may, also where both ask in the same plan."""
    held = run("held", 0, 8, remaining=6, protected=0, budget="org/a")
    assert held.running is not None
    held = replace(held, running=replace(held.running, barred=("asks", "gone")))
    asks, other = (job(name, 8, 2, budget="org/b") for name in ("asks", "other"))
    budgets = tree(a=(50, 10**6), b=(50, 0))
    alone = problem(held, asks, horizon=8, budgets=budgets)
    assert where(built(alone), "asks") == (0, 6, 8)
    assert Problem.from_dict(alone.to_dict()) == alone
    both = built(problem(held, asks, other, horizon=8, budgets=budgets))
    assert where(both, "other") == (0, 0, 2)
    assert [(p.victim, p.preemptor) for p in both.preemptions] == [("held", "other")]
    free = problem(replace(held, funded=False), asks, horizon=8, budgets=budgets)
    assert where(built(free), "asks") == (0, 0, 2)


def test_unfunded_runs_are_stopped_before_funded_ones() -> None:
    budgets = tree(a=(50, 10**6), b=(50, 0))
    made = problem(
        run("paid", 0, 4, remaining=4, protected=0, budget="org/a"),
        run("free", 4, 4, remaining=4, protected=0, budget="org/a", funded=False, priority=9),
        job("w", 4, 4, budget="org/b"),
        budgets=budgets,
    )
    result = built(made)
    assert where(result, "w") == (4, 0, 4)
    assert where(result, "paid") == (0, 0, 4)


def test_free_gpus_are_taken_before_any_run_is_stopped() -> None:
    made = problem(
        run("free", 0, 4, remaining=4, protected=0, budget="org/a", funded=False),
        job("w", 4, 4, budget="org/b"),
        budgets=tree(a=(50, 10**6), b=(50, 0)),
    )
    result = built(made)
    assert where(result, "w") == (4, 0, 4)
    assert result.preemptions == ()


def test_unfunded_work_stops_nobody() -> None:
    running = run("r", 0, 8, remaining=4, protected=0, budget="org/a", funded=False)
    waiting = job("w", 8, 2, budget="org/b", funded=False)
    made = problem(running, waiting, budgets=tree(a=(50, 10**6), b=(50, 0)), horizon=8)
    assert where(built(made), "r") == (0, 0, 4)


def test_protection_is_kept_and_its_end_is_when_the_run_may_be_stopped() -> None:
    running = run("r", 0, 8, remaining=6, protected=3, budget="org/a")
    made = problem(
        running, job("w", 8, 2, budget="org/b"), horizon=9,
        budgets=tree(a=(50, 10**6), b=(50, 0)),
    )  # fmt: skip
    result = built(made)
    assert where(result, "r") == (0, 0, 3)
    assert where(result, "w") == (0, 3, 5)
    assert where(result, "r+") == (0, 5, 8)
    assert result.preemptions[0].timestep == 3


@pytest.mark.parametrize(("percent", "stopped"), [(5, 1), (20, 1), (25, 2), (100, 4)])
def test_a_cycle_stops_few_gpus_but_always_one_block(percent: int, stopped: int) -> None:
    """Four runs of 8 GPUs could go; one always may, more only within the percent of 64."""
    runs = [
        run(f"r{i}", 8 * i, 8, remaining=4, protected=0, budget="org/a", funded=False)
        for i in range(8)
    ]
    waits = [job(f"w{i}", 8, 4, budget="org/b") for i in range(4)]
    made = problem(*runs, *waits, nodes=(8,) * 8, budgets=tree(a=(50, 10**6), b=(50, 0)))
    result = built(made, settings=Settings(preempted_percent=percent))
    assert sum(p.timestep == 0 for p in result.preemptions) == stopped


def test_a_run_whose_node_drains_stops_there_and_comes_back_elsewhere() -> None:
    made = problem(
        run("r", 0, 8, remaining=4, protected=1), nodes=(8, 8), horizon=8,
        drains=(Drain("n0", 2, 8),),
    )  # fmt: skip
    result = built(made)
    assert where(result, "r") == (0, 0, 2)
    assert where(result, "r+") == (8, 3, 5)
    assert (result.preemptions[0].victim, result.preemptions[0].preemptor) == ("r", None)


def test_real_time_grows_onto_an_unfunded_run() -> None:
    made = problem(
        run("r", 0, 8, remaining=4, protected=0, funded=False),
        service("s", [2, 2, 2, 2], swap_cap=2, held=()),
    )
    result = built(made)
    assert [len(rows) for rows in result.plan.realtime["s"]] == [2] * 4
    assert result.preemptions[0].preemptor == "s"
