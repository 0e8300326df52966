"""A cycle that can't make a plan keeps what runs, closes the ledger and tells somebody."""

import pytest

from allocator import cycle
from allocator.models import Alarm, Cycle
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
