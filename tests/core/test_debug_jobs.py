"""Debug jobs that would wait start beside all else, or in place of their own budget's runs."""

from dataclasses import replace
from random import Random
from typing import Any

import pytest

from allocator.core.check import check, check_guard
from allocator.core.plan import Cause, Result
from allocator.core.problem import BatchJob, Problem
from allocator.core.settings import Settings
from allocator.core.solve import solve
from tests.core.problems import job, problem, run, tree


def debug(name: str, gpus: int = 4, length: int = 1, **more: Any) -> BatchJob:
    made = job(name, gpus, length, **({"budget": "org/a"} | more))
    return replace(made, debug=True)


def own(name: str, first: int, gpus: int = 4, **more: Any) -> BatchJob:
    """A run over its protection that can resume."""
    given: dict[str, Any] = {"remaining": 40, "protected": 0, "budget": "org/a"} | more
    given.setdefault("minimum", min(4, given["remaining"]))
    told = {key: given.pop(key) for key in ("shielded", "barred", "ahead") if key in given}
    made = run(name, first, gpus, **given)
    assert made.running is not None
    return replace(made, running=replace(made.running, **told))


def plan(*jobs: BatchJob, nodes: tuple[int, ...] = (8,), iterations: int = 0) -> Result:
    """Budget a has used much more than b, so its turn comes last."""
    whole = problem(
        *jobs, nodes=nodes, horizon=16, overrun=True, budgets=tree(a=(50, 10**9), b=(50, 0))
    )
    return solved(whole, iterations)


def solved(whole: Problem, iterations: int = 0) -> Result:
    result = solve(whole, iterations=iterations)
    assert not check(whole, result.plan)
    assert not check_guard(whole, result.plan, result.construction)
    return result


def now(result: Result) -> set[str]:
    return {a.job for a in result.plan.assignments if a.start == 0}


def test_it_takes_the_place_of_a_run_of_its_own_budget_which_goes_on_behind_it():
    result = plan(own("long", 0), own("other", 4, budget="org/b"), debug("probe"))
    assert now(result) == {"other", "probe"}
    (stop,) = result.preemptions
    assert (stop.victim, stop.preemptor, stop.timestep) == ("long", "probe", 0)
    assert (stop.cause, stop.victim_share) == (Cause.DEBUG, None)
    (rest,) = result.plan.of("long+")
    assert (rest.first_gpu, rest.start, rest.end) == (0, 1, 16), "where it stood, right behind"


def test_improvement_keeps_it():
    result = plan(own("long", 0), own("other", 4, budget="org/b"), debug("probe"), iterations=50)
    assert now(result) == {"other", "probe"}


@pytest.mark.parametrize(
    "kept",
    [
        {"budget": "org/b"},
        {"protected": 1},
        {"minimum": None},
        {"barred": ("probe",)},
    ],
    ids=["another budget's", "protected", "can't resume", "changed places"],
)
def test_it_takes_no_other_place(kept):
    result = plan(own("long", 0, 8, **kept), debug("probe"))
    assert now(result) == {"long"}
    assert not result.preemptions


def test_it_starts_beside_runs_where_it_can_be_over_before_others_are_due():
    held = own("held", 4, protected=4, remaining=4)
    large = job("large", 8, 10, budget="org/b")
    long = own("long", 0, 2)
    result = plan(held, long, large, debug("probe", 2, 4))
    assert {"held", "long", "probe"} <= now(result)
    assert not [stop for stop in result.preemptions if stop.cause == Cause.DEBUG]


def test_the_run_that_gives_up_fewest_gpus_does():
    result = plan(own("wide", 0, 8), own("small", 8, 2), own("other", 10, 2), debug("probe", 2),
                  own("rest", 12, 4, budget="org/b"), nodes=(8, 8))  # fmt: skip
    (stop,) = result.preemptions
    assert stop.victim == "small"


def test_of_one_budget_at_most_16_gpus_are_ahead_of_its_order():
    runs = [own(f"long{n}", 8 * n, 8) for n in range(4)]
    probes = [debug(f"probe{n}", 8) for n in range(4)]
    whole = problem(
        *runs, *probes, nodes=(8,) * 4, horizon=16, overrun=True, budgets=tree(a=(50, 0), b=(50, 0))
    )
    result = solve(whole, iterations=0, settings=Settings(preempted_percent=100))
    assert now(result) & {probe.name for probe in probes} == {"probe0", "probe1"}


def test_those_that_run_ahead_already_count():
    running = own("ahead", 0, 8, remaining=1, protected=1, ahead=True)
    runs = [running, *(own(f"long{n}", 8 * n, 8) for n in (1, 2, 3))]
    probes = [debug(f"probe{n}", 8) for n in range(2)]
    whole = problem(
        *runs, *probes, nodes=(8,) * 4, horizon=16, overrun=True, budgets=tree(a=(50, 0), b=(50, 0))
    )
    result = solve(whole, iterations=0, settings=Settings(preempted_percent=100))
    assert now(result) & {"probe0", "probe1"} == {"probe0"}


def test_it_goes_ahead_of_its_budget_s_own_start_and_nothing_is_stopped():
    """The block is free, and the older job of the same budget would have it."""
    waits = job("waits", 8, 10, budget="org/a", priority=9)
    result = plan(waits, debug("probe", 8))
    assert now(result) == {"probe"}
    assert not result.preemptions
    (behind,) = result.plan.of("waits")
    assert (behind.start, behind.first_gpu) == (1, 0)


def test_it_goes_ahead_of_no_other_budget_s_start():
    waits = job("waits", 8, 10, budget="org/b")
    assert now(plan(waits, debug("probe", 8))) == {"waits"}


def test_for_the_place_of_a_start_all_debug_jobs_that_run_count():
    running = [
        replace(own(f"r{n}", 8 * n, 8, remaining=1, protected=1), debug=True) for n in (0, 1)
    ]
    waits = job("waits", 8, 10, budget="org/a", priority=9)
    result = plan(*running, waits, debug("probe", 8), nodes=(8,) * 3)
    assert "waits" in now(result)
    assert "probe" not in now(result)


def test_stops_for_debug_jobs_count_towards_the_limit_of_a_timestep():
    """5 % of 64 GPUs are 3: one block always may be, a second only within that."""
    runs = [own(f"long{n}", 8 * n, 8) for n in range(8)]
    result = plan(*runs, debug("first", 8), debug("second", 8), nodes=(8,) * 8)
    assert len(result.preemptions) == 1


def test_an_unfunded_debug_job_goes_ahead_of_nothing():
    result = plan(own("long", 0, 8), debug("probe", funded=False))
    assert now(result) == {"long"}


def test_a_run_that_was_to_be_stopped_later_gives_way_at_once_and_is_told_of_once():
    """What was planned for its rest is planned anew."""
    large = job("large", 8, 4, budget="org/b", arrival=4)
    result = plan(own("long", 0, 8), large, debug("probe", 8))
    assert "probe" in now(result)
    assert [stop.victim for stop in result.preemptions] == ["long"]
    assert len(result.plan.of("long+")) <= 1
    assert len([reason for reason in result.reasons if reason.job == "long+"]) == 1


def test_random_machines_keep_every_rule():
    """Full machines of two budgets: what stops for a debug job is its own budget's, once."""
    stops = 0
    for seed in range(200):
        draw = Random(seed)
        jobs: list[BatchJob] = []
        for node in range(6):
            at = 0
            while at < 8:
                size = draw.choice(
                    [size for size in (1, 2, 4, 8) if at % size == 0 and at + size <= 8]
                )
                more = {
                    "budget": draw.choice(("org/a", "org/b")),
                    "protected": draw.choice((0, 0, 3)),
                }
                if draw.random() < 0.85:
                    jobs.append(own(f"run{node}-{at}", 8 * node + at, size, **more))
                at += size
        for n in range(draw.randrange(1, 6)):
            jobs.append(debug(f"probe{n}", draw.choice((1, 2, 4, 8)), draw.choice((1, 2)),
                              budget=draw.choice(("org/a", "org/b"))))  # fmt: skip
        for n in range(draw.randrange(4)):
            jobs.append(job(f"job{n}", draw.choice((1, 4, 8, 16)), 12, minimum=4,
                            budget=draw.choice(("org/a", "org/b"))))  # fmt: skip
        whole = problem(*jobs, nodes=(8,) * 6, horizon=16, overrun=True,
                        budgets=tree(a=(50, draw.randrange(10**6)), b=(50, 10**5)))  # fmt: skip
        result = solved(whole, iterations=5)
        budget = {one.name: one.budget for one in jobs}
        ahead = dict.fromkeys(("org/a", "org/b"), 0)
        for stop in result.preemptions:
            if stop.cause == Cause.DEBUG:
                stops += 1
                assert stop.preemptor is not None
                assert budget[stop.victim] == budget[stop.preemptor]
                assert stop.preemptor in now(result)
        for name in {stop.preemptor for stop in result.preemptions if stop.cause == Cause.DEBUG}:
            assert name is not None
            ahead[str(budget[name])] += next(one.gpus for one in jobs if one.name == name)
        assert max(ahead.values()) <= 16
        victims = [stop.victim for stop in result.preemptions]
        assert len(victims) == len(set(victims))
    assert stops > 40
