"""The planners the bench compares with: by hand, legal on anything, and as published."""

import json
from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest
from hypothesis import HealthCheck, given, settings

from allocator.core.check import check, objective, utilization
from allocator.core.plan import Plan
from allocator.core.problem import Drain, Problem
from allocator.core.realtime import highest_counts
from allocator.core.scenario import parse_problem
from benchmarks.baselines import conservative, easy, fifo, priority_first
from tests.core.problems import SEEDED, job, problem, random_problem, run, service

SHARED = Path(__file__).parents[3] / "shared" / "scenarios"
SCENARIOS = sorted(SHARED.glob("*-*.json"))
BASELINES = (fifo, conservative, easy, priority_first)
each_baseline = pytest.mark.parametrize("plan", BASELINES, ids=lambda plan: plan.__name__)


def starts(plan: Plan) -> dict[str, tuple[int, int]]:
    return {a.job: (a.start, a.first_gpu) for a in plan.assignments}


def test_fifo_reserves_a_peak_at_the_top_for_the_whole_horizon() -> None:
    """4 of 8 GPUs are the peak's though 3 idle; the wide job waits for the two before it."""
    made = problem(
        service("s", [1, 4, 1, 1], swap_cap=4),
        job("a", 2, 2), job("b", 2, 1), job("c", 4, 1), job("d", 8, 1),
    )  # fmt: skip
    plan = fifo(made)
    assert starts(plan) == {"a": (0, 0), "b": (0, 2), "c": (2, 0)}
    assert [len(rows) for rows in plan.realtime["s"]] == [1, 4, 1, 1]
    assert {gpu for rows in plan.realtime["s"] for gpu in rows} <= {4, 5, 6, 7}


def test_conservative_backfill_uses_troughs_and_keeps_every_reservation() -> None:
    """The head waits for 8 GPUs at 1; the short job fits before it, the long one only after."""
    made = problem(
        run("r", 0, 4, remaining=1, protected=1),
        job("head", 8, 1), job("long", 4, 2), job("short", 4, 1),
    )  # fmt: skip
    assert starts(conservative(made)) == {
        "r": (0, 0), "head": (1, 0), "long": (2, 0), "short": (0, 4),
    }  # fmt: skip


def test_easy_protects_only_the_head_of_the_queue() -> None:
    """The second has no reservation under EASY: "third" runs where it would have started."""
    made = problem(
        run("r", 0, 4, remaining=2, protected=2),
        job("head", 8, 1), job("second", 8, 1), job("third", 4, 2), job("last", 4, 3),
        horizon=6,
    )  # fmt: skip
    assert starts(conservative(made))["third"] == (0, 4)
    assert starts(easy(made)) == {
        "r": (0, 0), "third": (0, 4), "head": (2, 0), "second": (3, 0),
    }  # fmt: skip
    made = problem(*made.jobs, job("filler", 2, 2), horizon=8)
    assert starts(easy(made))["last"] == (4, 0)


def test_a_head_that_can_never_start_gives_way() -> None:
    made = problem(service("s", [1] * 4), job("whole", 8, 1), job("next", 4, 4))
    assert starts(easy(made)) == {"next": (0, 0)}


def test_priority_first_goes_by_priority_then_arrival_then_file() -> None:
    made = problem(
        job("low", 8, 1, priority=1), job("late", 8, 1, priority=5, arrival=1),
        job("first", 8, 1, priority=5), job("second", 8, 1, priority=5),
    )  # fmt: skip
    plan = priority_first(made)
    assert starts(plan) == {"first": (0, 0), "second": (1, 0), "late": (2, 0), "low": (3, 0)}


def test_services_together_hold_the_topmost_gpus_only() -> None:
    """At 0 the peak of one and at 2 that of the other use the same GPUs, by moving."""
    made = problem(
        service("s", [3, 2, 1, 1]), service("t", [1, 1, 2, 3]), job("beside", 4, 4), horizon=4
    )
    plan = priority_first(made)
    assert check(made, plan) == ()
    assert starts(plan) == {"beside": (0, 0)}
    for t in range(4):
        held = {gpu for sets in plan.realtime.values() for gpu in sets[t]}
        assert held == set(range(8 - len(held), 8))


@each_baseline
def test_a_run_is_never_stopped_but_by_a_drain(plan: Callable[[Problem], Plan]) -> None:
    made = problem(
        run("r", 0, 4, remaining=3, protected=1), job("urgent", 8, 1, priority=9),
        drains=(Drain("n0", 2, 3),),
    )  # fmt: skip
    made_plan = plan(made)
    assert check(made, made_plan) == ()
    assert starts(made_plan) == {"r": (0, 0), "urgent": (3, 0)}
    assert made_plan.of("r")[0].end == 2


@each_baseline
@settings(max_examples=120, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(rng=SEEDED)
def test_every_baseline_is_legal_on_anything(plan: Callable[[Problem], Plan], rng: Random) -> None:
    made = random_problem(rng)
    assert check(made, plan(made)) == ()


@each_baseline
@pytest.mark.skipif(not SCENARIOS, reason="../shared/scenarios is not here")
def test_every_baseline_is_legal_on_the_shared_scenarios(plan: Callable[[Problem], Plan]) -> None:
    for file in SCENARIOS:
        made = parse_problem(file.read_bytes())
        assert check(made, plan(made)) == (), file.stem


@pytest.mark.skipif(not SCENARIOS, reason="../shared/scenarios is not here")
@pytest.mark.parametrize(("plan", "name"), [(fifo, "fifo"), (priority_first, "plain")])
def test_fifo_and_priority_first_are_the_ones_that_were_published_with(
    plan: Callable[[Problem], Plan], name: str
) -> None:
    expected = json.loads((SHARED / "expected.json").read_text())
    compared = 0
    for file in SCENARIOS:
        if file.stem in expected:
            made, known = parse_problem(file.read_bytes()), expected[file.stem][name]
            found = plan(made)
            assert objective(made, found) == pytest.approx(known["value"], abs=1e-3), file.stem
            cells = utilization(made, found) * made.gpus * made.horizon
            assert round(cells) == known["cells"], file.stem
            compared += 1
    assert compared == len(expected)


@each_baseline
@pytest.mark.skipif(not SCENARIOS, reason="../shared/scenarios is not here")
def test_real_time_is_served_along_its_curve(plan: Callable[[Problem], Plan]) -> None:
    for file in SCENARIOS:
        made = parse_problem(file.read_bytes())
        if made.family == "contract":
            continue
        realtime = plan(made).realtime
        for found in made.realtime:
            assert [len(rows) for rows in realtime[found.name]] == highest_counts(found)
