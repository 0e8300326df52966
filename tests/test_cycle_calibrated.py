"""A calibrated service through the whole cycle: what is forecast, asked, held and replayed."""

from collections.abc import Callable
from datetime import datetime
from decimal import Decimal
from itertools import pairwise

import pytest

from allocator import cycle, playing
from allocator.core.problem import RealtimeJob
from allocator.core.scenario import read_problem
from allocator.core.solve import solve
from allocator.models import Cycle
from allocator.snapshot import name_of
from forecasting import calibrating, gpu_rates, looking_ahead, traffic
from forecasting import service_profiles as profiles
from forecasting.models import DemandForecast
from tests.factories import HOUR, T0, TIMESTEP
from tests.helpers import assert_reconciled, make_institute
from tests.test_calibrating import DAY, daily
from tests.test_cycle_realtime import held
from workloads.models import Job

pytestmark = [pytest.mark.django_db, pytest.mark.once]


def rising(at: datetime) -> float:
    """Calm by night; at 09:00 it needs six GPUs more than at 08:00."""
    return 70 if 9 <= at.hour < 18 else 12 * daily(at) / 50


def sends(job: Job, start: datetime, end: datetime) -> None:
    steps = int((end - start) / HOUR)
    rows = [(start + HOUR * n, Decimal(f"{rising(start + HOUR * n):.6f}")) for n in range(steps)]
    traffic.store(job=job, rows=rows, now=end)


def hourly(job: Job, at: datetime) -> Callable[[datetime], None]:
    """What comes in every hour: its traffic, and a look ahead."""

    def happen(now: datetime) -> None:
        sends(job, at - HOUR, at)
        looking_ahead.look_all(now=now)

    return happen


def test_a_day_of_a_calibrated_service_has_no_shortfall_that_its_ramps_caused():
    place = make_institute(nodes=2)
    job = place.serve(place.tern, at=T0, profile=(8,) * 24, swap_cap=1)
    sends(job, T0 - 20 * DAY, T0)
    gpu_rates.declare(service=job.service, rate=Decimal(10), by=place.user, now=T0)
    calibrating.change(service=job.service, by=place.user, now=T0, calibrated=True, least_gpus=0)
    seen = [playing.Arrival(T0 + HOUR * n, hourly(job, T0 + HOUR * n)) for n in range(1, 24)]
    made = list(playing.play(start=T0, end=T0 + DAY, arrivals=seen))
    counts = [held(job, T0 + TIMESTEP * t) for t in range(48)]
    told = DemandForecast.objects.filter(at__gte=T0, at__lt=T0 + DAY).values_list("gpus", flat=True)
    assert counts == list(told), "what was forecast is what it held"
    assert all(abs(a - b) <= 1 for a, b in pairwise(counts))
    assert all(one.status == Cycle.Status.COMMITTED for one in made)
    assert [text for one in made for text in one.problems] == [], "nothing had to be relaxed"
    assert min(counts[22:36]) >= 7, "it was up when it was needed"
    assert min(counts) <= 3, "and down by night"
    for one in made:
        assert asked_and_planned(one, job)[0] == asked_and_planned(one, job)[1]
    assert_reconciled()
    place.check(at=T0 + DAY)
    replays(made[30], job)


def asked_and_planned(one: Cycle, job: Job) -> tuple[list[int], list[int]]:
    """GPUs that a cycle was asked for and that it planned, timestep by timestep."""
    problem = read_problem(cycle.unpack(bytes(one.snapshot)))
    (service,) = (it for it in problem.jobs if isinstance(it, RealtimeJob))
    grid = cycle.unpack(bytes(one.plan))["grid"]
    columns = zip(*grid, strict=True)
    return list(service.demand), [column.count(name_of(job.pk)) for column in columns]


def replays(one: Cycle, job: Job) -> None:
    """A dumped cycle plans as it did, whatever has been forecast since."""
    before = asked_and_planned(one, job)
    sends(job, T0 + 2 * DAY, T0 + 3 * DAY)
    calibrating.recalibrate(service=profiles.live().get(), now=T0 + 3 * DAY)
    problem = read_problem(cycle.unpack(bytes(one.snapshot)))
    columns = zip(*solve(problem).plan.grid(), strict=True)
    assert [column.count(name_of(job.pk)) for column in columns] == before[1]
