"""Who always declares too little gains nothing by it: holds, charges, and what is believed next."""

from datetime import datetime

import pytest
from django.db.models import Sum

from forecasting import services as forecasting
from ledger.models import Entry
from tests.factories import HOUR, T0
from tests.helpers import CREDIT, Institute, make_institute
from workloads.models import Job

TEN_MINUTES = 600


@pytest.fixture
def place(db) -> Institute:
    return make_institute()


def charged(job: Job) -> tuple[int, int]:
    """Credits and GPU-hours."""
    found = Entry.objects.filter(kind="charge", job=job).aggregate(
        Sum("amount_mgpus"), Sum("gpu_seconds")
    )
    return found["amount_mgpus__sum"] // CREDIT, found["gpu_seconds__sum"] // 3600


def open_hold(job: Job) -> int:
    signed = {"hold": 1, "release": -1}
    rows = Entry.objects.filter(job=job, kind__in=signed).values_list("kind", "amount_mgpus")
    return sum(signed[kind] * amount for kind, amount in rows)


def declare(place: Institute, lasts: int, at: datetime = T0) -> Job:
    return place.submit(
        place.petrel,
        at=at,
        expected_duration_s=TEN_MINUTES,
        minimum_runtime_s=TEN_MINUTES,
        lasts=lasts,
    )


def test_a_job_declared_at_ten_minutes_that_runs_four_hours_pays_four_hours(place):
    long = declare(place, 4 * 3600)
    others = [declare(place, 3600) for _ in range(2)]
    assert open_hold(long) == 8 * TEN_MINUTES * 1000
    place.play(T0, T0 + HOUR + HOUR // 4)
    long.refresh_from_db()
    assert long.state == Job.State.RUNNING
    run = long.runs.get()
    assert run.protected_until - run.started_at == HOUR // 6  # interruptible ever since
    # What it holds is topped up to the end of the timestep that runs, whatever it declared.
    assert charged(long) == (8, 8)
    assert open_hold(long) == 8 * 1800 * 1000
    place.play(T0 + HOUR + HOUR // 4, T0 + 5 * HOUR)
    assert charged(long) == (32, 32)
    assert open_hold(long) == 0
    assert [charged(job) for job in others] == [(8, 8), (8, 8)]
    _is_believed_no_more(place)


def _is_believed_no_more(place: Institute) -> None:
    """The next declaration of ten minutes is read as what such declarations came to."""
    found = forecasting.estimate(
        budget=place.petrel,
        kind="training",
        gpus=8,
        declared_s=TEN_MINUTES,
        name="work",
        now=T0 + 5 * HOUR,
    )
    assert found.method == "declared_history"
    assert found.p50_s > 3 * TEN_MINUTES
    assert found.p90_s > 5 * TEN_MINUTES
    following = declare(place, 3600, at=T0 + 5 * HOUR)
    assert following.estimate_p50_s == found.p50_s
