"""Full mode in the background leaves a hint; cycles try it against their own snapshot."""

from datetime import timedelta
from typing import Any

import pytest

from allocator import ahead, cycle, requests, snapshot, tasks
from allocator.core.problem import BatchJob
from allocator.core.solve import solve
from allocator.cycle import unpack
from allocator.models import AllocatorState, Cycle, FullPlan
from clusters.models import Node
from tests.factories import T0
from tests.helpers import assert_invariants, assert_reconciled, make_institute
from workloads.models import Run

pytestmark = [pytest.mark.django_db, pytest.mark.once]
HOUR = 3600


@pytest.fixture
def place(settings: Any) -> Any:
    """Two nodes of 8; more waits than fits, so that what starts when is worth planning."""
    settings.FULL_PLAN_SECONDS = 3
    place = make_institute()
    for name, gpus, hours in (("a", 8, 3), ("b", 4, 5), ("c", 4, 2), ("d", 2, 6), ("e", 8, 4)):
        place.submit(place.petrel, name=name, gpus=gpus, expected_duration_s=hours * HOUR)
    return place


def taken_at(at: Any) -> snapshot.Snapshot:
    return snapshot.take(at=at, version=requests.state().version)


def test_a_full_plan_commits_nothing_and_says_where_jobs_start(place: Any) -> None:
    before = AllocatorState.objects.get_or_create(pk=1)[0].version
    made = ahead.plan_ahead(at=T0)
    assert made is not None
    assert made.bound is not None
    assert made.bound >= made.objective - 1e-6
    assert not Run.objects.exists()
    assert not Cycle.objects.exists()
    assert requests.state().version == before
    taken = taken_at(T0)
    hint = ahead.hint(taken)
    assert set(hint) <= {job.name for job in taken.problem.batch}
    assert hint
    for name, (start, first) in hint.items():
        job = taken.problem.by_name[name]
        assert isinstance(job, BatchJob)
        rows = range(first, first + job.gpus)
        assert 0 <= start < taken.problem.horizon
        assert rows.stop <= taken.problem.gpus


def test_a_cycle_is_worth_no_less_with_it_and_can_be_planned_again(place: Any) -> None:
    made = ahead.plan_ahead(at=T0)
    assert made is not None
    committed = cycle.run(at=T0, trigger="test")
    assert committed is not None
    problem = type(taken_at(T0).problem).from_dict(unpack(bytes(committed.snapshot)))
    hint = {name: (start, first) for name, (start, first) in committed.hint.items()}
    again = solve(problem, seed=0, hint=hint)
    assert again.to_dict(problem)["grid"] == unpack(bytes(committed.plan))["grid"]
    assert committed.objective is not None
    assert made.objective is not None
    assert committed.objective >= made.objective - 1e-6
    assert_invariants(at=T0)
    assert_reconciled()


def test_starts_move_with_the_clock_and_gone_nodes_are_left_out(place: Any) -> None:
    ahead.plan_ahead(at=T0)
    taken = taken_at(T0)
    now = ahead.hint(taken)
    later = ahead.hint(taken_at(T0 + timedelta(hours=1)))
    assert {name: max(0, start - 2) for name, (start, _) in now.items()} == {
        name: start for name, (start, _) in later.items()
    }
    gone = taken.nodes[0].pk
    Node.objects.filter(pk=gone).update(name="other")  # still there
    assert ahead.hint(taken_at(T0)) == now
    rows = [row for row in FullPlan.objects.get().starts if row[2] != gone]
    FullPlan.objects.update(starts=[[j, s, n + 1000 if n == gone else n, g]
                                    for j, s, n, g in FullPlan.objects.get().starts])  # fmt: skip
    assert set(ahead.hint(taken_at(T0))) == {row[0] for row in rows}


def test_an_old_plan_is_no_hint_and_old_ones_go(place: Any, settings: Any) -> None:
    ahead.plan_ahead(at=T0)
    assert ahead.hint(taken_at(T0 + timedelta(hours=2)))
    assert ahead.hint(taken_at(T0 + timedelta(hours=2, minutes=1))) == {}
    settings.FULL_PLAN_MINUTES = 0
    assert ahead.hint(taken_at(T0 + timedelta(minutes=1))) == {}
    ahead.plan_ahead(at=T0 + timedelta(days=8))
    assert FullPlan.objects.count() == 1


def test_without_gpus_there_is_nothing_to_plan() -> None:
    assert ahead.plan_ahead(at=T0) is None
    assert tasks.plan_ahead() is None
