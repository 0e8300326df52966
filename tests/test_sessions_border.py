"""Sessions that are extended over a period's border: what is charged where, and what refuses."""

from datetime import timedelta
from typing import Any

import pytest

from allocator import sessions
from allocator.pages.session_words import refusal
from budgets.models import Period
from ledger import further, reports
from ledger.models import Entry
from tests import factories as make
from tests.factories import HOUR, T0, T1
from tests.helpers import CREDIT, Institute, make_institute
from tests.test_sessions import HOUR_S, MINUTE, ends, extend, held, run_of, started, work

pytestmark = pytest.mark.django_db
BORDER = T0 + 90 * MINUTE  # petrel is entitled to 30 % of what follows


def institute(*, follows: int | None = 1000, **given: Any) -> Institute:
    """A period to 01:30, and one that follows with so many GPU-hours; None: none is approved."""
    place = make_institute(ends_at=BORDER, **given)
    if follows is not None:
        next_period(place, follows)
    return place


def next_period(place: Institute, hours: int, **fields: Any) -> Period:
    given: dict[str, Any] = {"starts_at": BORDER, "ends_at": T1, "status": "approved"} | fields
    return make.make_period("next", capacity={place.pool: hours * HOUR_S}, **given)


def charged(name: str) -> int:
    return sum(
        Entry.objects.filter(kind="charge", period__name=name).values_list(
            "amount_mgpus", flat=True
        )
    )


def said(answer: sessions.Answer) -> str:
    return refusal(answer.rule, answer.data, now=T0)


def test_each_period_is_charged_what_ran_in_it_and_protection_goes_on():
    place = institute()
    job = started(place)
    assert extend(job, 60, T0 + 10 * MINUTE).is_granted
    assert held(job) == 16 * CREDIT
    place.play(T0 + 10 * MINUTE, BORDER)
    job.refresh_from_db()
    assert (job.funded, held(job)) == (True, 4 * CREDIT)
    assert ends(job) == (T0 + 2 * HOUR, T0 + 2 * HOUR)
    # Once more, in the period that it has come into.
    assert extend(job, 30, BORDER + MINUTE).is_granted
    place.play(BORDER + MINUTE, T0 + 3 * HOUR)
    job.refresh_from_db()
    assert (job.state, job.ended_at) == ("timed_out", T0 + 150 * MINUTE)
    assert (charged("2026 Q4"), charged("next")) == (12 * CREDIT, 8 * CREDIT)
    assert reports.job_charges(job=job).unfunded_gpu_seconds == 0
    assert held(job) == 0


def test_where_no_period_follows_it_ends_at_the_border_at_most():
    place = institute(follows=None)
    job = started(place)
    answer = extend(job, 31, T0 + MINUTE)
    assert (answer.rule, answer.until, answer.most_s) == ("period", BORDER, 30 * 60)
    assert said(answer) == (
        "It can be extended until 01:30 UTC at most (30 min more): "
        "the budgets' period ends then, and none that follows is approved."
    )
    draft = next_period(place, 1000, status="draft")
    assert extend(job, 31, T0 + MINUTE).rule == "period", "a draft may never begin"
    draft.starts_at, draft.status = BORDER + timedelta(seconds=1), "approved"
    draft.save()
    assert extend(job, 31, T0 + MINUTE).rule == "period", "a second lies between"
    assert extend(job, 30, T0 + MINUTE).is_granted


def test_one_that_is_approved_without_capacity_can_t_begin():
    place = institute()
    Period.objects.get(name="next").capacities.all().delete()
    assert extend(started(place), 31, T0 + MINUTE).rule == "period"


def test_a_next_period_with_too_little_refuses_and_is_named():
    place = institute(follows=10)
    job = started(place)
    answer = extend(job, 60, T0 + MINUTE)  # 8 GPUs × 30 min of 30 %, that is 3 credits
    assert (answer.rule, answer.most_s) == ("period", (30 + 22) * 60)
    assert said(answer) == (
        "It can be extended until 01:52 UTC at most (52 min more): orlo/science/petrel will have "
        "3.00 credits to spend in next, and 4.00 are needed from its beginning on."
    )
    assert extend(job, 52, T0 + MINUTE).is_granted
    place.play(T0 + MINUTE, T0 + 2 * HOUR)
    assert reports.job_charges(job=job).unfunded_gpu_seconds == 0


def test_an_ancestor_that_will_have_less_binds():
    """Auk's job, which waits with its hold, comes out of science's too."""
    place = institute(follows=18)
    job = started(place)
    other = work(place, budget=place.auk, gpus=8)
    assert other.funded
    answer = extend(job, 60, T0 + MINUTE)
    assert (answer.rule, answer.data["binding"]) == ("period", "orlo/science")
    assert answer.data["spendable_mgpus"] == 28 * CREDIT // 10, "60 % of 18, less 8"


def test_what_is_set_aside_for_others_beyond_the_border_is_theirs():
    place = institute(follows=20)  # 6 credits for petrel
    first, second = started(place, gpus=8), work(place, gpus=8)
    place.cycle(T0 + MINUTE)
    second.refresh_from_db()
    assert second.state == "running"
    assert extend(first, 60, T0 + 2 * MINUTE).is_granted
    answer = extend(second, 60, T0 + 2 * MINUTE)
    assert (answer.rule, answer.data["spendable_mgpus"]) == ("period", 2 * CREDIT)
    assert extend(second, answer.most_s // 60, T0 + 2 * MINUTE).is_granted
    place.play(T0 + 2 * MINUTE, T0 + 3 * HOUR)
    for job in (first, second):
        assert reports.job_charges(job=job).unfunded_gpu_seconds == 0


def test_what_the_next_period_takes_along_counts():
    place = institute(follows=None)
    next_period(place, 1, carry_over_cap=50_000)
    assert extend(started(place), 60, T0 + MINUTE).is_granted


def test_a_period_that_is_over_and_not_turned_sets_nothing_aside():
    """Its last second is over, the next one hasn't started: no cycle has come yet."""
    place = institute()
    job = started(place, time_limit_s=3 * HOUR_S)
    answer = extend(job, 30, BORDER)
    assert (answer.rule, answer.most_s) == ("credits", 0)
    assert said(answer) == (
        "It can't be extended beyond 03:00 UTC: no period is active, so nothing can be set aside."
    )
    place.cycle(BORDER)
    assert extend(job, 30, BORDER).is_granted


def test_a_closed_period_with_none_after_it_leaves_nothing_to_extend():
    place = institute(follows=None)
    job = started(place, time_limit_s=3 * HOUR_S)
    place.play(T0, BORDER)
    assert Period.objects.get().status == "closed"
    answer = extend(job, 30, BORDER + MINUTE)
    assert answer.rule == "unfunded"
    assert said(answer).startswith("It runs unfunded")


def test_nothing_is_looked_up_within_the_period():
    place = institute()
    run = run_of(started(place))
    assert further.short_beyond(run=run, until=BORDER, now=T0) is None
