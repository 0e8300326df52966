"""`solve` on random problems and on every shared scenario: legal, guarded, repeatable, better."""

import importlib.util
import json
import statistics
import subprocess
import sys
from collections import defaultdict
from itertools import combinations
from pathlib import Path
from random import Random
from types import ModuleType

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from allocator.core.check import check, check_guard, objective
from allocator.core.heuristic import Construction
from allocator.core.improve import Improver
from allocator.core.plan import Result, Status
from allocator.core.problem import BatchJob, Problem
from allocator.core.scenario import parse_problem
from allocator.core.solve import solve
from benchmarks.baselines import fifo
from benchmarks.scenarios import FAMILIES, family_problem, fleet_problem
from tests.core.problems import SEEDED, job, problem, random_problem, service, tree

ROOT = Path(__file__).parents[2]
SHARED = ROOT.parent / "shared"
SCENARIOS = sorted((SHARED / "scenarios").glob("*-*.json"))


def _judge() -> ModuleType | None:
    file = SHARED / "judge" / "check_plan.py"
    if not file.exists():
        return None
    spec = importlib.util.spec_from_file_location("judge", file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


JUDGE = _judge()


def assert_legal(made: Problem, result: Result) -> None:
    """By our check, guard included, and by the judge where it is at hand."""
    assert check(made, result.plan) == ()
    assert check(made, result.construction) == ()
    assert check_guard(made, result.plan, result.construction) == ()
    assert result.objective >= objective(made, result.construction) - 1e-9
    if JUDGE is not None:
        verdict = JUDGE.judge(made.to_dict(), result.to_dict(made))
        assert verdict["violations"] == []
        assert verdict["objective"] == pytest.approx(result.objective)


@pytest.mark.slow
@settings(max_examples=1500, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(SEEDED)
def test_every_plan_is_legal_and_repeatable(rng: Random) -> None:
    made = random_problem(rng)
    result = solve(made, iterations=30, seed=1)
    assert_legal(made, result)
    again = solve(made, iterations=30, seed=1)
    assert (again.plan, again.reasons) == (result.plan, result.reasons)
    waiting = {job.name for job in made.batch if job.running is None}
    assert waiting <= {reason.job for reason in result.reasons}


@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(SEEDED)
def test_every_preemption_keeps_the_contract(rng: Random) -> None:
    """Past protection, for something that starts then, never inside for outside, rest behind."""
    made = random_problem(rng)
    result = solve(made, iterations=4)
    begins = {a.job: a.start for a in result.plan.assignments}
    for stop in result.preemptions:
        victim = made.by_name[stop.victim]
        assert isinstance(victim, BatchJob)
        assert victim.running is not None
        assert stop.timestep >= victim.running.protected
        if stop.victim_share is not None and stop.preemptor_share is not None:
            assert victim.funded
            assert stop.preemptor_share.inside or not stop.victim_share.inside
        if stop.preemptor is not None:
            assert made.by_name[stop.preemptor].funded
            rest = begins.get(stop.victim + "+")
            earlier = begins.get(stop.preemptor, stop.timestep)
            assert rest is None or rest > min(earlier, stop.timestep)


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(SEEDED)
def test_the_order_of_nodes_budgets_and_drains_in_the_file_does_not_change_the_value(
    rng: Random,
) -> None:
    made = random_problem(rng)
    data = made.to_dict()
    rng.shuffle(data.get("budgets", []))
    rng.shuffle(data.get("drains", []))
    shuffled = Problem.from_dict(data)
    before, after = solve(made, iterations=2), solve(shuffled, iterations=2)
    assert after.plan == before.plan


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(SEEDED)
def test_jobs_that_differ_in_value_or_age_may_come_in_any_order(rng: Random) -> None:
    """Only the last tie-break looks at the file; with distinct priorities nothing does."""
    data = random_problem(rng).to_dict()
    for number, row in enumerate(data["jobs"]):
        row["priority"] = number + 1
    made = Problem.from_dict(data)
    rng.shuffle(data["jobs"])
    shuffled = Problem.from_dict(data)
    before, after = solve(made, iterations=0), solve(shuffled, iterations=0)
    assert set(after.plan.assignments) == set(before.plan.assignments)
    assert after.plan.realtime == before.plan.realtime


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(SEEDED)
def test_more_passes_are_never_worse(rng: Random) -> None:
    made = random_problem(rng)
    values = [solve(made, iterations=count, seed=3).objective for count in (0, 2, 8, 60)]
    assert values == sorted(values)


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(SEEDED, st.integers(0, 2**64))
def test_passes_in_batches_are_the_same_passes(rng: Random, seed: int) -> None:
    """So a time limit, which runs them in batches, only cuts the search short."""
    construction = Construction(random_problem(rng))
    construction.build()
    whole, batches = Improver(construction, seed), Improver(construction, seed)
    whole.run(23)
    for count in (1, 4, 18):
        batches.run(count)
    assert batches.assignments() == whole.assignments()
    assert batches.realtime() == whole.realtime()


def test_services_move_aside_where_that_frees_a_block() -> None:
    """A service in its corner, on the last GPU of a node of 4; the other node has 5."""
    made = problem(
        service("s", [1, 1, 1, 1], swap_cap=1, held=(8,)), job("j", 4, 3, priority=5),
        job("k", 4, 3, priority=4), nodes=(5, 4),
    )  # fmt: skip
    result = solve(made, iterations=20)
    assert_legal(made, result)
    assert (result.construction.of("k"), len(result.plan.of("k"))) == ((), 1)
    assert result.plan.realtime["s"] == (*[(4,)] * 3, (8,))
    assert [len(rows) for rows in result.plan.realtime["s"]] == [1, 1, 1, 1]


def test_a_time_limit_of_zero_gives_the_construction() -> None:
    made = family_problem("mixed-control", 1)
    result = solve(made, time_limit=0)
    assert (result.iterations, result.plan) == (0, result.construction)
    assert_legal(made, result)


def test_nothing_to_plan_is_a_plan() -> None:
    result = solve(problem())
    assert (result.objective, result.plan.assignments, result.status) == (0, (), "heuristic")


@pytest.mark.parametrize(
    "bad", [{"mode": "magic"}, {"time_limit": -1}, {"time_limit": float("nan")}]
)
def test_wrong_arguments_are_refused(bad: dict[str, str | float]) -> None:
    with pytest.raises(ValueError, match="must be"):
        solve(problem(), **bad)  # type: ignore[arg-type]


@pytest.mark.skipif(not SCENARIOS, reason="../shared/scenarios is not here")
@pytest.mark.parametrize("file", SCENARIOS, ids=lambda file: file.stem)
def test_every_shared_scenario_is_planned_legally(file: Path) -> None:
    made = parse_problem(file.read_bytes())
    assert_legal(made, solve(made, iterations=10))


def test_fast_is_worth_more_than_fifo_in_every_family() -> None:
    for family in FAMILIES:
        for seed in range(4):
            made = family_problem(family, seed)
            result = solve(made)
            assert_legal(made, result)
            baseline = fifo(made)
            assert check(made, baseline) == ()
            assert result.objective >= objective(made, baseline)


@pytest.mark.skipif(not SCENARIOS, reason="../shared/scenarios is not here")
def test_our_fifo_is_the_published_baseline_and_fast_beats_the_plain_planner() -> None:
    expected = json.loads((SHARED / "scenarios" / "expected.json").read_text())
    gains: dict[str, list[tuple[float, float]]] = defaultdict(list)
    for file in SCENARIOS:
        known = expected.get(file.stem)
        if known is None:
            continue
        made = parse_problem(file.read_bytes())
        assert objective(made, fifo(made)) == pytest.approx(known["fifo"]["value"], abs=1e-3)
        value = solve(made).objective
        assert value <= known["bound"] + 1e-6
        baseline = known["fifo"]["value"]
        gains[made.family].append((value / baseline, known["plain"]["value"] / baseline))
    for family, pairs in gains.items():
        ours, plain = (statistics.median(values) for values in zip(*pairs, strict=True))
        assert ours >= plain - 1e-6, family


def test_a_fleet_with_budgets_and_runs_is_planned_legally() -> None:
    made = fleet_problem(nodes=16, jobs=120, runs=40, seed=2)
    result = solve(made, iterations=2)
    assert_legal(made, result)
    assert result.preemptions


# Full mode


def test_full_mode_proves_the_best_plan_of_a_small_problem() -> None:
    """Worth by hand: the two halves first (8 x 1), then the whole job (8 x 0.5)."""
    made = problem(
        job("whole", 8, 1, priority=1), job("left", 4, 1, priority=2),
        job("right", 4, 1, priority=2),
        horizon=2, time_decay=0.5,
    )  # fmt: skip
    result = solve(made, mode="full", time_limit=20)
    assert result.status is Status.OPTIMAL
    assert result.objective == pytest.approx(16 + 4)
    assert result.bound == pytest.approx(20, abs=1e-4)


def test_full_mode_is_legal_bounded_and_never_worse_on_random_problems() -> None:
    for seed in range(12):
        made = random_problem(Random(seed))
        fast = solve(made, iterations=3)
        full = solve(made, mode="full", time_limit=1, iterations=3)
        assert_legal(made, full)
        assert full.objective >= fast.objective
        if full.bound is not None:
            assert full.bound >= full.objective - 1e-6


def test_full_mode_with_one_worker_and_a_seed_repeats_itself() -> None:
    made = problem(
        *(job(f"j{i}", 2 ** (i % 3), 1 + i % 3, priority=1 + i % 2) for i in range(6)),
        service("s", [1, 2, 2, 1]),
    )
    one, other = (solve(made, mode="full", time_limit=60, seed=5) for _ in range(2))
    assert one.status is other.status is Status.OPTIMAL
    assert one.plan == other.plan
    assert_legal(made, one)


def test_no_time_for_the_model_is_a_status() -> None:
    made = family_problem("scale-test", 1)
    full = solve(made, mode="full", time_limit=0, iterations=0)
    assert full.status is Status.NO_SOLUTION
    assert_legal(made, full)


def test_the_core_needs_no_django_no_clock_and_no_ortools_for_fast_mode() -> None:
    code = (
        "import sys; sys.modules['django'] = None; sys.modules['ortools'] = None\n"
        "import allocator.core.solve, allocator.core.check, allocator.core.fairshare\n"
        "from benchmarks.scenarios import family_problem\n"
        "from allocator.core.solve import solve\n"
        "print(solve(family_problem('mixed-control', 1)).status)"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert (done.returncode, done.stdout.strip()) == (0, "heuristic"), done.stderr


def test_of_two_equal_jobs_of_a_leaf_the_older_starts_first() -> None:
    """Whatever order the search likes better, age decides among equals."""
    swapped_without_the_rule = 0
    for seed in range(30):
        rng = Random(seed)
        kinds = [(rng.choice([1, 2, 4]), rng.choice([1, 2, 3]), rng.randint(1, 3)) for _ in "abc"]
        jobs = [
            job(f"j{n:02}", gpus, length, priority=value, budget="org/a")
            for n, (gpus, length, value) in enumerate(rng.choice(kinds) for _ in range(14))
        ]
        small = problem(*jobs, nodes=(4, 4), horizon=8, budgets=tree(a=(100, 0)))
        result = solve(small, iterations=60, seed=seed)
        start = {a.job: a.start for a in result.plan.assignments}
        swapped_without_the_rule += result.plan != result.construction
        for older, younger in combinations(jobs, 2):
            alike = (older.gpus, older.duration, older.priority)
            if alike == (younger.gpus, younger.duration, younger.priority):
                assert start.get(older.name, 99) <= start.get(younger.name, 99)
    assert swapped_without_the_rule, "the search never moved anything: the test would prove nothing"


# A hint: what an earlier plan did


def hint_of(result: Result) -> dict[str, tuple[int, int]]:
    return {a.job: (a.start, a.first_gpu) for a in result.plan.assignments}


@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(SEEDED)
def test_any_hint_gives_a_legal_plan_that_is_worth_no_less(rng: Random) -> None:
    made = random_problem(rng)
    without = solve(made, iterations=0)
    names = [job.name for job in made.batch] + ["nobody"]
    hint = {name: (rng.randint(-2, 70), rng.randint(-2, made.gpus + 9)) for name in names}
    for count in (1, 2, 20):
        result = solve(made, iterations=count, hint=hint)
        assert_legal(made, result)
        assert result.objective >= without.objective - 1e-9


def test_a_better_plan_is_taken_over_from_the_hint() -> None:
    """What took 3,000 passes to find is there after two, with the hint."""
    made = next(
        made
        for seed in range(20)
        if (made := family_problem("uniform-priority", seed))
        and solve(made, iterations=3000).objective > solve(made, iterations=20).objective + 1
    )
    long, brief = solve(made, iterations=3000), solve(made, iterations=2)
    hinted = solve(made, iterations=2, hint=hint_of(long))
    assert brief.objective < long.objective
    assert hinted.objective == pytest.approx(long.objective)
    assert_legal(made, hinted)


def test_a_hint_never_puts_a_younger_job_before_its_elder() -> None:
    """A hint may know only the younger of two equal jobs: the older takes its place."""
    jobs = job("x", 4, 4, priority=1.0001, arrival=1), job("old", 4, 4), job("young", 4, 4)
    made = problem(*jobs, nodes=(4,), horizon=12)
    for hint in ({"young": (0, 0), "x": (4, 0), "old": (8, 0)}, {"young": (0, 0), "x": (4, 0)}):
        result = solve(made, iterations=4, hint=hint)
        assert_legal(made, result)
        starts = {a.job: a.start for a in result.plan.assignments}
        assert starts == {"old": 0, "x": 4, "young": 8}
