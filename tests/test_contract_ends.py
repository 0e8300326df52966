"""How runs end, through the real cycle: late, by themselves, with a node, cancelled, twice at once.

Every cycle is followed by all invariants (`Institute.play`, `Institute.cycle`); the figures here
are worked out by hand.
"""

from datetime import timedelta

import pytest

from allocator import admission, cycle, driving, snapshot
from clusters.connectors import KINDS
from clusters.connectors.base import Refusal
from clusters.connectors.simulated import SimulatedConnector
from clusters.models import SimulatedFault, SimulatedTask
from ledger.models import Entry
from tests.factories import HOUR, T0, TIMESTEP
from tests.flaky import Flaky
from tests.helpers import CREDIT, PLENTY, Institute, arrival, assert_reconciled, make_institute
from workloads import services as workloads
from workloads.models import Job, JobEvent, Run

MINUTE = timedelta(minutes=1)
NODE = 8 * 1000  # what a node's 8 GPUs cost a second, in milli-GPU-seconds

pytestmark = [pytest.mark.django_db, pytest.mark.once]


@pytest.fixture
def place() -> Institute:
    return make_institute()


@pytest.fixture
def flaky(monkeypatch):
    monkeypatch.setitem(KINDS, "simulated", Flaky)
    monkeypatch.setattr(Flaky, "failing", set())
    monkeypatch.setattr(Flaky, "chance", 0.0)
    return Flaky


def total(kind: str, job: Job, **which: object) -> int:
    """Sum of a job's entries of a kind, in milli-GPU-seconds."""
    return sum(e.amount_mgpus for e in Entry.objects.filter(kind=kind, job=job, **which))


def held(job: Job) -> int:
    """What is set aside for a job now."""
    return total("hold", job) - total("release", job)


def told(job: Job) -> list[str]:
    return list(JobEvent.objects.filter(job=job).order_by("id").values_list("kind", flat=True))


def planned_timesteps(job: Job, at) -> int:
    """How long a plan of an instant takes the job to last, in timesteps."""
    problem = snapshot.take(at=at, version=0).problem
    return next(one.duration for one in problem.batch if one.name == snapshot.name_of(job.pk))


# --- It outlives its estimate --------------------------------------------------------------------


def test_a_run_that_overruns_is_topped_up_and_planned_on_and_those_behind_it_are_told():
    """Expected to take an hour (one and a half at most), it takes 3 h 20; one waits behind it."""
    place = make_institute(nodes=1)
    long = place.submit(place.petrel, expected_duration_s=3600, lasts=12_000)
    waits = place.submit(place.petrel, name="waits", lasts=1800)
    likely, aside = [], []
    for step in range(7):
        place.cycle(T0 + step * TIMESTEP)
        waits.refresh_from_db()
        likely.append((waits.outlook.start_likely - T0) / HOUR)
        aside.append(held(long))
    # By its estimate, then by the long one, then as if it ended with each next timestep.
    assert likely == [1.0, 1.0, 1.5, 2.0, 2.5, 3.0, 3.5]
    # The minimum runtime, less what has run; from then on one timestep at a time.
    assert aside == [8 * CREDIT, 4 * CREDIT, *[4 * CREDIT] * 5]
    place.play(T0 + 3 * HOUR + MINUTE, T0 + 4 * HOUR)
    [run] = long.runs.all()
    assert (run.end_reason, run.ended_at) == ("completed", T0 + timedelta(seconds=12_000))
    assert waits.runs.get().started_at == run.ended_at, "in the second in which the block is free"
    assert total("charge", long) == 12_000 * NODE
    assert held(long) == 0
    assert not {"unfunded", "run_preempted"} & {*told(long), *told(waits)}


def test_a_run_that_overruns_is_interruptible_like_any_other():
    """No estimate protects it: a better entitled job gets the block after the minimum runtime."""
    place = make_institute(nodes=1)
    long = place.submit(place.petrel, expected_duration_s=3600, lasts=9 * 3600)
    late = arrival(T0 + 10 * MINUTE, place.submit, place.tern, name="late", lasts=3600)
    place.play(T0, T0 + 3 * HOUR, [late])
    first, second = long.runs.order_by("number")
    assert (first.end_reason, first.ended_at) == ("preempted", T0 + HOUR)
    assert (second.state, second.started_at) == ("running", T0 + 2 * HOUR)
    assert planned_timesteps(long, T0 + 3 * HOUR) == 1, "past even the long estimate"


# --- It ends by itself ---------------------------------------------------------------------------


@pytest.mark.parametrize("resumable", [True, False])
def test_a_job_that_fails_is_not_tried_again_and_gives_back_what_it_has_not_run(place, resumable):
    job = place.submit(
        place.petrel, minimum_runtime_s=4 * 3600, fails_after=4000, resumable=resumable,
        expected_duration_s=5 * 3600,
    )  # fmt: skip
    place.play(T0, T0 + 90 * MINUTE)
    job.refresh_from_db()
    assert (job.state, job.attempt, job.runs.count()) == (Job.State.FAILED, 1, 1)
    assert total("hold", job) == 4 * 8 * CREDIT
    assert (total("charge", job), total("refund", job)) == (4000 * NODE, 0)
    given_back = Entry.objects.get(kind="release", job=job, at=job.ended_at)
    assert given_back.amount_mgpus == (4 * 3600 - 3600) * NODE, "two timesteps were settled"
    assert held(job) == 0


def node_fails(place: Institute, job: Job) -> None:
    end = T0 + 4000 * timedelta(seconds=1)
    SimulatedFault.objects.create(node=place.nodes[0], starts_at=end, ends_at=end + 9 * HOUR)


def is_cancelled(place: Institute, job: Job) -> None:
    admission.cancel(job=job, by=place.user, now=T0 + 3999 * timedelta(seconds=1))


ENDS = {
    # how it comes about, what the simulated cluster is told, the job's state, its attempt
    "completed": (None, {"lasts": 4000}, Job.State.COMPLETED, 1),
    "failed": (None, {"fails_after": 4000}, Job.State.FAILED, 1),
    "timed_out": (None, {"time_limit_s": 4000, "lasts": 9000}, Job.State.TIMED_OUT, 1),
    "node_failure": (node_fails, {}, Job.State.QUEUED, 2),
    "cancelled": (is_cancelled, {}, Job.State.CANCELLED, 1),
}


@pytest.mark.parametrize("reason", ENDS)
def test_the_end_of_a_run_and_the_release_of_its_hold_are_one_transaction(reason, monkeypatch):
    """A release that fails leaves the run as it was, and the next cycle ends it to the second."""
    come_about, asked, state, attempt = ENDS[reason]
    place = make_institute(nodes=1)
    job = place.submit(place.petrel, **({"minimum_runtime_s": 3600, "lasts": 9999} | asked))
    place.cycle(T0)
    place.cycle(T0 + HOUR)
    if come_about is not None:
        come_about(place, job)
    before = held(job)
    end = T0 + timedelta(seconds=4000)

    def broken(**_):
        raise RuntimeError("the database is full")

    with monkeypatch.context() as patch:
        patch.setattr(driving.ledger, "release_rest", broken)
        with pytest.raises(RuntimeError):
            cycle.run(at=end, trigger="test")
    job.refresh_from_db()
    run = job.runs.get()
    assert (job.state, run.ended_at, held(job)) == (Job.State.RUNNING, None, before)
    place.cycle(end)
    job.refresh_from_db()
    run.refresh_from_db()
    assert (job.state, job.attempt) == (state, attempt)
    assert (run.end_reason, run.ended_at) == (reason, end)
    released = Entry.objects.filter(kind="release", job=job, attempt=1, at=end)
    assert sum(one.amount_mgpus for one in released) == before > 0


# --- It loses its node ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("after", "refunded_s", "resumable"), [(20, 1200, True), (100, 6000, False)]
)
def test_a_run_that_loses_its_node_costs_nothing_and_starts_anew_elsewhere(
    place, after, refunded_s, resumable
):
    """Protected (20 min) or interruptible (100 min), resumable or not: the cluster is to blame."""
    job = place.submit(place.petrel, resumable=resumable)
    place.cycle(T0)
    fault = T0 + after * MINUTE
    SimulatedFault.objects.create(node=place.nodes[0], starts_at=fault, ends_at=fault + 9 * HOUR)
    place.play(fault, fault + 2 * HOUR + TIMESTEP)
    job.refresh_from_db()
    one, two = job.runs.order_by("number")
    assert (one.end_reason, one.ended_at) == (Run.EndReason.NODE_FAILURE, fault)
    assert total("charge", job, run=one) == total("refund", job, run=one) == refunded_s * NODE
    assert two.started_at == fault, "at once, on the other node"
    assert two.protected_until == fault + HOUR, "protected anew"
    assert (two.end_reason, two.ended_at) == ("completed", fault + 2 * HOUR), "from its beginning"
    assert (job.state, job.attempt, job.progress_s) == (Job.State.COMPLETED, 2, 0)
    assert total("charge", job) - total("refund", job) == 2 * 3600 * NODE
    assert {e.attempt for e in Entry.objects.filter(kind="hold", job=job)} == {1, 2}
    assert held(job) == 0


@pytest.mark.parametrize(
    ("policy", "refunded_s", "resumable"),
    [("all", 5400, True), ("checkpoint", 1800, True), ("none", 0, False)],
)
def test_what_a_checkpoint_kept_is_kept_whatever_is_refunded(
    place, settings, policy, refunded_s, resumable
):
    """Two hours of work, a checkpoint after one, the node fails after an hour and a half."""
    settings.NODE_FAILURE_REFUND = policy
    job = place.submit(place.petrel, resumable=resumable)
    place.cycle(T0)
    workloads.log(job, "checkpoint", at=T0 + HOUR, run=job.runs.get())
    fault = T0 + 90 * MINUTE
    SimulatedFault.objects.create(node=place.nodes[0], starts_at=fault, ends_at=fault + 9 * HOUR)
    place.play(fault, fault + 2 * HOUR)
    one, two = job.runs.order_by("number")
    assert total("refund", job, run=one) == refunded_s * NODE
    left = HOUR if resumable else 2 * HOUR
    assert (two.end_reason, two.ended_at - two.started_at) == ("completed", left)


def test_what_earlier_runs_kept_outlives_a_node():
    """Preempted after an hour of four, then it loses its node: three hours are left to do."""
    place = make_institute(nodes=1)
    job = place.submit(place.petrel, expected_duration_s=4 * 3600)
    rival = arrival(T0 + MINUTE, place.submit, place.tern, name="rival", lasts=3600)
    place.play(T0, T0 + 2 * HOUR + TIMESTEP, [rival])
    fault = T0 + 3 * HOUR
    SimulatedFault.objects.create(node=place.nodes[0], starts_at=fault, ends_at=fault + HOUR)
    place.play(fault, T0 + 8 * HOUR)
    job.refresh_from_db()
    reasons = [(r.end_reason, (r.ended_at - r.started_at) / HOUR) for r in job.runs.order_by("pk")]
    assert reasons == [("preempted", 1), ("node_failure", 1), ("completed", 3)]
    assert total("charge", job) - total("refund", job) == 4 * 3600 * NODE


# --- It is cancelled while it starts -------------------------------------------------------------


@pytest.mark.parametrize(("moment", "ran_s"), [("before", 0), ("after", 60)])
def test_a_job_cancelled_before_its_start_was_confirmed_pays_for_what_ran(
    place, flaky, moment, ran_s
):
    """The start's call fails before the cluster has done it, or only its answer is lost."""
    job = place.submit(place.petrel)
    flaky.failing = {("start", moment)}
    cycle.run(at=T0, trigger="test")
    job.refresh_from_db()
    assert job.state == Job.State.STARTING
    flaky.failing = set()
    admission.cancel(job=job, by=place.user, now=T0 + MINUTE)
    place.cycle(T0 + MINUTE)
    job.refresh_from_db()
    run = job.runs.get()
    assert (job.state, job.ended_at) == (Job.State.CANCELLED, T0 + MINUTE)
    assert (run.end_reason, run.started_at) == ("cancelled", T0 + MINUTE - ran_s * MINUTE / 60)
    assert held(job) == 0
    place.cycle(T0 + TIMESTEP)
    assert total("charge", job) == ran_s * NODE
    assert not SimulatedTask.objects.filter(stopped_at=None).exists()
    assert_reconciled()


def test_a_job_cancelled_in_the_very_call_that_starts_it_is_stopped_by_the_same_cycle_s_end(
    place, monkeypatch
):
    """The request comes while the connector is at work; the next look at the job finds it."""
    job = place.submit(place.petrel)
    start = SimulatedConnector.start

    def start_and_cancel(self, order, *, at):
        answer = start(self, order, at=at)
        admission.cancel(job=Job.objects.get(pk=job.pk), by=place.user, now=at)
        return answer

    with monkeypatch.context() as patch:
        patch.setattr(SimulatedConnector, "start", start_and_cancel)
        place.cycle(T0)
    assert cycle.reason_to_run(at=T0 + timedelta(seconds=1)) == "request"
    place.cycle(T0 + timedelta(seconds=1))
    job.refresh_from_db()
    assert (job.state, job.ended_at) == (Job.State.CANCELLED, T0 + timedelta(seconds=1))
    place.cycle(T0 + TIMESTEP)
    assert total("charge", job) == 1 * NODE
    assert held(job) == 0


def test_a_job_cancelled_while_its_cluster_refuses_it_is_cancelled_and_not_tried_again(
    place, monkeypatch
):
    job = place.submit(place.petrel)

    def refuse(self, order, *, at):
        admission.cancel(job=Job.objects.get(pk=job.pk), by=place.user, now=at)
        return Refusal(external_id=order.external_id, reason="image not found")

    with monkeypatch.context() as patch:
        patch.setattr(SimulatedConnector, "start", refuse)
        cycle.run(at=T0, trigger="test")
    place.cycle(T0 + MINUTE)
    job.refresh_from_db()
    assert (job.state, job.ended_at, job.attempt) == (Job.State.CANCELLED, T0, 1)
    assert (held(job), total("charge", job)) == (0, 0)
    place.cycle(T0 + 3 * HOUR)
    assert job.runs.count() == 1


# --- It ends in the second in which it is preempted ----------------------------------------------


@pytest.mark.parametrize(
    ("reason", "asked", "state"),
    [
        ("completed", {"lasts": 3600}, Job.State.COMPLETED),
        ("failed", {"fails_after": 3600, "lasts": 9000}, Job.State.FAILED),
        ("timed_out", {"time_limit_s": 3600, "lasts": 9000}, Job.State.TIMED_OUT),
    ],
)
def test_a_run_that_ends_in_the_second_in_which_it_is_preempted_ends_once(
    reason, asked, state, monkeypatch
):
    """The cluster hasn't told the end when the cycle plans; the call that stops it does."""
    place = make_institute(nodes=1)
    job = place.submit(place.petrel, **({"expected_duration_s": 3600} | asked))
    place.cycle(T0)
    place.submit(place.tern, T0 + MINUTE, name="winner", lasts=3600)
    place.cycle(T0 + MINUTE)
    observe = SimulatedConnector.observe

    def not_yet(self, *, since, at, live):
        return observe(self, since=since, at=at, live=())

    with monkeypatch.context() as patch:
        patch.setattr(SimulatedConnector, "observe", not_yet)
        made = place.cycle(T0 + HOUR)
    assert made.preemptions == 1, "it was decided on"
    job.refresh_from_db()
    [run] = job.runs.all()
    assert (run.end_reason, run.ended_at) == (reason, T0 + HOUR)
    assert (job.state, job.attempt, job.progress_s) == (state, 1, 0)
    ends = [kind for kind in told(job) if kind.startswith("run_")]
    assert ends == [f"run_{reason}"], "one end, with one reason"
    winner = Job.objects.get(name="winner").runs.get()
    assert winner.started_at == T0 + HOUR
    place.play(T0 + HOUR + MINUTE, T0 + 3 * HOUR)
    assert [r.number for r in job.runs.all()] == [1], "nothing came back"
    assert total("charge", job) == 3600 * NODE
    assert held(job) == 0
    assert Run.objects.filter(started_at=T0 + HOUR).count() == 1, "the block was given once"
    assert total("charge", winner.job) == 3600 * NODE


def test_a_run_whose_node_fails_in_the_second_in_which_it_is_preempted_is_refunded(monkeypatch):
    """The winner has no node to start on, and waits until there is one."""
    place = make_institute(nodes=1)
    job = place.submit(place.petrel, lasts=9000)
    place.cycle(T0)
    place.submit(place.tern, T0 + MINUTE, name="winner", lasts=3600)
    place.cycle(T0 + MINUTE)
    end = T0 + HOUR
    SimulatedFault.objects.create(node=place.nodes[0], starts_at=end, ends_at=end + HOUR)
    workloads.decide_stop(run=job.runs.get(), reason=Run.EndReason.PREEMPTED, at=end)
    place.play(end, end + 3 * HOUR)
    run = job.runs.get(number=1)
    assert (run.end_reason, run.ended_at) == ("node_failure", end)
    assert total("refund", job) == 3600 * NODE
    assert Job.objects.get(name="winner").runs.get().started_at == end + HOUR


# --- It comes back, or not -----------------------------------------------------------------------


@pytest.mark.parametrize("resumable", [True, False])
def test_what_is_left_of_a_preempted_job_is_planned_for_as_long_as_it_has_left(resumable):
    place = make_institute(nodes=1)
    job = place.submit(place.petrel, expected_duration_s=4 * 3600, resumable=resumable)
    assert planned_timesteps(job, T0) == 8
    late = arrival(T0 + MINUTE, place.submit, place.tern, name="late", lasts=3600)
    place.play(T0, T0 + HOUR, [late])
    job.refresh_from_db()
    if not resumable:
        assert (job.state, job.progress_s) == (Job.State.PREEMPTED, 0)
        return
    assert (job.state, job.attempt, job.progress_s) == (Job.State.QUEUED, 2, 3600)
    assert job.funded is False, "each requeue needs a hold of its own"
    place.cycle(T0 + HOUR + TIMESTEP)
    job.refresh_from_db()
    assert job.funded
    assert total("hold", job, attempt=2) == 8 * CREDIT
    assert planned_timesteps(job, T0 + HOUR + TIMESTEP) == 6


# --- Unfunded ------------------------------------------------------------------------------------


@pytest.mark.parametrize("credits", [0, PLENTY])
@pytest.mark.parametrize("when_unfunded", ["wait", "run"])
@pytest.mark.parametrize("minimum_s", [0, 3600])
def test_by_choice_or_for_want_of_funds(credits, when_unfunded, minimum_s):
    """Minimum runtime 0 is unfunded whatever there is; without funds `wait` waits, `run` runs."""
    place = make_institute(nodes=1, credits={"orlo/science/petrel": credits})
    job = place.submit(
        place.petrel, when_unfunded=when_unfunded, minimum_runtime_s=minimum_s, lasts=1800
    )
    place.play(T0, T0 + TIMESTEP)
    job.refresh_from_db()
    paid = minimum_s > 0 and credits > 0
    runs = paid or minimum_s == 0 or when_unfunded == "run"
    assert job.state == (Job.State.COMPLETED if runs else Job.State.QUEUED)
    assert total("charge", job) == (1800 * NODE if paid else 0)
    if not runs:
        assert (job.outlook.rule, job.outlook.data["binding"]) == ("not_funded", place.petrel.path)
        return
    run = job.runs.get()
    assert [h.funded for h in run.holdings.all()] == [paid]
    assert run.protected_until - run.started_at == (timedelta(seconds=minimum_s) * paid)
    assert Entry.objects.get(kind="charge", job=job).gpu_seconds == 8 * 1800, (
        "recorded all the same"
    )


@pytest.mark.parametrize("when_unfunded", ["wait", "run"])
def test_a_preempted_job_whose_budget_is_spent_waits_or_runs_unfunded_as_it_asked(when_unfunded):
    """9 credits pay the first hour. Then Tern takes the node for an hour."""
    place = make_institute(nodes=1, credits={"orlo/science/petrel": 9, "orlo/vision/tern": PLENTY})
    job = place.submit(place.petrel, when_unfunded=when_unfunded, expected_duration_s=3 * 3600)
    rival = arrival(T0 + MINUTE, place.submit, place.tern, name="rival", lasts=3600)
    place.play(T0, T0 + 3 * HOUR, [rival])
    job.refresh_from_db()
    assert (job.attempt, job.progress_s, total("charge", job)) == (2, 3600, 8 * CREDIT)
    if when_unfunded == "wait":
        assert (job.state, job.outlook.rule) == (Job.State.QUEUED, "not_funded")
        assert job.outlook.data["needed_mgpus"] == 8 * CREDIT
        assert job.outlook.data["spendable_mgpus"] == CREDIT
        return
    run = job.runs.get(number=2)
    assert (run.state, run.started_at, run.protected_until) == ("running", *[T0 + 2 * HOUR] * 2)
    assert [h.funded for h in run.holdings.all()] == [False]
