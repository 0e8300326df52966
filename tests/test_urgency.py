"""Changing a job's urgency: who may, what it does to the order, and what is kept of it."""

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth.models import User
from rest_framework.test import APIClient

from allocator import admission, requests, urgency
from client.__main__ import COMMANDS, _parser
from tests import factories as make
from tests.factories import HOUR, T0
from tests.helpers import Institute, make_institute
from tests.pages_day import stand_at
from tests.pages_world import client_of, text_of
from workloads.models import Job, JobEvent

pytestmark = pytest.mark.django_db
MINUTE = timedelta(minutes=1)


@pytest.fixture
def place(monkeypatch: pytest.MonkeyPatch) -> Institute:
    made = make_institute(nodes=1)
    make.make_role(made.user, made.petrel, "member")
    stand_at(monkeypatch, T0 + MINUTE)
    return made


def api(user: User) -> APIClient:
    client = APIClient()
    client.force_authenticate(user)
    return client


def ask(user: User, job: Job, to: Any = "high") -> Any:
    return api(user).post(f"/api/v1/jobs/{job.pk}/urgency/", {"urgency": to})


def test_it_sorts_the_queue_of_its_budget_and_of_no_other(place: Institute) -> None:
    first, second, other = (place.submit(b) for b in (place.petrel, place.petrel, place.auk))
    urgency.change(job=second, urgency="high", by=place.user, now=T0)
    place.cycle(T0 + MINUTE)
    started = {job.pk for job in Job.objects.exclude(state=Job.State.QUEUED)}
    assert started <= {second.pk, other.pk}, "never the one that is less urgent"
    place.play(T0 + MINUTE, T0 + 3 * HOUR)
    begun = JobEvent.objects.filter(kind="started", job__in=(first, second)).order_by("pk")
    assert begun.values_list("job_id", flat=True)[0] == second.pk


def test_who_and_when_is_kept_and_a_replan_asked_for_once(place: Institute) -> None:
    job = place.submit(place.petrel)
    before = requests.state().requested
    for _ in range(2):  # the second changes nothing
        urgency.change(job=job, urgency="high", by=place.user, now=T0 + MINUTE)
    job.refresh_from_db()
    assert job.urgency == "high"
    event = JobEvent.objects.get(job=job, kind="urgency")
    assert (event.at, event.actor) == (T0 + MINUTE, place.user)
    assert event.data == {"before": "normal", "after": "high"}
    assert requests.state().requested == before + 1


def ended(place: Institute) -> Job:
    return admission.cancel(job=place.submit(place.petrel), by=None, now=T0)


def cancelled(place: Institute) -> Job:
    job = place.submit(place.petrel)
    place.cycle(T0)
    return admission.cancel(job=job, by=None, now=T0 + MINUTE)


def service(place: Institute) -> Job:
    return place.serve(place.petrel)


@pytest.mark.parametrize(
    ("made", "says"),
    [
        (ended, "The job has ended"),
        (cancelled, "being cancelled"),
        (service, "A real-time service is placed first"),
    ],
)
def test_what_nothing_sorts_is_refused_in_a_sentence(
    place: Institute, made: Callable[[Institute], Job], says: str
) -> None:
    job = made(place)
    before = requests.state().requested
    answer = ask(place.user, job)
    assert answer.status_code == 409
    assert says in answer.json()["detail"]
    assert answer.json()["rule"] == made.__name__
    page = client_of(place.user).post(f"/jobs/{job.pk}/urgency", {"urgency": "high"}, follow=True)
    assert says in text_of(page)
    job.refresh_from_db()
    assert job.urgency == "normal"
    assert not job.events.filter(kind="urgency").exists()
    assert requests.state().requested == before
    assert 'id="urgency"' not in client_of(place.user).get(f"/jobs/{job.pk}").content.decode()


@pytest.mark.parametrize("to", ["urgent", "", None, 3])
def test_what_is_no_urgency_is_refused(place: Institute, to: Any) -> None:
    job = place.submit(place.petrel)
    answer = ask(place.user, job, to)
    assert answer.status_code == 400
    assert answer.json()["errors"][0]["field"] == "urgency"
    page = client_of(place.user).post(f"/jobs/{job.pk}/urgency", {"urgency": f"{to}"}, follow=True)
    assert "Choose low, normal or high." in text_of(page)
    job.refresh_from_db()
    assert job.urgency == "normal"


def test_one_changes_ones_own_and_managers_anyones(place: Institute) -> None:
    job = place.submit(place.petrel)
    other, manager, stranger = (make.make_user(name) for name in ("other", "manager", "stranger"))
    make.make_role(other, place.petrel, "member")
    make.make_role(manager, place.tree["orlo/science"], "manager")
    assert ask(stranger, job).status_code == 404
    assert ask(other, job).status_code == 403
    assert client_of(other).post(f"/jobs/{job.pk}/urgency", {"urgency": "high"}).status_code == 403
    assert ask(manager, job).status_code == 200
    assert ask(manager, job).json()["urgency"] == "high"
    assert ask(place.user, job, "low").json()["urgency"] == "low"


def test_the_page_says_what_it_does_and_tells_it_in_the_story(place: Institute) -> None:
    job = place.submit(place.petrel)
    client = client_of(place.user)
    page = client.get(f"/jobs/{job.pk}")
    assert "It sorts the jobs of Petrel among themselves, and nothing else" in text_of(page)
    said = client.post(f"/jobs/{job.pk}/urgency", {"urgency": "low"}, follow=True)
    assert "Changed. The next plan sorts it by that." in text_of(said)
    assert "normal → low, inside Petrel only." in text_of(said)


def test_the_client_asks_for_it(place: Institute) -> None:
    asked = _parser().parse_args(["urgency", "17", "high"])

    class Told:
        def set_urgency(self, job: int, to: str) -> tuple[int, str]:
            return job, to

    assert COMMANDS["urgency"](Told(), asked) == (17, "high")  # type: ignore[arg-type]
