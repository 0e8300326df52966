"""A cluster whose clock is behind: what runs there is charged, and somebody is told."""

from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any, ClassVar

import pytest

from allocator import admission, cycle
from allocator.models import Alarm
from clusters.connectors import KINDS
from clusters.connectors.base import Observation, RunReport
from clusters.connectors.simulated import SimulatedConnector
from clusters.models import SimulatedTask
from ledger.models import Entry
from tests.factories import HOUR, T0, TIMESTEP
from tests.helpers import Institute, make_institute
from workloads import services as workloads
from workloads.models import Job, Run

pytestmark = [pytest.mark.django_db, pytest.mark.once]
MINUTE = timedelta(minutes=1)


class Behind(SimulatedConnector):
    """Tells of all runs by a clock that is behind; the first answer to a start may get lost."""

    behind: ClassVar[timedelta] = timedelta(minutes=10)
    drops: ClassVar[int] = 0
    loses: ClassVar[int] = 0
    asked: ClassVar[list[str]] = []

    def observe(self, **asked: Any) -> Observation:
        seen = super().observe(**asked)
        return replace(seen, runs=tuple(self._told(report) for report in seen.runs))

    def start(self, order: Any, *, at: datetime) -> Any:
        if Behind.drops:
            Behind.drops -= 1
            raise ConnectionError("never arrived")
        Behind.asked.append(order.external_id)
        answer = super().start(order, at=at)
        if Behind.loses:
            Behind.loses -= 1
            raise ConnectionError("gone")
        return self._told(answer) if isinstance(answer, RunReport) else answer

    def stop(self, external_id: str, *, at: datetime) -> RunReport:
        return self._told(super().stop(external_id, at=at))

    def _told(self, report: RunReport) -> RunReport:
        ended = report.ended_at and report.ended_at - self.behind
        return replace(report, started_at=report.started_at - self.behind, ended_at=ended)


@pytest.fixture
def place(monkeypatch: pytest.MonkeyPatch) -> Institute:
    monkeypatch.setitem(KINDS, "simulated", Behind)
    monkeypatch.setattr(Behind, "behind", timedelta(minutes=10))
    monkeypatch.setattr(Behind, "drops", 0)
    monkeypatch.setattr(Behind, "loses", 0)
    monkeypatch.setattr(Behind, "asked", [])
    return make_institute(nodes=1)


def cycles(*instants: datetime) -> None:
    for at in instants:
        cycle.run(at=at, trigger="test")


def runs(job: Job) -> list[tuple[str, datetime | None, datetime | None, str]]:
    rows = job.runs.order_by("number")
    return list(rows.values_list("state", "started_at", "ended_at", "end_reason"))


def charged(job: Job) -> int:
    return sum(entry.gpu_seconds for entry in Entry.objects.filter(kind="charge", job=job))


@pytest.mark.parametrize("behind", [timedelta(minutes=4), timedelta(minutes=10), 100 * HOUR])
def test_what_runs_there_is_never_queued_again_and_is_charged(
    place: Institute, monkeypatch: pytest.MonkeyPatch, behind: timedelta
) -> None:
    monkeypatch.setattr(Behind, "behind", behind)
    start = T0 + HOUR
    job = place.submit(place.petrel, gpus=2, lasts=3600, at=start)
    cycles(start, start + MINUTE)
    began = start if behind > timedelta(minutes=5) else start - behind
    assert runs(job) == [("running", began, None, "")]
    cycles(start + TIMESTEP, start + 2 * HOUR)
    assert runs(job) == [("ended", began, began + HOUR, "completed")]
    assert SimulatedTask.objects.count() == 1
    assert charged(job) == 2 * 3600


def test_one_that_is_stopped_is_charged_until_then(place: Institute) -> None:
    job = place.submit(place.petrel, gpus=2, lasts=3600)
    cycles(T0)
    admission.cancel(job=job, by=place.user, now=T0 + 7 * MINUTE)
    cycles(T0 + 7 * MINUTE, T0 + 2 * HOUR)
    assert runs(job) == [("ended", T0, T0 + 7 * MINUTE, "cancelled")]
    assert charged(job) == 2 * 7 * 60


def test_the_alarm_says_what_to_do_and_lasts_as_long_as_such_a_run(
    place: Institute, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = place.submit(place.petrel, gpus=2, lasts=3600)
    cycles(T0)
    alarm = Alarm.objects.get()
    assert (alarm.kind, alarm.cleared_at) == ("clock:mainland", None)
    assert alarm.text == (
        f"Mainland says that {first.runs.get()} began 10 minutes before it was decided: it is "
        "charged by our clock. Set the cluster's clock right. Where that is right, the run is of "
        f"before a restore: cancel job {first.pk}, which stops it."
    )
    place.submit(place.petrel, gpus=2, lasts=7200)
    cycles(T0 + MINUTE, T0 + 61 * MINUTE)
    assert Alarm.objects.get().cleared_at is None, "the second one runs yet"
    monkeypatch.setattr(Behind, "behind", timedelta())
    third = place.submit(place.petrel, gpus=2, lasts=3600, at=T0 + 62 * MINUTE)
    cycles(T0 + 62 * MINUTE)
    assert third.runs.get().started_at == T0 + 62 * MINUTE
    assert Alarm.objects.get().cleared_at is None
    cycles(T0 + 3 * HOUR)
    assert Alarm.objects.get().cleared_at == T0 + 3 * HOUR


def test_one_whose_answer_was_lost_counts_from_the_last_look_without_it(place: Institute) -> None:
    Behind.loses = 2
    job = place.submit(place.petrel, gpus=2, lasts=3600)
    cycles(T0)
    assert runs(job) == [("starting", None, None, "")]
    cycles(T0 + MINUTE, T0 + 2 * MINUTE)
    assert runs(job) == [("running", T0, None, "")]
    cycles(T0 + 2 * HOUR)
    assert runs(job) == [("ended", T0, T0 + HOUR, "completed")]
    assert charged(job) == 2 * 3600


def test_one_whose_order_never_arrived_isnt_charged_for_before_it_did(place: Institute) -> None:
    Behind.drops = 1
    job = place.submit(place.petrel, gpus=2, lasts=3600)
    cycles(T0, T0 + MINUTE)
    assert runs(job) == [("running", T0 + MINUTE, None, "")]


def test_what_it_knew_by_the_name_before_it_was_asked_is_refused_and_goes_on(
    place: Institute, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing of ours is on the cluster then: no order was sent."""
    monkeypatch.setattr(Behind, "behind", timedelta())
    job = place.submit(place.petrel, gpus=1, lasts=3600)
    old = SimulatedTask.objects.create(
        cluster=place.cluster, external_id=f"allotment-{job.pk}-1", started_at=T0 - HOUR
    )
    cycles(T0, T0 + MINUTE)
    assert [run.end_reason for run in job.runs.order_by("number")] == ["refused", ""]
    assert Behind.asked == [job.runs.get(number=2).external_id]
    old.refresh_from_db()
    assert old.stopped_at is None
    assert not Alarm.objects.exists()
    assert Run.objects.get(job=job, number=2).started_at == T0 + MINUTE


def test_what_is_over_by_the_name_of_one_that_may_have_been_ordered_is_not_taken_for_it(
    place: Institute, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A worker that was killed after the decision leaves open whether the order was sent."""
    monkeypatch.setattr(Behind, "behind", timedelta())
    job = place.submit(place.petrel, gpus=1, lasts=3600)
    SimulatedTask.objects.create(
        cluster=place.cluster, external_id=f"allotment-{job.pk}-1", started_at=T0 - 3 * HOUR,
        ends_at=T0 - HOUR, outcome="failed",
    )  # fmt: skip
    block = workloads.Block(place.nodes[0], 0b1, True)
    workloads.decide_start(job=job, pool=place.pool, blocks=[block], at=T0)
    cycles(T0, T0 + MINUTE)
    assert [run.end_reason for run in job.runs.order_by("number")] == ["refused", ""]
    assert Run.objects.get(job=job, number=2).started_at == T0 + MINUTE
