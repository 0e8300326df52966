"""Estimates: which history counts, and what is kept and scored."""

from datetime import timedelta

import pytest

from forecasting import services as forecasting
from forecasting.models import Forecast
from tests import factories as make

pytestmark = pytest.mark.django_db
T0, HOUR = make.T0, make.HOUR
LATER = T0 + timedelta(days=30)


@pytest.fixture
def petrel():
    return make.make_tree()["orlo/science/petrel"]


def ask(budget, **changed):
    asked = {"budget": budget, "kind": "training", "gpus": 8, "name": "new", "now": LATER}
    return forecasting.estimate(**(asked | changed))


def ended(budget, took_s, *, number=3, declared_s=None, state="completed", **fields):
    """Jobs that took this long, with their estimates scored."""
    for _ in range(number):
        job = make.make_job(
            budget, state=state, ended_at=T0, expected_duration_s=declared_s, **fields
        )
        guess = ask(budget, declared_s=declared_s)
        forecasting.record(job=job, estimate=guess, now=T0)
        assert forecasting.score(job=job, actual_s=took_s, now=T0 + HOUR) == 1


def test_a_declared_duration_is_taken_as_it_is_without_history(petrel):
    found = ask(petrel, declared_s=7200)
    assert (found.p10_s, found.p50_s, found.p90_s) == (3600, 7200, 10800)
    assert (found.method, found.version) == ("declared", "quantiles-1")


def test_nothing_known_gives_the_wide_default_of_the_kind(petrel):
    found = ask(petrel)
    assert (found.p10_s, found.p50_s, found.p90_s, found.method) == (1800, 7200, 28800, "default")
    assert ask(petrel, kind="realtime").p50_s == 30 * 24 * 3600


def test_declarations_are_corrected_by_how_like_ones_came_true(petrel):
    ended(petrel, 6000, declared_s=10_000)
    found = ask(petrel, declared_s=7200)
    assert (found.p10_s, found.p50_s, found.p90_s) == (3910, 5969, 8021)
    assert found.method == "declared_history"


def test_sessions_tell_nothing_of_how_long_work_takes(petrel):
    ended(petrel, 60, session=True, time_limit_s=60)
    assert ask(petrel).method == "default"


def test_the_nearest_history_with_three_jobs_counts(petrel):
    auk = petrel.parent.children.get(slug="auk")
    ended(auk, 100, gpus=4)  # same kind only
    assert "training." in ask(petrel).reasons[0]
    kind_only = ask(petrel).p50_s
    ended(auk, 20_000)  # and the same GPUs
    same_gpus = ask(petrel).p50_s
    ended(petrel, 40_000)  # and the same budget
    same_budget = ask(petrel).p50_s
    ended(petrel, 60_000, name="sweep-7")  # and the same name but for its number
    same_name = ask(petrel, name="sweep-12").p50_s
    assert kind_only < same_gpus < same_budget < same_name
    assert "sweep, 8 GPUs, in orlo/science/petrel" in ask(petrel, name="sweep-12").reasons[0]


def test_two_like_jobs_are_no_history(petrel):
    ended(petrel, 40_000, number=2)
    assert ask(petrel).method == "default"


@pytest.mark.parametrize("state", ["failed", "cancelled", "preempted", "running"])
def test_jobs_that_did_not_run_to_their_end_say_nothing(petrel, state):
    ended(petrel, 40_000, state=state)
    assert ask(petrel).method == "default"


def test_what_ended_after_now_is_not_known_yet(petrel):
    ended(petrel, 40_000)
    assert ask(petrel, now=T0 - HOUR).method == "default"
    assert ask(petrel, now=T0).method == "history"


def test_a_forecast_is_kept_and_scored_once(petrel):
    job = make.make_job(petrel)
    guess = ask(petrel, declared_s=7200)
    forecasting.record(job=job, estimate=guess, now=T0)
    assert forecasting.score(job=job, actual_s=5000, now=LATER) == 1
    assert forecasting.score(job=job, actual_s=9999, now=LATER) == 0
    row = Forecast.objects.get()
    assert (row.p10_s, row.p50_s, row.p90_s, row.actual_s) == (3600, 7200, 10800, 5000)
    assert row.reasons == ["Declared: 7200 s."]
    with pytest.raises(ValueError, match="can't have taken"):
        forecasting.score(job=job, actual_s=-1, now=LATER)


def test_a_job_forecast_twice_counts_once(petrel):
    for took in (1000, 2000, 3000):
        job = make.make_job(petrel, state="completed", ended_at=T0)
        for _ in range(4):
            forecasting.record(job=job, estimate=ask(petrel), now=T0)
        forecasting.score(job=job, actual_s=took, now=T0 + HOUR)
    assert ask(petrel).reasons == ("3 like jobs: training, 8 GPUs, in orlo/science/petrel.",)


def test_an_estimate_takes_three_queries_however_long_the_history(
    petrel, django_assert_num_queries
):
    with django_assert_num_queries(3):
        ask(petrel)
    ended(petrel, 1000, number=2)
    with django_assert_num_queries(3):
        ask(petrel)
    ended(petrel, 1000, number=30)
    with django_assert_num_queries(1):
        ask(petrel)
