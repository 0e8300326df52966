"""Whatever the rows say, a snapshot makes a problem that a plan can keep, and says so."""

from datetime import timedelta

import pytest

from allocator import cycle, snapshot
from allocator.core.problem import Problem
from allocator.core.solve import solve
from allocator.models import Cycle, Outlook
from budgets import services, shares
from clusters.models import Drain, Node, NodeState
from tests.factories import (
    HOUR,
    T0,
    TIMESTEP,
    make_cluster,
    make_job,
    make_nodes,
    make_pool,
    make_service,
    someone,
)
from tests.helpers import Institute, make_institute
from workloads.models import Holding, Job, Run

pytestmark = [pytest.mark.django_db, pytest.mark.once]
MINUTE = timedelta(minutes=1)


@pytest.fixture
def place() -> Institute:
    return make_institute()


def problem(at=T0) -> Problem:
    return snapshot.take(at=at, version=0).problem


def started(place: Institute, at=T0) -> set[str]:
    """Names of the jobs that a cycle starts."""
    before = set(Run.objects.values_list("pk", flat=True))
    assert place.cycle(at).status == Cycle.Status.COMMITTED
    return set(Run.objects.exclude(pk__in=before).values_list("job__name", flat=True))


def test_a_snapshot_survives_the_file_format(place):
    place.submit(place.petrel)
    place.serve(place.tern)
    place.cycle(T0)
    place.submit(place.auk, minimum_runtime_s=0)
    taken = problem(T0 + MINUTE)
    assert Problem.from_dict(taken.to_dict()) == taken
    assert len(taken.jobs) == 3


def test_one_snapshot_gives_one_plan(place):
    for n in range(6):
        place.submit(place.petrel if n % 2 else place.auk, name=f"job{n}", gpus=4)
    first = solve(problem(), mode="fast", seed=0, iterations=50)
    second = solve(problem(), mode="fast", seed=0, iterations=50)
    assert first.plan == second.plan
    assert first.reasons == second.reasons


def test_a_budget_that_is_renamed_while_a_snapshot_is_read_has_one_path_in_it(place, monkeypatch):
    place.submit(place.petrel)
    load = shares.History.load

    def renamed_before(**span):
        services.rename_budget(budget=place.petrel, slug="kea", author=someone(), now=T0)
        return load(**span)

    monkeypatch.setattr(shares.History, "load", renamed_before)
    taken = problem()
    assert [job.budget for job in taken.jobs] == ["orlo/science/kea"]
    assert "orlo/science/kea" in {budget.path for budget in taken.budgets}


def test_a_cycle_without_any_cluster_has_nothing_to_do(db):
    made = cycle.run(at=T0, trigger="test")
    assert made is None or made.status == Cycle.Status.COMMITTED
    assert not Run.objects.exists()


def test_a_cycle_before_there_are_nodes_keeps_jobs_waiting(place):
    job = place.submit(place.petrel)
    Node.objects.update(active_from=T0 + HOUR)
    cycle.run(at=T0, trigger="test")
    assert not job.runs.exists()
    place.cycle(T0 + HOUR)
    assert job.runs.get().started_at == T0 + HOUR


def test_a_job_whose_pool_has_no_node_left_waits_and_stops_nobody_else(place):
    gone = make_pool("gone", cluster=place.cluster)
    make_nodes(gone, 1, active_until=T0)
    make_job(place.petrel, name="homeless", pools=[gone], minimum_runtime_s=0)
    make_service(place.tern, name="adrift", profile=(2,) * 24).pools.set([gone])
    place.submit(place.petrel, name="fine")
    assert started(place) == {"fine"}
    waiting = dict(Outlook.objects.values_list("job__name", "rule"))
    assert waiting == {"homeless": "no_block", "adrift": "no_block"}


def test_a_job_larger_than_what_is_left_of_the_fleet_waits(place):
    place.submit(place.petrel, name="large", gpus=16)
    place.submit(place.petrel, name="fine", gpus=4)
    Node.objects.filter(pk=place.nodes[0].pk).update(active_until=T0)
    assert started(place) == {"fine"}
    assert Outlook.objects.get().job.name == "large"


def test_a_run_on_a_node_that_was_retired_under_it_does_not_stop_the_cycle(place):
    place.submit(place.petrel, name="stays", gpus=16)
    place.cycle(T0)
    Node.objects.filter(pk=place.nodes[1].pk).update(active_until=T0 + TIMESTEP)
    made = cycle.run(at=T0 + HOUR, trigger="test")
    assert made is not None
    assert made.status == Cycle.Status.COMMITTED
    run = Run.objects.get()
    assert run.ended_at is not None, "its GPUs are gone"
    assert run.ended_at <= T0 + HOUR


def test_a_run_whose_node_is_down_ends_even_if_its_cluster_is_slow_to_say_so(place):
    job = place.submit(place.petrel)
    place.cycle(T0)
    run = job.runs.get()
    NodeState.objects.create(
        node=run.holdings.get().node, at=T0 + MINUTE, state=NodeState.State.DOWN
    )
    place.cycle(T0 + 2 * MINUTE)
    run.refresh_from_db()
    assert (run.end_reason, run.ended_at) == (Run.EndReason.NODE_FAILURE, T0 + 2 * MINUTE)
    again = job.runs.get(number=2)
    assert again.holdings.get().node != run.holdings.get().node


def test_a_drain_waits_for_protected_runs_and_says_so(place):
    for n in range(2):
        place.submit(place.petrel, name=f"job{n}", expected_duration_s=6 * 3600)
    place.cycle(T0)
    Drain.objects.create(node=place.nodes[0], starts_at=T0 + TIMESTEP, reason="repair")
    place.submit(place.tern, at=T0 + 10 * MINUTE, name="late", expected_duration_s=8 * 3600)
    place.play(T0 + 10 * MINUTE, T0 + 4 * HOUR)
    relaxed = Cycle.objects.filter(at=T0 + TIMESTEP).latest("pk").problems
    assert any("protection" in line for line in relaxed)
    on_it = Run.objects.filter(holdings__node=place.nodes[0]).order_by("started_at")
    assert [run.ended_at for run in on_it] == [T0 + HOUR], "stopped when its protection ended"
    assert on_it[0].end_reason == Run.EndReason.PREEMPTED
    assert not Holding.objects.filter(node=place.nodes[0], started_at__gte=T0 + HOUR).exists()


def test_nothing_is_placed_that_would_overlap_a_drain_to_come(place):
    Drain.objects.create(node=place.nodes[0], starts_at=T0 + 2 * HOUR, reason="repair")
    place.submit(place.petrel, name="long", gpus=16, expected_duration_s=5 * 3600)
    place.submit(place.petrel, name="short", gpus=8, expected_duration_s=3600)
    place.submit(place.petrel, name="other", gpus=8, expected_duration_s=5 * 3600)
    place.play(T0, T0 + 4 * HOUR)
    assert not Job.objects.get(name="long").runs.exists()
    assert Job.objects.get(name="short").state == Job.State.COMPLETED
    nodes = Holding.objects.filter(run__job__name="other").values_list("node", flat=True)
    assert list(nodes) == [place.nodes[1].pk]


def test_a_drain_that_is_over_is_forgotten(place):
    Drain.objects.create(node=place.nodes[0], starts_at=T0, ends_at=T0 + HOUR, reason="a new cable")
    place.submit(place.petrel, name="large", gpus=16)
    place.play(T0, T0 + 2 * HOUR)
    assert Job.objects.get().runs.get().started_at == T0 + HOUR


def test_a_service_leaves_a_drained_node_within_its_swap_cap(place):
    place.serve(place.tern, profile=(8,) * 24, swap_cap=2)
    place.cycle(T0)
    there = Holding.objects.earliest("pk").node
    Drain.objects.create(node=there, starts_at=T0 + TIMESTEP, reason="repair")
    place.play(T0 + MINUTE, T0 + 4 * HOUR)
    open_holdings = Holding.objects.filter(ended_at=None)
    assert all(h.node_id != there.pk for h in open_holdings)
    assert sum(h.gpus for h in open_holdings) == 8


def test_a_job_stays_in_the_pools_it_accepts(place):
    other = make_pool("a100", cluster=place.cluster)
    make_nodes(other, 1)
    place.submit(place.petrel, name="first", pools=("a100",))
    place.submit(place.petrel, name="second", pools=("a100",))
    place.submit(place.petrel, name="any")
    now = started(place)
    assert len(now) == 2
    assert "any" in now
    pools = dict(Run.objects.values_list("job__name", "pool__slug"))
    assert pools == {name: "h100" if name == "any" else "a100" for name in now}


def test_a_large_job_takes_whole_consecutive_nodes():
    place = make_institute(nodes=12)
    place.submit(place.petrel, name="one", gpus=1)
    place.submit(place.petrel, name="large", gpus=64)
    place.cycle(T0)
    run = Job.objects.get(name="large").runs.get()
    positions = sorted(h.node.position for h in run.holdings.all())
    assert positions == list(range(positions[0], positions[0] + 8))
    assert all(h.mask == 0xFF for h in run.holdings.all())


def test_two_clusters_are_planned_and_driven_together(place):
    far = make_pool("far", cluster=make_cluster("island"))
    make_nodes(far, 1)
    place.submit(place.petrel, name="near", pools=("h100",))
    place.submit(place.petrel, name="away", pools=("far",))
    assert started(place) == {"near", "away"}
    place.play(T0 + MINUTE, T0 + 3 * HOUR)
    assert set(Job.objects.values_list("state", flat=True)) == {Job.State.COMPLETED}


def test_a_job_waits_for_those_it_depends_on(place):
    first = place.submit(place.petrel, name="first", lasts=3600)
    second = place.submit(place.petrel, name="second", dependencies=(first.pk,))
    place.cycle(T0)
    outlook = Outlook.objects.get(job=second)
    assert (outlook.rule, outlook.data["job"]) == ("dependency", first.pk)
    place.play(T0 + MINUTE, T0 + 2 * HOUR)
    assert second.runs.get().started_at == T0 + HOUR


def test_a_job_whose_dependency_failed_never_starts_and_says_so(place):
    first = place.submit(place.petrel, name="first", fails_after=600)
    second = place.submit(place.petrel, name="second", dependencies=(first.pk,))
    place.play(T0, T0 + HOUR)
    assert not second.runs.exists()
    outlook = Outlook.objects.get(job=second)
    assert (outlook.rule, outlook.data["state"]) == ("dependency", "failed")
