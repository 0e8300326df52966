"""A call to a cluster that fails, whatever it raises, costs nobody else anything."""

import logging
from collections.abc import Callable
from datetime import timedelta
from typing import Any, ClassVar

import pytest

from allocator import admission, cycle
from allocator.models import Alarm, Cycle, Outlook
from clusters.connectors import KINDS
from clusters.connectors.base import ConnectorError, NodeReport, Observation
from clusters.connectors.simulated import SimulatedConnector
from ledger.models import ClosedTimestep, Entry
from tests.factories import HOUR, T0, TIMESTEP, make_cluster, make_nodes, make_pool
from tests.helpers import Institute, make_institute
from workloads.models import Job, Run

pytestmark = [pytest.mark.django_db, pytest.mark.once]
MINUTE = timedelta(minutes=1)
Breaks = Callable[..., Any]


class Broken(SimulatedConnector):
    """Does to each call what the test says first; ``made`` lists all calls."""

    breaks: ClassVar[dict[str, Breaks]] = {}
    made: ClassVar[list[tuple[str, str]]] = []

    def _call(self, name: str, whom: str, *args: Any, **kwargs: Any) -> Any:
        self.made.append((name, whom))
        if name in self.breaks:
            instead = self.breaks[name](self.cluster.slug, whom)
            if instead is not None:
                return instead[0]
        return getattr(super(), name)(*args, **kwargs)

    def observe(self, **kwargs: Any) -> Any:
        return self._call("observe", self.cluster.slug, **kwargs)

    def start(self, order: Any, *, at: Any) -> Any:
        return self._call("start", order.external_id, order, at=at)

    def stop(self, external_id: str, *, at: Any) -> Any:
        return self._call("stop", external_id, external_id, at=at)

    def resize(self, external_id: str, placements: Any, *, at: Any) -> Any:
        return self._call("resize", external_id, external_id, placements, at=at)

    def idle(self, windows: Any) -> Any:
        return self._call("idle", self.cluster.slug, windows)


@pytest.fixture(autouse=True)
def broken(monkeypatch) -> type[Broken]:
    monkeypatch.setitem(KINDS, "simulated", Broken)
    Broken.breaks.clear()
    Broken.made.clear()
    return Broken


@pytest.fixture
def place() -> Institute:
    return make_institute()


def raises(error: Exception, *, on: Callable[[str, str], bool] = lambda *_: True) -> Breaks:
    def breaks(slug: str, whom: str) -> None:
        if on(slug, whom):
            raise error

    return breaks


def answers(answer: Any) -> Breaks:
    return lambda *_: (answer,)


def of(job: Job) -> Callable[[str, str], bool]:
    return lambda _, whom: whom.startswith(f"allotment-{job.pk}-")


def run(place: Institute, at: Any) -> Cycle | None:
    made = cycle.run(at=at, trigger="test")
    place.check(at=at, settled=False)
    return made


def states(*jobs: Job) -> list[str]:
    return [Job.objects.get(pk=job.pk).state for job in jobs]


def alarms() -> dict[str, str]:
    return dict(Alarm.objects.filter(cleared_at=None).values_list("kind", "text"))


def calls(name: str) -> list[str]:
    return [whom for call, whom in Broken.made if call == name]


ERRORS = [ConnectorError("No route.\nmore"), ValueError("No route.\nmore"), OSError("No route.")]


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
def test_a_start_that_fails_holds_up_no_other_run(place, broken, error, caplog):
    one = place.submit(place.petrel, name="one")
    two = place.submit(place.auk, name="two")
    broken.breaks["start"] = raises(error, on=of(one))
    with caplog.at_level(logging.ERROR, logger="allocator"):
        run(place, T0)
    assert states(one, two) == ["starting", "running"]
    said = f"Mainland didn't start allotment-{one.pk}-1: {type(error).__name__}: No route."
    assert alarms() == {"unreachable:mainland": said}
    assert any(record.exc_info for record in caplog.records if record.message == said)
    broken.breaks.clear()
    run(place, T0 + MINUTE)
    assert states(one, two) == ["running", "running"]
    assert alarms() == {}


def test_the_alarm_stays_one_alarm_while_the_start_goes_on_failing(place, broken):
    one = place.submit(place.petrel, name="one")
    broken.breaks["start"] = raises(ValueError("No."), on=of(one))
    for n in range(4):
        run(place, T0 + n * MINUTE)
    assert Alarm.objects.count() == 1
    admission.cancel(job=one, by=place.user, now=T0 + 5 * MINUTE)
    broken.breaks.clear()
    run(place, T0 + 5 * MINUTE)
    assert states(one) == ["cancelled"]
    assert alarms() == {}


def test_while_a_start_fails_its_cluster_is_planned_and_charged_all_the_same(place, broken):
    one = place.submit(place.petrel, name="one")
    broken.breaks["start"] = raises(ValueError("No."), on=of(one))
    run(place, T0)
    two = place.submit(place.auk, at=T0 + MINUTE, name="two")
    run(place, T0 + MINUTE)
    assert states(one, two) == ["starting", "running"]
    run(place, T0 + TIMESTEP)
    run(place, T0 + 2 * TIMESTEP)
    assert ClosedTimestep.objects.count() == 2
    charged = Entry.objects.filter(kind="charge")
    assert {entry.job_id for entry in charged} == {two.pk}
    assert sum(entry.gpu_seconds for entry in charged) == 8 * 59 * 60


def test_after_three_failures_in_a_row_a_cluster_is_left_alone_for_the_cycle(place, broken):
    island = make_cluster("island")
    make_nodes(make_pool("far", cluster=island), 1)
    near = [place.submit(place.petrel, name=f"n{n}", gpus=2, pools=("h100",)) for n in range(6)]
    far = place.submit(place.petrel, name="far", pools=("far",))
    broken.breaks["start"] = raises(
        ConnectorError("Timed out."), on=lambda slug, _: slug == "mainland"
    )
    run(place, T0)
    assert len(calls("start")) == 4
    assert states(far) == ["running"]
    assert states(*near) == ["starting"] * 6
    broken.made.clear()
    run(place, T0 + MINUTE)
    assert len(calls("start")) == 3, "three again, over the whole cycle"
    broken.breaks.clear()
    run(place, T0 + 2 * MINUTE)
    assert states(*near) == ["running"] * 6
    assert alarms() == {}


def test_one_that_succeeds_between_starts_the_count_anew(place, broken):
    jobs = [place.submit(place.petrel, name=f"n{n}", gpus=2) for n in range(8)]
    healthy = jobs[2]
    broken.breaks["start"] = raises(OSError("No."), on=lambda *a: not of(healthy)(*a))
    run(place, T0)
    assert len(calls("start")) == 6
    assert states(healthy) == ["running"]


def test_a_cluster_that_does_not_tell_is_asked_little_more(place, broken):
    jobs = [place.submit(place.petrel, name=f"n{n}", gpus=2) for n in range(6)]
    broken.breaks["start"] = raises(OSError("No."))
    run(place, T0)
    broken.made.clear()
    broken.breaks["observe"] = raises(OSError("No."))
    run(place, T0 + MINUTE)
    assert len(calls("observe")) + len(calls("start")) == 3
    assert states(*jobs) == ["starting"] * 6


def preempted_by_better_entitled(place: Institute) -> tuple[Job, Job]:
    """A job that runs past its protection, and one that is to have its GPUs now."""
    for n in range(2):
        place.submit(place.petrel, name=f"old{n}", minimum_runtime_s=600, lasts=9 * 3600)
    run(place, T0)
    new = place.submit(place.tern, at=T0 + HOUR, name="new", gpus=8, resumable=False)
    return Job.objects.get(name="old0"), new


def test_a_start_whose_gpus_a_failed_stop_still_holds_is_not_sent(place, broken, settings):
    settings.PREEMPTION_CAP_PERCENT = 100
    _, new = preempted_by_better_entitled(place)
    broken.made.clear()
    broken.breaks["stop"] = raises(RuntimeError("No."))
    run(place, T0 + HOUR)
    (stopped,) = calls("stop")
    assert calls("start") == []
    assert states(new) == ["starting"]
    assert Run.objects.get(state="stopping").external_id == stopped
    run(place, T0 + HOUR + MINUTE / 2)
    assert set(alarms()) == {"unreachable:mainland"}, "there is a plan once it is certain"
    broken.made.clear()
    broken.breaks.clear()
    run(place, T0 + HOUR + MINUTE)
    assert calls("start") == [f"allotment-{new.pk}-1"]
    assert new.runs.get().started_at == T0 + HOUR + MINUTE
    victim = Run.objects.get(end_reason="preempted")
    assert victim.ended_at == T0 + HOUR + MINUTE
    place.check(at=T0 + HOUR + MINUTE)


def test_a_set_that_is_not_confirmed_keeps_its_cluster_unplanned(place, broken):
    service = place.serve(place.tern, profile=(2, 4) + (4,) * 22)
    run(place, T0)
    broken.breaks["resize"] = raises(KeyError("gone"))
    run(place, T0 + HOUR)
    waits = place.submit(place.petrel, at=T0 + HOUR + MINUTE, name="waits", pools=("h100",))
    made = run(place, T0 + HOUR + MINUTE)
    assert made is None
    assert states(waits) == ["queued"]
    broken.breaks.clear()
    run(place, T0 + HOUR + 2 * MINUTE)
    assert states(service, waits) == ["running", "running"]
    assert alarms() == {}


def test_whatever_observing_raises_the_other_cluster_goes_on(place, broken):
    island = make_cluster("island")
    make_nodes(make_pool("far", cluster=island), 1)
    broken.breaks["observe"] = raises(ZeroDivisionError(), on=lambda slug, _: slug == "island")
    far = place.submit(place.petrel, name="far", pools=("far",))
    near = place.submit(place.petrel, name="near")
    run(place, T0)
    assert states(far, near) == ["queued", "running"]
    assert Outlook.objects.get(job=far).rule == "unreachable"
    said = {"unreachable:island": "Island didn't tell what happened: ZeroDivisionError"}
    assert alarms() == said
    cycle.run(at=T0 + TIMESTEP, trigger="test")
    assert ClosedTimestep.objects.count() == 1
    broken.breaks.clear()
    run(place, T0 + TIMESTEP + MINUTE)
    assert states(far, near) == ["running", "running"]


def test_a_connector_that_can_t_even_be_made_is_an_alarm(place, monkeypatch):
    def refuse(cluster: Any) -> Any:
        raise ImportError("no module named kubernetes")

    place.submit(place.petrel)
    monkeypatch.setitem(KINDS, "simulated", refuse)
    assert cycle.run(at=T0, trigger="test") is None
    assert "ImportError: no module named kubernetes" in alarms()["unreachable:mainland"]


def test_whatever_idle_time_raises_counts_as_busy_and_is_not_asked_for_ever(place, broken):
    parked = {"simulate": {"duration_s": 36000, "idle": [[0, None]]}}
    job = place.submit(place.petrel, spec=parked, expected_duration_s=36000)
    run(place, T0)
    broken.breaks["idle"] = raises(ArithmeticError("no series"))
    run(place, T0 + 6 * TIMESTEP)
    assert ClosedTimestep.objects.count() == 6
    assert len(calls("idle")) == 3
    said = {"no-telemetry:mainland": "Mainland didn't tell idle time: ArithmeticError: no series"}
    assert alarms() == said
    charges = Entry.objects.filter(kind="charge", job=job)
    assert {(e.gpu_seconds, e.parked_gpu_seconds) for e in charges} == {(8 * 1800, 0)}
    # Telemetry is another machine's: starts and stops go on.
    other = place.submit(place.auk, at=T0 + 7 * TIMESTEP, name="other")
    run(place, T0 + 10 * TIMESTEP)
    assert states(other) == ["running"]


NODE = NodeReport(node="h100-n77", at=T0, state="up")
ANSWERS: list[tuple[str, Any, str]] = [
    ("start", None, "RunReport was expected, not NoneType"),
    ("start", "yes", "RunReport was expected, not str"),
    ("observe", None, "Observation was expected, not NoneType"),
    ("idle", [1, 2, 3], "1 whole numbers were asked for"),
    ("idle", [0.5], "1 whole numbers were asked for"),
    ("idle", None, "list was expected, not NoneType"),
]


@pytest.mark.parametrize(("call", "answer", "said"), ANSWERS)
def test_an_answer_that_can_t_be_true_is_a_failed_call(place, broken, call, answer, said):
    if call == "idle":
        place.submit(place.petrel)
        run(place, T0)
    else:
        place.submit(place.petrel)
    broken.breaks[call] = answers(answer)
    run(place, T0 + TIMESTEP)
    (text,) = alarms().values()
    assert f"BadAnswer: {said}" in text


def test_a_node_that_is_not_known_here_is_named(place, broken):
    broken.breaks["observe"] = answers(Observation(at=T0, nodes=(NODE,)))
    assert cycle.run(at=T0, trigger="test") is None
    assert (
        "it tells of h100-n77, which is no node here: add it first"
        in alarms()["unreachable:mainland"]
    )
