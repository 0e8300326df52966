"""The API of maintenance windows, and that it, the nodes and the client say the same."""

import pytest

from allocator import cycle, emptying
from allocator.pages import windows as pages
from clusters.models import Window
from config import clock
from tests import factories as make
from tests.factories import HOUR, T0
from workloads.models import Run

pytestmark = pytest.mark.django_db
NOW = T0 + 24 * HOUR
PETREL = "orlo/science/petrel"


def iso(at):
    return at.strftime("%Y-%m-%dT%H:%M:%SZ")


@pytest.fixture(autouse=True)
def _now(monkeypatch):
    monkeypatch.setattr(clock, "now", lambda: NOW)


@pytest.fixture
def pool(tree):
    """Two nodes; a run of petrel on the first, protected for 2 h."""
    pool = make.make_pool("h100")
    node, _ = make.make_nodes(pool, 2)
    job = make.make_job(
        tree[PETREL], name="train", state="running", estimate_p50_s=6 * 3600, funded=True
    )
    run = make.make_run(job, {node: 0xFF}, started_at=NOW, protected_until=NOW + 2 * HOUR)
    assert run.state == Run.State.RUNNING
    return pool


def asked(**more):
    span = {"starts_at": iso(NOW + HOUR), "ends_at": iso(NOW + 3 * HOUR)}
    return {"nodes": ["h100-n[0-1]"], "reason": "firmware"} | span | more


def test_a_window_is_previewed_set_shown_changed_and_called_off(api_of, pool):
    admin = api_of("admin")
    preview = admin.post("/api/v1/windows/preview/", asked()).json()
    assert not Window.objects.exists()
    assert (preview["gpus"], preview["capacity_gpu_seconds"]) == (16, 16 * 7200)
    answer = admin.post("/api/v1/windows/", asked())
    assert answer.status_code == 201
    made = answer.json()
    address = f"/api/v1/windows/{made['id']}/"
    assert admin.get(address).json() == made
    assert made["outlook"] == preview["outlook"]
    assert made["free"] == {
        "free_from": iso(NOW + 2 * HOUR),
        "likely_free_from": iso(NOW + 2 * HOUR),
        "late_s": 3600,
    }
    (held, free) = made["outlook"]["nodes"]
    assert (free["free_from"], free["runs"], free["is_free"]) == (iso(NOW + HOUR), [], False)
    (stay,) = held["runs"]
    assert stay == made["outlook"]["because"]
    assert (stay["name"], stay["how"], stay["leaves_by"]) == (
        *("train", "protected"),
        iso(NOW + 2 * HOUR),
    )
    assert [one["name"] for one in made["outlook"]["interrupted"]] == ["train"]
    assert (made["state"], made["set_by"], made["version"]) == ("planned", "admin", 1)

    later = {"starts_at": iso(NOW + 4 * HOUR), "ends_at": None, "version": 1}
    changed = admin.post(f"{address}change/", later).json()
    assert (changed["starts_at"], changed["ends_at"]) == (iso(NOW + 4 * HOUR), None)
    assert (changed["capacity_gpu_seconds"], changed["free"]["late_s"]) == (None, 0)
    stale = admin.post(f"{address}change/", {"reason": "x", "version": 1})
    assert (stale.status_code, "meanwhile" in stale.json()["detail"]) == (400, True)
    assert admin.post(f"{address}end/").json()["detail"].startswith("window: It hasn't begun")
    gone = admin.post(f"{address}call-off/").json()
    assert (gone["state"], gone["free"], gone["outlook"]) == ("called_off", None, None)
    assert [(e["kind"], e["by"], e["nodes"]) for e in gone["events"]] == [
        (kind, "admin", ["h100-n0", "h100-n1"]) for kind in ("set", "changed", "called_off")
    ]


def test_a_change_is_previewed_as_its_page_does_and_writes_nothing(api_of, pool, monkeypatch):
    admin = api_of("admin")
    made = admin.post("/api/v1/windows/", asked()).json()
    address = f"/api/v1/windows/{made['id']}/"
    later = {"starts_at": iso(NOW + 4 * HOUR), "ends_at": None}
    left_out, look = [], emptying.of_span

    def looked(span, *, now, instead_of=None):
        left_out.append(instead_of and instead_of.pk)
        return look(span, now=now, instead_of=instead_of)

    monkeypatch.setattr(emptying, "of_span", looked)
    preview = admin.post(f"{address}change/preview/", later).json()
    assert left_out == [made["id"]], "it would be in its own way"
    assert admin.get(address).json() == made
    assert (preview["starts_at"], preview["ends_at"]) == (iso(NOW + 4 * HOUR), None)
    window = Window.objects.get()
    to = {"starts_at": NOW + 4 * HOUR, "ends_at": None}
    page = pages.preview_change(make.make_user(is_superuser=True), window, to, now=NOW)
    assert preview["outlook"]["free_from"] == iso(page.outlook.free_from)
    assert preview["outlook"]["late_s"] == page.outlook.late_s == 0
    assert len(preview["outlook"]["interrupted"]) == page.interrupted
    changed = admin.post(f"{address}change/", later).json()
    assert changed["outlook"] == preview["outlook"]


@pytest.mark.parametrize(
    ("body", "word"),
    [
        ({}, "what it is already"),
        ({"reason": "firmware"}, "what it is already"),
        ({"starts_at": iso(NOW - HOUR)}, "in the past"),
        ({"reason": "x", "version": 7}, "meanwhile"),
        ({"nodes": ["h100-n0"]}, "nodes"),
    ],
)
def test_a_change_s_preview_refuses_what_the_change_refuses(api_of, pool, body, word):
    made = api_of("admin").post("/api/v1/windows/", asked()).json()
    answers = [
        api_of("admin").post(f"/api/v1/windows/{made['id']}/{deed}/", body)
        for deed in ("change/preview", "change")
    ]
    assert [one.status_code for one in answers] == [400, 400]
    assert answers[0].json()["detail"] == answers[1].json()["detail"]
    assert word in answers[0].json()["detail"]


def test_one_that_has_begun_ends(api_of, pool):
    made = api_of("root").post("/api/v1/windows/", asked(starts_at=None)).json()
    assert made["state"] == "open"
    Window.objects.update(starts_at=NOW - HOUR)
    ended = api_of("root").post(f"/api/v1/windows/{made['id']}/end/").json()
    assert (ended["state"], ended["ends_at"]) == ("over", iso(NOW))


def test_lists_are_by_state_and_everyone_reads_them_with_jobs_hidden(api_of, pool):
    admin = api_of("admin")
    first = admin.post("/api/v1/windows/", asked()).json()["id"]
    last = admin.post("/api/v1/windows/", asked(starts_at=iso(NOW + 5 * HOUR), ends_at=None))
    nobody = api_of("nobody")
    rows = nobody.get("/api/v1/windows/").json()["results"]
    assert [row["id"] for row in rows] == [last.json()["id"], first]
    assert rows[1]["free"]["free_from"] == iso(NOW + 2 * HOUR)
    assert nobody.get("/api/v1/windows/?state=open").json()["results"] == []
    wrong = nobody.get("/api/v1/windows/?state=shut")
    assert (wrong.status_code, "no state 'shut'" in wrong.json()["detail"]) == (400, True)
    seen = nobody.get(f"/api/v1/windows/{first}/").json()["outlook"]["because"]
    assert (seen["job"], seen["name"], seen["budget"], seen["gpus"]) == (None, None, None, 8)
    assert nobody.get("/api/v1/windows/999999/").status_code == 404


def test_nodes_say_when_they_are_free_and_for_which_window(api_of, pool):
    made = api_of("admin").post("/api/v1/windows/", asked(nodes=["h100-n0"])).json()
    first, second = api_of("nobody").get("/api/v1/nodes/").json()
    assert (first["free_from"], second["free_from"]) == (made["free"]["free_from"], None)
    assert [drain["window"] for drain in first["drains"]] == [made["id"]]


@pytest.mark.parametrize(
    ("body", "field"),
    [
        (asked(nodes=["h100-n9"]), "nodes"),
        (asked(nodes=["h100-n[0-"]), "nodes"),
        (asked(nodes=[]), "nodes"),
        (asked(starts_at=iso(NOW - HOUR)), "starts_at"),
        (asked(ends_at=iso(NOW)), "ends_at"),
        (asked(reason=""), "reason"),
        (asked(until=iso(NOW)), "until"),
    ],
)
def test_what_is_refused_names_the_field_and_writes_nothing(api_of, pool, body, field):
    for address in ("windows/", "windows/preview/"):
        answer = api_of("admin").post(f"/api/v1/{address}", body)
        assert (answer.status_code, answer.json()["errors"][0]["field"]) == (400, field)
    assert not Window.objects.exists()


def test_planned_starts_that_move_are_told(api_of, tree):
    """Two jobs for one node: the second is planned after the first, inside the window."""
    make.make_nodes(make.make_pool("h100"), 1)
    asked_for = {"minimum_runtime_s": 0, "estimate_p50_s": 2 * 3600, "at": NOW}
    first, then = (make.make_job(tree[PETREL], name=name, **asked_for) for name in ("a", "b"))
    cycle.run(at=NOW, trigger="test")
    assert (first.runs.count(), then.runs.count()) == (1, 0)
    body = asked(nodes=["h100-n0"], ends_at=None)
    told = api_of("admin").post("/api/v1/windows/preview/", body).json()["outlook"]
    assert [(one["job"], one["at"]) for one in told["moves"]] == [(then.pk, iso(NOW + 2 * HOUR))]
    assert [(one["job"], one["at"]) for one in told["interrupted"]] == [(first.pk, iso(NOW + HOUR))]
    # What is planned from the window's end on stays.
    body = asked(nodes=["h100-n0"], ends_at=iso(NOW + 2 * HOUR))
    told = api_of("admin").post("/api/v1/windows/preview/", body).json()["outlook"]
    assert told["moves"] == []
