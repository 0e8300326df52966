"""A solver that is wrong and clusters that fail: nothing is lost, and somebody is told."""

import random
from datetime import timedelta
from typing import Any

import pytest

from allocator import admission, cycle
from allocator.core.plan import Assignment, Plan
from allocator.core.solve import solve
from allocator.models import Alarm, AllocatorState, Cycle, Outlook
from clusters.connectors import KINDS
from clusters.connectors.base import ConnectorError
from clusters.connectors.simulated import SimulatedConnector
from clusters.models import SimulatedFault, SimulatedTask
from ledger.models import ClosedTimestep, Entry
from tests.factories import HOUR, T0, TIMESTEP, make_cluster, make_nodes, make_pool
from tests.flaky import Flaky
from tests.helpers import Institute, assert_reconciled, make_institute
from workloads.models import Holding, Job, Run

pytestmark = [pytest.mark.django_db, pytest.mark.once]
MINUTE = timedelta(minutes=1)


@pytest.fixture
def place() -> Institute:
    return make_institute()


def open_alarms() -> set[str]:
    return set(Alarm.objects.filter(cleared_at=None).values_list("kind", flat=True))


# --- Plans that may not be -----------------------------------------------------------------------


def illegal(change: Any) -> Any:
    """A solver whose assignments are changed before anybody sees them."""

    def planted(problem: Any, **options: Any) -> Any:
        result = solve(problem, **options)
        plan = result.plan
        changed = Plan(plan.gpus, plan.horizon, tuple(change(plan.assignments)), plan.realtime)
        object.__setattr__(result, "plan", changed)
        return result

    return planted


def moved(assignments):
    return [Assignment(a.job, 1, a.gpus, a.start, a.end) for a in assignments]


def doubled(assignments):
    return [Assignment(a.job, 0, a.gpus, 0, a.end - a.start) for a in assignments]


def dropped(assignments):
    return []


@pytest.mark.parametrize("change", [moved, doubled, dropped])
def test_an_illegal_plan_is_never_committed(place, monkeypatch, change):
    place.submit(place.petrel, name="runs", gpus=4)
    place.cycle(T0)
    for n in range(2):
        place.submit(place.auk, at=T0 + MINUTE, name=f"waits{n}", gpus=4)
    before = list(Run.objects.values()), list(Holding.objects.values())
    monkeypatch.setattr(cycle, "solve", illegal(change))
    made = place.cycle(T0 + MINUTE)
    assert made.status == Cycle.Status.ILLEGAL
    assert made.problems
    assert (list(Run.objects.values()), list(Holding.objects.values())) == before
    assert open_alarms() == {"illegal_plan"}
    monkeypatch.undo()
    assert place.cycle(T0 + 2 * MINUTE).status == Cycle.Status.COMMITTED
    assert open_alarms() == set()
    assert Run.objects.count() == 3


def test_while_plans_are_illegal_what_runs_is_still_charged_and_ended(place, monkeypatch):
    job = place.submit(place.petrel, lasts=5000)
    place.cycle(T0)
    monkeypatch.setattr(cycle, "solve", illegal(moved))
    for n in range(1, 5):
        place.submit(place.auk, at=T0 + n * TIMESTEP, gpus=4)
        place.cycle(T0 + n * TIMESTEP)
    job.refresh_from_db()
    assert job.state == Job.State.COMPLETED
    assert sum(e.amount_mgpus for e in Entry.objects.filter(kind="charge")) == 8 * 5000 * 1000


def test_a_stale_plan_is_made_again(place, monkeypatch):
    place.submit(place.petrel)
    calls = []

    def slow(problem: Any, **options: Any) -> Any:
        calls.append(problem)
        if len(calls) == 1:
            AllocatorState.objects.filter(pk=1).update(version=41)
        return solve(problem, **options)

    monkeypatch.setattr(cycle, "solve", slow)
    assert place.cycle(T0).status == Cycle.Status.COMMITTED
    assert len(calls) == 2
    assert Run.objects.count() == 1


# --- Clusters that fail --------------------------------------------------------------------------


@pytest.fixture
def flaky(monkeypatch):
    monkeypatch.setitem(KINDS, "simulated", Flaky)
    monkeypatch.setattr(Flaky, "failing", set())
    monkeypatch.setattr(Flaky, "chance", 0.0)
    return Flaky


def run(place: Institute, at) -> Cycle | None:
    """A cycle whose decisions may be left over; everything else must hold."""
    made = cycle.run(at=at, trigger="test")
    place.check(at=at, settled=False)
    return made


@pytest.mark.parametrize("moment", ["before", "after"])
def test_a_start_whose_answer_is_lost_is_carried_out_once(place, flaky, moment):
    job = place.submit(place.petrel)
    flaky.failing = {("start", moment)}
    run(place, T0)
    assert job.runs.get().state == Run.State.STARTING
    assert open_alarms() == {"unreachable:mainland"}
    flaky.failing = set()
    run(place, T0 + MINUTE)
    there = SimulatedTask.objects.get()
    assert job.runs.get().started_at == there.started_at
    assert there.started_at == (T0 if moment == "after" else T0 + MINUTE)
    assert open_alarms() == set()
    place.play(T0 + 2 * MINUTE, T0 + 3 * HOUR)
    job.refresh_from_db()
    assert job.state == Job.State.COMPLETED


@pytest.mark.parametrize("moment", ["before", "after"])
def test_a_stop_whose_answer_is_lost_ends_the_run_once(place, flaky, moment):
    job = place.submit(place.petrel)
    run(place, T0)
    admission.cancel(job=job, by=place.user, now=T0 + MINUTE)
    flaky.failing = {("stop", moment)}
    run(place, T0 + MINUTE)
    assert job.runs.get().state == Run.State.STOPPING
    flaky.failing = set()
    run(place, T0 + 2 * MINUTE)
    ended = T0 + MINUTE if moment == "after" else T0 + 2 * MINUTE
    assert job.runs.get().ended_at == ended
    place.cycle(T0 + TIMESTEP)
    charge = Entry.objects.get(kind="charge")
    assert charge.gpu_seconds == 8 * (ended - T0).total_seconds()


@pytest.mark.parametrize("moment", ["before", "after"])
def test_a_resize_whose_answer_is_lost_is_charged_from_when_it_was_done(place, flaky, moment):
    job = place.serve(place.tern, profile=(2, 4) + (4,) * 22)
    run(place, T0)
    run(place, T0 + TIMESTEP)
    flaky.failing = {("resize", moment)}
    run(place, T0 + HOUR)
    run(place, T0 + HOUR + TIMESTEP)
    assert ClosedTimestep.objects.count() == 2, "what is not certain stays open"
    flaky.failing = set()
    run(place, T0 + 2 * HOUR)
    place.check(at=T0 + 2 * HOUR)
    assert ClosedTimestep.objects.count() == 4
    charged = Entry.objects.filter(kind="charge", job=job, at__gte=T0 + HOUR)
    assert sum(e.gpu_seconds for e in charged) == (4 if moment == "after" else 2) * 3600


def test_a_run_that_ended_while_its_cluster_was_away_is_charged_to_its_end(place, flaky):
    job = place.submit(place.petrel, lasts=2400)
    run(place, T0)
    flaky.failing = {("observe", "before")}
    for n in range(1, 5):
        run(place, T0 + n * TIMESTEP)
    assert not ClosedTimestep.objects.exists()
    flaky.failing = set()
    run(place, T0 + 5 * TIMESTEP)
    assert ClosedTimestep.objects.count() == 5
    assert sum(e.gpu_seconds for e in Entry.objects.filter(kind="charge")) == 8 * 2400
    job.refresh_from_db()
    assert (job.state, job.ended_at) == (Job.State.COMPLETED, T0 + timedelta(seconds=2400))


@pytest.mark.parametrize("moment", ["before", "after"])
def test_a_start_that_slips_into_the_next_timestep_is_paid_there_or_is_free(flaky, moment):
    place = make_institute(credits={"orlo/science/petrel": 3})
    job = place.submit(place.petrel, minimum_runtime_s=600)
    flaky.failing = {("start", "before")}
    run(place, T0 + 29 * MINUTE)
    flaky.failing = {("start", moment)} - {("start", "before")}
    run(place, T0 + 31 * MINUTE)
    flaky.failing = set()
    run(place, T0 + 75 * MINUTE)
    place.cycle(T0 + 2 * HOUR)
    paid = job.runs.get().holdings.get(funded=True)
    assert (paid.started_at, paid.ended_at) == (T0 + 31 * MINUTE, T0 + 41 * MINUTE)
    charges = Entry.objects.filter(kind="charge", job=job)
    assert sum(e.amount_mgpus for e in charges) == 8 * 600 * 1000


def test_without_telemetry_a_run_is_charged_as_busy_and_an_alarm_says_so(place, flaky):
    parked = {"simulate": {"duration_s": 7200, "idle": [[0, None]]}}
    place.submit(place.petrel, spec=parked)
    run(place, T0)
    flaky.failing = {("idle", "before")}
    run(place, T0 + TIMESTEP)
    flaky.failing = set()
    run(place, T0 + 2 * TIMESTEP)
    charges = Entry.objects.filter(kind="charge").order_by("at")
    assert [(c.gpu_seconds, c.parked_gpu_seconds) for c in charges] == [
        (8 * 1800, 0),
        (8 * 1800, 8 * 1800),
    ]
    assert Alarm.objects.filter(kind="no-telemetry:mainland").count() == 1
    assert open_alarms() == set()


def test_while_one_cluster_is_away_the_other_goes_on(place, monkeypatch):
    island = make_cluster("island")
    make_nodes(make_pool("far", cluster=island), 1)

    class Away(SimulatedConnector):
        def observe(self, *args: Any, **kwargs: Any) -> Any:
            if self.cluster.slug == "island":
                raise ConnectorError("The ferry doesn't go.")
            return super().observe(*args, **kwargs)

    monkeypatch.setitem(KINDS, "simulated", Away)
    far = place.submit(place.petrel, name="far", pools=("far",))
    place.submit(place.petrel, name="near")
    place.cycle(T0)
    assert Job.objects.get(name="near").state == Job.State.RUNNING
    assert Outlook.objects.get(job=far).rule == "unreachable"
    assert open_alarms() == {"unreachable:island"}


def test_what_runs_on_a_cluster_that_is_away_is_left_as_it_is(place, monkeypatch):
    island = make_cluster("island")
    make_nodes(make_pool("far", cluster=island), 1)
    far = place.submit(place.petrel, name="far", pools=("far",), expected_duration_s=6 * 3600)
    place.cycle(T0)

    class Away(SimulatedConnector):
        def observe(self, *args: Any, **kwargs: Any) -> Any:
            if self.cluster.slug == "island":
                raise ConnectorError("The ferry doesn't go.")
            return super().observe(*args, **kwargs)

    monkeypatch.setitem(KINDS, "simulated", Away)
    place.submit(place.tern, at=T0 + 2 * HOUR, name="near", pools=("h100",))
    made = place.cycle(T0 + 2 * HOUR)
    assert (made.status, made.starts, made.stops) == (Cycle.Status.COMMITTED, 1, 0)
    assert far.runs.get().state == Run.State.RUNNING
    monkeypatch.undo()
    place.cycle(T0 + 3 * HOUR)
    assert sum(e.gpu_seconds for e in far.runs.get().entries.filter(kind="charge")) == 8 * 3 * 3600


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.slow
def test_calls_that_fail_at_random_lose_nothing(flaky, seed):
    place = make_institute(credits={"orlo/science/petrel": 60, "orlo/vision/tern": 30})
    flaky.dice, flaky.chance = random.Random(seed), 0.15
    place.serve(place.tern, profile=(1, 3, 2, 4) * 6, swap_cap=2)
    dice = random.Random(100 + seed)
    fault = T0 + dice.randrange(3600, 9000) * timedelta(seconds=1)
    SimulatedFault.objects.create(node=place.nodes[0], starts_at=fault, ends_at=fault + HOUR)
    for n in range(20):
        at = T0 + n * 15 * MINUTE
        if n % 2:
            leaf = dice.choice([place.petrel, place.auk, place.tern])
            place.submit(
                leaf,
                at=at,
                gpus=dice.choice([1, 2, 4, 8]),
                minimum_runtime_s=dice.choice([0, 1800]),
                expected_duration_s=dice.choice([1200, 3600, 9000]),
            )
        run(place, at)
    flaky.chance = 0.0
    run(place, T0 + 6 * HOUR)
    place.cycle(T0 + 6 * HOUR + MINUTE)
    assert open_alarms() == set()
    assert ClosedTimestep.objects.count() == 12
    assert Job.objects.filter(state=Job.State.COMPLETED).exists()
    assert Entry.objects.filter(kind="charge").exists()


def test_an_end_whose_hold_can_t_be_released_is_no_end_yet(place, monkeypatch):
    """End and release are one transaction: what falls over between them has ended nothing."""
    job = place.submit(place.petrel)
    run(place, T0)
    admission.cancel(job=job, by=place.user, now=T0 + MINUTE)

    def broken(**given: object) -> None:
        raise RuntimeError("the disk is full")

    with monkeypatch.context() as patch:
        patch.setattr("allocator.driving.ledger.release_rest", broken)
        with pytest.raises(RuntimeError, match="the disk is full"):
            cycle.run(at=T0 + MINUTE, trigger="test")
    assert job.runs.get().ended_at is None
    run(place, T0 + 2 * MINUTE)
    assert job.runs.get().state == Run.State.ENDED
    place.cycle(T0 + TIMESTEP)
    assert_reconciled()
