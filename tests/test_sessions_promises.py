"""Who is promised a session's GPUs after it: whoever is better entitled, and nobody else."""

import pytest

from allocator import promises, reading
from allocator.models import Cycle
from allocator.pages import session as pages
from budgets.access import standing
from budgets.models import Budget
from tests import factories as make
from tests.factories import HOUR, T0
from tests.helpers import Institute, make_institute
from tests.test_sessions import HOUR_S, MINUTE, ends, extend, held, run_of, started, work
from workloads import services as workloads
from workloads.models import Job

pytestmark = pytest.mark.django_db
B = T0 + 48 * HOUR  # a session begins: there is a window in which budgets are entitled to time
AT = B + 10 * MINUTE


def crowded(*, box_s: int = HOUR_S, **asked: object) -> tuple[Institute, Job]:
    """An institute of one node, which a session of Petrel has."""
    place = make_institute(nodes=1)
    return place, started(place, B, time_limit_s=box_s, **asked)


def queue(place: Institute, budget: Budget, **asked: object) -> Job:
    """Have a job wait, planned after the session."""
    job = place.submit(budget, AT, **asked)
    place.cycle(AT)
    assert reading.newest() is not None
    return job


def test_a_job_that_is_better_entitled_has_the_block_from_its_planned_start():
    place, job = crowded(box_s=50 * 60)
    other = queue(place, place.tern)
    answer = extend(job, 30, AT)
    assert (answer.rule, answer.until, answer.most_s) == ("promised", B + HOUR, 600)
    expected = {"job": other.pk, "name": "work", "budget": "orlo/vision/tern"}
    assert {name: answer.data[name] for name in expected} == expected
    before = held(job)
    assert not extend(job, 11, AT).is_granted
    assert (ends(job)[0], held(job)) == (B + 50 * MINUTE, before)
    assert extend(job, 10, AT).is_granted, "up to there the plan has nobody"
    assert extend(job, 1, AT).most_s == 0


def test_it_is_said_in_one_sentence_as_far_as_the_reader_may_know():
    place, job = crowded(box_s=50 * 60)
    other = queue(place, place.tern)
    answer = extend(job, 30, AT)
    insider, outsider = make.make_user(), make.make_user()
    make.make_role(insider, place.tree["orlo"], "viewer")
    make.make_role(outsider, place.petrel, "member")
    said = [
        pages.refused(answer, standing(user), now=AT)["sentence"] for user in (insider, outsider)
    ]
    start = "It can be extended until 01:00 UTC at most (10 min more): "
    assert said == [
        f"{start}job #{other.pk} of orlo/vision/tern starts then on these GPUs.",
        f"{start}a job of another budget starts then on these GPUs.",
    ]
    extend(job, 10, AT)
    answer = extend(job, 10, AT)
    sentence = pages.refused(answer, standing(outsider), now=AT)["sentence"]
    assert sentence == (
        "It can't be extended beyond 01:00 UTC: a job of another budget starts then on these GPUs."
    )


def test_a_job_of_the_same_budget_does_not_refuse():
    place, job = crowded()
    queue(place, place.petrel, urgency="high")
    assert extend(job, 30, AT).is_granted


def test_an_unfunded_job_does_not_refuse():
    place, job = crowded()
    queue(place, place.tern, minimum_runtime_s=0)
    assert extend(job, 30, AT).is_granted


def test_a_budget_that_would_be_beyond_its_entitlement_does_not_refuse():
    """A hundredth of two days of 8 GPUs is less than the timestep that it asks for."""
    shares = make.TREE | {"orlo/science": 99_000, "orlo/vision": 1000}
    place = make_institute(nodes=1, shares=shares)
    job = started(place, B)
    queue(place, place.tern)
    assert extend(job, 30, AT).is_granted


def test_a_budget_that_comes_after_the_session_s_does_not_refuse():
    """It has had an hour lately, and the session's budget ten minutes."""
    place = make_institute(nodes=1)
    place.submit(place.tern, B - HOUR, lasts=HOUR_S - 60)
    place.cycle(B - HOUR)
    place.cycle(B)
    job = started(place, B)
    queue(place, place.tern)
    assert extend(job, 30, AT).is_granted


def test_a_job_that_has_gone_since_the_plan_does_not_refuse():
    place, job = crowded()
    other = queue(place, place.tern)
    workloads.cancel_queued(job=other, by=None, at=AT)
    assert extend(job, 30, AT).is_granted


def test_a_job_that_has_started_elsewhere_since_the_plan_does_not_refuse():
    place, job = crowded()
    other = queue(place, place.tern)
    assert extend(job, 30, AT).rule == "promised"
    Job.objects.filter(pk=other.pk).update(state="starting")
    assert extend(job, 30, AT).is_granted


def test_a_job_on_other_gpus_does_not_refuse():
    place = make_institute(nodes=2)
    job = started(place, B)
    other = work(place, B, budget=place.auk, time_limit_s=2 * HOUR_S)
    place.cycle(B)
    queue(place, place.tern)
    assert [one.rule for one in promises.promises(run=run_of(job), now=AT)] == ["promised"]
    assert promises.promises(run=run_of(other), now=AT) == []
    assert extend(other, 30, AT).is_granted
    assert extend(job, 30, AT).rule == "promised"


def test_without_any_plan_nobody_is_promised_anything():
    _, job = crowded()
    Cycle.objects.all().delete()
    assert promises.promises(run=run_of(job), now=AT) == []


def test_an_extended_session_is_what_the_next_plan_goes_around():
    place, job = crowded()
    other = queue(place, place.tern, minimum_runtime_s=0)
    extend(job, 60, AT)
    place.cycle(B + HOUR)
    assert not other.runs.exists()
    place.cycle(B + 2 * HOUR)
    job.refresh_from_db()
    assert job.ended_at == B + 2 * HOUR
    assert other.runs.get().started_at == B + 2 * HOUR
