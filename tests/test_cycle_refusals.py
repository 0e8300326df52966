"""A job that its cluster refuses: left alone for a while, told why, and others get the block."""

from datetime import timedelta
from typing import Any

import pytest
from django.db import transaction

from allocator import admission, cycle, playing, refusals, requests
from allocator.models import Delivery, Outlook
from allocator.telling import waiting
from client import tables
from clusters.connectors import KINDS
from clusters.connectors.base import Refusal
from clusters.connectors.simulated import SimulatedConnector
from clusters.models import SimulatedFault
from ledger import reports
from ledger.models import Entry
from tests.factories import HOUR, T0, TIMESTEP, make_role, make_user
from tests.helpers import Institute, make_institute
from tests.pages_world import client_of, number_of, text_of
from workloads.models import Job, JobEvent, Run

pytestmark = [pytest.mark.django_db, pytest.mark.once]
MINUTE, SECOND = timedelta(minutes=1), timedelta(seconds=1)


class Choosy(SimulatedConnector):
    """Refuses what its ``spec`` names an unknown image for, as long as it is unknown."""

    unknown = {"nowhere"}

    def problem_with(self, spec: Any) -> str | None:
        return None

    def start(self, order: Any, *, at: Any) -> Any:
        if order.spec.get("image") in self.unknown:
            return Refusal(external_id=order.external_id, reason="image not found.")
        return super().start(order, at=at)


@pytest.fixture
def place(monkeypatch) -> Institute:
    monkeypatch.setitem(KINDS, "simulated", Choosy)
    monkeypatch.setattr(Choosy, "unknown", {"nowhere"})
    return make_institute(nodes=1)


def refused(place: Institute, **asked: Any) -> Job:
    spec = {"image": "nowhere", "simulate": {"duration_s": 3600}}
    return place.submit(place.petrel, name="refused", spec=spec, **asked)


def tries(job: Job) -> list[int]:
    """Minutes after T0 at which it was tried."""
    return [round((run.decided_at - T0) / MINUTE) for run in job.runs.order_by("number")]


def minutes(place: Institute, first: int, last: int) -> None:
    for minute in range(first, last + 1):
        place.cycle(T0 + minute * MINUTE)


def test_pauses_double_up_to_an_hour():
    found = [refusals.pause(times) / MINUTE for times in range(1, 10)]
    assert found == [1, 2, 4, 8, 16, 32, 60, 60, 60]


def test_it_is_tried_again_after_longer_and_longer_pauses(place):
    job = refused(place)
    minutes(place, 0, 35)
    assert tries(job) == [0, 1, 3, 7, 15, 31]
    assert {run.end_reason for run in job.runs.all()} == {"refused"}


def test_others_get_the_block_in_the_very_next_cycle_and_it_is_no_longer_before_them(place):
    job = refused(place)
    other = place.submit(place.petrel, name="other", lasts=2 * 3600, resumable=False)
    place.cycle(T0)
    assert not other.runs.exists()
    assert cycle.reason_to_run(at=T0 + SECOND) == "request"
    place.cycle(T0 + SECOND)
    assert other.runs.get().started_at == T0 + SECOND
    assert job.runs.count() == 1


def test_its_outlook_says_who_refused_why_how_often_and_until_when(place):
    job = refused(place)
    minutes(place, 0, 3)
    place.cycle(T0 + 4 * MINUTE)
    outlook = Outlook.objects.get(job=job)
    assert outlook.rule == "refused"
    assert outlook.data == {
        "cluster": "Mainland",
        "reason": "image not found",
        "times": 3,
        "until": "2026-10-01T00:07:00Z",
    }
    assert outlook.start_likely is None


def test_the_end_of_a_pause_is_a_reason_to_run_once(place):
    refused(place)
    place.cycle(T0)
    place.cycle(T0 + SECOND)
    assert cycle.reason_to_run(at=T0 + 59 * SECOND) is None
    assert cycle.reason_to_run(at=T0 + MINUTE) == "retry"
    place.cycle(T0 + MINUTE)
    place.cycle(T0 + MINUTE + SECOND)  # what the refusal itself asked for
    assert cycle.reason_to_run(at=T0 + MINUTE + 2 * SECOND) is None


def test_a_run_that_starts_ends_the_count(place):
    job = refused(place)
    minutes(place, 0, 3)
    Choosy.unknown = set()
    place.cycle(T0 + 7 * MINUTE)
    job.refresh_from_db()
    assert job.state == Job.State.RUNNING
    assert not Outlook.objects.filter(job=job).exists()
    # Preempted or failed later, it starts from one again.
    node = job.runs.latest("number").holdings.get().node
    fault = T0 + 10 * MINUTE
    SimulatedFault.objects.create(node=node, starts_at=fault, ends_at=fault + MINUTE)
    place.cycle(fault)
    Choosy.unknown = {"nowhere"}
    place.cycle(fault + 2 * MINUTE)
    place.cycle(fault + 2 * MINUTE + SECOND)
    assert Outlook.objects.get(job=job).data["times"] == 1


def test_it_keeps_its_hold_and_its_place_among_the_funded(monkeypatch):
    """Credits for one job only: what the refusal releases is nobody else's."""
    monkeypatch.setitem(KINDS, "simulated", Choosy)
    monkeypatch.setattr(Choosy, "unknown", {"nowhere"})
    place = make_institute(nodes=1, credits={"orlo/science/petrel": 8})
    job = refused(place)
    place.cycle(T0)
    job.refresh_from_db()
    assert (job.state, job.attempt, job.funded) == (Job.State.QUEUED, 2, True)
    other = place.submit(place.petrel, at=T0 + SECOND, name="other")
    place.cycle(T0 + SECOND)
    assert (other.funded, job.funded) == (False, True)
    Choosy.unknown = set()
    place.cycle(T0 + MINUTE)
    run = Run.objects.get(job=job, number=2)
    assert run.holdings.get().funded
    place.play(T0 + TIMESTEP, T0 + 3 * HOUR)
    charges = Entry.objects.filter(kind="charge", job=job)
    assert sum(e.amount_mgpus for e in charges) == 8 * 3600 * 1000
    assert not charges.exclude(run=run).exists()
    figures = reports.figures(period=place.period, now=T0 + 3 * HOUR)[place.petrel.pk]
    assert figures.held_mgpus == 0


def test_a_job_that_was_not_funded_stays_that_and_one_by_choice_too(place):
    job = refused(place, minimum_runtime_s=0)
    minutes(place, 0, 3)
    job.refresh_from_db()
    assert not job.funded
    assert not Entry.objects.filter(job=job).exists()
    assert tries(job) == [0, 1, 3]


def test_a_refused_service_is_left_alone_as_well(place):
    Choosy.unknown = {None}
    job = place.serve(place.tern)
    minutes(place, 0, 6)
    assert tries(job) == [0, 1, 3]
    Choosy.unknown = set()
    place.cycle(T0 + 7 * MINUTE)
    assert job.runs.latest("number").state == Run.State.RUNNING


def test_a_refused_job_can_be_cancelled_and_leaves_nothing_held(place):
    job = refused(place)
    place.cycle(T0)
    admission.cancel(job=job, by=place.user, now=T0 + SECOND)
    place.cycle(T0 + SECOND)
    job.refresh_from_db()
    assert job.state == Job.State.CANCELLED
    figures = reports.figures(period=place.period, now=T0 + SECOND)[place.petrel.pk]
    assert (figures.held_mgpus, figures.settled_mgpus) == (0, 0)


def a_day(place: Institute) -> list[Any]:
    """Play two hours, and leave nothing of them behind."""
    with transaction.atomic():
        refused(place)
        for name in ("a", "b"):
            place.submit(place.auk, name=name, lasts=900, gpus=4)
        list(playing.play(start=T0, end=T0 + 2 * HOUR, arrivals=[]))
        runs = Run.objects.order_by("job__name", "number")
        names = ("job__name", "number", "decided_at", "started_at", "end_reason")
        entries = Entry.objects.order_by("at", "kind", "amount_mgpus")
        found = [*runs.values_list(*names), *entries.values_list("kind", "at", "amount_mgpus")]
        transaction.set_rollback(True)
    return found


def test_the_same_day_again_is_the_same(place):
    """On the virtual clock it is tried at the very instants at which its pauses end."""
    found = a_day(place)
    tried = [round((row[2] - T0) / MINUTE) for row in found if row[0] == "refused"]
    assert tried == [15, 16, 18, 22, 30, 46, 78]
    assert a_day(place) == found


def test_it_is_said_in_the_terminal(place):
    job = refused(place)
    place.cycle(T0)
    place.cycle(T0 + SECOND)
    lines = list(waiting.reasons(waiting.outlooks(), zone=T0.tzinfo))
    assert lines[0].endswith("refused by their cluster, tried again later")
    assert "was refused once by Mainland (image not found), is tried again Thu 00:01" in lines[1]
    assert JobEvent.objects.get(job=job, kind="run_refused").data["why"] == "image not found."


def test_the_client_shows_it():
    outlook = {
        "rule": "refused",
        "text": "Refused, tried again at 14:32",
        "sentence": "Mainland refused to start it 3 times in a row: image not found.",
        "released_by": "Tried again at 14:32.",
        "data": {"cluster": "Mainland", "reason": "image not found", "times": 3, "until": "14:32"},
        **dict.fromkeys(("start_low", "start_likely", "start_high")),
    }
    assert tables._waits({"outlook": outlook, "waits_text": outlook["text"]}) == [
        ("waits", "Refused, tried again at 14:32"),
        ("because", "Mainland refused to start it 3 times in a row: image not found."),
        ("released", "Tried again at 14:32."),
        ("starts", "not in the plan of 24 h yet"),
    ]
    assert tables._waits({"outlook": None, "waits_text": None}) == []


def test_while_it_is_left_alone_it_is_owed_nothing(place):
    """Refused at 0, 1, 3, 7 and 15 minutes: it waited for a block only when it was tried."""
    job = refused(place, gpus=4)
    place.submit(place.auk, gpus=4)
    minutes(place, 0, 30)
    assert tries(job) == [0, 1, 3, 7, 15]
    assert Delivery.objects.filter(budget=place.auk).exists()
    assert not Delivery.objects.filter(budget=place.petrel).exists()


def test_a_refusal_asks_for_a_replan(place):
    refused(place)
    before = requests.state().requested
    place.cycle(T0)
    assert requests.state().requested == before + 1
    assert requests.state().handled == before


def test_pages_and_api_tell_it(place):
    admin = make_user("chief")
    make_role(admin, place.tree["orlo"], "administrator")
    job = refused(place)
    place.cycle(T0)
    place.cycle(T0 + SECOND)
    page = text_of(client_of(admin).get(f"/jobs/{job.pk}"))
    assert "its cluster refused it, it is tried again at" in page
    assert "Mainland refused to start it: image not found." in page
    assert "Refused by its cluster" in text_of(client_of(admin).get("/"))
    assert number_of(job) in text_of(client_of(admin).get("/jobs?state=waiting&reason=refused"))
    answer = client_of(admin).get(f"/api/v1/jobs/{job.pk}/").json()
    assert answer["outlook"]["rule"] == "refused"
    assert answer["outlook"]["data"]["until"] == "2026-10-01T00:01:00Z"
