"""A cycle that can't make a plan keeps what runs, closes the ledger and tells somebody."""

from typing import Any

import pytest
from django.db.models import F

from allocator import cycle
from allocator.core.solve import solve
from allocator.models import Alarm, AllocatorState, Cycle
from ledger.models import ClosedTimestep
from tests.factories import T0, TIMESTEP
from tests.helpers import make_institute
from workloads.models import Job, Run

pytestmark = pytest.mark.django_db


def test_a_solver_that_breaks_is_an_alarm_and_what_runs_goes_on(monkeypatch):
    place = make_institute()
    running = place.submit(place.tern, gpus=2)
    place.cycle(T0)

    def breaks(*args: object, **kwargs: object) -> None:
        raise ZeroDivisionError("planted")

    with monkeypatch.context() as patch:
        patch.setattr(cycle, "solve", breaks)
        waiting = place.submit(place.tern, gpus=2)
        made = cycle.run(at=T0 + TIMESTEP, trigger="tick")
    assert made is not None
    assert (made.status, made.problems) == (Cycle.Status.FAILED, ["ZeroDivisionError: planted"])
    assert Alarm.objects.get(cleared_at=None).kind == "no_plan"
    assert running.runs.get().state == Run.State.RUNNING
    assert ClosedTimestep.objects.count() == 1
    assert Job.objects.get(pk=waiting.pk).state == Job.State.QUEUED

    place.cycle(T0 + TIMESTEP * 1.5)
    assert not Alarm.objects.filter(cleared_at=None).exists()
    assert waiting.runs.get().state == Run.State.RUNNING


def test_a_plan_that_is_stale_each_time_is_superseded_and_changes_nothing(monkeypatch):
    place = make_institute()
    job = place.submit(place.petrel)
    older = Cycle.objects.count()

    def slow(problem: Any, **options: Any) -> Any:
        AllocatorState.objects.filter(pk=1).update(version=F("version") + 1)
        return solve(problem, **options)

    monkeypatch.setattr(cycle, "solve", slow)
    assert place.cycle(T0).status == Cycle.Status.SUPERSEDED
    assert Cycle.objects.count() == older + 1
    assert not job.runs.exists()
