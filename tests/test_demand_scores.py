"""Demand forecasts held against what came, and the track record of services."""

import re
from datetime import timedelta
from decimal import Decimal
from fractions import Fraction
from pathlib import Path

import pytest

from forecasting import demand_scores, looking_ahead, traffic
from forecasting.demand_scores import Timestep, realtime_track_record
from forecasting.models import DemandForecast, DemandScore
from tests import factories as make
from tests.factories import HOUR, T0, TIMESTEP
from tests.test_calibrating import DAY, declare
from workloads.models import Job

pytestmark = pytest.mark.django_db
PETREL = "orlo/science/petrel"
NOW = T0 + DAY + HOUR


@pytest.fixture
def job(tree, settings) -> Job:
    """Three hours of 25, none known, and 5 a second; a GPU does 10; declared are 4 GPUs."""
    settings.CAPACITY_PERCENT = 95
    job = make.make_service(tree[PETREL])
    declare(job)
    rates = [(T0, Decimal(25)), (T0 + 2 * HOUR, Decimal(5))]
    traffic.store(job=job, rows=rates, now=NOW)
    return job


def tell(job: Job, *gpus: int, source: str = "recent") -> None:
    for n, count in enumerate(gpus):
        DemandForecast.objects.create(
            service=job.service, at=T0 + TIMESTEP * n, gpus=count, source=source, version=1
        )


def test_a_day_is_scored_over_the_timesteps_that_are_known_and_were_told(job):
    node = make.make_nodes(make.make_pool("h100"), 1)[0]
    make.make_run(job, {node: 0b11}, started_at=T0)
    tell(job, 3, 2, 9, 9, 2)  # 02:30 was never told
    found = demand_scores.score(service=job.service, day=T0.date(), now=NOW)
    assert found is not None
    assert {name: getattr(found, name) for name in demand_scores.FIGURES} == {
        "timesteps": 3,
        "covered": 2,
        "needed": 3 + 3 + 1,
        "forecast": 3 + 2 + 2,
        "met": 3 + 2 + 1,
        "held": 6,
        "short": 1 + 1,
        "declared": 12,
        "loss_milli": 950 + 50,
        "declared_loss_milli": 50 + 50 + 150,
    }
    assert found.calibrated


@pytest.mark.once
def test_the_worked_table_of_the_page_is_what_is_computed():
    text = (Path(__file__).parents[1] / "docs" / "forecasting.md").read_text()
    rows = re.findall(r"^\| `timestep` \|(.*)\|$", text, re.M)
    assert len(rows) == 3
    for row in rows:
        needed, forecast, covered, met, loss = (cell.strip() for cell in row.split("|"))
        one = Timestep(T0, int(needed), int(forecast), 0, 0, by_declared=False)
        figures = dict(zip(demand_scores.FIGURES, demand_scores.sums([one]), strict=True))
        assert figures["covered"] == (covered == "yes")
        assert (figures["met"], figures["loss_milli"]) == (int(met), int(loss))


def test_a_day_is_scored_once_and_anew_when_traffic_comes_late(job):
    tell(job, 3, 3, 3, 3, 1, 1, source="declared")
    assert demand_scores.score_all(now=NOW) == 1
    assert demand_scores.score_all(now=NOW) == 1
    assert DemandScore.objects.get().timesteps == 4
    assert not DemandScore.objects.get().calibrated
    traffic.store(job=job, rows=[(T0 + HOUR, Decimal(90))], now=NOW)
    demand_scores.score_all(now=NOW)
    assert DemandScore.objects.get().timesteps == 6
    assert DemandScore.objects.get().covered == 4


def test_a_day_that_is_not_over_or_of_which_nothing_is_known_has_no_score(job):
    tell(job, 3)
    assert demand_scores.score(service=job.service, day=NOW.date(), now=NOW) is None
    earlier = (T0 - DAY).date()
    assert demand_scores.score(service=job.service, day=earlier, now=NOW) is None
    other = make.make_service(job.budget)
    traffic.store(job=other, rows=[(T0, Decimal(25))], now=NOW)
    assert demand_scores.needed(other.service, start=T0, end=NOW) == {}, "no rate of a GPU"


def test_a_rate_that_can_t_be_right_leaves_the_rest_of_its_day_known(job):
    tell(job, 3, 3, 3, 3, 3, 3)
    traffic.store(job=job, rows=[(T0 + HOUR, Decimal(10) ** 12)], now=NOW)
    found = demand_scores.timesteps(job.service, start=T0, end=NOW)
    assert [(one.at - T0, one.needed) for one in found] == [
        (0 * TIMESTEP, 3),
        (1 * TIMESTEP, 3),
        (4 * TIMESTEP, 1),
        (5 * TIMESTEP, 1),
    ]


def test_a_declared_profile_finer_than_a_timestep_is_held_against_its_peak(tree):
    job = make.make_service(tree[PETREL], profile=(1, 4) * 48)
    job.service.step_minutes = 15
    job.service.save()
    declare(job)
    traffic.store(job=job, rows=[(T0, Decimal(35))], now=NOW)
    looking_ahead.look(service=job.service, now=T0 - TIMESTEP)
    told = DemandForecast.objects.get(at=T0).gpus
    [one] = demand_scores.timesteps(job.service, start=T0, end=NOW)
    assert (one.declared, one.forecast, told) == (4, 4, 4)


def test_a_timestep_needs_the_peak_of_its_steps(tree):
    job = make.make_service(tree[PETREL])
    declare(job)
    rows = [(T0 + HOUR / 6 * n, Decimal(rate)) for n, rate in enumerate((5, 31, 8, 0, 9, 10))]
    traffic.store(job=job, rows=rows, now=NOW, step_minutes=10)
    found = demand_scores.needed(job.service, start=T0, end=T0 + HOUR)
    assert found == {T0: 4, T0 + TIMESTEP: 1}


def test_the_track_record_adds_days_up_and_shows_what_one_may_see(job, cast, tree):
    figures = dict.fromkeys(demand_scores.FIGURES, 0)
    for n, (needed, forecast, met) in enumerate(((10, 12, 10), (10, 11, 9))):
        DemandScore.objects.create(
            service=job.service,
            day=(T0 + n * DAY).date(),
            calibrated=True,
            **figures
            | {"timesteps": 48, "covered": 47, "needed": needed, "forecast": forecast}
            | {"met": met, "declared": 40, "short": 1, "loss_milli": 4800},
        )
    other = make.make_service(tree["orlo/vision/tern"])
    DemandScore.objects.create(
        service=other.service, day=T0.date(), calibrated=False, **figures | {"timesteps": 48}
    )
    span = {"since": T0, "now": T0 + 5 * DAY}
    (record,) = realtime_track_record(cast["member"], **span)
    assert (record.job, record.budget, record.days, record.timesteps) == (job.pk, PETREL, 2, 96)
    assert record.time_covered == Fraction(94, 96)
    assert (record.demand_covered, record.over) == (Fraction(19, 20), Fraction(3, 20))
    assert (record.declared_over, record.short) == (3, 2)
    assert record.loss_milli == 100
    both = realtime_track_record(cast["root"], **span)
    assert [one.demand_covered for one in both] == [Fraction(19, 20), None]
    assert realtime_track_record(cast["nobody"], **span) == []
    later = realtime_track_record(cast["member"], since=T0 + DAY, now=T0 + 5 * DAY)
    assert [one.days for one in later] == [1]
    assert realtime_track_record(cast["member"], since=T0 + 2 * DAY, now=NOW + timedelta(9)) == []


def test_one_service_that_can_t_be_scored_keeps_no_other_waiting(job, caplog):
    tell(job, 3)
    other = make.make_service(job.budget)
    declare(other, "0.000001")
    traffic.store(job=other, rows=[(T0, Decimal(10**6))], now=NOW)
    DemandForecast.objects.create(service=other.service, at=T0, gpus=1, source="week")
    broken = make.make_service(job.budget)
    declare(broken)
    traffic.store(job=broken, rows=[(T0, Decimal(1))], now=NOW)
    DemandForecast.objects.create(service=broken.service, at=T0, gpus=1, source="week")
    type(broken.service).objects.filter(job=broken).update(profile=[])
    assert demand_scores.score_all(now=NOW) == 1
    assert f"A need of service {other.pk} isn't known" in caplog.text
    assert f"Forecasts of service {broken.pk} can't be scored." in caplog.text
