"""Debug jobs ahead of their budget's runs, moves, and a leaf's order by age, through the cycle."""

from datetime import timedelta

import pytest
from django.contrib.auth.models import User
from django.test import Client
from django.urls import reverse

from allocator import snapshot
from clusters.models import Node
from tests.factories import HOUR, T0
from tests.helpers import Institute, arrival, assert_invariants, assert_reconciled, make_institute
from workloads.models import Job, JobEvent, Run

pytestmark = [pytest.mark.django_db, pytest.mark.once]
MINUTE = timedelta(minutes=1)
LATE = T0 + 70 * MINUTE  # what started at T0 is over its minimum runtime


@pytest.fixture
def place() -> Institute:
    """Two nodes of 8."""
    return make_institute()


def probe(place: Institute, at=LATE, **more):
    asked = {"name": "probe", "gpus": 4, "lasts": 300, "time_limit_s": 900}
    asked |= {"expected_duration_s": 300, "minimum_runtime_s": 300}
    return arrival(at, place.submit, place.petrel, **(asked | more))


def decisions() -> list[dict]:
    events = JobEvent.objects.filter(kind="preempted_decided").order_by("at", "pk")
    return [event.data | {"victim": event.job.name} for event in events]


def story(name: str) -> str:
    """The job's page, as an administrator reads it."""
    client = Client()
    client.force_login(User.objects.create_superuser(f"reader-{name}"))
    answer = client.get(reverse("job", args=[Job.objects.get(name=name).pk]))
    assert answer.status_code == 200
    return answer.content.decode()


class TestADebugJob:
    @pytest.fixture
    def full(self, place: Institute) -> Institute:
        """Petrel holds one node, tern, which has used nothing before, the other."""
        place.submit(place.petrel, name="long", expected_duration_s=3 * 3600)
        place.submit(place.tern, name="other", expected_duration_s=3 * 3600)
        return place

    def test_starts_at_once_in_the_place_of_its_own_budget_s_run(self, full):
        full.play(T0, LATE + 30 * MINUTE, [probe(full)])
        run = Job.objects.get(name="probe").runs.get()
        assert (run.started_at, run.end_reason) == (LATE, "completed")
        (stop,) = decisions()
        assert (stop["victim"], stop["cause"], stop["by_name"]) == ("long", "debug", "probe")
        assert "victim_share" not in stop
        assert "A debug job of its own budget took its place" in story("long")

    def test_gives_the_block_back_and_nothing_is_lost(self, full):
        full.play(T0, T0 + 5 * HOUR, [probe(full)])
        long = Job.objects.get(name="long")
        assert long.state == Job.State.COMPLETED
        first, second = long.runs.order_by("number")
        assert second.started_at == LATE + timedelta(seconds=300), "as soon as the probe is over"
        assert first.ended_at - first.started_at + second.ended_at - second.started_at == 3 * HOUR
        assert not Job.objects.get(name="other").runs.filter(end_reason="preempted").exists()
        assert_invariants(at=T0 + 5 * HOUR)
        assert_reconciled()

    def test_waits_while_its_budget_s_run_is_protected(self, full):
        full.play(T0, LATE, [probe(full, at=T0 + 20 * MINUTE)])
        assert Job.objects.get(name="probe").runs.get().started_at == T0 + HOUR

    def test_without_a_time_limit_a_job_is_no_debug_job(self, full):
        full.play(T0, LATE + 10 * MINUTE, [probe(full, time_limit_s=None)])
        assert not Job.objects.get(name="probe").runs.exists()
        assert not decisions()

    def test_is_known_to_be_ahead_of_its_order_as_long_as_it_runs(self, full):
        full.play(T0, LATE + MINUTE, [probe(full, lasts=600)])
        problem = snapshot.take(at=LATE + MINUTE, version=0).problem
        names = {f"job-{job.pk}": job.name for job in Job.objects.all()}
        told = {names[job.name]: job for job in problem.batch}
        assert {name for name, job in told.items() if job.debug} == {"probe"}
        ahead = {name for name, job in told.items() if job.running and job.running.ahead}
        assert ahead == {"probe"}

    def test_that_started_in_its_turn_is_not_ahead(self, place):
        place.play(T0, T0 + MINUTE, [probe(place, at=T0)])
        (job,) = snapshot.take(at=T0 + MINUTE, version=0).problem.batch
        assert job.running is not None
        assert (job.debug, job.running.ahead) == (True, False)


class TestScatteredGpus:
    @pytest.fixture
    def scattered(self, place: Institute) -> Institute:
        """After half an hour each node has a run of 4 and 4 free GPUs."""
        for name, lasts in (("a", 3), ("x", 0.5), ("b", 3), ("y", 0.5)):
            place.submit(
                place.petrel,
                name=name,
                gpus=4,
                lasts=int(lasts * 3600),
                expected_duration_s=int(lasts * 3600),
                minimum_runtime_s=1800,
            )
        return place

    def node_of(self, run: Run) -> int:
        return Node.objects.get(pk=run.holdings.get().node_id).position

    def test_a_run_moves_aside_and_goes_on_at_once(self, scattered):
        wide = arrival(LATE, scattered.submit, scattered.petrel, name="wide", minimum_runtime_s=600)
        scattered.play(T0, LATE + MINUTE, [wide])
        assert Job.objects.get(name="wide").runs.get().started_at == LATE
        (stop,) = decisions()
        assert (stop["cause"], stop["by_name"]) == ("moved", "wide")
        assert "It was moved, to make one block of scattered free GPUs" in story(stop["victim"])
        assert "victim_share" not in stop
        first, second = Job.objects.get(name=stop["victim"]).runs.order_by("number")
        assert second.started_at - first.ended_at == timedelta(seconds=1)
        assert self.node_of(first) != self.node_of(second)

    def test_all_is_charged_and_accounted_for(self, scattered):
        wide = arrival(LATE, scattered.submit, scattered.petrel, name="wide")
        scattered.play(T0, T0 + 6 * HOUR, [wide])
        done = set(Job.objects.filter(state=Job.State.COMPLETED).values_list("name", flat=True))
        assert done == {"a", "b", "x", "y", "wide"}
        assert_invariants(at=T0 + 6 * HOUR)
        assert_reconciled()


class TestTheOrderInsideALeaf:
    @pytest.fixture
    def waiting(self, place: Institute) -> Institute:
        """Everything is held; three jobs wait."""
        for name in ("m", "n"):
            place.submit(place.tern, name=name, expected_duration_s=6 * 3600)
        asks = [
            arrival(T0 + 10 * MINUTE, place.submit, place.petrel, name="one", gpus=1),
            arrival(T0 + 40 * MINUTE, place.submit, place.petrel, name="eight", gpus=8),
            arrival(T0 + 50 * MINUTE, place.submit, place.petrel, name="two", gpus=2),
        ]
        place.play(T0, T0 + 50 * MINUTE, asks)
        return place

    def order(self, at) -> list[str]:
        problem = snapshot.take(at=at, version=0).problem
        names = {f"job-{job.pk}": job.name for job in Job.objects.all()}
        return [names[job.name] for job in problem.batch if job.running is None]

    @pytest.mark.parametrize(
        ("minutes", "order"),
        [
            (44, ["one", "eight"]),  # 34 and 32 GPU-minutes
            (45, ["eight", "one"]),  # 40 and 35
            (50, ["eight", "one", "two"]),  # 80, 40, 0
            (91, ["eight", "two", "one"]),  # 82 and 81
        ],
    )
    def test_follows_the_age_in_gpu_seconds(self, waiting, minutes, order):
        wanted = [name for name in self.order(T0 + minutes * MINUTE) if name in order]
        assert wanted == order

    def test_of_equal_age_the_first_submitted_comes_first(self, waiting):
        assert self.order(T0 + 90 * MINUTE) == ["eight", "one", "two"]  # 80 and 80
