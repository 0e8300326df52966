"""The check catches every kind of illegal plan; each test breaks one rule of a legal one."""

from dataclasses import replace

import pytest

from allocator.core.check import Broken, check, check_guard, objective, utilization
from allocator.core.plan import Assignment, Plan
from allocator.core.problem import Drain, Node, Problem
from tests.core.problems import job, problem, run, service, tree

A = Assignment


@pytest.fixture
def small() -> Problem:
    """Two nodes of 4 and one of 8 in pool a, a node of 4 in pool b; 6 timesteps."""
    return Problem(
        name="small",
        horizon=6,
        timestep_minutes=30,
        nodes=(Node("w", 4, "a"), Node("x", 4, "a"), Node("y", 8, "a"), Node("z", 4, "b")),
        jobs=(
            job("two", 2, 3, arrival=1, priority=5),
            job("eight", 8, 2, pools=("a",)),
            run("kept", 0, 2, remaining=4, protected=2),
            run("safe", 2, 1, remaining=2, protected=2),
            service("serve", [1, 2, 2, 2, 1, 1], held=(19,), priority=2),
        ),
        drains=(Drain("y", 4, 6),),
    )


LEGAL = (
    A("two", 16, 2, 1, 4),
    A("eight", 8, 8, 0, 2),
    A("kept", 0, 2, 0, 2),
    A("kept+", 4, 2, 4, 6),
    A("safe", 2, 1, 0, 2),
)
SERVED = ((19,), (18, 19), (18, 19), (18, 19), (18,), (18,))


def plan(*changes: Assignment, serve: tuple[tuple[int, ...], ...] = SERVED) -> Plan:
    """The legal plan with the named jobs' assignments replaced."""
    changed = {a.job for a in changes}
    kept = [a for a in LEGAL if a.job not in changed]
    return Plan(20, 6, (*kept, *changes), {"serve": serve})


def rules(made: Problem, broken: Plan) -> set[tuple[str, str]]:
    return {(str(found.rule), found.job) for found in check(made, broken)}


def test_the_legal_plan_is_legal(small: Problem) -> None:
    assert check(small, plan()) == ()


@pytest.mark.parametrize(
    ("change", "rule"),
    [
        (A("two", 8, 2, 1, 4), Broken.ONE_JOB_PER_GPU),
        (A("two", 12, 2, 2, 5), Broken.DRAIN),
        (A("eight", 8, 8, 4, 6), Broken.DRAIN),
        (A("two", 6, 2, 0, 3), Broken.ARRIVAL),
        (A("two", 6, 2, 1, 3), Broken.LENGTH),
        (A("two", 6, 2, 1, 5), Broken.LENGTH),
        (A("two", 4, 4, 1, 4), Broken.SIZE),
        (A("two", 3, 2, 2, 5), Broken.BLOCK),
        (A("eight", 12, 8, 0, 2), Broken.BLOCK),
        (A("kept", 4, 2, 0, 2), Broken.MOVED),
        (A("kept", 0, 2, 1, 4), Broken.MOVED),
        (A("kept", 0, 2, 0, 1), Broken.PROTECTED),
        (A("kept", 0, 2, 0, 5), Broken.LENGTH),
        (A("kept+", 4, 2, 1, 3), Broken.REST),
        (A("kept+", 4, 2, 3, 6), Broken.LENGTH),
        (A("safe", 2, 1, 0, 1), Broken.PROTECTED),
        (A("two", 19, 2, 1, 4), Broken.SHAPE),
        (A("two", 16, 2, 4, 7), Broken.SHAPE),
        (A("two", 16, 2, 3, 3), Broken.SHAPE),
        (A("nobody", 6, 1, 0, 1), Broken.UNKNOWN_JOB),
        (A("two+", 6, 1, 0, 1), Broken.UNKNOWN_JOB),
        (A("safe+", 6, 1, 0, 1), Broken.UNKNOWN_JOB),
        (A("serve", 6, 1, 0, 1), Broken.UNKNOWN_JOB),
    ],
)
def test_a_broken_block_is_caught(small: Problem, change: Assignment, rule: Broken) -> None:
    assert (str(rule), change.job) in rules(small, plan(change))


@pytest.mark.parametrize(
    ("serve", "rule"),
    [
        (((19,), (17, 18, 19), (18, 19), (18, 19), (18,), (18,)), Broken.DEMAND),
        (((18,), (16, 17), (18, 19), (18, 19), (18,), (18,)), Broken.SWAP_CAP),
        (((6,), (6, 7), (7, 14), (7,), (7,), (6, 7)), Broken.DEMAND),
        (((19,), (18, 19), (18, 19), (), (), ()), Broken.SWAP_CAP),
        (((19,), (19, 19), (18, 19), (18, 19), (18,), (18,)), Broken.ONE_JOB_PER_GPU),
        (((16,), (16,), (16,), (16,), (16,), (16,)), Broken.ONE_JOB_PER_GPU),
        (((19,), (18, 19), (15, 19), (15, 19), (15,), (15,)), Broken.DRAIN),
        (((19,), (18, 19), (18, 20), (18, 19), (18,), (18,)), Broken.SHAPE),
        (((19,),), Broken.SHAPE),
    ],
)
def test_a_broken_service_is_caught(
    small: Problem, serve: tuple[tuple[int, ...], ...], rule: Broken
) -> None:
    assert (str(rule), "serve") in rules(small, plan(serve=serve))


def test_a_block_over_two_pools_or_half_a_node_is_caught(small: Problem) -> None:
    wide = replace(small, jobs=(job("wide", 8, 1), job("whole", 8, 1)))
    across = Plan(20, 6, (A("wide", 12, 8, 0, 1),))
    assert rules(wide, across) == {("block", "wide")}
    assert rules(wide, Plan(20, 6, (A("wide", 2, 8, 0, 1),))) == {("block", "wide")}
    assert check(wide, Plan(20, 6, (A("whole", 0, 8, 0, 1),))) == ()


def test_a_pool_nobody_asked_for_is_caught(small: Problem) -> None:
    picky = replace(small, jobs=(job("a", 2, 1, pools=("a",)), service("s", [1] * 6, pools=("b",))))
    wrong = Plan(20, 6, (A("a", 16, 2, 0, 1),), {"s": ((0,), (16,), (16,), (16,), (16,), (16,))})
    assert rules(picky, wrong) == {("pool", "a"), ("pool", "s")}


def test_two_pieces_are_caught(small: Problem) -> None:
    two = Plan(20, 6, (*LEGAL, A("two", 6, 2, 4, 5)), {"serve": SERVED})
    assert ("one_block", "two") in rules(small, two)


def test_a_protected_run_that_is_absent_is_caught(small: Problem) -> None:
    absent = Plan(20, 6, tuple(a for a in LEGAL if a.job != "safe"), {"serve": SERVED})
    assert rules(small, absent) == {("protected", "safe")}


def test_a_grid_of_another_size_is_caught(small: Problem) -> None:
    assert rules(small, Plan(20, 5, LEGAL)) == {("shape", "")}


def test_overrun_lets_a_job_run_past_the_horizon_only_at_the_end() -> None:
    late = problem(job("j", 2, 9), overrun=True)
    assert check(late, Plan(8, 4, (A("j", 0, 2, 2, 4),))) == ()
    assert rules(late, Plan(8, 4, (A("j", 0, 2, 1, 3),))) == {("length", "j")}


def test_objective_and_utilization_by_hand() -> None:
    """2 GPUs x (1 + 0.5) x priority 5, less 8 x priority 2 x 1 missing GPU; 7 of 32 cells."""
    made = problem(
        job("j", 2, 2, priority=5), service("s", [1, 1, 1, 1], priority=2), time_decay=0.5
    )
    answer = Plan(8, 4, (A("j", 0, 2, 0, 2),), {"s": ((7,), (7,), (7,), ())})
    assert objective(made, answer) == pytest.approx(15 - 16)
    assert utilization(made, answer) == 7 / 32


def test_the_guard_holds_every_prefix_to_entitlement_or_construction() -> None:
    """Leaf a is entitled to half of 8 GPUs: 4 a timestep. It was given 8 at once."""
    made = problem(
        job("a", 8, 2, budget="org/a"), job("b", 8, 2, budget="org/b"),
        budgets=tree(a=(50, 0), b=(50, 0)),
    )  # fmt: skip
    built = Plan(8, 4, (A("a", 0, 8, 0, 2), A("b", 0, 8, 2, 4)))
    late = Plan(8, 4, (A("b", 0, 8, 0, 2), A("a", 0, 8, 2, 4)))
    assert check_guard(made, built, built) == ()
    broken = check_guard(made, late, built)
    assert [(found.rule, found.job) for found in broken] == [(Broken.GUARD, "org/a")]
    assert "timestep 0" in broken[0].text
    unfunded = replace(made, jobs=(replace(made.batch[0], funded=False), made.batch[1]))
    assert check_guard(unfunded, late, built) == ()


def test_a_grid_gives_the_plan_back(small: Problem) -> None:
    made = plan()
    again = Plan.from_grid(small, made.grid())
    assert set(again.assignments) == set(made.assignments)
    assert again.realtime == made.realtime
    with pytest.raises(ValueError, match="20 rows of 6"):
        Plan.from_grid(small, made.grid()[:-1])


def test_a_grid_with_a_torn_job_reads_as_pieces(small: Problem) -> None:
    grid = plan().grid()
    grid[17][2] = None
    torn = Plan.from_grid(small, grid)
    assert len(torn.of("two")) > 1
    assert ("one_block", "two") in rules(small, torn)
