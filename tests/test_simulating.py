"""Simulations as people ask for them: refused, played, cancelled, taken up again, seen."""

import io
import json
from copy import deepcopy
from datetime import timedelta

import pytest
from django.conf import settings
from django.core.exceptions import PermissionDenied
from django.core.management import call_command
from django.db import OperationalError
from django.http import Http404

from allocator import maintenance, tasks
from allocator.management.commands import _history
from allocator.models import Simulation
from allocator.pages import simulator
from allocator.simulating import asking, history, results, running
from allocator.simulating.asking import Draft
from allocator.simulating.given import Asked
from allocator.simulating.pace import Pace
from budgets import services, structure
from budgets.access import standing
from budgets.period_plans import NewShares, plan_shares
from budgets.refusals import Refused
from clusters.models import NodeState, Pool
from tests import factories as make
from tests.factories import HOUR, T0
from tests.pages_day import NOW
from tests.simulating_world import propose
from workloads.models import Job

pytestmark = pytest.mark.django_db
WINDOW = (T0, NOW)
HEAD = "job_id,submit_time_s,gpus,duration_s,group"
EVENTS = "event,node,from_s,to_s\n"
TRACE = f"{HEAD}\n1,0,4,600,nlp\n2,60,8,600,vision\n"


@pytest.fixture
def day(played, db):
    return deepcopy(played)


@pytest.fixture
def root(day):
    return make.make_user("root", is_superuser=True)


@pytest.fixture
def manager(day):
    user = make.make_user("ines")
    make.make_role(user, day.place.tree["orlo/science"], "manager")
    return user


def ask(by, now=NOW, **more):
    return asking.ask(by=by, now=now, **({"window": WINDOW} | more))


def run(clock=lambda: NOW):
    return running.run_next(clock=clock)


# --- Played --------------------------------------------------------------------------------------


def test_it_waits_then_is_played_to_its_end(root):
    asked = ask(root, policies=["fifo", "fairshare"])
    assert (asked.state, asked.budget.path, asked.policies) == (
        "queued", "orlo", ["fairshare", "fifo"]
    )  # fmt: skip
    done = run()
    assert done.pk == asked.pk
    assert (done.state, done.progress_per_mille, done.attempts, done.error) == ("done", 1000, 1, "")
    result = results.seen(done, standing(root))
    assert (result["jobs"], result["gpus"], result["seconds"]) == (4, 16, 7928)
    assert [(one["shares"], one["policy"]) for one in result["courses"]] == [
        ("now", "fairshare"),
        ("now", "fifo"),
    ]
    assert run() is None


def test_it_has_the_figures_of_the_command(root, monkeypatch, tmp_path):
    ask(root, policies=["fairshare", "fifo"], seed=3)
    result = run().result
    monkeypatch.setattr(_history, "now", lambda: NOW)
    file = tmp_path / "out.json"
    window = ["2026-10-01", "2026-10-01T02:12:08Z"]
    call_command(
        "simulate",
        history=window,
        policy=["fairshare", "fifo"],
        seed=3,
        json=str(file),
        stdout=io.StringIO(),
        stderr=io.StringIO(),
    )
    theirs = json.loads(file.read_text())["policies"]
    mine = [{k: v for k, v in one.items() if k != "shares"} for one in result["courses"]]
    assert json.loads(json.dumps(mine)) == theirs


def test_what_each_budget_really_did_stands_beside(day, root):
    ask(root)
    did = {one["path"]: one for one in run().result["did"]}
    storm, fold = 3600 + 42 * 60 + 8, 3600 + 12 * 60 + 8
    assert did["orlo/science/petrel"]["funded_gpu_seconds"] == 8 * storm
    assert did["orlo/science"]["funded_gpu_seconds"] == 8 * (storm + 5400)
    assert did["orlo"]["funded_gpu_seconds"] == 8 * (storm + 5400 + fold)
    waits = did["orlo/science/petrel"]["waits"]  # flood waits since 02:00
    assert (waits["jobs"], waits["unstarted"], waits["p50_s"], waits["p90_s"]) == (2, 1, 0, 728)


def test_the_picture_has_every_run_with_what_protected_it(root):
    ask(root)
    kept = results.runs_of(run())
    assert [node[1] for node in kept["nodes"]] == [8, 8]
    (runs,) = kept["runs"]
    assert len(runs) >= 3
    for job, first, since, until, preempted, protected, unfunded, failed in runs:
        _, group, gpus, _, _ = kept["jobs"][job]
        assert group.startswith("orlo/")
        assert 0 <= first <= 16 - gpus
        assert 0 <= since <= protected <= until <= 7928
        assert preempted in (True, False)
        assert failed is False
        assert unfunded is None or since <= unfunded <= until


def test_a_draft_is_played_beside_the_shares_of_today(day, root):
    change_set = propose(day, 90_000, 10_000)
    asked = ask(root, draft=Draft(change_set=change_set))
    assert (asked.shares, asked.change_set, asked.budget.path) == (
        "change_set", change_set, "orlo/science"
    )  # fmt: skip
    courses = run().result["courses"]
    assert [one["shares"] for one in courses] == ["now", "draft"]
    entitled = [
        {b["path"]: b["entitled_gpu_seconds"] for b in one["budgets"]}["orlo/science/petrel"]
        for one in courses
    ]
    whole = 16 * 7928
    assert entitled == [whole * 60 // 100 * 50 // 100, whole * 60 * 90 // 10_000]


def test_a_period_s_plan_is_played_beside_the_shares_of_today(day, root):
    place = day.place
    later = {"starts_at": make.T1, "ends_at": make.T1 + 90 * 24 * HOUR}
    period = make.make_period("2027 Q1", status="draft", **later)
    wanted = {place.petrel: 80_000, place.auk: 20_000}
    plan = NewShares(parent=place.tree["orlo/science"], shares=wanted, base_version=1)
    plan_shares(period=period, changes=[plan], reason="why", author=place.user, now=NOW)
    asked = ask(root, draft=Draft(period=period))
    shares = {path: share for path, _, share in asked.trees["draft"]["nodes"]}
    assert (asked.shares, asked.period) == ("period", period)
    assert (shares["orlo/science/petrel"], shares["orlo/science/auk"]) == (80_000, 20_000)
    assert run().state == "done"


def test_a_draft_needs_not_be_proposed(day, root):
    vector = {day.place.petrel.pk: {None: 10_000}, day.place.auk.pk: {None: 90_000}}
    asked = ask(root, draft=Draft(parent=day.place.tree["orlo/science"], vector=vector))
    shares = {path: share for path, _, share in asked.trees["draft"]["nodes"]}
    assert (asked.shares, shares["orlo/science/auk"]) == ("vector", 90_000)


def test_a_trace_is_played_with_equal_shares_or_a_tree_of_its_own(root):
    ask(root, window=None, trace=TRACE, trace_name="own.csv", equal=True, nodes="2x8")
    tree = {
        "tree": [
            {"name": "all", "parent": None, "shares": 1, "usage": 0},
            {"name": "nlp", "parent": "all", "shares": 3, "usage": 0},
            {"name": "vision", "parent": "all", "shares": 1, "usage": 0},
        ]
    }
    ask(root, window=None, trace=TRACE, draft=Draft(file=json.dumps(tree)))
    for wanted in ({"nlp": 1 / 2, "vision": 1 / 2}, {"nlp": 3 / 4, "vision": 1 / 4}):
        done = run()
        assert done.state == "done", done.error
        course = done.result["courses"][0]
        got = {b["path"]: b["entitled_gpu_seconds"] for b in course["budgets"] if b["parent"]}
        assert got == {name: part * 16 * 86_400 for name, part in wanted.items()}
        assert done.result["did"] is None


def test_what_is_given_befalls_the_nodes_of_a_trace(root):
    """Lines and windows that are planned, which count from now."""
    (node,) = make.make_nodes(Pool.objects.get(), name="spare")
    maintenance.set_window(
        nodes=[node], starts_at=NOW + 4 * HOUR, ends_at=NOW + 6 * HOUR, reason="x", by=None, now=NOW
    )
    lines = f"{EVENTS}failure,h100-n0,300,7200\nfailure,h100-n1,99999,\n"
    made = ask(
        root, window=None, trace=TRACE, equal=True, events=Asked(lines, "e.csv", planned=True)
    )
    assert (made.events_name, made.planned_windows) == ("e.csv", True)
    assert "window,spare,14400,21600,0" in made.events.splitlines()
    done = run()
    assert done.state == "done", done.error
    (course,) = done.result["courses"]
    assert (course["failed_runs"], course["down_gpu_seconds"]) == (1, 8 * 6900)
    assert "2 windows and failures of nodes befall the fleet, as given." in done.result["notes"]
    assert "1 event that was given is of other days, and left out." in done.result["notes"]
    assert results.runs_of(done)["empty"] == [
        ["spare", 14400, 21600, False],
        ["h100-n0", 300, 7200, True, False],
    ]


def test_what_is_given_stands_in_for_what_befell_a_history(root, day):
    NodeState.objects.create(node=day.place.nodes[0], at=T0 + HOUR, state="down")
    ask(root)
    assert run().result["courses"][0]["down_gpu_seconds"] == 8 * (7928 - 3600)
    ask(root, events=Asked(f"{EVENTS}failure,h100-n1,60,120\n"))
    done = run()
    assert done.result["courses"][0]["down_gpu_seconds"] == 8 * 60
    said = " ".join(done.result["notes"])
    assert "1 window or failure that there really was is left out: others are given." in said
    assert "as it was" not in said


def test_a_trace_s_jobs_that_get_more_than_they_ask_are_counted(root):
    odd = TRACE + "3,90,3,600,nlp\n4,90,5,600,nlp\n"
    ask(root, window=None, trace=odd, equal=True, nodes="2x8")
    notes = run().result["notes"]
    assert notes == ["2 jobs get more GPUs than they ask: a block is a power of two."]


# --- The tasks -----------------------------------------------------------------------------------


@pytest.fixture
def sent(monkeypatch):
    """What was sent to workers."""
    found = []
    monkeypatch.setattr(running, "wake", lambda: found.append("simulate"))
    monkeypatch.setattr(asking, "wake", lambda: found.append("asked"))
    monkeypatch.setattr(tasks, "now", lambda: NOW)
    return found


def test_a_task_plays_one_and_calls_for_the_next(root, sent):
    first, second = ask(root), ask(root)
    assert tasks.simulate() == first.pk
    assert sent == ["asked", "asked", "simulate"]
    assert tasks.simulate() == second.pk
    assert tasks.simulate() is None
    assert sent == ["asked", "asked", "simulate"]


def test_each_minute_what_is_lost_or_was_not_called_for_is_taken_up(root, sent):
    assert tasks.keep_simulations() == 0
    ask(root)
    assert tasks.keep_simulations() == 0
    assert sent == ["asked", "simulate"]
    running._take(NOW - HOUR)
    assert tasks.keep_simulations() == 1
    assert sent == ["asked", "simulate", "simulate"]
    scheduled = settings.CELERY_BEAT_SCHEDULE["keep_simulations"]
    assert scheduled["task"] == tasks.keep_simulations.name
    assert scheduled["schedule"] == 60


def test_a_broker_that_takes_nothing_keeps_nobody_from_asking(
    root, monkeypatch, caplog, django_capture_on_commit_callbacks
):
    def refuse(*_, **__):
        raise OSError("no room")

    monkeypatch.setattr(running.current_app, "send_task", refuse)
    with django_capture_on_commit_callbacks(execute=True):
        asked = ask(root)
    assert asked.state == "queued"
    assert "did not take the simulation (no room): beat will find it" in caplog.text


# --- Progress, cancelling, and workers that die ---------------------------------------------------


def test_progress_is_written_at_most_once_a_second(root, monkeypatch):
    row = ask(root)
    running._take(NOW)
    row.refresh_from_db()
    ticks = iter([10.0, 10.2, 11.5, 11.5, 11.9])
    monkeypatch.setattr(running, "monotonic", lambda: next(ticks))
    told = running._Progress(row, lambda: NOW, Pace(["fairshare"] * 2), 1, 1000)
    written = []
    for at in (0, 100, 500, 600):
        told.show(at)
        row.refresh_from_db()
        written.append((row.progress_per_mille, row.simulated_s))
    assert written == [(500, 0), (500, 0), (750, 500), (750, 500)]


def test_a_database_that_is_busy_for_a_moment_costs_a_word_and_no_more(root, monkeypatch, caplog):
    ask(root)
    real, calls = running._mine, []

    def busy_at_first(row):
        calls.append(row)
        if len(calls) == 1:
            raise OperationalError("database is locked")
        return real(row)

    monkeypatch.setattr(running, "_mine", busy_at_first)
    assert run().state == "done"
    assert "could not say how far it is: database is locked" in caplog.text


class Meanwhile:
    """A clock at whose so-manieth reading something happens."""

    def __init__(self, reading, happens):
        self.left, self.happens = reading, happens

    def __call__(self):
        self.left -= 1
        if not self.left:
            self.happens()
        return NOW


def test_a_cancelled_one_stops_and_keeps_nothing(root):
    asked = ask(root, policies=["fairshare", "fifo"])
    done = run(Meanwhile(4, lambda: asking.cancel(simulation=asked, now=NOW)))
    assert (done.state, done.result, done.picture) == ("cancelled", None, None)
    assert done.ended_at == NOW
    with pytest.raises(Refused, match="nothing to cancel"):
        asking.cancel(simulation=done, now=NOW)


def test_one_that_waits_is_cancelled_and_never_begun(root):
    asking.cancel(simulation=ask(root), now=NOW)
    assert run() is None


def test_one_runs_at_a_time(root):
    first, second = ask(root), ask(root)
    assert running._take(NOW).pk == first.pk
    assert run() is None
    Simulation.objects.filter(pk=first.pk).update(state="done")
    assert run().pk == second.pk


def waiting():
    return list(running.queue().values_list("pk", flat=True))


def test_nobody_s_three_hold_up_all_others(root, manager):
    first, second, third = (ask(root) for _ in range(3))
    other = ask(manager)
    assert waiting() == [first.pk, second.pk, third.pk, other.pk]
    assert simulator.one(manager, pk=other.pk).ahead == 3
    assert running._take(NOW) == first
    assert waiting() == [other.pk, second.pk, third.pk]
    assert [simulator.one(root, pk=one.pk).ahead for one in (first, other, second, third)] == [
        *(0, 1, 2, 3),
    ]
    asking.cancel(simulation=first, now=NOW)
    assert running._take(NOW + HOUR) == other
    asking.cancel(simulation=other, now=NOW)
    again = ask(manager)
    assert waiting() == [second.pk, third.pk, again.pk]


def test_one_whose_worker_is_lost_waits_again_and_starts_anew(root):
    asked = ask(root)
    running._take(NOW)
    Simulation.objects.update(progress_per_mille=400)
    just = NOW + running.LOST_AFTER
    assert (running.keep(now=just), running.waits()) == (0, False)
    assert running.keep(now=just + timedelta(seconds=1)) == 1
    asked.refresh_from_db()
    assert (asked.state, asked.progress_per_mille) == ("queued", 0)
    done = run()
    assert (done.state, done.attempts) == ("done", 2)


def test_one_that_loses_worker_after_worker_is_given_up(root):
    asked = ask(root)
    later = NOW
    for _ in range(running.MOST_ATTEMPTS):
        running._take(later)
        later += 2 * running.LOST_AFTER
        assert running.keep(now=later) == 1
    asked.refresh_from_db()
    assert asked.state == "failed"
    assert asked.error == "Its worker ended 3 times before it was done: choose fewer days."


def test_a_worker_that_was_thought_lost_writes_nothing_any_more(root):
    asked = ask(root)

    def another():
        running.keep(now=NOW + HOUR)
        running._take(NOW)

    run(Meanwhile(4, another))
    asked.refresh_from_db()
    assert (asked.state, asked.attempts, asked.result) == ("running", 2, None)


def test_one_that_takes_too_long_is_ended_with_a_sentence(root):
    ask(root)
    clock = Meanwhile(0, None)
    instants = iter([NOW, NOW, NOW + running.MOST_TIME + HOUR, NOW + 2 * HOUR])
    done = run(lambda: next(instants))
    assert clock.left == 0
    assert (done.state, done.error) == (
        "failed", "It took over 45 minutes: choose fewer days or policies."
    )  # fmt: skip


def test_an_error_of_ours_is_said_and_logged(root, monkeypatch, caplog):
    ask(root)
    monkeypatch.setattr(running.results, "picture", lambda *_: 1 / 0)
    done = run()
    assert (done.state, done.error) == (
        "failed", "An error of ours ended it; the worker's log has it."
    )  # fmt: skip
    assert "ZeroDivisionError" in caplog.text


def test_what_can_t_be_played_any_more_says_why(day, root):
    ask(root)
    type(day.jobs["storm"]).objects.update(submitted_at=NOW + HOUR)
    done = run()
    assert (done.state, done.error) == (
        "failed", "No job waited or ran in that window: choose another."
    )  # fmt: skip


# --- Refused -------------------------------------------------------------------------------------

TWICE = f"{HEAD}\n1,0,3,600,nlp\n2,60,x,600,nlp\n3,y,8,600,nlp\n"
REFUSED = [
    ({"trace": TRACE}, "one of them"),
    ({"window": None}, "one of them"),
    ({"equal": True}, "Equal shares are for a trace's groups"),
    ({"policies": []}, "Choose one or more of fairshare"),
    ({"policies": ["luck"]}, "Choose one or more of fairshare"),
    ({"nodes": "many"}, "give NODESxGPUS"),
    ({"nodes": "4096x8"}, "at most 4,096 GPUs"),
    ({"window": (T0 - 90 * 24 * HOUR, NOW)}, "It spans 91 days, and at most 62 go"),
    ({"window": (T0 - 9 * HOUR, T0 - 8 * HOUR)}, "No job waited or ran"),
    ({"window": None, "trace": "x" * 900_001, "equal": True}, "over 900,000 characters"),
    ({"window": None, "trace": "a,b\n", "equal": True}, "trace.csv has no column job_id"),
    ({"window": None, "trace": HEAD, "equal": True}, "has no jobs"),
    ({"window": None, "trace": TWICE, "equal": True}, "line 3: gpus.* line 4: submit"),
    ({"window": None, "trace": TRACE}, "group 'nlp' is no leaf of the tree"),
    ({"window": None, "trace": TRACE, "equal": True, "nodes": "2x2"}, "needs 8 GPUs in one"),
    ({"draft": Draft(file="{")}, "The tree file: "),
    ({"events": Asked("a,b\n")}, "events.csv has no column event"),
    ({"events": Asked(EVENTS)}, "There are no events in it"),
    ({"events": Asked("x" * 900_001)}, "over 900,000 characters"),
    ({"events": Asked(f"{EVENTS}flood,x,1,2\nwindow,n9,1,2\n")}, "line 2.*line 3.*no node 'n9'"),
    ({"events": Asked(EVENTS + "window,n9,1,2\n" * 7)}, "line 6.* 2 more can't be read"),
    ({"events": Asked(planned=True)}, "No window is planned for a node"),
    ({"events": Asked(planned=True), "nodes": "2x8"}, "planned for our own nodes"),
    (
        {"window": None, "trace": f"{HEAD}\n1,9000000,1,60,a\n", "equal": True},
        "It spans 105 days, and at most 62 go",
    ),
]  # fmt: skip


@pytest.mark.parametrize(("asked", "said"), REFUSED)
def test_what_can_t_be_simulated_is_refused_in_a_sentence(root, asked, said):
    with pytest.raises(Refused, match=said):
        ask(root, **asked)
    assert not Simulation.objects.exists()


def test_too_many_policies_under_two_trees_are_refused(day, root):
    draft = Draft(change_set=propose(day, 90_000, 10_000))
    with pytest.raises(Refused, match=r"That is 8 simulations in one.* at most 6 go"):
        ask(root, draft=draft, policies=["fairshare", "fifo", "backfill", "priority"])


def test_too_many_jobs_are_refused(root, monkeypatch):
    monkeypatch.setattr(asking, "MOST_JOBS", 4)
    with pytest.raises(Refused, match="It has 5 jobs, and at most 4 go: choose fewer days"):
        ask(root)


def test_a_person_has_a_few_at_once(root, manager):
    for _ in range(asking.MOST_OPEN):
        ask(root)
    with pytest.raises(Refused, match="You have 3 simulations that wait or run"):
        ask(root)
    ask(manager)


def test_a_change_set_that_is_no_draft_any_more_is_refused(day, root):
    """It would bring back a budget that was archived since."""
    stale, declined = propose(day, 60_000, 40_000), propose(day, 70_000, 30_000)
    services.decline(change_set=declined, by=root, now=NOW)
    auk = day.place.auk
    Job.objects.filter(budget=auk, ended_at=None).update(state="cancelled", ended_at=NOW)
    structure.archive_budget(budget=auk, author=root, reason="why", now=NOW)
    for one, state in ((stale, "stale"), (declined, "declined")):
        one.refresh_from_db()
        said = f"Change set #{one.pk} is {state}: draft its shares anew, then simulate."
        with pytest.raises(Refused) as refused:
            ask(root, draft=Draft(change_set=one))
        assert refused.value.sentence == said


def test_what_is_approved_is_played_until_it_is_in_force(day, root):
    one = propose(day, 60_000, 40_000)
    type(one).objects.filter(pk=one.pk).update(status="approved", effective_at=NOW + HOUR)
    one.refresh_from_db()
    assert ask(root, draft=Draft(change_set=one)).shares == "change_set"
    with pytest.raises(Refused, match="is approved: draft its shares anew"):
        ask(root, now=NOW + HOUR, draft=Draft(change_set=one))


def test_the_plan_of_a_period_that_has_begun_is_refused(day, root):
    with pytest.raises(Refused, match="has begun: choose a period to come"):
        ask(root, draft=Draft(period=day.place.period))


# --- Who -----------------------------------------------------------------------------------------


def test_a_manager_simulates_for_the_highest_budget_they_manage(manager):
    assert ask(manager).budget.path == "orlo/science"


@pytest.mark.parametrize("kind", ["viewer", "member"])
def test_others_may_not_but_a_draft_s_author_may(day, kind):
    user = make.make_user("peer")
    science = day.place.tree["orlo/science"]
    make.make_role(user, science, kind)
    with pytest.raises(PermissionDenied):
        ask(user)
    with pytest.raises(PermissionDenied):
        ask(user, budget=science)
    with pytest.raises(Http404):
        ask(user, budget=day.place.tree["orlo/vision"])
    draft = Draft(change_set=propose(day, 90_000, 10_000))
    if kind == "member":
        assert ask(user, draft=draft).budget == science
    else:
        with pytest.raises(PermissionDenied):
            ask(user, draft=draft)


def test_who_asked_and_who_manages_it_see_it_and_no_one_else(day, root, manager):
    lead = make.make_user("lead")
    make.make_role(lead, day.place.petrel, "manager")
    theirs, whole = ask(lead), ask(root)
    assert theirs.budget == day.place.petrel
    sees = {
        user.username: [one.pk for one in (theirs, whole) if _finds(user, one.pk)]
        for user in (root, manager, lead, make.make_user("nobody"))
    }
    assert sees == {
        "root": [theirs.pk, whole.pk],
        "ines": [theirs.pk],
        "lead": [theirs.pk],
        "nobody": [],
    }
    assert asking.may_cancel(manager, theirs)
    assert not asking.may_cancel(manager, whole)


def test_a_draft_s_author_sees_the_simulation_though_they_manage_nothing(day):
    author = make.make_user("peer")
    make.make_role(author, day.place.tree["orlo/science"], "member")
    row = ask(author, draft=Draft(change_set=propose(day, 90_000, 10_000)))
    assert asking.find(author, row.pk) == row
    assert asking.may_cancel(author, row)
    author.is_active = False
    assert not _finds(author, row.pk)


def _finds(user, pk):
    try:
        return asking.find(user, pk).pk == pk
    except Http404:
        return False


def test_budgets_that_one_may_not_see_have_no_row(day, root, manager):
    ask(manager)
    done = run()
    seen = results.seen(done, standing(manager))
    paths = {b["path"] for one in seen["courses"] for b in one["budgets"]}
    assert paths == {"orlo/science", "orlo/science/petrel", "orlo/science/auk"}
    assert {one["path"] for one in seen["did"]} == paths
    done.result["courses"][0]["worst_budget"] = "orlo/vision/tern"
    assert results.seen(done, standing(manager))["courses"][0]["worst_budget"] == ""
    assert "tern" in json.dumps(results.seen(done, standing(root)))


def test_the_history_of_a_window_is_counted_as_it_is_read(day):
    assert history.jobs_of(*WINDOW).count() == 5
