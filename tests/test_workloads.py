"""The states of jobs and runs: which may follow which, who wins a race, and what a run held."""

from datetime import UTC, datetime, timedelta
from itertools import product

import pytest
from django.db import IntegrityError, transaction

from tests.factories import HOUR, T0, TIMESTEP, make_job, make_nodes, make_pool, make_run, make_tree
from tests.factories import make_service as make_realtime
from workloads import services
from workloads.demand import demand_at, demand_over
from workloads.models import Holding, Job, JobEvent, Run
from workloads.services import TRANSITIONS, Block, StateConflict

pytestmark = pytest.mark.django_db
MINUTE = timedelta(minutes=1)


@pytest.fixture
def leaf():
    return make_tree()["orlo/science/petrel"]


@pytest.fixture
def node():
    return make_nodes(make_pool("h100"), 1)[0]


@pytest.fixture
def job(leaf):
    return make_job(leaf, funded=True, resumable=True)


@pytest.fixture
def run(job, node):
    """A run of the job that was started at T0."""
    made = services.decide_start(job=job, pool=node.pool, blocks=[Block(node, 0xFF, True)], at=T0)
    services.confirm_start(run=made, at=T0)
    made.refresh_from_db()
    return made


def state_of(job: Job) -> str:
    return Job.objects.get(pk=job.pk).state


@pytest.mark.parametrize(("old", "new"), list(product(Job.State.values, repeat=2)))
def test_only_the_machine_s_transitions_are_possible(leaf, old, new):
    job = make_job(leaf, state=old)
    if new in TRANSITIONS.get(old, ()):
        services.transition(job, new, at=T0 + HOUR)
        assert state_of(job) == new
        assert (Job.objects.get().ended_at is not None) == (new in Job.ENDED)
    else:
        with pytest.raises(ValueError, match=f"from {old} to {new}"):
            services.transition(job, new, at=T0 + HOUR)
        assert state_of(job) == old


def test_nothing_follows_an_end():
    assert not set(TRANSITIONS) & set(Job.ENDED)
    assert set(TRANSITIONS) | set(Job.ENDED) == set(Job.State.values)


def test_of_two_writers_the_second_learns_that_it_was_second(job):
    first, second = Job.objects.get(pk=job.pk), Job.objects.get(pk=job.pk)
    services.transition(first, Job.State.CANCELLED, at=T0)
    with pytest.raises(StateConflict):
        services.transition(second, Job.State.STARTING, at=T0)
    assert state_of(job) == Job.State.CANCELLED


def test_a_start_that_comes_second_leaves_no_run(job, node):
    stale = Job.objects.get(pk=job.pk)
    services.cancel_queued(job=job, by=None, at=T0)
    with pytest.raises(StateConflict):
        services.decide_start(job=stale, pool=node.pool, blocks=[Block(node, 1, True)], at=T0)
    assert not Run.objects.exists()
    assert not Holding.objects.exists()


def test_the_database_refuses_a_second_live_run(run, job):
    with pytest.raises(IntegrityError), transaction.atomic():
        Run.objects.create(job=job, number=2, pool=run.pool, decided_at=T0)


def test_gpus_are_held_from_the_confirmed_start(job, node):
    run = services.decide_start(job=job, pool=node.pool, blocks=[Block(node, 0xFF, True)], at=T0)
    assert Holding.objects.get().started_at is None
    services.confirm_start(run=run, at=T0 + MINUTE)
    services.confirm_start(run=run, at=T0 + HOUR)
    run.refresh_from_db()
    assert Holding.objects.get().started_at == run.started_at == T0 + MINUTE
    assert run.protected_until == T0 + MINUTE + HOUR
    assert JobEvent.objects.filter(kind="started").count() == 1


def test_an_unfunded_run_is_protected_for_no_second(leaf, node):
    job = make_job(leaf, funded=False)
    run = services.decide_start(job=job, pool=node.pool, blocks=[Block(node, 1, False)], at=T0)
    services.confirm_start(run=run, at=T0)
    run.refresh_from_db()
    assert run.protected_until == T0


@pytest.mark.parametrize(
    ("reason", "resumable", "state", "attempt", "progress"),
    [
        ("completed", True, "completed", 1, 0),
        ("failed", True, "failed", 1, 0),
        ("timed_out", True, "timed_out", 1, 0),
        ("cancelled", True, "cancelled", 1, 0),
        ("preempted", True, "queued", 2, 3600),
        ("preempted", False, "preempted", 1, 0),
        ("node_failure", True, "queued", 2, 0),
        ("node_failure", False, "queued", 2, 0),
        ("refused", False, "queued", 2, 0),
    ],
)
def test_what_becomes_of_a_job(run, job, reason, resumable, state, attempt, progress):
    Job.objects.filter(pk=job.pk).update(resumable=resumable)
    assert services.end_run(run=run, reason=reason, at=T0 + HOUR)
    job.refresh_from_db()
    assert (job.state, job.attempt, job.progress_s) == (state, attempt, progress)
    assert job.funded == (attempt == 1), "another attempt needs a hold of its own"
    assert Holding.objects.get().ended_at == T0 + HOUR
    assert not services.end_run(run=run, reason="failed", at=T0 + 2 * HOUR)
    assert Run.objects.get().end_reason == reason


def test_a_job_cancelled_while_it_is_preempted_does_not_come_back(run, job):
    services.request_cancel(job=job, by=None, at=T0 + MINUTE)
    services.end_run(run=run, reason="preempted", at=T0 + HOUR)
    assert state_of(job) == Job.State.CANCELLED


def test_the_last_reason_is_the_true_one(run):
    assert services.decide_stop(run=run, reason="preempted", at=T0 + HOUR)
    assert not services.decide_stop(run=run, reason="cancelled", at=T0 + HOUR)
    services.end_run(run=run, reason="completed", at=T0 + HOUR)
    assert Run.objects.get().end_reason == "completed"


def test_a_run_never_ends_before_it_starts(run):
    services.end_run(run=run, reason="failed", at=T0 - HOUR)
    assert Run.objects.get().ended_at == T0
    assert Holding.objects.get().ended_at == T0


def test_losing_its_funds_cuts_a_run_s_holding_at_that_instant(run, job):
    services.unfund(run=run, at=T0 + MINUTE)
    rows = Holding.objects.order_by("started_at").values_list("funded", "started_at", "ended_at")
    assert list(rows) == [(True, T0, T0 + MINUTE), (False, T0 + MINUTE, None)]
    run.refresh_from_db()
    assert run.protected_until == T0 + MINUTE
    services.unfund(run=run, at=T0 + HOUR)
    assert Holding.objects.count() == 2, "what is free already stays as it is"


def test_a_past_run_that_could_not_pay_is_cut_where_it_could_not(leaf, node):
    run = make_run(make_job(leaf), {node: 0xFF}, ended_at=T0 + 2 * HOUR)
    services.unfund(run=run, at=T0 + HOUR)
    rows = Holding.objects.order_by("started_at").values_list("funded", "started_at", "ended_at")
    assert list(rows) == [(True, T0, T0 + HOUR), (False, T0 + HOUR, T0 + 2 * HOUR)]


def test_a_past_run_that_could_not_pay_leaves_the_next_attempt_its_funds(run, job):
    services.end_run(run=run, reason="node_failure", at=T0 + 2 * HOUR)
    Job.objects.filter(pk=job.pk, attempt=2).update(funded=True)
    late = Run.objects.select_related("job").get()
    services.unfund(run=late, at=T0 + HOUR)
    assert Job.objects.get().funded


def test_a_service_keeps_what_stays_and_closes_what_goes(run, node):
    blocks = [Block(node, 0xFF, True), Block(node, 0x0F, False)]
    services.resize(run=run, blocks=blocks[:1], at=T0 + MINUTE)
    assert Holding.objects.count() == 1
    services.resize(run=run, blocks=blocks[1:], at=T0 + HOUR)
    rows = Holding.objects.order_by("pk").values_list("mask", "funded", "started_at", "ended_at")
    assert list(rows) == [(0xFF, True, T0, T0 + HOUR), (0x0F, False, T0 + HOUR, None)]


def test_the_demand_of_a_timestep_is_the_peak_inside_it(leaf):
    service = make_realtime(leaf, profile=[1, 5] * 12).service
    wide = demand_over(service, start=T0, step=2 * HOUR, timesteps=2)
    fine = demand_over(service, start=T0, step=TIMESTEP, timesteps=4)
    assert (wide, fine) == ((5, 5), (1, 1, 5, 5))


@pytest.mark.parametrize("minutes", [1, 3, 4, 7, 9, 12, 16, 28])
@pytest.mark.parametrize("step", [3, 12, 30, 60])
@pytest.mark.parametrize("zone", ["UTC", "Asia/Kathmandu"])
def test_no_peak_of_a_profile_is_passed_over_whatever_its_steps(leaf, minutes, step, zone):
    count = 7 * 24 * 60 // minutes
    count //= 7 if 24 * 60 % minutes == 0 else 1
    service = make_realtime(leaf, profile=[1 + n * 7919 % 50 for n in range(count)]).service
    service.step_minutes, service.time_zone = minutes, zone
    every, timesteps = timedelta(minutes=step), 5 * 60 // step
    found = demand_over(service, start=T0, step=every, timesteps=timesteps)
    each = [
        max(demand_at(service, T0 + every * t + MINUTE * n) for n in range(step))
        for t in range(timesteps)
    ]
    assert list(found) == each


def test_demand_follows_the_local_clock_over_a_change_of_time(leaf):
    service = make_realtime(leaf, profile=list(range(1, 25))).service
    service.time_zone = "Europe/Berlin"
    night = datetime(2026, 10, 25, tzinfo=UTC)  # 03:00 CEST is 02:00 CET at 01:00 UTC
    assert [demand_at(service, night + n * HOUR) for n in range(4)] == [3, 3, 4, 5]


def test_a_week_s_profile_begins_on_monday(leaf):
    service = make_realtime(leaf, profile=[7] * 24 + [1] * 144).service
    monday = datetime(2026, 10, 5, tzinfo=UTC)
    assert demand_at(service, monday) == demand_at(service, monday + 23 * HOUR) == 7
    assert demand_at(service, monday + 24 * HOUR) == demand_at(service, monday - HOUR) == 1
