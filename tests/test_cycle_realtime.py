"""Real-time services through the whole cycle: demand, swap cap, funds, and too few GPUs."""

from datetime import timedelta

import pytest

from allocator import admission, playing
from clusters.connectors.simulated import SimulatedConnector
from clusters.models import SimulatedFault
from ledger.models import Entry
from tests.factories import HOUR, T0, TIMESTEP, make_nodes, make_pool
from tests.helpers import CREDIT, PLENTY, Institute, arrival, grant, make_institute
from workloads.models import Holding, Job

pytestmark = [pytest.mark.django_db, pytest.mark.once]
MINUTE = timedelta(minutes=1)


@pytest.fixture
def place() -> Institute:
    return make_institute()


def held(job: Job, at, *, funded: bool | None = None) -> int:
    """GPUs that a job held at an instant, by its holdings."""
    return sum(
        h.gpus
        for h in Holding.objects.filter(run__job=job, started_at__lte=at)
        if (h.ended_at is None or h.ended_at > at) and funded in (None, h.funded)
    )


def test_a_service_follows_its_demand_within_its_swap_cap(place):
    profile = (2, 2, 6, 6, 1, 0, 0, 2) + (2,) * 16
    job = place.serve(place.tern, profile=profile, swap_cap=2)
    place.play(T0, T0 + 8 * HOUR)
    counts = [held(job, T0 + TIMESTEP * t) for t in range(16)]
    # Up by 2 a timestep; down in time for the 1 at 04:00, which it may not exceed.
    assert counts == [2, 2, 2, 2, 4, 6, 5, 3, 1, 1, 0, 0, 0, 0, 2, 2]
    assert job.runs.count() == 1


def test_a_service_is_one_run_whose_gpus_change_by_dated_intervals(place):
    job = place.serve(place.tern, profile=(2, 4, 2) + (2,) * 21)
    place.play(T0, T0 + 3 * HOUR)
    run = job.runs.get()
    assert (run.started_at, run.ended_at) == (T0, None)
    spans = run.holdings.order_by("started_at", "id").values_list("started_at", "ended_at")
    assert {start for start, _ in spans} == {T0, T0 + HOUR, T0 + 2 * HOUR}
    charged = Entry.objects.filter(kind="charge", run=run).order_by("at")
    assert [entry.gpu_seconds // 1800 for entry in charged] == [2, 2, 4, 4, 2, 2]


def test_a_service_is_funded_up_to_its_leaf_s_entitlement_and_free_beyond(place):
    job = place.serve(place.tern, profile=(10,) * 24, swap_cap=10)  # entitled: 40 % of 16 GPUs
    place.play(T0, T0 + HOUR)
    assert (held(job, T0, funded=True), held(job, T0, funded=False)) == (6, 4)
    charges = Entry.objects.filter(kind="charge", run__job=job)
    assert sum(e.amount_mgpus for e in charges) == 6 * CREDIT
    assert sum(e.gpu_seconds for e in charges.filter(funded=False)) == 4 * 3600


def test_two_services_of_a_leaf_share_one_entitlement(place):
    first = place.serve(place.tern, name="first", profile=(5,) * 24)
    second = place.serve(place.tern, name="second", profile=(5,) * 24)
    place.cycle(T0)
    assert held(first, T0) == held(second, T0) == 5
    assert held(first, T0, funded=True) + held(second, T0, funded=True) == 6


def test_a_service_holds_its_timestep_anew_each_tick(place):
    job = place.serve(place.tern, profile=(4,) * 24)
    place.play(T0, T0 + 2 * HOUR)
    holds = Entry.objects.filter(kind="hold", job=job).order_by("at")
    assert [(e.at, e.amount_mgpus) for e in holds] == [
        (T0 + TIMESTEP * t, 4 * 1800 * 1000) for t in range(5)
    ]
    released = Entry.objects.filter(kind="release", job=job)
    assert sum(e.amount_mgpus for e in released) == 4 * 2 * CREDIT


def test_a_service_out_of_credits_goes_on_unfunded():
    place = make_institute(credits={"orlo/vision/tern": 5, "orlo/science/petrel": PLENTY})
    job = place.serve(place.tern, profile=(4,) * 24)
    place.play(T0, T0 + 3 * HOUR)
    assert [held(job, T0 + TIMESTEP * t, funded=True) for t in range(6)] == [4, 4, 2, 0, 0, 0]
    assert all(held(job, T0 + TIMESTEP * t) == 4 for t in range(6)), "never stopped for money"
    charged = Entry.objects.filter(kind="charge", run__job=job)
    assert sum(e.amount_mgpus for e in charged) == 5 * CREDIT


def test_a_replan_leaves_a_service_what_the_tick_has_paid_for():
    place = make_institute(credits={"orlo/vision/tern": 2, "orlo/science/petrel": PLENTY})
    job = place.serve(place.tern, profile=(4,) * 24)
    place.play(T0, T0 + HOUR, [arrival(T0 + 5 * MINUTE, place.submit, place.petrel)])
    assert held(job, T0 + 29 * MINUTE, funded=True) == 4, "paid to the timestep's end"
    assert held(job, T0 + TIMESTEP, funded=True) == 0
    charged = Entry.objects.filter(kind="charge", run__job=job)
    assert sum(e.amount_mgpus for e in charged) == 2 * CREDIT


def test_two_services_of_a_leaf_share_its_last_credits():
    place = make_institute(credits={"orlo/vision/tern": 2})
    first = place.serve(place.tern, name="first", profile=(3,) * 24)
    second = place.serve(place.tern, name="second", profile=(3,) * 24)
    place.cycle(T0)
    assert (held(first, T0, funded=True), held(second, T0, funded=True)) == (3, 1)


def test_losing_funds_changes_nothing_that_is_past():
    place = make_institute(credits={"orlo/vision/tern": 7})
    job = place.serve(place.tern, profile=(4,) * 24)
    place.play(T0, T0 + 3 * HOUR)
    before = list(Holding.objects.filter(run__job=job, funded=True).values_list("started_at"))
    assert before, "it was funded at first"
    assert [held(job, T0 + TIMESTEP * t, funded=True) for t in range(5)] == [4, 4, 4, 2, 0]
    grant(place.tern, 100, at=T0 + 3 * HOUR)
    place.play(T0 + 3 * HOUR + TIMESTEP, T0 + 4 * HOUR)
    assert [held(job, T0 + TIMESTEP * t, funded=True) for t in range(5)] == [4, 4, 4, 2, 0]
    assert held(job, T0 + 3 * HOUR + TIMESTEP, funded=True) == 4


def test_a_service_takes_what_there_is_when_gpus_are_too_few():
    place = make_institute(nodes=1)
    for n in range(2):
        place.submit(place.petrel, name=f"block{n}", gpus=4, expected_duration_s=4 * 3600)
    place.cycle(T0)
    job = place.serve(place.tern, at=T0 + MINUTE, profile=(6,) * 24, swap_cap=6)
    place.play(T0 + MINUTE, T0 + 3 * HOUR)
    assert held(job, T0 + 2 * MINUTE) == 0, "both blocks are protected"
    assert held(job, T0 + HOUR) >= 4, "one block at least is stopped for it"
    assert Job.objects.get(name="chat").state == Job.State.RUNNING


def test_a_service_survives_the_loss_of_most_of_its_cluster(place):
    job = place.serve(place.tern, profile=(12,) * 24, swap_cap=4)
    fault = T0 + HOUR + 7 * MINUTE
    SimulatedFault.objects.create(node=place.nodes[0], starts_at=fault, ends_at=fault + 3 * HOUR)
    SimulatedFault.objects.create(node=place.nodes[1], starts_at=fault, ends_at=fault + HOUR)
    place.play(T0, T0 + 5 * HOUR)
    first, second = job.runs.order_by("number")
    assert (first.end_reason, first.ended_at) == ("node_failure", fault)
    assert second.started_at == fault + HOUR, "with what is back, at once"
    assert held(job, fault + HOUR) == 8
    assert held(job, T0 + 5 * HOUR) == 12


def test_a_service_whose_demand_falls_to_nothing_comes_back_as_the_same_run(place):
    job = place.serve(place.tern, profile=(4, 0, 0, 4) + (4,) * 20)
    place.play(T0, T0 + 4 * HOUR)
    assert [held(job, T0 + HOUR * h) for h in range(4)] == [4, 0, 0, 4]
    assert job.runs.get().state == "running"


def test_a_cancelled_service_gives_its_gpus_back(place):
    job = place.serve(place.tern)
    stop = playing.Arrival(T0 + 70 * MINUTE, lambda at: admission.cancel(job=job, by=None, now=at))
    place.play(T0, T0 + 2 * HOUR, [stop])
    job.refresh_from_db()
    assert (job.state, job.ended_at) == (Job.State.CANCELLED, T0 + 70 * MINUTE)
    charged = Entry.objects.filter(kind="charge", run__job=job)
    assert sum(e.gpu_seconds for e in charged) == 4 * 70 * 60


def test_a_service_stays_in_one_pool_where_it_may_use_any(place):
    other = make_pool("a100", rate=500, cluster=place.cluster)
    make_nodes(other, 1)
    place.submit(place.petrel)
    place.cycle(T0)
    job = place.serve(place.tern, profile=(12,) * 24, swap_cap=20)
    place.play(T0, T0 + HOUR)
    run = job.runs.get()
    assert {h.node.pool_id for h in run.holdings.all()} == {run.pool_id}


def test_a_service_that_restarts_within_a_timestep_sets_aside_anew():
    place = make_institute(nodes=3, credits={"orlo/vision/tern": 3})
    job = place.serve(place.tern, profile=(4,) * 24)
    place.cycle(T0)
    fault, there = T0 + 5 * MINUTE, job.runs.get().holdings.get().node
    SimulatedFault.objects.create(node=there, starts_at=fault, ends_at=fault + HOUR)
    place.cycle(fault)
    assert held(job, fault, funded=True) == 4
    rival = place.submit(place.tern, at=fault + MINUTE, gpus=4, minimum_runtime_s=2000)
    assert not rival.funded, "4 GPUs for 2,000 s are 2.2 credits, and 1.7 of the 3 are set aside"
    place.play(fault + MINUTE, T0 + HOUR)


def test_a_tick_that_is_late_follows_the_demand_all_the_same(place):
    job = place.serve(place.tern, profile=(2, 4, 4, 1) * 6)
    late = timedelta(seconds=7)
    for n in range(8):
        place.cycle(T0 + n * TIMESTEP + late)
    assert [held(job, T0 + n * TIMESTEP + late) for n in range(8)] == [2, 2, 4, 4, 4, 4, 1, 1]
    holds = Entry.objects.filter(kind="hold", job=job, at=T0 + HOUR + late)
    assert [e.amount_mgpus for e in holds] == [4 * 1793 * 1000], "the rest of the timestep"


def test_a_service_moves_once_in_a_timestep_however_many_cycles_it_has(place):
    job = place.serve(place.tern, profile=(6, 0) * 12, swap_cap=2)
    place.cycle(T0)
    before = held(job, T0)
    for at in (T0 + TIMESTEP, T0 + TIMESTEP, T0 + TIMESTEP + MINUTE):
        place.cycle(at)
    assert before - held(job, T0 + TIMESTEP + MINUTE) == 2


def test_services_that_shrink_do_so_before_others_grow_onto_their_gpus(monkeypatch):
    place = make_institute(nodes=1)
    grows = place.serve(place.tern, name="grows", profile=(2, 6) * 12)
    shrinks = place.serve(place.tern, name="shrinks", profile=(6, 2) * 12)
    place.play(T0, T0 + TIMESTEP)
    order, resize = [], SimulatedConnector.resize

    def watched(self, external_id, *args, **kwargs):
        order.append(external_id)
        return resize(self, external_id, *args, **kwargs)

    monkeypatch.setattr(SimulatedConnector, "resize", watched)
    place.cycle(T0 + HOUR)
    assert order == [job.runs.get().external_id for job in (shrinks, grows)]
