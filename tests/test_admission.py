"""Submission: what is refused and why, what is set aside, and a key that comes more than once."""

import threading
from collections.abc import Callable
from typing import Any

import pytest
from django.db import connection, transaction

from allocator import admission, closing, cycle
from allocator.admission import AdmissionError, KeyReused
from allocator.models import AllocatorState
from budgets.models import Budget
from budgets.services import rename_budget
from ledger.models import Entry
from tests.factories import HOUR, T0, make_budget, make_nodes, make_pool, make_shares, make_user
from tests.helpers import CREDIT, Institute, make_institute
from workloads import services as workloads
from workloads.models import Job, JobEvent
from workloads.specs import JobSpec, SpecError, validate


@pytest.fixture
def place(db: Any) -> Institute:
    return make_institute()


def refused(place: Institute, **asked: Any) -> dict[str, str]:
    """What is said of a request that is refused, and that nothing was written."""
    before = Job.objects.count(), Entry.objects.count(), JobEvent.objects.count()
    with pytest.raises(AdmissionError) as caught:
        place.submit(asked.pop("budget", place.petrel), **asked)
    assert (Job.objects.count(), Entry.objects.count(), JobEvent.objects.count()) == before
    return caught.value.problems


@pytest.mark.parametrize(
    ("simulate", "hint"),
    [
        ("quick", "object"),
        (None, "object"),
        ({"duration_s": "an hour"}, "duration_s"),
        ({"duration_s": 10**18}, "31,622,400"),
        ({"fails_after_s": True}, "fails_after_s"),
        ({"outcome": "o" * 40}, "completed, failed"),
        ({"idle": 5}, "from_s"),
        ({"idle": [["a", 2]]}, "from_s"),
        ({"idle": [[None, 2]]}, "from_s"),
    ],
)
def test_what_the_cluster_could_not_start_is_refused_before_it_stops_every_cycle(
    place, simulate, hint
):
    assert hint in refused(place, spec={"simulate": simulate})["spec"]


@pytest.mark.parametrize(
    ("asked", "field", "hint"),
    [
        ({"gpus": 3}, "gpus", "2 or 4"),
        ({"gpus": 0}, "gpus", "1 to"),
        ({"gpus": None}, "gpus", "power of two"),
        ({"gpus": 32}, "gpus", "16 or fewer"),
        ({"name": "  "}, "name", "1 to 100"),
        ({"name": "a\x00b"}, "name", "NUL"),
        ({"kind": "mining"}, "kind", "training"),
        ({"urgency": "extreme"}, "urgency", "high"),
        ({"when_unfunded": "beg"}, "when_unfunded", "wait"),
        ({"minimum_runtime_s": 9 * 3600}, "minimum_runtime_s", "8 h"),
        ({"minimum_runtime_s": -1}, "minimum_runtime_s", "0 to"),
        ({"minimum_runtime_s": 3600, "time_limit_s": 600}, "minimum_runtime_s", "time limit"),
        ({"expected_duration_s": 0}, "expected_duration_s", "1 to"),
        ({"pools": ("abacus",)}, "pools", "h100"),
        ({"dependencies": (424242,)}, "dependencies", "424242"),
        ({"idempotency_key": ""}, "idempotency_key", "1 to 100"),
        ({"swap_cap": 2}, "profile", "real-time"),
    ],
)
def test_what_can_not_be_is_refused_with_a_hint(place, asked, field, hint):
    problems = refused(place, **asked)
    assert list(problems) == [field]
    assert hint in problems[field]


@pytest.mark.parametrize(
    ("asked", "field"),
    [
        ({"profile": (1,) * 23}, "profile"),
        ({"profile": (0,) * 24}, "profile"),
        ({"profile": (17,) * 24}, "profile"),
        ({"profile": (-1,) * 24}, "profile"),
        ({"swap_cap": None}, "swap_cap"),
        ({"swap_cap": 0}, "swap_cap"),
        ({"time_zone": "Mars/Olympus"}, "time_zone"),
        ({"step_minutes": 0}, "step_minutes"),
        ({"gpus": 4}, "gpus"),
    ],
)
def test_a_service_that_can_not_be_is_refused(place, asked, field):
    with pytest.raises(AdmissionError) as caught:
        place.serve(place.tern, **asked)
    assert list(caught.value.problems) == [field]
    assert not Job.objects.exists()


def test_work_goes_to_leaves_only(place):
    assert "below it" in refused(place, budget=place.tree["orlo/science"])["budget"]


def test_the_largest_block_is_that_of_the_largest_acceptable_pool(place):
    make_nodes(make_pool("a100", cluster=place.cluster), 1)
    assert "8 or fewer" in refused(place, gpus=16, pools=("a100",))["gpus"]
    assert place.submit(place.petrel, gpus=16).gpus == 16


def test_minimum_runtime_is_the_likely_duration_but_two_hours_at_most(place):
    short = place.submit(place.petrel, minimum_runtime_s=None, expected_duration_s=600)
    long = place.submit(place.petrel, minimum_runtime_s=None, expected_duration_s=36_000)
    limited = place.submit(
        place.petrel, minimum_runtime_s=None, expected_duration_s=36_000, time_limit_s=900
    )
    assert short.minimum_runtime_s == short.estimate_p50_s <= 7200
    assert (long.minimum_runtime_s, limited.minimum_runtime_s) == (7200, 900)


def test_submission_holds_the_minimum_runtime_and_asks_for_a_replan(place):
    before = AllocatorState.objects.filter(pk=1).values_list("requested", flat=True).first() or 0
    job = place.submit(place.petrel)
    hold = Entry.objects.get(kind="hold")
    assert (hold.job_id, hold.attempt, hold.amount_mgpus) == (job.pk, 1, 8 * CREDIT)
    assert AllocatorState.objects.get(pk=1).requested == before + 1


@pytest.mark.django_db
def test_two_jobs_share_what_a_budget_has():
    place = make_institute(credits={"orlo/science/petrel": 12})
    first, second = (place.submit(place.petrel, gpus=8) for _ in range(2))
    assert (first.funded, second.funded) == (True, False)
    third = place.submit(place.petrel, gpus=4)
    assert third.funded, "what the dearer one could not have is still there"


def test_the_same_key_answers_the_same_job(place):
    first = place.submit(place.petrel, idempotency_key="k1")
    again = place.submit(place.petrel, at=T0 + HOUR, idempotency_key="k1")
    assert first == again
    assert Entry.objects.filter(kind="hold").count() == 1
    assert place.submit(place.petrel, idempotency_key="k2") != first


def test_the_same_job_again_after_a_rename_is_the_same_job(place):
    first = place.submit(place.petrel, idempotency_key="k1")
    rename_budget(budget=place.petrel, slug="stormy", name="Stormy", author=place.user, now=T0)
    place.petrel.refresh_from_db()
    assert place.submit(place.petrel, at=T0 + HOUR, idempotency_key="k1") == first


def test_blanks_around_a_name_are_left_out(place):
    job = place.submit(place.petrel, name=" sweep \u00a0", idempotency_key="k")
    assert job.name == "sweep"
    assert place.submit(place.petrel, name="sweep", idempotency_key="k").pk == job.pk
    with pytest.raises(AdmissionError):
        place.submit(place.petrel, name=" \u00a0")


def test_the_same_key_for_something_else_is_refused(place):
    first = place.submit(place.petrel, idempotency_key="k1")
    with pytest.raises(KeyReused) as caught:
        place.submit(place.petrel, idempotency_key="k1", gpus=4)
    assert caught.value.job == first
    with pytest.raises(KeyReused):
        place.submit(place.auk, idempotency_key="k1")
    assert Job.objects.count() == 1


def test_a_key_belongs_to_its_user(place):
    first = place.submit(place.petrel, idempotency_key="k1")
    place.user = make_user("ada")
    assert place.submit(place.petrel, idempotency_key="k1") != first


def test_a_job_cancelled_since_it_was_read_is_not_funded(place):
    job = place.submit(place.petrel)
    Job.objects.filter(pk=job.pk).update(attempt=2, funded=False)
    stale = list(Job.objects.filter(pk=job.pk).prefetch_related("pools"))
    admission.cancel(job=job, by=place.user, now=T0)
    with transaction.atomic():
        assert admission.fund_all(jobs=stale, now=T0) == {}
    assert not Job.objects.get().funded
    assert not Entry.objects.filter(kind="hold", attempt=2).exists()


def test_a_job_that_has_lost_its_funds_is_funded_again_as_another_attempt(place):
    job = place.submit(place.petrel)
    workloads.lose_funding(job=job, at=T0)
    closing.fund_waiting(at=T0)
    job.refresh_from_db()
    assert (job.attempt, job.funded) == (2, True)
    assert Entry.objects.filter(kind="hold", attempt=2).count() == 1


# --- At once -------------------------------------------------------------------------------------


def at_once(*calls: Callable[[], Any]) -> list[Any]:
    """Results or exceptions of calls that start together, each in a thread of its own."""
    barrier = threading.Barrier(len(calls))
    results: list[Any] = [None] * len(calls)

    def run(n: int, call: Callable[[], Any]) -> None:
        barrier.wait()
        try:
            results[n] = call()
        except Exception as error:
            results[n] = error
        finally:
            connection.close()

    threads = [threading.Thread(target=run, args=pair) for pair in enumerate(calls)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return results


@pytest.mark.django_db(transaction=True)
def test_the_same_key_from_many_threads_at_once_is_one_job():
    place = make_institute()
    results = at_once(*(lambda: place.submit(place.petrel, idempotency_key="k") for _ in range(6)))
    assert {type(result) for result in results} == {Job}, results
    assert len({result.pk for result in results}) == 1
    assert Entry.objects.filter(kind="hold").count() == 1


@pytest.mark.django_db(transaction=True)
def test_one_key_for_two_requests_at_once_is_one_job_and_one_refusal():
    place = make_institute()
    results = at_once(
        *(lambda gpus=gpus: place.submit(place.petrel, idempotency_key="k", gpus=gpus)
          for gpus in (1, 2, 4, 8))
    )  # fmt: skip
    assert sorted(type(result).__name__ for result in results) == ["Job"] + ["KeyReused"] * 3
    assert Job.objects.count() == Entry.objects.filter(kind="hold").count() == 1


@pytest.mark.django_db(transaction=True)
def test_many_threads_never_hold_more_than_there_is():
    place = make_institute(credits={"orlo/science/petrel": 20})
    results = at_once(*(lambda: place.submit(place.petrel, gpus=8) for _ in range(6)))
    assert [job.funded for job in results].count(True) == 2
    place.check(at=T0)


@pytest.mark.django_db(transaction=True)
def test_cancelling_and_starting_at_once_leaves_no_hold_behind():
    place = make_institute(nodes=4)
    jobs = [place.submit(place.petrel, gpus=4) for _ in range(8)]

    def cancel_all() -> None:
        for job in jobs:
            admission.cancel(job=job, by=None, now=T0)

    results = at_once(cancel_all, lambda: cycle.run(at=T0, trigger="test"))
    assert not [result for result in results if isinstance(result, Exception)], results
    place.cycle(T0)
    place.cycle(T0)
    assert set(Job.objects.values_list("state", flat=True)) == {Job.State.CANCELLED}
    place.check(at=T0)


def test_a_spec_is_told_every_problem_at_once():
    with pytest.raises(SpecError) as caught:
        validate(JobSpec(name="", kind="mining", gpus=3), longest_minimum_runtime_s=3600)
    assert set(caught.value.problems) == {"name", "kind", "gpus"}


@pytest.mark.parametrize("meanwhile", ["divided", "archived"])
def test_a_project_that_goes_while_a_job_is_checked_takes_it_no_more(place, monkeypatch, meanwhile):
    checked = admission._refuse_what_never_fits

    def go(*args: Any) -> None:
        checked(*args)
        if meanwhile == "divided":
            make_shares(place.petrel, {make_budget("chick", parent=place.petrel): 0})
        else:
            Budget.objects.filter(pk=place.petrel.pk).update(archived_at=T0)

    monkeypatch.setattr(admission, "_refuse_what_never_fits", go)
    assert list(refused(place)) == ["budget"]
