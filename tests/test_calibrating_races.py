"""Recalibrations and uploads at once: one version is in force, and no rate is lost."""

from collections.abc import Callable
from datetime import timedelta
from decimal import Decimal
from threading import Barrier, Thread

import pytest
from django.db import connection, connections

from forecasting import calibrating, looking_ahead, traffic
from forecasting import service_profiles as profiles
from forecasting.models import ServiceProfile, TrafficBucket
from tests import factories as make
from tests.factories import HOUR
from tests.test_calibrating import NOW, daily, declare, send
from workloads.models import Job

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def job() -> Job:
    if connection.vendor != "postgresql":
        pytest.skip("SQLite has one writer at a time")
    found = make.make_service(make.make_tree()["orlo/science/petrel"], profile=(12,) * 24)
    send(found, days=15)
    declare(found)
    calibrating.configure(service=found.service, calibrated=True, least_gpus=0)
    return found


def at_once(*deeds: Callable[[], object]) -> list[object]:
    """Begin all together, each on a connection of its own; return what came of them."""
    start = Barrier(len(deeds))
    found: list[object] = [None] * len(deeds)

    def run(n: int, deed: Callable[[], object]) -> None:
        try:
            start.wait(30)
            found[n] = deed()
        except Exception as error:
            found[n] = error
        finally:
            connections.close_all()

    threads = [Thread(target=run, args=(n, deed)) for n, deed in enumerate(deeds)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return found


def recalibrate() -> ServiceProfile:
    return calibrating.recalibrate(service=profiles.live().get(), now=NOW)


def test_of_two_recalibrations_at_once_one_is_in_force_and_both_answer(job):
    found = at_once(recalibrate, recalibrate)
    assert all(isinstance(one, ServiceProfile) for one in found), found
    versions = ServiceProfile.objects.all()
    assert [one.version for one in versions] == list(range(1, len(versions) + 1))
    (present,) = [one for one in versions if one.is_in_force]
    job.service.refresh_from_db()
    assert job.service.forecast["version"] == present.version
    assert job.service.forecast["week"] == present.week


def test_what_is_sent_while_a_profile_is_made_is_kept(job):
    later = NOW + HOUR

    def upload() -> traffic.Stored:
        at = NOW.replace(minute=0)
        return traffic.store(job=job, rows=[(at, Decimal(7))], now=later)

    def look() -> object:
        return looking_ahead.look_all(now=NOW)

    found = at_once(recalibrate, upload, look)
    assert not [one for one in found if isinstance(one, Exception)], found
    assert TrafficBucket.objects.filter(at=NOW.replace(minute=0), rate_micro=7_000_000).exists()
    assert ServiceProfile.objects.get().is_in_force


def test_two_lists_that_overlap_wait_for_each_other_and_both_are_kept(job):
    first = NOW.replace(minute=0) - timedelta(hours=400)
    steps = [first + HOUR * n for n in range(300)]

    def upload(rows: list) -> Callable[[], object]:
        return lambda: traffic.store(
            job=job, rows=[(at, Decimal(f"{daily(at):.3f}")) for at in rows], now=NOW
        )

    found = at_once(upload(steps), upload(steps[::-1]))
    assert not [one for one in found if isinstance(one, Exception)], found
    assert TrafficBucket.objects.filter(at__in=steps).count() == 300


def test_two_first_lists_at_once_agree_on_the_step(job):
    other = make.make_service(job.budget)

    def upload(minutes: int) -> Callable[[], object]:
        at = NOW.replace(minute=0) - HOUR
        mine = Job.objects.select_related("service").get(pk=other.pk)
        return lambda: traffic.store(
            job=mine, rows=[(at, Decimal(1))], now=NOW, step_minutes=minutes
        )

    found = at_once(upload(10), upload(60))
    kept = [one for one in found if isinstance(one, traffic.Stored)]
    assert len(kept) == 1, found
    assert TrafficBucket.objects.filter(service=other.service).count() == 1
