"""Sessions: a time box that is protected throughout, and how it is extended."""

import hashlib
import json
from dataclasses import asdict, replace
from datetime import timedelta
from typing import Any

import pytest
from django.db import DatabaseError, transaction
from django.db.models import F

from allocator import cycle, driving, sessions
from allocator.admission import AdmissionError
from allocator.models import Alarm, AllocatorState
from allocator.promises import Promise
from clusters.connectors import KINDS
from clusters.models import Drain, SimulatedFault, SimulatedTask
from ledger import reports
from ledger.entries import Attempt
from ledger.figures import open_holds
from tests import factories as make
from tests.factories import HOUR, T0
from tests.flaky import Flaky
from tests.helpers import CREDIT, Institute, make_institute
from tests.ledger_world import write_entry
from workloads import services as workloads
from workloads.models import Extension, Job, JobEvent, Run
from workloads.specs import JobSpec

pytestmark = pytest.mark.django_db
MINUTE = timedelta(minutes=1)
HOUR_S = 3600


@pytest.fixture
def place() -> Institute:
    return make_institute()


def work(place: Institute, at=T0, **asked: Any) -> Job:
    """Submit a session of 8 GPUs for an hour, that nobody leaves before its end, or as asked."""
    wanted = {
        "name": "notebook",
        "session": True,
        "time_limit_s": HOUR_S,
        "minimum_runtime_s": None,
        "expected_duration_s": None,
        "resumable": False,
        "lasts": 100 * HOUR_S,
    }
    return place.submit(asked.pop("budget", place.petrel), at, **(wanted | asked))


def started(place: Institute, at=T0, **asked: Any) -> Job:
    job = work(place, at, **asked)
    place.cycle(at)
    job.refresh_from_db()
    assert job.state == "running"
    return job


def extend(job: Job, minutes: int, at, **given: Any) -> sessions.Answer:
    by = given.pop("by", job.submitted_by)
    return sessions.extend(job=job, by=by, more_s=minutes * 60, now=at, **given)


def run_of(job: Job) -> Run:
    return Run.objects.select_related("job").get(job=job)


def held(job: Job) -> int:
    return sum(open_holds([job.pk]).get(Attempt(job.pk, job.attempt), {}).values())


def ends(job: Job):
    run = run_of(job)
    return run.box_ends_at, run.protected_until


# --- What a session is ----------------------------------------------------------------------------


def test_a_session_is_protected_and_held_for_its_whole_time_box(place):
    job = started(place, time_limit_s=3 * HOUR_S)
    assert (job.minimum_runtime_s, job.funded) == (3 * HOUR_S, True)
    assert ends(job) == (T0 + 3 * HOUR, T0 + 3 * HOUR)
    assert held(job) == 24 * CREDIT
    assert (job.estimate_p10_s, job.estimate_p90_s) == (3 * HOUR_S, 3 * HOUR_S)


def test_a_box_longer_than_a_minimum_runtime_may_be_is_protected_for_that_long(place):
    job = started(place, time_limit_s=10 * HOUR_S)
    assert job.minimum_runtime_s == 8 * HOUR_S
    assert ends(job) == (T0 + 10 * HOUR, T0 + 8 * HOUR)
    assert held(job) == 64 * CREDIT


@pytest.mark.parametrize(
    ("asked", "field", "words"),
    [
        ({"time_limit_s": None}, "time_limit_s", "Give a session a time limit"),
        ({"time_limit_s": 12 * HOUR_S + 1}, "time_limit_s", "at most 12 h here"),
        ({"minimum_runtime_s": 0}, "minimum_runtime_s", "Leave the minimum runtime out"),
        ({"minimum_runtime_s": HOUR_S - 1}, "minimum_runtime_s", "Leave the minimum runtime out"),
        ({"resumable": True}, "resumable", "can't be resumable"),
    ],
)
def test_what_a_session_can_t_be(place, asked, field, words):
    with pytest.raises(AdmissionError) as refused:
        work(place, **asked)
    assert list(refused.value.problems) == [field]
    assert words in refused.value.problems[field]
    assert not Job.objects.exists()


def test_a_service_is_no_session(place):
    with pytest.raises(AdmissionError) as refused:
        place.serve(place.petrel, session=True, time_limit_s=HOUR_S)
    assert "can't be a session" in refused.value.problems["session"]


def test_its_box_may_be_given_as_its_minimum_runtime_too(place):
    assert work(place, minimum_runtime_s=HOUR_S).minimum_runtime_s == HOUR_S


def test_the_longest_session_is_a_setting(place, settings):
    settings.SESSION_MAX_HOURS = 1
    with pytest.raises(AdmissionError, match="at most 1 h here"):
        work(place, time_limit_s=HOUR_S + 1)


def test_it_is_stopped_at_its_time_limit(place):
    job = started(place)
    place.play(T0, T0 + 2 * HOUR)
    job.refresh_from_db()
    assert (job.state, job.ended_at) == ("timed_out", T0 + HOUR)
    assert held(job) == 0


def test_requests_from_before_there_were_sessions_keep_their_digest(place):
    spec = {"idempotency_key": "k"}
    first = place.submit(place.petrel, **spec)
    assert place.submit(place.petrel, **spec).pk == first.pk
    # As it was worked out before: of all fields but those that came with sessions and since.
    asked = JobSpec(
        name="work",
        kind="training",
        gpus=8,
        expected_duration_s=7200,
        minimum_runtime_s=3600,
        resumable=True,
        spec={"simulate": {"duration_s": 7200}},
    )
    before = asdict(replace(asked, idempotency_key=None)) | {"budget": place.petrel.pk}
    del before["session"], before["work"]
    digest = hashlib.sha256(json.dumps(before, sort_keys=True).encode()).hexdigest()
    assert first.request_digest == digest


# --- Extending ------------------------------------------------------------------------------------


def test_an_extension_moves_limit_protection_and_hold_together(place):
    job = started(place)
    before = reports.spendable(budget=place.petrel, now=T0 + 30 * MINUTE)
    answer = extend(job, 30, T0 + 30 * MINUTE)
    assert answer.is_granted
    job.refresh_from_db()
    assert (job.time_limit_s, job.minimum_runtime_s) == (5400, 5400)
    assert ends(job) == (T0 + 90 * MINUTE, T0 + 90 * MINUTE)
    assert held(job) == 12 * CREDIT
    after = reports.spendable(budget=place.petrel, now=T0 + 30 * MINUTE)
    assert before - after == 4 * CREDIT
    made = Extension.objects.get()
    assert (made.asked_at, made.asked_s, made.ended_at, made.asked_until, made.rule) == (
        *(T0 + 30 * MINUTE, 1800, T0 + HOUR, T0 + 90 * MINUTE, ""),
    )
    event = JobEvent.objects.get(kind="extended")
    assert event.actor == job.submitted_by
    assert (event.data["more_s"], event.data["held_mgpus"]) == (1800, 4 * CREDIT)


def test_its_cluster_ends_it_at_the_new_limit(place):
    job = started(place)
    extend(job, 30, T0 + 59 * MINUTE)
    assert SimulatedTask.objects.get().ends_at == T0 + 90 * MINUTE
    place.play(T0 + 59 * MINUTE, T0 + 3 * HOUR)
    job.refresh_from_db()
    assert (job.state, job.ended_at) == ("timed_out", T0 + 90 * MINUTE)
    charges = reports.job_charges(job=job)
    assert charges.charged_mgpus == 12 * CREDIT
    assert held(job) == 0


def test_a_cluster_that_doesn_t_answer_is_told_by_a_later_cycle(place, monkeypatch):
    job = started(place)
    monkeypatch.setitem(KINDS, "simulated", Flaky)
    monkeypatch.setattr(Flaky, "failing", {("set_time_limit", "before")})
    assert extend(job, 30, T0 + 10 * MINUTE).is_granted
    assert Alarm.objects.filter(cleared_at=None).exists()
    assert Run.objects.filter(driving.UNTOLD).exists()
    monkeypatch.setattr(Flaky, "failing", set())
    place.cycle(T0 + 11 * MINUTE)
    assert SimulatedTask.objects.get().ends_at == T0 + 90 * MINUTE
    assert not Run.objects.filter(driving.UNTOLD).exists()
    assert not Alarm.objects.filter(cleared_at=None).exists()


def test_an_untold_limit_is_a_reason_for_a_cycle(place, monkeypatch):
    job = started(place)
    monkeypatch.setattr(driving, "tell_time_limit", lambda **_: None)
    extend(job, 30, T0 + 10 * MINUTE)
    AllocatorState.objects.update(handled=F("requested"))
    assert cycle.reason_to_run(at=T0 + 10 * MINUTE) == "unfinished"
    place.cycle(T0 + 10 * MINUTE)
    assert cycle.reason_to_run(at=T0 + 10 * MINUTE) is None


def test_a_long_box_that_is_extended_is_protected_further(place):
    job = started(place, time_limit_s=10 * HOUR_S)
    answer = extend(job, 60, T0 + 7 * HOUR)
    assert answer.is_granted
    assert ends(job) == (T0 + 11 * HOUR, T0 + 11 * HOUR)
    job.refresh_from_db()
    assert job.minimum_runtime_s == 8 * HOUR_S


def test_extensions_add_up_to_the_bound_at_most(place):
    job = started(place, time_limit_s=11 * HOUR_S)
    answer = extend(job, 90, T0 + HOUR)
    assert (answer.rule, answer.until, answer.most_s) == ("bound", T0 + 12 * HOUR, HOUR_S)
    assert extend(job, 60, T0 + HOUR).is_granted
    answer = extend(job, 1, T0 + HOUR)
    assert (answer.rule, answer.most_s) == ("bound", 0)


def test_what_is_told_as_the_most_is_granted():
    place = make_institute(credits={"orlo/science/petrel": 12})
    job = started(place)
    answer = extend(job, 120, T0 + 10 * MINUTE)
    assert (answer.rule, answer.most_s) == ("credits", 30 * 60)
    assert answer.until == T0 + 90 * MINUTE
    assert answer.data["binding"] == "orlo/science/petrel"
    assert (answer.data["needed_mgpus"], answer.data["spendable_mgpus"]) == (
        *(16 * CREDIT, 4 * CREDIT),
    )
    assert held(job) == 8 * CREDIT
    assert not extend(job, 31, T0 + 10 * MINUTE).is_granted
    assert extend(job, 30, T0 + 10 * MINUTE).is_granted
    assert reports.spendable(budget=place.petrel, now=T0 + 10 * MINUTE) == 0
    answer = extend(job, 1, T0 + 10 * MINUTE)
    assert (answer.rule, answer.most_s) == ("credits", 0)
    place.cycle(T0 + 2 * HOUR)


def test_an_ancestor_without_credits_refuses_and_is_named():
    place = make_institute(credits={"orlo/science/petrel": 9})
    write_entry(
        kind="grant",
        budget=place.petrel,
        period=place.period,
        at=T0,
        amount_mgpus=100 * CREDIT,
        key="grant:test:more",
        created_at=T0,
    )
    answer = extend(started(place), 60, T0 + MINUTE)
    assert (answer.rule, answer.data["binding"]) == ("credits", "orlo/science")
    assert answer.most_s == 7 * 60


def test_what_the_first_hold_has_left_over_counts(place):
    """It was reckoned at the dearest pool that it accepted; it runs in a cheaper one."""
    dear = make.make_pool("b200", rate=3000, cluster=place.cluster)
    job = started(place)
    assert held(job) == 24 * CREDIT
    assert run_of(job).pool == place.pool
    assert extend(job, 60, T0 + 30 * MINUTE).is_granted
    assert held(job) == 24 * CREDIT, "an hour and a half at rate 1 is less than that"
    assert dear.nodes.count() == 0


def test_a_drain_that_waits_for_it_refuses(place):
    job = started(place)
    Drain.objects.create(node=place.nodes[1], starts_at=T0, reason="other node")
    node = run_of(job).holdings.get().node
    assert node != place.nodes[1]
    assert extend(job, 15, T0 + MINUTE).is_granted
    Drain.objects.create(node=node, starts_at=T0 + 100 * MINUTE, reason="firmware")
    answer = extend(job, 60, T0 + 2 * MINUTE)
    # The plan drains from the start of the timestep in which it begins.
    assert (answer.rule, answer.most_s, answer.data["node"]) == ("draining", 15 * 60, node.name)
    assert extend(job, 15, T0 + 2 * MINUTE).is_granted
    Drain.objects.update(starts_at=T0)
    assert extend(job, 1, T0 + 2 * MINUTE).most_s == 0


def test_a_drain_that_is_over_before_refuses_nothing(place):
    job = started(place)
    node = run_of(job).holdings.get().node
    Drain.objects.create(node=node, starts_at=T0, ends_at=T0 + HOUR, reason="firmware")
    assert extend(job, 60, T0 + MINUTE).is_granted


# --- In every state -------------------------------------------------------------------------------


def test_what_isn_t_a_session_or_doesn_t_run_can_t_be_extended(place):
    batch = place.submit(place.auk)
    assert extend(batch, 30, T0).rule == "no_session"
    job = work(place)
    assert extend(job, 30, T0).rule == "waits"
    place.cycle(T0)
    job.refresh_from_db()
    place.cycle(T0 + 2 * HOUR)
    assert extend(job, 30, T0 + 2 * HOUR).rule == "ended"
    assert not Extension.objects.exists()
    assert not JobEvent.objects.filter(kind="extension_refused").exists()


def test_one_that_is_cancelled_or_stopped_can_t_be_extended(place):
    job = started(place)
    workloads.request_cancel(job=job, by=None, at=T0 + MINUTE)
    assert extend(job, 30, T0 + MINUTE).rule == "cancelled"
    Job.objects.update(cancel_requested_at=None)
    workloads.decide_stop(run=run_of(job), reason="cancelled", at=T0 + MINUTE)
    assert extend(job, 30, T0 + MINUTE).rule == "stopping"
    assert held(job) == 8 * CREDIT


def test_the_second_of_its_end_is_too_late_and_the_one_before_is_not(place):
    job = started(place)
    answer = extend(job, 30, T0 + HOUR)
    assert (answer.rule, answer.data) == ("over", {"at": "2026-10-01T01:00:00Z"})
    assert extend(job, 30, T0 + HOUR - timedelta(seconds=1)).is_granted
    place.play(T0 + HOUR - timedelta(seconds=1), T0 + 2 * HOUR)
    job.refresh_from_db()
    assert job.ended_at == T0 + 90 * MINUTE


def test_a_long_box_can_t_be_extended_once_its_protection_is_over(place):
    job = started(place, time_limit_s=9 * HOUR_S)
    answer = extend(job, 30, T0 + 8 * HOUR)
    assert (answer.rule, answer.data) == ("unprotected", {"at": "2026-10-01T08:00:00Z"})
    assert extend(job, 30, T0 + 8 * HOUR - timedelta(seconds=1)).is_granted


def test_an_unfunded_session_has_nothing_to_extend():
    place = make_institute(credits=0)
    job = started(place, when_unfunded="run")
    assert not job.funded
    assert ends(job) == (T0 + HOUR, T0)
    assert extend(job, 30, T0 + MINUTE).rule == "unfunded"


def test_one_that_ended_unseen_gives_back_what_was_set_aside(place):
    """Its cluster has ended it, which no cycle has observed yet."""
    job = started(place, lasts=600)
    assert extend(job, 30, T0 + 20 * MINUTE).is_granted
    place.cycle(T0 + 21 * MINUTE)
    job.refresh_from_db()
    assert (job.state, job.ended_at, held(job)) == ("completed", T0 + 10 * MINUTE, 0)


def test_a_node_that_fails_brings_it_back_with_the_box_that_was_granted(place):
    job = started(place)
    extend(job, 30, T0 + 10 * MINUTE)
    node = run_of(job).holdings.get().node
    SimulatedFault.objects.create(node=node, starts_at=T0 + 20 * MINUTE, ends_at=T0 + 10 * HOUR)
    place.play(T0 + 10 * MINUTE, T0 + 3 * HOUR)
    job.refresh_from_db()
    second = Run.objects.select_related("job").get(job=job, number=2)
    assert job.state == "timed_out"
    assert second.ended_at == second.started_at + 90 * MINUTE


# --- Kept, and once -------------------------------------------------------------------------------


def test_a_refusal_is_kept_with_its_reason(place):
    job = started(place, time_limit_s=12 * HOUR_S)
    extend(job, 30, T0 + MINUTE)
    made = Extension.objects.get()
    assert (made.rule, made.is_granted, made.asked_s) == ("bound", False, 1800)
    event = JobEvent.objects.get(kind="extension_refused")
    assert (event.data["rule"], event.data["hours"]) == ("bound", 12)
    assert (run_of(job).told_limit_s, held(job)) == (12 * HOUR_S, 64 * CREDIT)


def test_the_same_refusal_again_is_counted_on_the_first(place):
    job = started(place, time_limit_s=12 * HOUR_S)
    for minute in range(1, 40):
        answer = extend(job, minute, T0 + minute * MINUTE)
        assert (answer.rule, answer.most_s) == ("bound", 0)
    made = Extension.objects.get()
    assert (made.asked_s, made.asked_at, made.again) == (60, T0 + MINUTE, 38)
    assert made.last_at == T0 + 39 * MINUTE
    assert JobEvent.objects.get(kind="extension_refused").data["extension"] == made.pk


def test_another_reason_person_or_thing_in_the_way_is_a_refusal_of_its_own(place):
    job, manager = started(place), make.make_user()
    node = run_of(job).holdings.get().node
    for minute in range(1, 4):
        extend(job, 13 * 60, T0 + minute * MINUTE)
        extend(job, 13 * 60, T0 + minute * MINUTE, by=manager)
    drain = Drain.objects.create(node=node, starts_at=T0 + 2 * HOUR, reason="firmware")
    for minute in range(4, 6):
        extend(job, 13 * 60, T0 + minute * MINUTE)
    drain.delete()
    extend(job, 13 * 60, T0 + 7 * MINUTE)
    kept = Extension.objects.values_list("asked_by", "rule", "again")
    own = job.submitted_by_id
    assert list(kept) == [(own, "bound", 3), (manager.pk, "bound", 2), (own, "draining", 1)]
    assert extend(job, 30, T0 + 8 * MINUTE).is_granted
    extend(job, 13 * 60, T0 + 9 * MINUTE)
    assert list(kept.all())[3:] == [(own, "", 0), (own, "bound", 0)]


def test_another_job_that_stands_in_the_way_is_named(place, monkeypatch):
    job = started(place)
    for number in (7, 8, 8):
        promise = Promise(T0 + 2 * HOUR, None, "promised", {"job": number, "budget": "orlo"})
        monkeypatch.setattr(sessions, "promises", lambda one=promise, **_: [one])
        extend(job, 120, T0 + MINUTE)
    assert [(one.data["job"], one.again) for one in Extension.objects.all()] == [(7, 0), (8, 1)]


def test_the_database_lets_a_count_rise_and_nothing_else(place):
    job = started(place, time_limit_s=12 * HOUR_S)
    extend(job, 30, T0 + MINUTE)
    for changed in (
        {"again": 0, "again_at": T0},
        {"again": 1, "rule": ""},
        {"again": 1, "data": {}},
        {"again": 1, "asked_by": make.make_user()},
    ):
        with pytest.raises(DatabaseError, match="append-only"), transaction.atomic():
            Extension.objects.update(**changed)
    assert Extension.objects.update(again=1, again_at=T0 + HOUR) == 1


def test_the_database_changes_and_deletes_no_answer(place):
    job = started(place)
    extend(job, 30, T0 + MINUTE)
    with pytest.raises(DatabaseError, match="append-only"), transaction.atomic():
        Extension.objects.update(asked_s=60)
    with pytest.raises(DatabaseError, match="append-only"), transaction.atomic():
        Extension.objects.all().delete()


def test_the_same_key_extends_once(place):
    job = started(place)
    first = extend(job, 30, T0 + MINUTE, key="k")
    again = extend(job, 30, T0 + 2 * MINUTE, key="k")
    assert again.is_granted
    assert again.extension == first.extension
    assert ends(job)[0] == T0 + 90 * MINUTE
    assert extend(job, 30, T0 + 2 * MINUTE, key="l").is_granted
    assert ends(job)[0] == T0 + 120 * MINUTE
    place.cycle(T0 + 3 * HOUR)
    assert extend(job, 30, T0 + 3 * HOUR, key="k").is_granted, "asked again, it is what it was"


def test_a_key_of_another_extension_is_refused(place):
    job, other = started(place), work(place, budget=place.auk)
    extend(job, 30, T0 + MINUTE, key="k")
    with pytest.raises(sessions.ExtensionKeyReused, match=f"of job {job.pk}"):
        extend(job, 31, T0 + MINUTE, key="k")
    with pytest.raises(sessions.ExtensionKeyReused):
        extend(other, 30, T0 + MINUTE, key="k")
    someone_else = make.make_user()
    assert extend(job, 31, T0 + MINUTE, key="k", by=someone_else).is_granted


def test_a_refused_key_may_be_sent_again(place):
    job = started(place)
    drain = Drain.objects.create(
        node=run_of(job).holdings.get().node, starts_at=T0 + HOUR, reason="firmware"
    )
    assert not extend(job, 30, T0 + MINUTE, key="k").is_granted
    drain.delete()
    assert extend(job, 30, T0 + 2 * MINUTE, key="k").is_granted


# --- Beside the plan ------------------------------------------------------------------------------


def test_a_plan_made_before_can_t_preempt_what_was_extended(place):
    job = started(place, time_limit_s=9 * HOUR_S)
    run = run_of(job)
    extend(job, 30, T0 + 8 * HOUR - timedelta(seconds=1))
    assert not workloads.decide_stop(run=run, reason="preempted", at=T0 + 8 * HOUR)
    assert workloads.decide_stop(run=run, reason="cancelled", at=T0 + 8 * HOUR)
