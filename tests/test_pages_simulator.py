"""The simulator's pages: asking, following, figures, pictures, and the preview of a draft."""

import json
from copy import deepcopy
from datetime import timedelta
from functools import partial

import pytest
from django.core.files.uploadedfile import SimpleUploadedFile

from allocator import maintenance
from allocator.models import Simulation
from allocator.pages import simulator as pages
from allocator.pages import simulator_figures, simulator_measures
from allocator.pages.names import Names
from allocator.pages.simulator_measures import SPECS, lines
from allocator.simulating import asking, running
from allocator.simulating.asking import Draft
from budgets import services
from tests import factories as make
from tests.factories import HOUR, T0
from tests.pages_day import NOW, stand_at
from tests.pages_world import client_of, text_of
from tests.simulating_world import propose
from workloads.models import Job

pytestmark = pytest.mark.django_db
WINDOW = (T0, NOW)
TRACE = "job_id,submit_time_s,gpus,duration_s,group\n1,0,4,600,nlp\n2,60,8,600,vision\n"
FORM = {"source": "history", "days": "1", "shares": "now", "policies": ["fairshare"], "seed": "0"}


@pytest.fixture
def day(played, db, monkeypatch):
    stand_at(monkeypatch, NOW)
    return deepcopy(played)


@pytest.fixture
def ines(day):
    user = make.make_user("ines")
    make.make_role(user, day.place.tree["orlo/science"], "manager")
    return user


@pytest.fixture
def root(day):
    return make.make_user("root", is_superuser=True)


def done(by, **more):
    asking.ask(**({"by": by, "now": NOW, "window": WINDOW} | more))
    row = running.run_next(clock=lambda: NOW)
    assert row.state == "done", row.error
    return row


def shown(user, address, status=200):
    answer = client_of(user).get(address)
    assert answer.status_code == status
    return " ".join(answer.content.decode().split())


def posted(user, address, data, **headers):
    return client_of(user).post(address, data, headers=headers)


# --- Asking --------------------------------------------------------------------------------------


def test_the_form_asks_and_leads_to_the_simulation(ines):
    answer = posted(ines, "/simulator", FORM | {"policies": ["fairshare", "fifo"], "seed": "7"})
    row = Simulation.objects.get()
    assert answer.url == f"/simulator/{row.pk}"
    assert (row.policies, row.seed, row.budget.path) == (["fairshare", "fifo"], 7, "orlo/science")
    assert (row.starts_at, row.ends_at) == (T0 - 22 * HOUR, T0 + 2 * HOUR)


@pytest.mark.parametrize(
    ("until", "called"),
    [(timedelta(hours=10), "History, 30 Sep"), (timedelta(days=2), "History, 30 Sep to 2 Oct")],
)
def test_a_day_is_called_once(until, called):
    start = T0 - 12 * HOUR
    assert pages.title(Simulation(starts_at=start, ends_at=start + until)) == called


def test_days_may_be_given_by_their_dates(ines):
    posted(
        ines,
        "/simulator",
        FORM | {"days": "", "starts_on": "2026-09-30", "ends_on": "2026-10-01"},
    )
    row = Simulation.objects.get()
    assert (row.starts_at, row.ends_at) == (T0 - 24 * HOUR, NOW)


@pytest.mark.parametrize("years", [("9999", "9999"), ("0001", "0001"), ("2026", "9999")])
def test_a_day_of_another_century_is_refused_beside_it(ines, years):
    dates = {"starts_on": f"{years[0]}-12-30", "ends_on": f"{years[1]}-12-31"}
    answer = posted(ines, "/simulator", FORM | {"days": ""} | dates)
    assert answer.status_code == 422
    assert "Give a year from 1970 to 2199." in answer.content.decode()


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"tree": []}, 'one field, "tree"'),
        ({"tree": False}, 'one field, "tree"'),
        ({"tree": {}, "equal_shares": True}, "Give one of change_set"),
        ({"change_set": 0}, "There is none with this number"),
        ({"period": 0}, "There is none with this number"),
    ],
)
def test_an_empty_draft_is_not_taken_for_the_shares_of_today(root, given, said):
    body = {"history": {"days": 1}, **given}
    answer = client_of(root).post("/api/v1/simulations/", body, content_type="application/json")
    assert answer.status_code == 400
    assert said in answer.json()["detail"]
    assert not Simulation.objects.exists()


def test_a_file_of_too_many_jobs_is_refused(ines, monkeypatch):
    monkeypatch.setattr(asking, "MOST_JOBS", 1)
    answer = client_of(ines).get("/simulator/history.csv?days=1", follow=True)
    assert "jobs, and at most 1 go: choose fewer days." in answer.content.decode()


def test_a_trace_and_a_tree_are_uploaded(ines):
    trace = SimpleUploadedFile("own.csv", TRACE.encode())
    tree = {
        "tree": [
            {"name": "all", "parent": None, "shares": 1, "usage": 0},
            {"name": "nlp", "parent": "all", "shares": 3, "usage": 0},
            {"name": "vision", "parent": "all", "shares": 1, "usage": 0},
        ]
    }
    given = FORM | {"source": "trace", "file": trace, "nodes": "2x8", "shares": "file"}
    tree_file = SimpleUploadedFile("tree.json", json.dumps(tree).encode())
    answer = posted(ines, "/simulator", given | {"tree_file": tree_file})
    assert answer.status_code == 302
    row = Simulation.objects.get()
    assert (row.trace, row.trace_name, row.nodes, row.shares) == (TRACE, "own.csv", "2x8", "file")


EVENTS = "event,node,from_s,to_s,known_s\n"
OF_TRACE = FORM | {"source": "trace", "shares": "equal"}


def given_file(text, name="e.csv"):
    return SimpleUploadedFile(name, text.encode())


def test_windows_and_failures_are_typed_or_uploaded(ines):
    lines = f"{EVENTS}window,h100-n0,60,120,\n"
    posted(ines, "/simulator", OF_TRACE | {"file": given_file(TRACE, "t.csv"), "events": lines})
    row = Simulation.objects.get()
    assert (row.events, row.events_name) == (f"{EVENTS}window,h100-n0,60,120,0\n", "The events")
    given = {"events_file": given_file(lines), "events": EVENTS}
    posted(ines, "/simulator", FORM | given)
    assert Simulation.objects.first().events_name == "e.csv"
    posted(ines, "/simulator", FORM | {"events": f"  {EVENTS}\n"})
    assert Simulation.objects.first().events == ""
    assert "e.csv" in shown(ines, f"/simulator/{row.pk + 1}")


@pytest.mark.parametrize(
    ("given", "said", "field"),
    [
        ({"events": "no events"}, "The events has no column event", "events"),
        ({"events": f"{EVENTS}flood,x,1,2,\n"}, "The events, line 2: event is", "events"),
        ({"events": f"{EVENTS}window,n7,1,2,\n"}, "no node", "events"),
        ({"events_file": (EVENTS, "e.csv")}, "There are no events in it", "events_file"),
        ({"events_file": (f"{EVENTS}flood,x,1,2,\n", "e.csv")}, "e.csv, line 2", "events_file"),
        ({"events_file": ("\0", "e.csv")}, "no text in UTF-8", "events_file"),
        ({"planned_windows": "on"}, "No window is planned", ""),
        ({"events_file": (EVENTS, "e.csv"), "events": "window"}, "Give lines or a file", "events"),
    ],
)
def test_wrong_events_are_said_beside_their_field(ines, given, said, field):
    files = {n: given_file(*one) if isinstance(one, tuple) else one for n, one in given.items()}
    answer = posted(ines, "/simulator", FORM | files)
    text = answer.content.decode()
    assert answer.status_code == 422
    assert said in text
    assert '<details class="befalls" open>' in text
    if field:
        assert said in text.partition(f'id="id_{field}_error">')[2].partition("</p>")[0]
    assert not Simulation.objects.exists()


def test_windows_that_are_planned_are_ticked_in(ines, day):
    before = shown(ines, "/simulator")
    assert "id_planned_windows" not in before
    assert "As in window,h100-n0,3600,7200," in before
    (node,) = make.make_nodes(day.place.nodes[0].pool, name="spare")
    window = {"starts_at": NOW + HOUR, "ends_at": NOW + 2 * HOUR, "reason": "x", "by": None}
    maintenance.set_window(nodes=[node], now=NOW, **window)
    assert "The window that is planned for one of our nodes" in shown(ines, "/simulator")
    posted(ines, "/simulator", FORM | {"planned_windows": "on"})
    row = Simulation.objects.get()
    assert row.events == f"{EVENTS}window,spare,3600,7200,0\n"
    assert "windows that are planned" in shown(ines, f"/simulator/{row.pk}")


def test_the_api_takes_events_and_refuses_them_alike(root):
    body = {"history": {"days": 1}, "events": {"text": f"{EVENTS}flood,x,1,2,\nfailure,y,1,2,\n"}}
    send = partial(client_of(root).post, "/api/v1/simulations/", content_type="application/json")
    answer = send(body)
    assert answer.status_code == 400
    for said in ("events.csv, line 2: event is", "events.csv, line 3: there is no node"):
        assert said in str(answer.json())
    answer = send(body | {"events": {"name": "x.csv", "text": f"{EVENTS}failure,h100-n1,1,2,\n"}})
    assert answer.status_code == 201, answer.json()
    assert (answer.json()["events_name"], answer.json()["planned_windows"]) == ("x.csv", False)
    answer = send({"history": {"days": 1}, "planned_windows": True})
    assert "No window is planned" in str(answer.json())


def test_a_draft_and_a_plan_are_offered_to_who_may_propose(day, ines):
    science = day.place.tree["orlo/science"]
    change_set = propose(day, 90_000, 10_000)
    page = shown(ines, f"/simulator?shares=set:{change_set.pk}")
    assert f'<option value="set:{change_set.pk}" selected>' in page
    posted(ines, "/simulator", FORM | {"shares": f"set:{change_set.pk}"})
    assert Simulation.objects.get().change_set == change_set
    assert Simulation.objects.get().budget == science
    other = make.make_user("tom")
    make.make_role(other, day.place.tree["orlo/vision"], "manager")
    assert f"set:{change_set.pk}" not in shown(other, "/simulator")


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"policies": []}, "Choose one policy or several."),
        ({"source": "trace"}, "Choose a trace file."),
        ({"shares": "file"}, "Choose a tree file."),
        ({"days": "", "starts_on": ""}, "Give the day, or choose a window."),
        ({"nodes": "many"}, "give NODESxGPUS as in 56x8"),
        ({"shares": "equal"}, "Equal shares are for a trace"),
        ({"days": "", "starts_on": "2026-07-01", "ends_on": "2026-10-01"}, "at most 62 go"),
    ],
)
def test_what_can_t_be_is_said_beside_the_form(ines, given, said):
    answer = posted(ines, "/simulator", FORM | given)
    assert answer.status_code == 422
    assert said in answer.content.decode()
    assert not Simulation.objects.exists()


@pytest.mark.parametrize("content", [b"\xff\xfe\x00", b"a\0b", b"x" * 900_001])
def test_a_file_that_is_no_trace_is_refused(ines, content):
    file = SimpleUploadedFile("own.csv", content)
    given = FORM | {"source": "trace", "file": file, "shares": "equal"}
    answer = posted(ines, "/simulator", given)
    assert answer.status_code == 422
    assert "The file" in answer.content.decode()


def test_who_may_not_is_told_who_may(day):
    viewer = make.make_user("vera")
    make.make_role(viewer, day.place.petrel, "viewer")
    page = shown(viewer, "/simulator")
    assert "Managers simulate" in page
    assert "sim-form" not in page
    assert posted(viewer, "/simulator", FORM).status_code == 403
    assert not Simulation.objects.exists()


# --- Following -----------------------------------------------------------------------------------


def test_one_that_waits_says_how_many_are_before_it(ines):
    for _ in range(2):
        row = asking.ask(by=ines, now=NOW, window=WINDOW)
    page = shown(ines, f"/simulator/{row.pk}")
    assert "one is played before it" in page
    assert 'data-live="2"' in page
    assert f'action="/simulator/{row.pk}/cancel"' in page


def test_its_progress_is_a_part_that_asks_for_the_page_once_it_is_over(ines):
    row = asking.ask(by=ines, now=NOW, window=WINDOW)
    Simulation.objects.update(state="running", progress_per_mille=432, simulated_s=7200)
    address = f"/simulator/{row.pk}"
    part = client_of(ines).get(address, headers={"HX-Request": "true"})
    assert "43 % done, 2 h of the present one played" in " ".join(part.content.decode().split())
    assert "HX-Refresh" not in part
    Simulation.objects.update(state="failed", error="The fleet is too small.")
    part = client_of(ines).get(address, headers={"HX-Request": "true"})
    assert part["HX-Refresh"] == "true"
    assert "The fleet is too small." in shown(ines, address)


def test_it_is_cancelled_by_a_button_once(ines):
    row = asking.ask(by=ines, now=NOW, window=WINDOW)
    assert posted(ines, f"/simulator/{row.pk}/cancel", {}).url == f"/simulator/{row.pk}"
    assert "keeps no figures" in shown(ines, f"/simulator/{row.pk}")
    posted(ines, f"/simulator/{row.pk}/cancel", {})
    row.refresh_from_db()
    assert row.state == "cancelled"


# --- What came of it -----------------------------------------------------------------------------


def test_a_budget_that_only_the_draft_has_stands_below_its_parent():
    def course(*paths):
        return {path: {"parent": path.rpartition("/")[0] or None} for path in paths}

    before = course("o", "o/a", "o/a/x", "o/b", "o/b/z")
    after = course("o", "o/a", "o/a/y", "o/b", "o/b/z", "o/c")
    names = list(simulator_figures._all([before, after]))
    assert names == ["o", "o/a", "o/a/x", "o/a/y", "o/b", "o/b/z", "o/c"]


def test_figures_stand_side_by_side_as_the_api_has_them(root):
    row = done(root, policies=["fairshare", "fifo"])
    page = shown(root, f"/simulator/{row.pk}")
    result = client_of(root).get(f"/api/v1/simulations/{row.pk}/").json()["result"]
    assert result == {name: said for name, said in row.result.items() if name != "noted"}
    for course in result["courses"]:
        assert f"{100 * course['occupancy']:.1f}<span" in page
        assert f"{course['useful_gpu_seconds'] / 3600:,.0f}" in page
    assert "The same 4 jobs on the same 16 GPUs over 2 h 12" in page
    assert "difference: fairshare less first in, first out" in page
    assert "3 jobs have not ended: how long they take is their estimate." in page


COURSE = {spec: 0.5 for spec in ("occupancy", "crowded_occupancy", "delivered_by_window")} | {
    **dict.fromkeys(("worst_by_window", "delivered", "worst_delivered", "rho_p50"), 0.5),
    **dict.fromkeys(("useful_gpu_seconds", "funded_gpu_seconds", "unfunded_gpu_seconds"), 36_000),
    **dict.fromkeys(("completed", "timed_out", "preemptions", "lost", "starved"), 5),
    "rho_p90": None,
    "worst_budget": "orlo/science/auk",
}


def test_a_verdict_says_better_or_worse_as_figures_are_shown():
    other = COURSE | {
        "occupancy": 0.6,
        "delivered": 0.4,
        "preemptions": 9,
        "starved": 1,
        "rho_p50": 0.504,  # reads the same
        "funded_gpu_seconds": 72_000,
    }
    found = {line.name: line for line in lines([COURSE, other], (0, 1))}
    verdicts = {name: line.verdict for name, line in found.items()}
    assert verdicts["Occupancy"] == "better"
    assert verdicts["Delivered of owed, by timestep"] == "worse"
    assert verdicts["Preemptions"] == "worse"
    assert verdicts["Starved jobs"] == "better"
    assert verdicts["Finish-time fairness ρ, p50"] == "same"
    assert verdicts["Finish-time fairness ρ, p90"] == ""
    assert verdicts["Funded GPU-hours"] == ""
    assert found["Funded GPU-hours"].difference == 36_000
    assert found["Occupancy"].difference == 10_000
    assert [cell.is_best for cell in found["Starved jobs"].cells] == [False, True]
    assert not any(cell.is_best for cell in found["Finish-time fairness ρ, p50"].cells)
    assert found["Worst budget, by timestep"].cells[0].note == "auk"
    assert len(found) == len(SPECS)
    assert lines([COURSE, other, other], None)[0].verdict == ""
    assert simulator_measures.thousandths(None) is None


def test_what_services_and_failures_come_to_is_shown_where_there_are_any():
    some = COURSE | {"realtime_gpu_seconds": 72_000, "shortfall_gpu_seconds": 36_000}
    some |= {"failed_runs": 0, "down_gpu_seconds": 0}
    found = {line.name: line for line in lines([COURSE, some], (0, 1))}
    assert {"Real-time GPU-hours", "Real-time shortfall"} < found.keys()
    assert not {"Runs ended by failures", "GPU-hours of nodes that were down"} & found.keys()
    assert [cell.value for cell in found["Real-time shortfall"].cells] == [None, 36_000]
    worse = lines([some, some | {"shortfall_gpu_seconds": 72_000, "failed_runs": 2}], (0, 1))
    assert {line.name: line.verdict for line in worse if line.name.startswith("Real")} == {
        "Real-time GPU-hours": "same",
        "Real-time shortfall": "worse",
    }
    assert "Runs ended by failures" in {line.name for line in worse}


def test_budgets_out_of_sight_have_no_row_and_no_name(day, ines):
    row = done(ines)
    page = shown(ines, f"/simulator/{row.pk}")
    assert "of the budgets that you may see" in page
    assert "Petrel" in page
    assert "Tern" not in page
    picture = client_of(ines).get(f"/simulator/{row.pk}/picture.json").json()
    labels = {bar["label"]: bar for bar in picture["bars"]}
    assert "petrel/storm" in labels
    hidden = labels["another budget’s work"]  # noqa: RUF001
    assert (hidden["job"], hidden["budget"], hidden["program"]) == (None, "", "")
    assert "tern" not in json.dumps(picture)


def test_the_picture_is_in_the_plan_s_format(day, root):
    row = done(root)
    picture = client_of(root).get(f"/simulator/{row.pk}/picture.json").json()
    assert (picture["from"], picture["to"]) == ("2026-10-01T00:00:00Z", "2026-10-01T02:12:08Z")
    assert picture["now"] > picture["to"]  # nothing of it is planned
    assert picture["nodes"] == [
        {"name": "h100-n0", "first_gpu": 0, "gpus": 8},
        {"name": "h100-n1", "first_gpu": 8, "gpus": 8},
    ]
    storm = next(bar for bar in picture["bars"] if bar["label"] == "petrel/storm")
    assert storm["url"] == f"/jobs/{day.jobs['storm'].pk}"
    assert (storm["start"], storm["gpus"]) == ("2026-10-01T00:00:00Z", 8)
    assert storm["protected_until"] == "2026-10-01T01:00:00Z"
    assert [one["slug"] for one in picture["programs"]] == ["orlo/science", "orlo/vision"]
    assert client_of(root).get(f"/simulator/{row.pk}/picture.json?course=1").status_code == 404


def test_days_of_a_long_one_are_shown_two_at_a_time(root):
    long = TRACE + "3,400000,4,600,nlp\n"
    row = done(root, window=None, trace=long, equal=True, nodes="2x8")
    page = shown(root, f"/simulator/{row.pk}")
    assert "picture.json?course=0&amp;day=3" in page  # the last two of five
    first = client_of(root).get(f"/simulator/{row.pk}/picture.json?day=0").json()
    last = client_of(root).get(f"/simulator/{row.pk}/picture.json?day=99").json()
    assert [bar["label"] for bar in first["bars"]] == ["nlp/1", "vision/2"]
    assert [bar["label"] for bar in last["bars"]] == ["nlp/3"]
    assert [(one["name"], one["hue"]) for one in first["programs"]] == [("nlp", 1), ("vision", 2)]


def test_the_runs_are_a_table_too(day, root):
    row = done(root)
    page = shown(root, f"/simulator/{row.pk}/runs?course=0")
    assert "petrel/storm" in page
    assert "h100-n0" in page
    assert f"/jobs/{day.jobs['storm'].pk}" in page
    shown(root, f"/simulator/{row.pk}/runs?course=1", 404)


def test_the_window_s_jobs_are_a_file_of_those_that_one_sees(day, ines):
    answer = client_of(ines).get("/simulator/history.csv?days=1")
    rows = answer.content.decode().splitlines()
    assert rows[0].startswith("job_id,submit_time_s,gpus,duration_s,group")
    assert {row.split(",")[4] for row in rows[1:]} == {"orlo/science/petrel", "orlo/science/auk"}
    row = done(ines)
    again = client_of(ines).get(f"/simulator/history.csv?of={row.pk}").content.decode()
    assert len(again.splitlines()) == 1 + 3


# --- A draft of shares ---------------------------------------------------------------------------

SHARES = {"base_version": "1", "when": "now", "days": "7"}


def test_the_editor_plays_what_is_typed_and_shows_it_in_place(day, ines):
    typed = SHARES | {"share.petrel": "90", "share.auk": "10"}
    address = "/budgets/orlo/science/shares/simulate"
    part = posted(ines, address, typed, HX_Request="true").content.decode()
    row = Simulation.objects.get()
    assert (row.shares, row.budget.path) == ("vector", "orlo/science")
    assert f'hx-get="/simulator/{row.pk}/preview"' in part
    running.run_next(clock=lambda: NOW)
    part = shown(ines, f"/simulator/{row.pk}/preview")
    assert "data-live" not in part
    assert "the draft beside shares of today" in part
    for words in ("Petrel", "Auk", "it did", "as now"):
        assert words in part


def test_without_a_script_the_editor_leads_to_the_simulation(day, ines):
    typed = SHARES | {"share.petrel": "90", "share.auk": "10"}
    answer = posted(ines, "/budgets/orlo/science/shares/simulate", typed)
    assert answer.url == f"/simulator/{Simulation.objects.get().pk}"


@pytest.mark.parametrize(
    ("petrel", "said"),
    [("50", "The draft is as the shares of today"), ("60", "over 100|total"), ("", "petrel")],
)
def test_a_draft_that_can_t_be_is_said_in_place(day, ines, petrel, said):
    typed = SHARES | {"share.petrel": petrel, "share.auk": "50"}
    address = "/budgets/orlo/science/shares/simulate"
    part = posted(ines, address, typed, HX_Request="true").content.decode()
    assert any(words in part for words in said.split("|")), part
    assert not Simulation.objects.exists()


def test_each_project_stands_with_what_it_did_and_would_have_got(day, root):
    change_set = propose(day, 90_000, 10_000)
    row = done(root, draft=Draft(change_set=change_set))
    page = shown(root, f"/simulator/{row.pk}")
    assert "What each project would have got" in page
    hours = row.result["did"][[d["path"] for d in row.result["did"]].index("orlo/science/petrel")]
    assert f'<td class="num">{hours["funded_gpu_seconds"] / 3600:.0f}</td>' in page


def test_a_proposal_of_another_place_leads_to_the_simulator(day, root):
    place = day.place
    Job.objects.filter(budget=place.auk, ended_at=None).update(state="cancelled", ended_at=NOW)
    proposal = services.propose_place(
        does=services.Does.ARCHIVE,
        budget=place.auk,
        reason="why",
        author=place.user,
        base_version=1,
        now=NOW,
    )
    page = shown(root, f"/budgets/orlo/science/auk/move?set={proposal.pk}")
    assert f"/simulator?shares=set:{proposal.pk}" in page
    row = done(root, draft=Draft(change_set=proposal))
    draft = {path for path, _, _ in row.trees["draft"]["nodes"]}
    assert "orlo/science/auk" not in draft
    assert "1 job is left out: its budget takes no work" in " ".join(row.result["notes"])
    figures = simulator_figures.figures(row, Names.load(root))
    rows = {one.path: one for one in figures.budgets}
    assert len({len(one.got) for one in figures.budgets}) == 1, "a figure for each course"
    assert rows["orlo/science/auk"].got[1] == simulator_figures.NOTHING
    answer = client_of(root).get(f"/simulator/{row.pk}", HTTP_ACCEPT_LANGUAGE="pt-BR")
    assert "1 job fica de fora: seu orçamento não recebe trabalho" in text_of(answer)
