"""Each waiting job is told the rule that binds, who is in the way, and when it starts."""

from allocator.core.plan import Reason, Rule
from allocator.core.problem import Drain, Node, Problem
from allocator.core.solve import solve
from tests.core.problems import job, problem, run, service, tree


def reasons(made: Problem, iterations: int = 0) -> dict[str, Reason]:
    return {reason.job: reason for reason in solve(made, iterations=iterations).reasons}


def test_a_job_that_starts_now_says_so() -> None:
    assert reasons(problem(job("j")))["j"] == Reason("j", Rule.STARTS_NOW, 1, 0)


def test_a_later_arrival_is_its_own_reason() -> None:
    assert reasons(problem(job("j", arrival=2)))["j"] == Reason("j", Rule.ARRIVAL, 1, 2)


def test_a_job_behind_others_names_them() -> None:
    made = problem(job("a", 4, 2, priority=3), job("b", 4, 2, priority=2), job("c", 8, 2))
    assert reasons(made)["c"] == Reason("c", Rule.BEHIND, 8, 2, behind=("a", "b"))


def test_a_job_with_no_start_in_sight_is_behind_what_holds_the_nearest_block() -> None:
    made = problem(job("a", 8, 4, priority=3), job("c", 8, 2))
    assert reasons(made)["c"] == Reason("c", Rule.BEHIND, 8, None, behind=("a",))


def test_unfunded_work_behind_funded_work_says_that() -> None:
    made = problem(
        job("paid", 8, 2, budget="org/a"),
        job("free", 8, 2, budget="org/a", funded=False),
        budgets=tree(a=(50, 0)),
    )
    assert reasons(made)["free"] == Reason("free", Rule.UNFUNDED_BEHIND, 8, 2, behind=("paid",))


def test_no_block_of_that_size_until_a_run_ends() -> None:
    made = problem(run("r", 3, 1, remaining=2, protected=2), job("j", 8, 1))
    assert reasons(made)["j"] == Reason("j", Rule.NO_BLOCK, 8, 2, behind=("r",))


def test_a_job_that_would_start_later_than_what_runs_ends_is_behind_who_comes_before_it() -> None:
    """The run ends at 2, and then it is another's turn: the order binds, not what runs."""
    made = problem(
        run("r", 0, 8, remaining=2, protected=2), job("a", 8, 3, priority=2), job("c", 8, 1),
        horizon=8,
    )  # fmt: skip
    told = reasons(made)
    assert told["a"] == Reason("a", Rule.NO_BLOCK, 8, 2, behind=("r",))
    assert told["c"] == Reason("c", Rule.BEHIND, 8, 5, behind=("a",))


def test_without_a_start_in_sight_what_runs_binds_only_if_it_runs_to_the_horizon() -> None:
    for remaining, rule in ((4, Rule.NO_BLOCK), (3, Rule.BEHIND)):
        made = problem(
            run("r", 0, 8, remaining=remaining, protected=4 - (remaining == 3)),
            job("a", 8, 1, priority=2), job("c", 8, 1),
        )  # fmt: skip
        assert reasons(made)["c"].rule == rule


def test_a_drain_to_come_binds_where_a_block_is_free_only_until_then() -> None:
    """The run ends at 1; from 2 to 4 the node is drained, and the job takes two timesteps."""
    made = problem(
        run("r", 0, 8, remaining=1, protected=1), job("j", 8, 2), horizon=6,
        drains=(Drain("n0", 2, 4),),
    )  # fmt: skip
    assert reasons(made)["j"] == Reason("j", Rule.DRAINING, 8, 4, behind=("r",), node="n0")


def test_another_pool_is_named_also_where_what_runs_fills_its_own() -> None:
    nodes = (Node("x", 4, "a"), Node("y", 4, "b"))
    jobs = (run("r", 0, 4, remaining=2, protected=2), job("j", 4, 2, pools=("a",)))
    told = reasons(Problem("p", 4, 30, nodes, jobs))["j"]
    assert told == Reason("j", Rule.POOL, 4, 2, behind=("r",), pools=("b",))


def test_real_time_in_the_way_is_named() -> None:
    made = problem(service("s", [1, 1, 0, 0]), job("j", 8, 2))
    assert reasons(made)["j"] == Reason("j", Rule.NO_BLOCK, 8, 2, behind=("s",))


def test_a_drain_in_the_way_names_its_node() -> None:
    made = problem(job("j", 8, 2), horizon=6, drains=(Drain("n0", 1, 3),))
    assert reasons(made)["j"] == Reason("j", Rule.DRAINING, 8, 3, node="n0")


def test_another_pool_that_is_free_now_is_named() -> None:
    nodes = (Node("x", 4, "a"), Node("y", 4, "b"))
    jobs = (job("first", 4, 2, pools=("a",), priority=2), job("second", 4, 2, pools=("a",)))
    told = reasons(Problem("p", 4, 30, nodes, jobs))["second"]
    assert told == Reason("second", Rule.POOL, 4, 2, behind=("first",), pools=("b",))


def test_a_job_longer_than_the_horizon_is_beyond_it() -> None:
    assert reasons(problem(job("j", 1, 5)))["j"] == Reason("j", Rule.BEYOND_HORIZON, 1, None)


def test_a_shape_the_pool_never_has_is_no_block() -> None:
    made = problem(job("j", 8, 1), nodes=(6, 6))
    assert reasons(made)["j"] == Reason("j", Rule.NO_BLOCK, 8, None)


def test_the_rest_of_a_stopped_run_is_explained_too() -> None:
    made = problem(
        run("r", 0, 8, remaining=3, protected=0, budget="org/a"),
        job("w", 8, 2, budget="org/b"),
        budgets=tree(a=(50, 10**6), b=(50, 0)),
        horizon=6,
    )
    assert reasons(made)["r+"].start == 2
    assert reasons(made)["w"].rule is Rule.STARTS_NOW


def test_reasons_follow_the_improved_plan() -> None:
    """Improvement puts the two halves first; the whole job is then told it is behind them."""
    made = problem(
        job("whole", 8, 3, priority=1.01),
        job("left", 4, 2, priority=1),
        job("right", 4, 2, priority=1),
        time_decay=0.5,
    )
    first, better = solve(made, iterations=0), solve(made, iterations=50)
    assert better.objective >= first.objective
    told = {reason.job: reason for reason in better.reasons}
    for a in better.plan.assignments:
        assert told[a.job].start == a.start
