"""Learning by night: from which jobs, switched when, one in force at every instant."""

import dataclasses
import hashlib
from datetime import timedelta
from io import StringIO

import pytest
from django.conf import settings
from django.core.management import call_command
from django.db import IntegrityError, transaction

from allocator import tasks
from forecasting import estimators, retraining, works
from forecasting.core import comparing, storing
from forecasting.core.correction import Correction
from forecasting.core.kinds import KINDS
from forecasting.models import Estimator
from tests import factories as make
from tests.factories import HOUR, T0
from tests.forecast_world import history, physics_s, ran, work_of

pytestmark = pytest.mark.django_db
NIGHT = T0 + timedelta(days=10)
State = Estimator.State


@pytest.fixture
def pool():
    pool = make.make_pool("h100", gpu_type="H100")
    make.make_nodes(pool, 2)
    return pool


@pytest.fixture
def petrel(tree):
    return tree["orlo/science/petrel"]


def retrain(now=NIGHT, **asked):
    return retraining.retrain(kind="training", now=now, **asked)


def ask(work, **changed):
    asked = {"kind": "training", "work": work, "gpus": 8, "gpu_types": ["H100"]} | changed
    return works.physical(**asked)


def test_what_was_learned_corrects_and_is_kept_under_its_version(petrel, pool):
    work = work_of(3)
    before = ask(work)
    assert (before.method, before.version) == ("physics", "physics-1+correction-1")
    history(petrel, pool, 40)
    made = retrain()
    assert (made.switched, made.rows) == (True, 40)
    assert made.why.startswith("The first: ")
    after = ask(work)
    assert (after.method, after.version) == ("physics+history", "physics-1+correction-1/1")
    assert after.p50_s == pytest.approx(1.5 * before.p50_s, rel=0.1)
    assert made.held_out["known"]["corrected"] < 0.1 < made.held_out["known"]["physics"]


@pytest.mark.parametrize(
    ("kind", "work"),
    [
        ("quantization", {"parameters": "7B", "method": "gptq"}),
        (
            "batch_inference",
            {"parameters": "7B", "prompts": 10_000, "input_tokens": 512, "output_tokens": 256},
        ),
    ],
)
def test_every_kind_that_can_be_read_is_learned(petrel, pool, kind, work):
    asked = {"kind": kind, "gpus": 1, "gpu_types": ["H100"]}
    before = ask(work, **asked).p50_s
    for k in range(20):
        took = round(2 * before * (1 + 0.01 * (k % 5)))
        ran(petrel, pool, work, took, ended_at=T0 + (k + 1) * HOUR, kind=kind, gpus=1)
    made = retraining.retrain(kind=kind, now=NIGHT)
    assert made.switched, made.why
    found = ask(work, **asked)
    assert found.method == "physics+history"
    assert found.p50_s == pytest.approx(2 * before, rel=0.15)


def test_a_thin_history_teaches_nothing(petrel, pool):
    history(petrel, pool, 7)
    made = retrain()
    assert (made.estimator, made.rows) == (None, 7)
    assert made.why == "7 jobs that told what they compute have ended; 8 are needed."
    assert not Estimator.objects.exists()


def test_only_completed_jobs_that_told_their_work_are_learned_from(petrel, pool):
    history(petrel, pool, 8)
    at = T0 + 30 * HOUR
    for state in ("failed", "cancelled", "timed_out", "preempted"):
        ran(petrel, pool, work_of(1), 9999, ended_at=at, state=state)
    ran(petrel, pool, None, 9999, ended_at=at)
    ran(petrel, pool, work_of(1), 9999, ended_at=at, session=True)
    ran(petrel, pool, work_of(1), 9999, ended_at=NIGHT + HOUR)
    ran(petrel, pool, work_of(1), 3600, ended_at=at, expected_duration_s=3600)  # and one beside it
    assert retrain().rows == 9


def test_work_that_is_not_read_any_more_is_left_out_and_counted(petrel, pool):
    (*_, odd) = history(petrel, pool, 9)
    odd.work = {"parameters": "7B"}
    odd.save()
    made = retrain().estimator
    assert (made.rows, made.left_out) == (8, 1)


def test_it_learns_on_the_type_that_a_job_ran_on(petrel, pool):
    (job, *_) = history(petrel, pool, 1)
    found = retraining._described("training", 8, job.work | {"gpu": "A100"}, "p", "H100")
    assert found.novel[0] == "H100-SXM"
    unknown = retraining._described("training", 8, job.work | {"gpu": "A100"}, "p", "Quantum")
    assert unknown.novel[0] == "A100-80"


def test_nothing_new_is_not_learned_twice(petrel, pool):
    history(petrel, pool, 20)
    assert retrain().switched
    again = retrain(NIGHT + timedelta(days=1))
    assert (again.estimator, again.why) == (None, "No job has ended since the last time.")
    assert Estimator.objects.count() == 1


def test_a_clock_that_was_set_back_unlearns_nothing(petrel, pool):
    history(petrel, pool, 40)
    assert retrain().switched
    found = retrain(now=T0 + 20 * HOUR)
    assert (found.estimator, found.why) == (None, retraining.BEHIND)
    assert Estimator.objects.get().rows == 40


def test_other_code_learns_anew_though_no_job_has_ended(petrel, pool, monkeypatch):
    history(petrel, pool, 20)
    retrain()
    newer = dataclasses.replace(KINDS["training"], version="physics-2+correction-1")
    monkeypatch.setitem(KINDS, "training", newer)
    assert retraining.active("training") is None
    made = retrain()
    assert made.switched, made.why
    assert retraining.active("training") == made.estimator
    assert Estimator.objects.filter(state=State.ACTIVE).count() == 1


def test_a_kind_that_can_t_be_learned_keeps_no_other_waiting(petrel, pool, monkeypatch, caplog):
    history(petrel, pool, 20)
    real = retraining.retrain

    def break_one(*, kind, now):
        if kind == "training":
            raise FloatingPointError
        return real(kind=kind, now=now)

    monkeypatch.setattr(retraining, "retrain", break_one)
    done = retraining.retrain_all(now=NIGHT)
    assert [one.kind for one in done] == ["batch_inference", "quantization"]
    assert "training" in caplog.text


def test_a_dry_run_writes_nothing(petrel, pool):
    history(petrel, pool, 20)
    made = retrain(dry_run=True)
    assert made.switched
    assert not Estimator.objects.exists()
    assert ask(work_of(1)).method == "physics"


def test_a_better_one_takes_over_and_one_alone_is_in_force(petrel, pool):
    history(petrel, pool, 30, factor=1.5)
    retrain()
    history(petrel, pool, 60, factor=3.0, since=NIGHT)
    made = retrain(NIGHT + timedelta(days=10))
    assert made.switched, made.why
    states = list(Estimator.objects.order_by("pk").values_list("number", "state"))
    assert states == [(1, "retired"), (2, "active")]
    assert ask(work_of(1)).version.endswith("/2")


def test_a_worse_one_is_kept_as_a_candidate_with_the_reason(petrel, pool, monkeypatch):
    history(petrel, pool, 30)
    retrain()
    history(petrel, pool, 20, since=NIGHT)
    monkeypatch.setattr(
        comparing, "judge", lambda *_: comparing.Verdict(False, "Worse than the old one: so.")
    )
    made = retrain(NIGHT + timedelta(days=10))
    assert (made.switched, made.estimator.state) == (False, "candidate")
    assert ask(work_of(1)).version.endswith("/1")


def test_if_another_was_switched_to_meanwhile_that_one_stays(petrel, pool, monkeypatch):
    history(petrel, pool, 20)
    learn = comparing.learn_and_play

    def slowly(given):
        found = learn(given)
        monkeypatch.setattr(comparing, "learn_and_play", learn)
        assert retrain().switched
        return found

    monkeypatch.setattr(comparing, "learn_and_play", slowly)
    made = retrain()
    assert (made.switched, made.why) == (False, "Another was switched to meanwhile.")
    assert list(Estimator.objects.values_list("state", flat=True)) == ["candidate", "active"]


def test_the_database_keeps_one_active_of_a_kind(petrel, pool):
    history(petrel, pool, 10)
    row = retrain().estimator
    row.pk, row.number = None, 2
    with pytest.raises(IntegrityError), transaction.atomic():
        row.save(force_insert=True)


def test_one_is_loaded_once_per_process_and_version(petrel, pool, django_assert_num_queries):
    history(petrel, pool, 10)
    retrain()
    estimators.loaded.cache_clear()
    with django_assert_num_queries(2):
        first = estimators.in_force("training")
    with django_assert_num_queries(1):
        assert estimators.in_force("training").correction is first.correction


def test_one_that_cannot_be_read_corrects_nothing(petrel, pool, caplog):
    history(petrel, pool, 10)
    retrain()
    estimators.loaded.cache_clear()
    Estimator.objects.update(parameters=b"PK\x03\x04 no such thing")
    assert ask(work_of(1)).method == "physics"
    data = b"neither"
    Estimator.objects.update(parameters=data, digest=hashlib.sha256(data).hexdigest())
    assert ask(work_of(1)).method == "physics"
    assert "Physics alone." in caplog.text
    Estimator.objects.update(method="physics-0")
    assert estimators.in_force("training").version == KINDS["training"].version


def test_old_parameters_are_let_go_of_but_those_in_force(petrel, pool):
    history(petrel, pool, 10)
    retrain()
    blank = {"method": "m", "trained_at": T0, "newest_at": T0, "rows": 1, "seconds": 0}
    for number in range(2, 12):
        Estimator.objects.create(
            **blank, kind="training", number=number, state="candidate", parameters=b"x", digest="x"
        )
    history(petrel, pool, 10, since=NIGHT)
    retrain(NIGHT + timedelta(days=5))
    kept = {row.number for row in Estimator.objects.exclude(parameters=b"")}
    active = Estimator.objects.get(state="active").number
    assert kept == {*range(12 - retraining.KEPT + 1, 13), active}


def test_beat_does_it_by_night_on_the_long_queue(petrel, pool, monkeypatch):
    scheduled = settings.CELERY_BEAT_SCHEDULE["retrain"]
    assert scheduled["task"] == tasks.retrain.name
    assert tasks.retrain.name not in settings.CELERY_TASK_ROUTES
    monkeypatch.setattr(tasks, "now", lambda: NIGHT)
    history(petrel, pool, 10)
    assert tasks.retrain() == 1


def test_the_command_tells_and_its_dry_run_writes_nothing(petrel, pool, monkeypatch):
    monkeypatch.setattr("forecasting.management.commands.retrain.now", lambda: NIGHT)
    history(petrel, pool, 10)
    said = StringIO()
    call_command("retrain", "--dry-run", "--kind", "training", stdout=said)
    assert "training: 10 jobs, " in said.getvalue()
    assert "held out by known: 4 jobs, physics " in said.getvalue()
    assert not Estimator.objects.exists()
    call_command("retrain", "--kind", "training", stdout=said)
    assert Estimator.objects.get().state == State.ACTIVE
    call_command("retrain", "--kind", "training", stdout=said)
    assert said.getvalue().endswith("training: No job has ended since the last time.\n")


def test_physics_of_the_world_is_what_the_product_says():
    assert physics_s(work_of(1)) == ask(work_of(1)).p50_s
    assert storing.unpack(storing.pack(Correction(0, None, {}, ()))) == Correction(0, None, {}, ())
