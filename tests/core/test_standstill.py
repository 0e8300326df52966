"""Where a plan is left out it would have done nothing; rows that are written are jobs."""

from collections import Counter
from dataclasses import replace
from random import Random

import numpy as np
import pytest

from allocator.core.columns import Written, columns_of
from allocator.core.problem import BudgetNode, Problem, ProblemError
from allocator.core.simulate import play
from allocator.core.simulation.fairshare import FairShare
from allocator.core.simulation.policy import Decision
from allocator.core.simulation.setup import Setup, nodes_of
from allocator.core.simulation.standstill import Standstill
from allocator.core.solve import solve
from allocator.core.traces import DAY_S, Trace
from tests.core.problems import job, problem, run
from tests.core.test_simulate import lab

TREE = (
    BudgetNode("root", None, 100_000, 0),
    BudgetNode("one", "root", 60_000, 0),
    BudgetNode("two", "root", 40_000, 0),
    BudgetNode("group-01", "one", 70_000, 0),
    BudgetNode("group-02", "one", 30_000, 0),
    BudgetNode("group-03", "two", 100_000, 0),
)
Course = tuple[Trace, Setup]


def course(seed: int) -> Course:
    """A crowded day of a few nodes, under one tree or another, with credits or without limit."""
    draw = Random(seed)
    jobs = tuple(
        replace(one, min_runtime_s=draw.choice((None, None, 0, 600, 1800, 3600)))
        for one in lab(seed, days=2 if seed % 4 == 0 else 1).jobs
    )
    trace = Trace(jobs)
    given = Setup(
        nodes_of(draw.choice(("2x8", "3x8", "4x4"))), TREE, DAY_S * (2 if seed % 4 == 0 else 1),
        unlimited=seed % 3 > 0, window_s=draw.choice((4, 24, 168)) * 3600,
        preempted_percent=draw.choice((5, 50)), iterations=draw.choice((0, 20)),
    )  # fmt: skip
    return trace, given


def runs(made: Course) -> list[tuple[object, ...]]:
    return [tuple(ran) for ran in play(*made).world.runs()]


def test_what_is_proven_to_stand_still_does(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each plan that would be left out is made all the same."""
    seen: Counter[tuple[bool, bool]] = Counter()
    decide = FairShare.decide

    def watched(policy: FairShare) -> Decision:
        proof = Standstill(policy.world, policy._budgets())
        proven, full = proof.holds(policy.offering.kinds()), not policy.world.fleet.free
        found = decide(policy)
        seen[proven, full] += 1
        assert not (proven and (found.starts or found.stops or found.soon or found.again))
        return found

    monkeypatch.setattr(FairShare, "decide", watched)
    monkeypatch.setattr(FairShare, "proves", False)
    for seed in range(8):
        play(*course(seed))
    assert seen[True, True] > 60
    assert seen[True, False] > 60
    assert seen[False, True] + seen[False, False] > 300


@pytest.mark.parametrize("seed", range(4))
def test_leaving_plans_out_changes_nothing(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    fewer = runs(course(seed))
    monkeypatch.setattr(FairShare, "proves", False)
    assert runs(course(seed)) == fewer


def test_rows_that_are_written_are_the_jobs_that_they_stand_for() -> None:
    """As columns, as jobs one by one, and in what comes of them."""
    problems: list[Problem] = []
    for seed in (1, 2):
        play(*course(seed), watch=lambda made, _: problems.append(made))
    assert sum(bool(made.columns.shielded) for made in problems) > 5
    for written in problems[::9]:
        assert isinstance(written.jobs, Written)
        listed = replace(written, jobs=tuple(written.jobs))
        assert listed.to_dict() == written.to_dict()
        again, columns = columns_of(listed.jobs), written.columns
        for name in ("gpus", "duration", "minimum", "remaining", "protected", "funded", "value"):
            assert np.array_equal(getattr(again, name), getattr(columns, name))
        first, second = solve(written, iterations=5), solve(listed, iterations=5)
        assert (first.plan, first.objective) == (second.plan, second.objective)
        assert list(first.reasons) == list(second.reasons)


@pytest.mark.parametrize(
    ("column", "value", "said"),
    [
        ("gpus", 3, "gpus must be a power of two"),
        ("duration", 0, "duration must be at least 1"),
        ("minimum", 9, "minimum must be at most"),
        ("protected", 9, "protected must be at most remaining"),
    ],
)
def test_nonsense_is_refused_in_rows_too(column: str, value: int, said: str) -> None:
    made = problem(run("held", 0, 4, remaining=4, protected=2), job("waits", 2, 3, minimum=2))
    columns = made.columns
    rows = getattr(columns, column).copy()
    rows[0 if column == "protected" else 1] = value
    with pytest.raises(ProblemError, match=said):
        Written(columns._replace(**{column: rows}))
