"""The pages of nodes and of windows of maintenance."""

import re

import pytest

from allocator import cycle, maintenance
from allocator.models import Outlook
from allocator.pages import nodes as node_pages
from clusters.models import GpuState, NodeState, Window
from tests import factories as make
from tests.factories import HOUR, T0
from tests.pages_world import client_of, queries, text_of

pytestmark = pytest.mark.django_db
NOW = T0 + 12 * HOUR
HIDDEN = "another budget\u2019s work"
PETREL = "orlo/science/petrel"


@pytest.fixture(autouse=True)
def _now(monkeypatch):
    pages = ("clusters.views", "allocator.views", "workloads.views")
    for module in ("config.clock", "config.shell", *pages):
        monkeypatch.setattr(f"{module}.now", lambda: NOW)


@pytest.fixture
def nodes(tree):
    """Four nodes: a protected run and an interruptible one on the first two, the last is down."""
    made = make.make_nodes(make.make_pool("h100"), 4)
    for name, node, until in (("voyage", made[0], 2 * HOUR), ("short", made[1], -HOUR)):
        job = make.make_job(
            tree[PETREL], name=name, state="running", estimate_p50_s=20 * 3600, resumable=True
        )
        run = {"started_at": NOW - HOUR, "protected_until": NOW + until}
        make.make_run(job, {node: 0xFF}, **run)
        GpuState.objects.create(node=node, at=NOW - HOUR, held=0xFF, free=0, down=0)
    NodeState.objects.create(node=made[3], at=NOW - HOUR, state="down", reason="XID 79")
    lost = make.make_job(tree[PETREL], name="lost")
    ended = {"started_at": T0, "ended_at": NOW - HOUR, "end_reason": "node_failure"}
    make.make_run(lost, {made[3]: 0xFF}, **ended)
    return made


def put(nodes, starts_at=NOW + HOUR, ends_at=NOW + 6 * HOUR):
    span = {"starts_at": starts_at, "ends_at": ends_at, "reason": "firmware"}
    return maintenance.set_window(nodes=nodes, by=make.someone(), now=NOW, **span)


def read(user, address, **more):
    answer = client_of(user).get(address, **more)
    assert answer.status_code == 200
    return said(answer)


def said(answer):
    """The text of a page, with signs at the words that they follow."""
    return text_of(answer).replace(" ,", ",").replace(" .", ".")


# --- Nodes ---------------------------------------------------------------------------------------


def test_of_a_large_fleet_nodes_with_nothing_to_tell_are_a_link_away(cast, nodes, monkeypatch):
    monkeypatch.setattr(node_pages, "SHOWN", 1)
    put([nodes[1]])
    answer = client_of(cast["member"]).get("/nodes")
    html, names = answer.content.decode(), [node.name for node in nodes]
    listed = [name for name in names if f'id="node-{name}"' in html]
    assert listed == [names[0], names[1], names[3]], "one that is plain, a window, one that is down"
    assert "4 nodes" in said(answer)
    assert "One more node is up, with no window." in said(answer)
    link = re.search(r'href="([^"]*whole=1)"', html)
    assert link is not None
    whole = client_of(cast["member"]).get("/nodes" + link[1].replace("&amp;", "&"))
    assert all(f'id="node-{name}"' in whole.content.decode() for name in names)
    assert "more node" not in said(whole)


def test_each_node_stands_there_with_its_state_and_what_runs(cast, nodes):
    put(nodes[:1])
    put(nodes[1:2], None, None)
    page = read(cast["member"], "/nodes")
    assert "24 of 32 GPUs are healthy. One node is down. One is draining." in page
    assert "The next window begins 13:00." in page
    assert "h100-n0 up 8 / 8" in page
    assert "petrel/voyage 8 13:00 to 18:00 free by 14:00" in page
    assert "h100-n1 draining since 12:00: firmware 8 / 8" in page
    assert "h100-n3 down since 11:00: XID 79" in page
    assert "its failure ended one run at 11:00" in page


def test_filters_live_in_the_address(cast, nodes):
    assert "h100-n0" not in read(cast["member"], "/nodes?state=down")
    assert "h100-n3" in read(cast["member"], "/nodes?state=down")
    assert "No node is like that" in read(cast["member"], "/nodes?state=draining")
    assert "No node is like that" in read(cast["member"], "/nodes?pool=b200")


def test_jobs_are_hidden_from_who_may_not_see_them(cast, nodes):
    window = put(nodes[:2])
    for address in ("/nodes", f"/windows/{window.pk}"):
        page = read(cast["stranger"], address)
        assert HIDDEN in page
        assert "voyage" not in page
        assert "Set a window" not in page
        assert "Change it" not in page


def test_before_there_are_nodes_the_page_says_what_will_stand_there(cast):
    page = read(cast["admin"], "/nodes")
    assert "No node is in use yet." in page
    assert "No GPUs yet" in page
    assert "There is no node in use" in read(cast["admin"], "/windows/new")


# --- One window ----------------------------------------------------------------------------------


def test_a_window_says_when_its_nodes_are_free_and_why(cast, nodes):
    window = put(nodes[:3])
    page = read(cast["member"], f"/windows/{window.pk}")
    assert "Surely free by 14:00, 1 h after it begins." in page
    assert "What stays longest is petrel/voyage on h100-n0." in page
    assert "protected: stays until 14:00, then is preempted" in page
    assert "interruptible: is preempted by 13:00" in page
    assert "2 are preempted" in page
    assert "nothing now; what starts before is planned to be gone by then" in page
    assert "Takes" in page
    assert "120 GPU-hours" in page  # 3 nodes × 8 GPUs × 5 h
    assert "Set: 13:00 to 18:00, firmware someone" in page


def test_progress_is_told_as_time_goes(cast, nodes):
    window = put(nodes[:3], None, None)
    page = read(cast["member"], f"/windows/{window.pk}")
    assert "1 of 3 nodes are free. Surely free by 14:00." in page
    assert "576 GPU-hours a day" in page
    part = read(cast["member"], f"/windows/{window.pk}", headers={"HX-Request": "true"})
    assert "1 of 3 nodes are free." in part
    assert "<html" not in part


def test_one_that_would_be_over_before_its_nodes_are_free_says_so(cast, nodes):
    window = put(nodes[:1], NOW + HOUR, NOW + 1.5 * HOUR)
    assert "It would be over before" in read(cast["member"], f"/windows/{window.pk}")


def test_past_windows_keep_their_page_without_forms(cast, nodes):
    window = put(nodes[:2])
    maintenance.call_off(window=window, by=cast["admin"], now=NOW)
    page = read(cast["admin"], f"/windows/{window.pk}")
    assert "It was called off at 12:00; it never began." in page
    assert "h100-n0, h100-n1" in page
    assert "Change it" not in page
    assert client_of(cast["admin"]).get("/windows/99999").status_code == 404


def test_one_of_whom_nobody_knows_who_set_it_says_so(cast, nodes):
    asked = {"starts_at": None, "ends_at": None, "reason": "fan", "now": NOW}
    window = maintenance.set_window(nodes=nodes[:1], by=None, **asked)
    assert "Set by –" in read(cast["admin"], f"/windows/{window.pk}")


def test_plan_alarms_and_reasons_lead_to_the_window_or_the_node(cast, nodes, tree):
    window = put(nodes[:1])
    job = make.make_job(tree[PETREL], name="waits")
    made = cycle.run(at=NOW, trigger="test")
    data = {"node": "h100-n0", "gpus": 8}
    Outlook.objects.update_or_create(
        job=job, defaults={"cycle": made, "rule": "draining", "data": data}
    )
    client = client_of(cast["admin"])
    to_window, to_node = f'href="/windows/{window.pk}"', 'href="/nodes#node-h100-n0"'
    assert to_window in client.get("/plan").content.decode()
    overview = client.get("/").content.decode()
    assert to_window in overview
    assert 'href="/nodes?state=down"' in overview
    assert to_node in client.get(f"/jobs/{job.pk}").content.decode()
    assert 'id="node-h100-n0"' in client.get("/nodes").content.decode()
    page = said(client.get(f"/windows/{window.pk}"))
    assert "Waits because of it petrel/waits 8 GPUs not in the plan of 24 h yet" in page


# --- Set -----------------------------------------------------------------------------------------


def form(**more):
    span = {"starts_at": "2026-10-01T13:00", "ends_at": "2026-10-01T18:00", "reason": "firmware"}
    return {"ticked": ["h100-n0"], "nodes": "h100-n[1-2]"} | span | more


def test_a_window_is_looked_at_before_it_is_set(cast, nodes):
    client = client_of(cast["admin"])
    looked = said(client.post("/windows/new/preview", form(reason="")))
    assert "Surely free by 14:00, 1 h after it begins." in looked
    assert "Preempts 2 runs" in looked
    shown = client.post("/windows/new", form(do="look"))
    assert (shown.status_code, Window.objects.count()) == (200, 0)
    done = client.post("/windows/new", form(do="set"))
    window = Window.objects.get()
    assert done["Location"] == f"/windows/{window.pk}"
    assert [d.node.name for d in window.drains.order_by("node")] == [
        "h100-n0",
        "h100-n1",
        "h100-n2",
    ]
    assert (window.starts_at, window.ends_at) == (NOW + HOUR, NOW + 6 * HOUR)
    assert window.events.get().by == cast["admin"]


@pytest.mark.parametrize(
    ("more", "says"),
    [
        ({"reason": ""}, "Say why"),
        ({"ticked": [], "nodes": ""}, "Tick a node"),
        ({"nodes": "h100-n9"}, "There is no node h100-n9"),
        ({"starts_at": "2026-10-01T11:00"}, "begin in the past"),
        ({"ends_at": "2026-10-01T13:00"}, "before it begins"),
        ({"ends_at": "soon"}, "Give a date and a time"),
    ],
)
def test_a_form_that_is_refused_says_what_to_change_and_loses_nothing(cast, nodes, more, says):
    answer = client_of(cast["admin"]).post("/windows/new", form(do="set", **more))
    assert answer.status_code == 422
    assert says in said(answer)
    assert not Window.objects.exists()
    if "reason" not in more:
        assert 'value="firmware"' in answer.content.decode()


def test_a_window_is_changed_ended_and_called_off_on_its_page(cast, nodes):
    window = put(nodes[:2])
    client, address = client_of(cast["admin"]), f"/windows/{window.pk}"
    given = {"version": 1, "starts_at": "2026-10-01T15:00", "ends_at": "", "reason": "firmware"}
    part = said(client.post(f"{address}/change", given, headers={"HX-Request": "true"}))
    assert "Free when it begins, 15:00." in part
    assert Window.objects.get().version == 1
    assert client.post(f"{address}/change", given | {"do": "set"})["Location"] == address
    window.refresh_from_db()
    assert (window.starts_at, window.ends_at) == (NOW + 3 * HOUR, None)
    stale = client.post(f"{address}/change", given | {"do": "set", "reason": "x"})
    assert (stale.status_code, "meanwhile" in said(stale)) == (422, True)
    assert client.post(f"{address}/end")["Location"] == address
    assert Window.objects.get().state(NOW) == "called_off"
    begun = put(nodes[:2], None, None)
    Window.objects.filter(pk=begun.pk).update(starts_at=NOW - HOUR)
    client.post(f"/windows/{begun.pk}/end")
    begun.refresh_from_db()
    assert (begun.state(NOW), begun.ends_at) == ("over", NOW)


def test_only_administrators_set_and_change(cast, nodes):
    window = put(nodes[:1])
    client = client_of(cast["manager"])
    assert client.get("/windows/new").status_code == 404
    assert client.post("/windows/new", form(do="set")).status_code == 404
    assert client.post(f"/windows/{window.pk}/change", {"do": "set"}).status_code == 403
    assert client.post(f"/windows/{window.pk}/end").status_code == 403
    assert Window.objects.get().version == 1


def test_the_number_of_queries_does_not_grow_with_nodes(cast, nodes):
    window = put(nodes[:1], None, None)
    client = client_of(cast["admin"])
    addresses = ("/nodes", f"/windows/{window.pk}")
    before = [queries(client, address) for address in addresses]
    make.make_nodes(nodes[0].pool, 6)
    put(nodes[1:3])
    put(nodes[0].pool.nodes.filter(position__gte=4), None, None)
    assert [queries(client, address) for address in addresses] == before
