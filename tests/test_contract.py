"""The contract of a job, told as situations: submitted, funded, protected, preempted, charged."""

from datetime import timedelta

import pytest

from allocator import admission, committing, playing
from allocator.models import Cycle, Outlook
from clusters.models import PoolRate, SimulatedFault
from ledger import reports
from ledger.models import Entry
from tests.factories import HOUR, T0, TIMESTEP, make_nodes, make_pool
from tests.helpers import CREDIT, PLENTY, Institute, arrival, grant, make_institute
from workloads import services as workloads
from workloads.models import Job, Run
from workloads.services import Block

MINUTE = timedelta(minutes=1)

pytestmark = [pytest.mark.django_db, pytest.mark.once]


@pytest.fixture
def place() -> Institute:
    return make_institute()


def test_a_job_runs_on_time_and_is_charged_to_the_second(place):
    job = place.submit(place.petrel, lasts=7000)
    assert (job.state, job.funded) == (Job.State.QUEUED, True)
    place.play(T0, T0 + 3 * HOUR)
    job.refresh_from_db()
    run = job.runs.get()
    assert (job.state, run.started_at, run.end_reason) == (Job.State.COMPLETED, T0, "completed")
    assert run.protected_until == T0 + HOUR
    assert run.ended_at == T0 + timedelta(seconds=7000)
    charges = Entry.objects.filter(kind="charge", run=run).order_by("at")
    assert [c.gpu_seconds for c in charges] == [8 * 1800] * 3 + [8 * 1600]
    assert sum(c.amount_mgpus for c in charges) == 8 * 7000 * 1000


def test_minimum_runtime_is_held_from_submission_and_released_when_the_run_ends(place):
    job = place.submit(place.petrel, lasts=1200, expected_duration_s=3600)
    assert job.minimum_runtime_s == 3600
    held = Entry.objects.get(kind="hold", job=job)
    assert held.amount_mgpus == 8 * 3600 * 1000
    place.play(T0, T0 + HOUR)
    assert Job.objects.get().state == Job.State.COMPLETED
    assert total("charge", job) == 8 * 1200 * 1000
    assert total("hold", job) == total("release", job)


def test_a_better_entitled_budget_preempts_only_after_the_minimum_runtime(place):
    for name in ("first", "second"):
        place.submit(place.petrel, name=name, expected_duration_s=6 * 3600)
    late = arrival(T0 + timedelta(minutes=10), place.submit, place.tern, name="late")
    place.play(T0, T0 + 50 * MINUTE, [late])
    assert Run.objects.filter(state="running").count() == 2
    assert Job.objects.get(name="late").state == Job.State.QUEUED
    place.play(T0 + HOUR, T0 + HOUR + TIMESTEP)
    victim = Run.objects.get(end_reason=Run.EndReason.PREEMPTED)
    assert victim.ended_at == T0 + HOUR == victim.protected_until
    winner = Job.objects.get(name="late").runs.get()
    assert (winner.state, winner.started_at) == ("running", T0 + HOUR)
    story = victim.job.events.get(kind="preempted_decided").data
    assert story["by_name"] == "late"
    assert story["by_budget"] == "orlo/vision/tern"
    assert Cycle.objects.get(pk=story["cycle"]).preemptions == 1


def test_a_preempted_resumable_job_keeps_its_progress_and_needs_a_hold_of_its_own(place):
    for name in ("first", "second"):
        place.submit(place.petrel, name=name, expected_duration_s=4 * 3600)
    late = arrival(T0 + MINUTE, place.submit, place.tern, name="late", lasts=3600)
    place.play(T0, T0 + 8 * HOUR, [late])
    victim = Run.objects.get(end_reason=Run.EndReason.PREEMPTED).job
    assert victim.state == Job.State.COMPLETED
    one, two = victim.runs.order_by("number")
    worked = (one.ended_at - one.started_at) + (two.ended_at - two.started_at)
    assert worked == 4 * HOUR, "nothing was lost and nothing was done twice"
    firsts = Entry.objects.filter(kind="hold", job=victim).order_by("attempt", "id")
    assert sorted({entry.attempt for entry in firsts}) == [1, 2]
    assert total("charge", victim) == 8 * 4 * CREDIT


def test_preemption_ends_a_job_that_is_not_resumable(place):
    for name in ("first", "second"):
        place.submit(place.petrel, name=name, expected_duration_s=6 * 3600, resumable=False)
    place.play(T0, T0 + HOUR, [arrival(T0 + MINUTE, place.submit, place.tern, name="late")])
    victim = Run.objects.get(end_reason=Run.EndReason.PREEMPTED).job
    assert (victim.state, victim.ended_at) == (Job.State.PREEMPTED, T0 + HOUR)
    assert total("hold", victim) == total("release", victim) > 0


def test_a_job_unfunded_by_choice_is_free_and_yields_from_its_first_second(place):
    for n in range(2):
        place.submit(place.petrel, name=f"free{n}", minimum_runtime_s=0)
    paid = arrival(T0 + 5 * MINUTE, place.submit, place.tern, name="paid")
    place.play(T0, T0 + TIMESTEP, [paid])
    victim = Run.objects.get(end_reason=Run.EndReason.PREEMPTED)
    assert victim.job.minimum_runtime_s == 0
    assert victim.ended_at == T0 + 5 * MINUTE
    charge = Entry.objects.get(kind="charge", run=victim)
    assert (charge.amount_mgpus, charge.funded, charge.gpu_seconds) == (0, False, 8 * 300)


def test_without_funds_a_job_waits_and_is_told_which_budget_binds():
    place = make_institute(credits={"orlo/science/petrel": 4, "orlo/vision/tern": 100})
    job = place.submit(place.petrel)
    assert not job.funded
    place.cycle(T0)
    outlook = Outlook.objects.get(job=job)
    assert outlook.rule == "not_funded"
    assert outlook.data == {
        "binding": "orlo/science/petrel",
        "needed_mgpus": 8 * CREDIT,
        "spendable_mgpus": 4 * CREDIT,
    }
    assert not job.runs.exists()


def test_a_waiting_job_starts_once_its_budget_can_pay():
    place = make_institute(credits={"orlo/science/petrel": 4})
    job = place.submit(place.petrel)
    place.cycle(T0)
    grant(place.petrel, 100)
    place.cycle(T0 + MINUTE)
    job.refresh_from_db()
    assert (job.state, job.funded) == (Job.State.RUNNING, True)


def test_a_job_that_would_rather_run_runs_unfunded_and_yields_from_its_first_second():
    place = make_institute(nodes=1, credits={"orlo/vision/tern": PLENTY})
    job = place.submit(place.petrel, when_unfunded="run")
    place.cycle(T0)
    run = job.runs.get()
    assert run.protected_until == run.started_at == T0
    assert [holding.funded for holding in run.holdings.all()] == [False]
    place.submit(place.tern, at=T0 + MINUTE, name="paid")
    place.cycle(T0 + MINUTE)
    run.refresh_from_db()
    assert (run.end_reason, run.ended_at) == (Run.EndReason.PREEMPTED, T0 + MINUTE)
    assert Job.objects.get(name="paid").state == Job.State.RUNNING


def test_at_zero_a_run_turns_unfunded_at_the_boundary_and_goes_on():
    place = make_institute(credits={"orlo/science/petrel": 12})
    job = place.submit(place.petrel, expected_duration_s=3 * 3600)
    place.play(T0, T0 + 4 * HOUR)
    job.refresh_from_db()
    run = job.runs.get()
    assert (job.state, run.end_reason) == (Job.State.COMPLETED, "completed")
    holdings = run.holdings.order_by("started_at").values_list("funded", "started_at", "ended_at")
    zero = T0 + 3 * TIMESTEP  # 12 credits pay 8 GPUs for an hour and a half
    assert list(holdings) == [(True, T0, zero), (False, zero, T0 + 3 * HOUR)]
    assert total("charge", job) == 12 * CREDIT
    assert run.entries.filter(kind="charge", funded=False).count() == 3


def test_later_funds_do_not_reach_back():
    place = make_institute(credits={"orlo/science/petrel": 8})
    job = place.submit(place.petrel, expected_duration_s=3 * 3600)
    more = playing.Arrival(T0 + HOUR + MINUTE, lambda at: grant(place.petrel, 100, at=at))
    place.play(T0, T0 + 4 * HOUR, [more])
    assert total("charge", job) == 8 * CREDIT
    assert job.runs.get().end_reason == "completed"


def test_a_job_that_outlives_its_estimate_is_planned_on_and_charged_on(place):
    job = place.submit(place.petrel, expected_duration_s=3600, lasts=5 * 3600)
    place.play(T0, T0 + 6 * HOUR)
    job.refresh_from_db()
    assert job.state == Job.State.COMPLETED
    assert total("charge", job) == 40 * CREDIT


def test_a_job_that_fails_is_charged_for_what_it_held(place):
    job = place.submit(place.petrel, fails_after=4000)
    place.play(T0, T0 + 2 * HOUR)
    job.refresh_from_db()
    assert (job.state, job.ended_at) == (Job.State.FAILED, T0 + timedelta(seconds=4000))
    assert total("charge", job) == 8 * 4000 * 1000
    assert job.runs.count() == 1


def test_a_job_is_ended_at_its_time_limit(place):
    job = place.submit(place.petrel, time_limit_s=3600, lasts=9000)
    place.play(T0, T0 + 2 * HOUR)
    job.refresh_from_db()
    assert (job.state, job.ended_at) == (Job.State.TIMED_OUT, T0 + HOUR)
    assert total("charge", job) == 8 * CREDIT


def test_a_time_limit_counts_what_earlier_runs_have_done(place):
    for name in ("first", "second"):
        place.submit(
            place.petrel, name=name, expected_duration_s=7200, time_limit_s=7200, lasts=9999
        )
    place.play(T0, T0 + 5 * HOUR, [arrival(T0 + MINUTE, place.submit, place.tern, lasts=1800)])
    job = Run.objects.get(end_reason=Run.EndReason.PREEMPTED).job
    one, two = job.runs.order_by("number")
    assert (job.state, two.end_reason) == (Job.State.TIMED_OUT, "timed_out")
    assert (one.ended_at - one.started_at) + (two.ended_at - two.started_at) == 2 * HOUR


def test_a_failed_node_refunds_the_run_and_requeues_its_job(place):
    job = place.submit(place.petrel, lasts=2 * 3600)
    fault = T0 + 40 * MINUTE
    SimulatedFault.objects.create(node=place.nodes[0], starts_at=fault, ends_at=fault + HOUR)
    SimulatedFault.objects.create(node=place.nodes[1], starts_at=fault, ends_at=fault + 9 * MINUTE)
    place.play(T0, T0 + 4 * HOUR)
    one, two = job.runs.order_by("number")
    assert (one.end_reason, one.ended_at) == (Run.EndReason.NODE_FAILURE, fault)
    assert two.started_at == fault + 9 * MINUTE, "as soon as one of the nodes is back"
    assert (two.end_reason, two.ended_at - two.started_at) == ("completed", 2 * HOUR)
    charged = sum(e.amount_mgpus for e in one.entries.filter(kind="charge"))
    assert charged == 8 * 2400 * 1000
    assert sum(e.amount_mgpus for e in one.entries.filter(kind="refund")) == charged
    assert not two.entries.filter(kind="refund").exists()


def test_a_node_that_fails_at_a_timestep_s_very_boundary_refunds_too(place):
    job = place.submit(place.petrel)
    for node in place.nodes:
        SimulatedFault.objects.create(node=node, starts_at=T0 + HOUR, ends_at=T0 + 2 * HOUR)
    place.play(T0, T0 + 3 * HOUR)
    one = job.runs.get(number=1)
    assert one.ended_at == T0 + HOUR
    assert total("refund", job) == 8 * CREDIT


def test_a_queued_job_is_cancelled_at_once_and_its_hold_released(place):
    job = place.submit(place.petrel)
    admission.cancel(job=job, by=place.user, now=T0 + MINUTE)
    job.refresh_from_db()
    assert (job.state, job.ended_at) == (Job.State.CANCELLED, T0 + MINUTE)
    assert total("hold", job) == total("release", job) > 0
    place.cycle(T0 + MINUTE)
    assert not Run.objects.exists()


def test_a_running_job_is_cancelled_by_the_next_cycle(place):
    job = place.submit(place.petrel)
    place.cycle(T0)
    admission.cancel(job=job, by=place.user, now=T0 + MINUTE)
    place.cycle(T0 + 2 * MINUTE)
    job.refresh_from_db()
    assert (job.state, job.ended_at) == (Job.State.CANCELLED, T0 + 2 * MINUTE)
    place.cycle(T0 + TIMESTEP)
    assert total("charge", job) == 8 * 120 * 1000


def test_a_job_cancelled_while_it_starts_is_stopped_as_soon_as_it_has_started(place):
    job = place.submit(place.petrel)
    workloads.decide_start(
        job=job, pool=place.pool, blocks=[Block(place.nodes[0], 0xFF, True)], at=T0
    )
    job.refresh_from_db()
    assert job.state == Job.State.STARTING
    admission.cancel(job=job, by=place.user, now=T0)
    place.cycle(T0)
    job.refresh_from_db()
    assert job.state == Job.State.CANCELLED
    assert job.runs.get().end_reason == Run.EndReason.CANCELLED
    assert total("hold", job) == total("release", job)


def test_cancelling_twice_or_after_the_end_changes_nothing(place):
    job = place.submit(place.petrel, lasts=600)
    place.play(T0, T0 + TIMESTEP)
    before = Job.objects.values().get()
    admission.cancel(job=job, by=place.user, now=T0 + HOUR)
    admission.cancel(job=job, by=place.user, now=T0 + HOUR)
    assert Job.objects.values().get() == before
    assert before["state"] == Job.State.COMPLETED


def test_a_run_that_completes_in_the_second_it_is_preempted_has_completed(place):
    for name in ("first", "second"):
        place.submit(place.petrel, name=name, expected_duration_s=6 * 3600, lasts=3600)
    place.cycle(T0)
    place.submit(place.tern, at=T0 + MINUTE, name="late")
    run = Run.objects.order_by("pk").first()
    assert workloads.decide_stop(run=run, reason=Run.EndReason.PREEMPTED, at=T0 + HOUR)
    place.cycle(T0 + HOUR)
    run.refresh_from_db()
    assert (run.end_reason, run.ended_at) == ("completed", T0 + HOUR)
    assert run.job.state == Job.State.COMPLETED


def total(kind: str, job: Job) -> int:
    """Sum of a job's entries of a kind, in milli-GPU-seconds."""
    return sum(entry.amount_mgpus for entry in Entry.objects.filter(kind=kind, job=job))


def test_at_zero_a_run_stays_funded_to_the_end_of_the_minimum_runtime_it_was_promised():
    """10 credits pay 8 GPUs for 1 h 15, which ends within a timestep."""
    place = make_institute(credits={"orlo/science/petrel": 10, "orlo/vision/tern": PLENTY})
    job = place.submit(place.petrel, minimum_runtime_s=4500, expected_duration_s=3 * 3600)
    rival = [arrival(T0 + HOUR, place.submit, place.tern, gpus=16, name="rival")]
    place.play(T0, T0 + 2 * HOUR, rival)
    run = job.runs.get()
    end_of_promise = T0 + timedelta(seconds=4500)
    assert (run.end_reason, run.ended_at) == ("preempted", T0 + 3 * TIMESTEP)
    assert run.protected_until == end_of_promise
    spans = run.holdings.order_by("started_at").values_list("funded", "started_at", "ended_at")
    assert list(spans) == [
        (True, T0, end_of_promise),
        (False, end_of_promise, T0 + 3 * TIMESTEP),
    ]
    assert total("charge", job) == total("release", job) == 10 * CREDIT


def test_a_run_cut_short_before_its_paid_time_is_over_holds_nothing_beyond_its_end():
    place = make_institute(credits={"orlo/science/petrel": 10})
    job = place.submit(place.petrel, minimum_runtime_s=4500, lasts=4000)
    place.play(T0, T0 + 2 * HOUR)
    run = job.runs.get()
    assert (run.end_reason, run.ended_at) == ("completed", T0 + timedelta(seconds=4000))
    assert max(h.ended_at for h in run.holdings.all()) == run.ended_at
    assert total("charge", job) == 8 * 4000 * 1000
    assert reports.spendable(budget=place.petrel, now=T0 + 2 * HOUR) == 8 * 500 * 1000


def test_what_is_left_of_a_hold_that_no_longer_pays_a_timestep_goes_back_at_once():
    """Held at the dearer pool's rate (9.6 credits an hour), spent in the cheaper one (8)."""
    place = make_institute(credits={"orlo/science/petrel": 11})
    make_nodes(make_pool(cluster=place.cluster, slug="b200", rate=1200))
    job = place.submit(place.petrel, expected_duration_s=3 * 3600)
    place.play(T0, T0 + HOUR)
    run = job.runs.get()
    assert (run.state, run.holdings.filter(funded=False).get().started_at) == ("running", T0 + HOUR)
    assert total("charge", job) == 8 * CREDIT
    assert total("release", job) == total("hold", job) == 96 * CREDIT // 10
    assert reports.spendable(budget=place.petrel, now=T0 + HOUR) == 3 * CREDIT


def test_less_than_a_timestep_that_is_paid_for_is_run_and_free_from_its_end():
    """3 credits pay 8 GPUs for the ten minutes asked for, and not for half an hour."""
    place = make_institute(credits={"orlo/science/petrel": 3})
    job = place.submit(place.petrel, minimum_runtime_s=600, expected_duration_s=3600)
    place.play(T0, T0 + 2 * HOUR)
    job.refresh_from_db()
    assert (job.state, job.attempt) == (Job.State.COMPLETED, 1)
    run = job.runs.get()
    assert (run.started_at, run.protected_until) == (T0, T0 + 10 * MINUTE)
    assert total("charge", job) == total("hold", job) == 8 * 600 * 1000


def test_what_not_even_the_minimum_runtime_is_paid_for_any_more_waits_and_is_told_so():
    place = make_institute(credits={"orlo/science/petrel": 9, "orlo/vision/tern": PLENTY})
    job = place.submit(place.petrel)
    other = place.submit(place.tern, name="other")
    PoolRate.objects.create(pool=place.pool, effective_at=T0 + MINUTE, rate_per_mille=3000)
    made = place.cycle(T0 + MINUTE)
    job.refresh_from_db()
    assert (job.state, job.funded, job.attempt) == (Job.State.QUEUED, False, 2)
    assert Outlook.objects.get(job=job).rule == "not_funded"
    assert total("hold", job) == total("release", job) == 8 * CREDIT
    assert (made.starts, made.waiting) == (1, 1)
    assert other.runs.get().holdings.get().funded


@pytest.mark.parametrize("number", [1, 5])
def test_the_starts_of_a_cycle_are_paid_for_together(place, monkeypatch, number):
    make_nodes(place.pool, 3)
    for n in range(number):
        place.submit(place.petrel, name=f"job{n}")
    asked = []
    cover = committing.ledger.cover
    monkeypatch.setattr(committing.ledger, "cover", lambda **a: asked.append(a) or cover(**a))
    assert place.cycle(T0).starts == number
    assert [len(list(call["runs"])) for call in asked] == [number]


@pytest.mark.parametrize(("percent", "starts"), [(5, 1), (100, 2)])
def test_how_much_a_cycle_may_preempt_is_what_the_setting_says(place, settings, percent, starts):
    settings.PREEMPTION_CAP_PERCENT = percent
    for n in range(4):
        place.submit(place.petrel, name=f"free{n}", gpus=4, minimum_runtime_s=0)
    place.cycle(T0)
    for n in range(2):
        place.submit(place.tern, at=T0 + MINUTE, name=f"paid{n}")
    made = place.cycle(T0 + MINUTE)
    assert (made.starts, made.preemptions) == (starts, 2 * starts)
