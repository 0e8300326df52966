"""Of one kind one alarm is open, however many notice it at once; people are told once."""

import pytest
from django.db import IntegrityError, transaction

from allocator import alarms, traffic_stops
from allocator.models import Alarm
from budgets.models import Notice
from forecasting import calibrating
from tests import factories as make
from tests.factories import HOUR, T0
from tests.test_budgets_races import THREADS, at_once
from tests.test_traffic_stops import comes
from workloads.models import Job

pytestmark = pytest.mark.django_db(transaction=True)


def test_who_raises_it_at_once_raises_one():
    found = at_once(lambda number: alarms.raise_alarm(kind="k", text=f"{number}", at=T0).pk)
    assert found == [Alarm.objects.get().pk] * THREADS
    alarms.clear(kind="k", at=T0 + HOUR)
    alarms.raise_alarm(kind="k", text="again", at=T0 + HOUR)
    assert Alarm.objects.filter(kind="k").count() == 2


def test_nobody_is_told_twice_that_traffic_stopped():
    job: Job = make.make_service(
        make.make_tree()["orlo/science/petrel"], state="running", state_since=T0
    )
    calibrating.configure(service=job.service, calibrated=True)
    comes(job, T0)
    late = T0 + 25 * HOUR
    assert at_once(lambda number: traffic_stops.look(now=late)) == [1] * THREADS
    assert Alarm.objects.count() == 1
    assert list(Notice.objects.values_list("user_id", flat=True)) == [job.submitted_by_id]


def test_the_database_keeps_one_open_of_a_kind():
    Alarm.objects.create(kind="k", raised_at=T0, text="x")
    with pytest.raises(IntegrityError), transaction.atomic():
        Alarm.objects.create(kind="k", raised_at=T0, text="y")
