"""The own history as a trace: a made day's jobs, second by second."""

import io
import json
from copy import deepcopy
from datetime import timedelta

import pytest
from django.core.management import CommandError, call_command

from allocator import maintenance
from allocator.core.events import NOTHING, Failure, Window
from allocator.core.traces import MOST_SECONDS, TraceJob, read_csv, write_csv
from allocator.management.commands import _history
from allocator.simulating import history, telling, trees
from budgets.refusals import Refused
from clusters.models import Node, NodeState
from forecasting.models import DemandForecast
from tests import factories as make
from tests.factories import HOUR, T0
from tests.pages_day import NOW

pytestmark = pytest.mark.django_db
MINUTE = timedelta(minutes=1)
SCIENCE = "orlo/science"
FREE = {"resumable": True, "min_runtime_s": 3600, "time_limit_s": MOST_SECONDS}


@pytest.fixture
def day(played, db):
    return deepcopy(played)


def tree_now(now=NOW):
    return trees.at_instant(now, history.pool_gpus(at=now))


def read(start=T0, end=NOW, now=NOW, **more):
    return history.read(start=start, end=end, now=now, leaves=tree_now(now).leaves, **more)


def told(past):
    gpus = sum(node.gpus for node in past.nodes)
    return telling.in_english(telling.notes(past.trace, past.events, gpus, past=past))


def row(day, name, submitted, lasts, path, **more):
    job = day.jobs[name]
    given = {**FREE, "parked_s": 0, **more}
    return TraceJob(str(job.pk), submitted, job.gpus, lasts, path, **given)


def test_a_day_s_jobs_are_the_trace_s_to_the_second(day):
    past = read()
    # storm ran 01:00 and since 01:30; at 02:12:08 of its 4 h 1:42:08 are done.
    assert past.trace.jobs == (
        row(day, "storm", 0, 4 * 3600, f"{SCIENCE}/petrel", parked_s=1800),
        row(day, "sky", 0, 5400, f"{SCIENCE}/auk"),
        row(day, "fold", 3600, 3 * 3600, "orlo/vision/tern"),
        row(day, "flood", 7200, 7200, f"{SCIENCE}/petrel"),
    )
    assert (past.seconds, past.estimated, past.carried, past.events) == (7928, 3, 0, NOTHING)
    assert past.left_out == history.LeftOut(waiting_for_others=1)
    assert [(node.name, node.gpus) for node in past.nodes] == [("h100-n0", 8), ("h100-n1", 8)]


def test_what_each_job_did_is_told_beside_it(day):
    did = read().did
    found = {name: did.get(str(job.pk)) for name, job in day.jobs.items()}
    storm, fold, flood = found["storm"], found["fold"], found["flood"]
    assert (storm.submitted_s, storm.first_start_s) == (0, 0)
    assert storm.funded_gpu_seconds == 8 * (3600 + 42 * 60 + 8)
    assert (fold.submitted_s, fold.first_start_s) == (3600, 3600)
    assert (flood.first_start_s, flood.funded_gpu_seconds) == (None, 0)
    assert found["stars"] is None


def test_what_ran_when_the_window_began_starts_with_what_was_left(day):
    past = read(T0 + HOUR + 30 * MINUTE)
    jobs = {one.job_id: one for one in past.trace.jobs}
    storm, fold = jobs[str(day.jobs["storm"].pk)], jobs[str(day.jobs["fold"].pk)]
    # Before 01:30 storm had run for an hour, and fold for half of one.
    assert (storm.submit_time_s, storm.duration_s, storm.parked_s) == (0, 3 * 3600, 900)
    assert (fold.submit_time_s, fold.duration_s) == (0, 2 * 3600 + 1800)
    assert str(day.jobs["sky"].pk) not in jobs  # it ended as the window began
    assert past.carried == 2
    assert past.did[storm.job_id].first_start_s == 0


def test_a_job_that_waited_for_another_is_submitted_when_that_completed(day):
    auk = day.place.auk
    later = day.place.submit(auk, NOW, name="later", dependencies=(day.jobs["sky"].pk,))
    type(later).objects.filter(pk=later.pk).update(submitted_at=T0)
    jobs = {one.job_id: one for one in read(now=NOW + MINUTE).trace.jobs}
    assert jobs[str(later.pk)].submit_time_s == 5400


def test_what_never_ran_is_left_out(day):
    make.make_job(day.place.auk, state="cancelled", submitted_at=T0, ended_at=T0 + HOUR)
    assert read().left_out.never_ran == 1


def test_a_service_wants_what_was_forecast_for_it_else_its_profile(day):
    profile = (2, 3, *[1] * 22)
    chat = make.make_service(day.place.auk, profile=profile, swap_cap=3, submitted_at=T0)
    DemandForecast.objects.create(service=chat.service, at=T0 + HOUR, gpus=5, source="week")
    past = read()
    (found,) = past.trace.services
    assert (found.job_id, found.group, found.swap_cap) == (str(chat.pk), f"{SCIENCE}/auk", 3)
    assert (found.submit_time_s, found.duration_s, found.demand_step_s) == (0, 7928, 1800)
    assert found.demand == (2, 2, 5, 3, 1)
    assert [node.gpus for node in past.nodes] == [8, 8]
    assert str(chat.pk) not in {job.job_id for job in past.trace.jobs}
    assert "1 real-time service wants" in " ".join(told(past))


def test_a_service_from_after_the_window_or_that_wants_nothing_is_left_out(day):
    make.make_service(day.place.auk, submitted_at=NOW)
    make.make_service(day.place.auk, profile=(0,) * 23 + (4,), submitted_at=T0)
    assert read().trace.services == ()


def test_what_befell_the_fleet_befalls_it_again(day):
    first, last = day.place.nodes
    window = maintenance.set_window(
        nodes=[last], starts_at=T0 + HOUR, ends_at=T0 + 2 * HOUR, reason="fans", by=None, now=T0
    )
    later = T0 + HOUR + 10 * MINUTE
    maintenance.change(window=window, ends_at=T0 + 3 * HOUR, by=None, now=later)
    for minutes, state in ((20, "down"), (50, "up")):
        NodeState.objects.create(node=first, at=T0 + minutes * MINUTE, state=state)
    past = read()
    assert past.events.windows == (
        Window(last.name, 3600, 7200, known_s=0, replaced_s=4200),
        Window(last.name, 3600, 10800, known_s=4200),
    )
    assert past.events.failures == (Failure(first.name, 1200, 3000),)
    other = read(nodes=past.nodes[:1])
    assert (other.events, other.left_out.befell) == (NOTHING, 3)


def test_a_node_that_came_later_is_down_until_then(day):
    last = day.place.nodes[-1]
    Node.objects.filter(pk=last.pk).update(active_from=T0 + 5 * MINUTE)
    past = read()
    assert past.events.failures == (Failure(last.name, 0, 300, is_new=True),)
    said = " ".join(told(past))
    assert "1 node came into use after the first second: it runs nothing before" in said
    assert "is down" not in said


def test_a_job_of_a_budget_that_is_no_leaf_any_more_is_left_out(day):
    leaves = {pk: path for pk, path in tree_now().leaves.items() if not path.endswith("/tern")}
    past = history.read(start=T0, end=NOW, now=NOW, leaves=leaves)
    assert past.left_out.no_leaf == 1
    assert "orlo/vision/tern" not in past.trace.groups


@pytest.mark.parametrize(
    ("start", "end", "said"),
    [
        (T0 + HOUR, T0 + HOUR, "ends before it begins"),
        (T0, NOW + HOUR, "in the future"),
        (T0 - 500 * 24 * HOUR, T0, "longer than a year"),
        (T0 - HOUR, T0, "No job waited or ran"),
        (make.LONG_AGO - 2 * HOUR, make.LONG_AGO - HOUR, "No GPU was in use"),
    ],
)
def test_a_window_that_can_t_be_read_is_refused(day, start, end, said):
    with pytest.raises(Refused, match=said):
        read(start, end)


def test_reading_asks_the_database_as_often_for_many_jobs(day, django_assert_max_num_queries):
    for _ in range(5):
        make.make_job(day.place.auk, submitted_at=T0)
        make.make_service(day.place.auk, submitted_at=T0)
    leaves = tree_now().leaves
    with django_assert_max_num_queries(13):
        history.read(start=T0, end=NOW, now=NOW, leaves=leaves)


def test_a_written_trace_is_read_as_it_was(day):
    past = read()
    again = read_csv(io.StringIO("".join(write_csv(past.trace))), "history.csv")
    assert again.problems == ()
    assert again == past.trace


# --- The command ---------------------------------------------------------------------------------


@pytest.fixture
def clock(monkeypatch):
    monkeypatch.setattr(_history, "now", lambda: NOW)


def run(*args, **options):
    out, err = io.StringIO(), io.StringIO()
    call_command("simulate", *args, stdout=out, stderr=err, **options)
    return out.getvalue(), err.getvalue()


def test_the_command_plays_the_history(day, clock, tmp_path):
    trace, figures = tmp_path / "own.csv", tmp_path / "own.json"
    window = ["2026-10-01", "2026-10-01T02:12:08Z"]
    out, err = run(history=window, write_trace=str(trace), json=str(figures), policy=["fifo"])
    assert "3 jobs have not ended: how long they take is their estimate." in err
    assert "orlo/science/petrel" in out
    assert read_csv(trace.open(), "own.csv") == read().trace
    found = json.loads(figures.read_text())
    assert (found["trace"], found["gpus"], found["seconds"]) == ("history", 16, 7928)
    assert [one["policy"] for one in found["policies"]] == ["fifo"]


def test_the_command_takes_other_events_instead_of_what_befell(day, clock, tmp_path):
    NodeState.objects.create(node=day.place.nodes[0], at=T0 + HOUR, state="down")
    path = tmp_path / "e.csv"
    path.write_text("event,node,from_s,to_s\nfailure,h100-n1,60,120\nwindow,h100-n7,1,2\n")
    given = {"history": ["2026-10-01", "2026-10-01T02:12:08Z"], "events": str(path)}
    with pytest.raises(CommandError, match="1 row can't be read"):
        run(**given)
    out, err = run(**given, skip_bad_rows=True)
    assert "no node 'h100-n7': the fleet has h100-n0, h100-n1." in err
    assert "1 window or failure that there really was is left out" in err
    assert "runs ended by failures" in out


@pytest.mark.parametrize(
    ("args", "options", "said"),
    [
        ((), {}, "Name a trace"),
        (("made",), {}, "Give --nodes"),
        (("made",), {"history": ["2026-10-01", "2026-10-02"]}, "leave the trace out"),
        ((), {"history": ["2026-10-01", "2026-10-02"], "days": 3}, "leave --days out"),
        ((), {"history": ["yesterday", "2026-10-02"]}, "'yesterday' is no instant"),
        ((), {"history": ["2026-10-01T00:00:00", "2026-10-02"]}, "is no instant"),
        ((), {"history": ["2026-10-01", "2027-10-02"]}, "in the future"),
    ],
)
def test_the_command_refuses_in_a_sentence(day, clock, args, options, said):
    with pytest.raises(CommandError, match=said) as refused:
        run(*args, **options)
    assert refused.value.returncode == 2
