"""Runs that scatter free GPUs are moved, if they can go on elsewhere at once."""

from dataclasses import replace
from random import Random

import pytest

from allocator.core.plan import Cause, Result
from allocator.core.problem import BatchJob, BudgetNode
from tests.core.problems import job, problem, run, tree
from tests.core.test_debug_jobs import now, own, solved

HALF = 50


def plan(
    *jobs: BatchJob,
    a: int = 10**6,
    b: int = 10**6,
    entitled: tuple[int, int] = (1, 1),
    nodes: tuple[int, ...] = (8, 8),
):
    """Two nodes of 8. The waiting job's budget a comes last and outranks nobody."""
    budgets = [
        replace(node, entitled={"org/a": entitled[0], "org/b": entitled[1]}.get(node.path, 0))
        for node in tree(a=(HALF, a), b=(HALF, b))
    ]
    whole = problem(*jobs, nodes=nodes, horizon=16, overrun=True, budgets=tuple(budgets))
    return solved(whole)


def scattered(**second: object) -> tuple[BatchJob, BatchJob]:
    """Each half of a node: 8 GPUs are free, and no block of 8."""
    return own("left", 0, 4), own("right", 12, 4, **second)


WAITS = job("waits", 8, 20, minimum=4, budget="org/a")


def test_a_run_is_moved_and_goes_on_elsewhere():
    result = plan(*scattered(), WAITS)
    assert {"waits", "left"} <= now(result) or {"waits", "right"} <= now(result)
    (stop,) = result.preemptions
    assert (stop.cause, stop.preemptor, stop.timestep) == (Cause.MOVED, "waits", 0)
    assert (stop.victim_share, stop.preemptor_share) == (None, None)
    (rest,) = result.plan.of(f"{stop.victim}+")
    assert rest.start == 1, "as soon as it can"
    (waits,) = result.plan.of("waits")
    assert waits.first_gpu // 8 != rest.first_gpu // 8


@pytest.mark.parametrize(
    "kept",
    [{"protected": 1}, {"minimum": None}, {"shielded": ("org/a",)}, {"barred": ("waits",)}],
    ids=["protected", "can't resume", "stopped lately", "changed places"],
)
def test_no_run_is_moved_that_may_not_be_stopped(kept):
    left, right = own("left", 0, 4, **kept), own("right", 12, 4, **kept)
    result = plan(left, right, WAITS)
    assert now(result) == {"left", "right"}
    assert not result.preemptions


class TestTheLimitOfATimestep:
    """5 % of 16 GPUs are less than one, but one block may always be emptied."""

    def scattered(self, node: int) -> tuple[BatchJob, ...]:
        """Two runs of 1 GPU on one node, on the next a protected run beside which both fit."""
        name, first = f"on{node}", 8 * node
        left = [own(f"{name}-{at}", first + at, 1) for at in (0, 3)]
        return (*left, own(f"{name}-held", first + 12, 4, protected=16, remaining=16))

    def test_several_runs_on_one_block_are_moved(self):
        result = plan(*self.scattered(0), WAITS)
        assert {stop.victim for stop in result.preemptions} == {"on0-0", "on0-3"}
        assert {stop.cause for stop in result.preemptions} == {Cause.MOVED}
        assert "waits" in now(result)

    def test_a_second_block_is_not_emptied_at_once(self):
        waits = [replace(WAITS, name=name) for name in ("first", "second")]
        runs = (*self.scattered(0), *self.scattered(2))
        result = plan(*runs, *waits, nodes=(8,) * 4)
        assert len({stop.preemptor for stop in result.preemptions}) == 1
        assert len(now(result) & {"first", "second"}) == 1


def test_nothing_moves_where_it_could_not_go_on():
    """8 GPUs are free, but not for a run of 4 beside the job."""
    runs = [own("left", 0, 4), own("mid", 6, 4, budget="org/b", protected=16)]
    small = [own("rest", 10, 2), own("last", 14, 2, protected=16)]
    result = plan(*small, *[one for one in runs if one.name == "left"], WAITS)
    assert not [stop for stop in result.preemptions if stop.cause == Cause.MOVED]


def test_nobody_is_moved_onto_gpus_that_a_job_before_is_due_on():
    """The job of b comes first and is planned on both nodes for the time the protected run ends."""
    held = run("held", 8, 4, remaining=2, protected=2, budget="org/b")
    large = job("large", 16, 10, budget="org/b", priority=9)
    left = own("left", 0, 4, remaining=2)
    result = plan(left, held, large, WAITS, b=0)
    assert "waits" not in now(result)
    assert not [stop for stop in result.preemptions if stop.cause == Cause.MOVED]


def test_a_job_that_comes_after_holds_up_nobody():
    """The same large job, of the budget whose turn is last: it is planned behind."""
    held = run("held", 8, 4, remaining=2, protected=2, budget="org/b")
    first = job("first", 4, 20, minimum=4, budget="org/b", priority=9)
    late = job("late", 16, 10, budget="org/a", priority=9)
    result = plan(own("left", 0, 4, remaining=2, budget="org/b"), held, late, first, b=0)
    assert "first" in now(result)


class TestOthersRuns:
    """Entitlements: 1 = a budget is outside, much = it is inside."""

    MUCH = 10**12

    def moved(self, entitled: tuple[int, int], **more: object) -> Result:
        left = own("left", 0, 4, **({"budget": "org/b"} | more))
        right = own("right", 12, 4, **({"budget": "org/b"} | more))
        return plan(left, right, WAITS, a=10**9, b=10**6, entitled=entitled)

    def test_one_inside_its_entitlement_is_not_moved_for_one_outside(self):
        assert not self.moved((1, self.MUCH)).preemptions

    @pytest.mark.parametrize("entitled", [(1, 1), (10**12, 1), (10**12, 10**12)])
    def test_any_other_may_be(self, entitled):
        (stop,) = self.moved(entitled).preemptions
        assert stop.cause == Cause.MOVED

    def test_an_unfunded_run_may_be_moved_for_anybody(self):
        """It would be stopped anyhow, for funded work of any budget."""
        (stop,) = self.moved((1, self.MUCH), funded=False).preemptions
        assert stop.cause in (Cause.UNFUNDED, Cause.MOVED)


def test_random_machines_lose_nobody():
    """Whoever is moved has GPUs to go on with, which nobody else holds."""
    moves = 0
    for seed in range(300):
        draw = Random(seed)
        jobs: list[BatchJob] = []
        for node in range(6):
            for at in range(0, 8, 2):
                size = draw.choice((2, 2, 4))
                if draw.random() < 0.5 or at + size > 8 or any(
                    one.running and one.running.first_gpu + one.gpus > 8 * node + at
                    for one in jobs
                ):  # fmt: skip
                    continue
                jobs.append(
                    own(f"run{node}-{at}", 8 * node + at, size, remaining=draw.randrange(3, 30),
                        protected=draw.choice((0, 0, 0, 2)),
                        budget=draw.choice(("org/a", "org/b")))
                )  # fmt: skip
        for n in range(draw.randrange(1, 5)):
            jobs.append(job(f"job{n}", draw.choice((4, 8, 8, 16)), 20, minimum=draw.choice((2, 4)),
                            budget=draw.choice(("org/a", "org/b"))))  # fmt: skip
        budgets: tuple[BudgetNode, ...] = tree(a=(50, draw.randrange(10**6)), b=(50, 10**5))
        whole = problem(*jobs, nodes=(8,) * 6, horizon=16, overrun=True, budgets=budgets)
        result = solved(whole, iterations=3)
        for stop in result.preemptions:
            if stop.cause != Cause.MOVED:
                continue
            moves += 1
            assert stop.preemptor in now(result)
            (rest,) = result.plan.of(f"{stop.victim}+")
            assert rest.start == 1
            free = set(range(48))
            for one in result.plan.assignments:
                if one.start == 0:
                    free -= set(range(one.first_gpu, one.first_gpu + one.gpus))
            assert set(range(rest.first_gpu, rest.first_gpu + rest.gpus)) <= free
    assert moves > 30
