"""The plan's page and its JSON: what ran, runs and comes; names only for who may know them."""

import json
from collections import Counter
from copy import deepcopy
from datetime import datetime, timedelta

import pytest

from allocator.pages import plan, plan_feed
from allocator.reading import newest
from clusters.models import Drain, NodeState
from ledger.models import Entry
from tests import factories as make
from tests.factories import HOUR, T0
from tests.pages_day import NOW, go_on, stand_at
from tests.pages_world import client_of, queries, text_of
from workloads.models import Holding, Run

# Who sees the page on the second database too: test_access_everywhere.
pytestmark = pytest.mark.once


@pytest.fixture
def day(played, db, monkeypatch):
    stand_at(monkeypatch, NOW)
    return deepcopy(played)


@pytest.fixture
def tree(day):
    return day.place.tree


def feed_of(user, url="/plan.json"):
    answer = client_of(user).get(url)
    assert answer.status_code == 200
    return json.loads(answer.content)


def instant(text):
    return datetime.fromisoformat(text.replace("Z", "+00:00"))


def bars_at(feed, at):
    return [b for b in feed["bars"] if instant(b["start"]) <= at < instant(b["end"])]


def test_who_is_signed_out_is_sent_to_sign_in(db):
    for url in ("/plan", "/plan.json"):
        assert client_of(None).get(url).status_code == 302


def test_a_pool_that_is_not_there_is_404(cast):
    for url in ("/plan?pool=none", "/plan.json?pool=none"):
        assert client_of(cast["admin"]).get(url).status_code == 404


def test_the_feed_spans_12_h_back_and_24_h_ahead_in_timesteps(cast):
    feed = feed_of(cast["admin"])
    assert feed["now"] == "2026-10-01T02:12:08Z"
    assert (feed["from"], feed["to"]) == ("2026-09-30T14:00:00Z", "2026-10-02T02:00:00Z")
    assert feed["timestep_minutes"] == 30
    assert feed["zone"] == "UTC"


def test_the_grid_s_rows_are_the_nodes_gpus(cast, day):
    feed = feed_of(cast["admin"])
    assert feed["pools"] == [{"slug": "h100", "name": "h100", "gpus": 16, "first_gpu": 0}]
    names = [(n["name"], n["first_gpu"], n["gpus"]) for n in feed["nodes"]]
    assert names == [(day.place.nodes[0].name, 0, 8), (day.place.nodes[1].name, 8, 8)]


def test_no_gpu_is_drawn_twice_at_any_instant(cast):
    feed = feed_of(cast["admin"])
    for step in range(36 * 12):
        at = instant(feed["from"]) + timedelta(minutes=5 * step, seconds=1)
        rows = Counter(
            row
            for bar in bars_at(feed, at)
            for row in range(bar["first_gpu"], bar["first_gpu"] + bar["gpus"])
        )
        assert all(number == 1 for number in rows.values()), at
        assert all(0 <= row < 16 for row in rows)


def test_what_is_drawn_now_is_what_is_held(cast):
    feed = feed_of(cast["admin"])
    held = sum(h.gpus for h in Holding.objects.filter(ended_at=None))
    assert held == 16
    assert sum(bar["gpus"] for bar in bars_at(feed, NOW)) == held


def test_the_past_is_the_runs_and_the_future_the_newest_plan(cast, day):
    feed = feed_of(cast["admin"])
    mine = [b for b in feed["bars"] if b["job"] == day.jobs["storm"].pk]
    first, second = sorted(mine, key=lambda b: b["start"])[:2]
    runs = list(Run.objects.filter(job=day.jobs["storm"]).order_by("number"))
    assert (instant(first["start"]), instant(first["end"])) == (T0, runs[0].ended_at)
    assert first["preempted"] is True
    assert second["run"] == 2
    assert instant(second["protected_until"]) == runs[1].protected_until
    assert instant(second["end"]) > NOW
    flood = next(b for b in feed["bars"] if b["job"] == day.jobs["flood"].pk)
    day.jobs["flood"].refresh_from_db()
    assert flood["planned"] is True
    assert instant(flood["start"]) == day.jobs["flood"].outlook.start_likely
    assert (flood["first_gpu"], flood["gpus"]) == (0, 16)


def test_parked_spans_are_those_of_the_charges(cast, day):
    feed = feed_of(cast["admin"])
    mine = [b for b in feed["bars"] if b["job"] == day.jobs["storm"].pk and "parked" in b]
    # Each of its runs is idle for half of its first timestep: it counts as parked.
    assert sorted(b["parked"] for b in mine) == [
        [["2026-10-01T00:00:00Z", "2026-10-01T00:30:00Z"]],
        [["2026-10-01T01:30:00Z", "2026-10-01T02:00:00Z"]],
    ]


def test_parked_spans_that_touch_are_one(cast, day):
    storm = day.jobs["storm"]
    last = Entry.objects.filter(job=storm, kind="charge", parked_gpu_seconds__gt=0).last()
    shift = {"at": last.until, "until": last.until + make.TIMESTEP, "timestep": last.until}
    Entry.objects.create(
        **{f.attname: getattr(last, f.attname) for f in Entry._meta.fields if f.name != "id"}
        | {"key": f"{last.key}:next", **shift}
    )
    mine = [b for b in feed_of(cast["admin"])["bars"] if b["job"] == storm.pk and b.get("run") == 2]
    assert mine[0]["parked"] == [["2026-10-01T01:30:00Z", "2026-10-01T02:30:00Z"]]


def test_others_work_has_neither_name_nor_link(cast, day):
    feed = feed_of(cast["member"])
    fold = [b for b in feed["bars"] if b["label"] == "another budget’s work"]  # noqa: RUF001
    assert fold
    assert all(b["job"] is None and "url" not in b and b["budget"] == "" for b in fold)
    assert "fold" not in json.dumps(feed)
    assert [p["slug"] for p in feed["programs"]] == ["orlo/science"]
    mine = [b for b in feed["bars"] if b["job"] is not None]
    assert {b["budget"] for b in mine} == {"Petrel"}
    table = text_of(client_of(cast["member"]).get("/plan?view=table"))
    assert "petrel/storm" in table
    assert "fold" not in table
    assert "fold" not in text_of(client_of(cast["member"]).get("/plan"))


def test_the_page_opens_with_what_is_held_and_what_comes(cast):
    text = text_of(client_of(cast["admin"]).get("/plan"))
    assert "16 of 16 healthy GPUs are held now; the plan keeps" in text
    assert "It starts one job in 24 h, on 16 GPUs at" in text
    assert "Every real-time service gets" not in text
    assert "No real-time service runs." in text


def test_the_cycle_s_facts_are_its_row_s(cast):
    cycle = newest()
    text = text_of(client_of(cast["admin"]).get("/plan"))
    assert f"Fast mode {cycle.solve_ms:.1f} ms" in text
    assert f"Waiting {cycle.waiting}" in text
    assert "Next tick 02:30" in text


def test_what_the_plan_keeps_held_is_counted_from_its_bars(cast):
    page = plan.page(cast["admin"], now=NOW)
    feed = plan_feed.feed(page.picture)
    until = T0 + 10 * HOUR
    held = sum(
        b["gpus"]
        * max(
            0,
            int((min(instant(b["end"]), until) - max(instant(b["start"]), NOW)).total_seconds()),
        )
        for b in feed["bars"]
    )
    assert page.kept_held == held * 100_000 // (16 * int((until - NOW).total_seconds()))


def test_a_service_s_shortfall_is_demand_less_what_is_planned(cast, day):
    # 16 of 16 GPUs are wanted from 03:00 on, while fold and storm are protected.
    profile = (0,) * 3 + (16,) * 21
    job = day.place.serve(day.place.auk, NOW, profile=profile, swap_cap=4)
    day.place.cycle(NOW)
    page = plan.page(cast["admin"], now=NOW)
    shorts = [s for s in page.picture.short if s.job.pk == job.pk]
    assert shorts
    for short in shorts:
        planned = sum(
            p.gpus
            for p in page.picture.pieces
            if p.job.pk == job.pk and p.start <= short.start < p.end
        )
        assert (short.wants, short.holds) == (16, planned)
        assert short.gpus > 0
    first = shorts[0]
    drawn = feed_of(cast["admin"])["short"][0]
    assert drawn["gpus"] == first.gpus
    assert f"short by {first.gpus}. Swap cap 4" in text_of(client_of(cast["admin"]).get("/plan"))
    assert "A service, " in text_of(client_of(cast["stranger"]).get("/plan"))


def test_a_service_is_drawn_as_it_moves(cast, day):
    job = day.place.serve(
        day.place.auk, T0 + 2 * HOUR, profile=(2,) * 3 + (4,) * 21, swap_cap=2, name="chat"
    )
    later = T0 + 6 * HOUR
    go_on(NOW, later)
    page = plan.page(cast["admin"], now=later)
    mine = [p for p in page.picture.pieces if p.job.pk == job.pk]
    at_five = [p for p in mine if p.start <= T0 + 5 * HOUR < p.end]
    held = Holding.objects.filter(run__job=job, started_at__lte=T0 + 5 * HOUR).exclude(
        ended_at__lte=T0 + 5 * HOUR
    )
    assert sum(p.gpus for p in at_five) == sum(h.gpus for h in held) > 0
    assert all(b["realtime"] for b in plan_feed.feed(page.picture)["bars"] if b["job"] == job.pk)


def test_down_nodes_and_drains_have_their_spans_and_reasons(cast, day):
    first, second = day.place.nodes
    NodeState.objects.create(node=first, at=T0 + HOUR, state="down", reason="3 XID errors")
    NodeState.objects.create(node=first, at=T0 + 2 * HOUR, state="up")
    Drain.objects.create(
        node=second, starts_at=NOW + HOUR, ends_at=NOW + 2 * HOUR, reason="firmware"
    )
    down = feed_of(cast["admin"])["down"]
    assert [(d["label"], d["why"], d["start"], d["end"]) for d in down] == [
        (first.name, "down: 3 XID errors", "2026-10-01T01:00:00Z", "2026-10-01T02:00:00Z"),
        (second.name, "draining: firmware", "2026-10-01T03:12:08Z", "2026-10-01T04:12:08Z"),
    ]
    text = text_of(client_of(cast["admin"]).get("/plan"))
    assert f"{second.name} firmware, 03:12 – 04:12" in text
    assert "XID" not in text  # it is up again


def test_a_node_still_down_has_no_end(cast, day):
    NodeState.objects.create(node=day.place.nodes[0], at=NOW, state="down", reason="power")
    (down,) = feed_of(cast["admin"])["down"]
    assert down["end"] == feed_of(cast["admin"])["to"]
    assert "down: power, since 02:12, no end given" in text_of(
        client_of(cast["admin"]).get("/plan")
    )


def test_a_pool_shows_its_rows_only(cast, day):
    other = make.make_pool("b200", cluster=day.place.cluster)
    make.make_nodes(other, 1)
    assert feed_of(cast["admin"])["pools"][1]["first_gpu"] == 16
    feed = feed_of(cast["admin"], "/plan.json?pool=b200")
    assert [p["slug"] for p in feed["pools"]] == ["b200"]
    assert feed["bars"] == []
    assert 'data-src="/plan.json?pool=b200"' in (
        client_of(cast["admin"]).get("/plan?pool=b200").content.decode()
    )


def test_the_table_tells_the_same(cast, day):
    seen = plan.picture(cast["admin"], now=NOW)
    rows = plan.table(seen)
    assert len(rows) == len(seen.pieces) == len(feed_of(cast["admin"])["bars"])
    assert [r.state for r in rows[:3]] == ["runs", "runs", "planned"]
    text = text_of(client_of(cast["admin"]).get("/plan?view=table"))
    assert "tern/fold" in text
    assert "preempted" in text


def test_the_feed_is_not_sent_again_unless_it_changed(cast):
    client = client_of(cast["admin"])
    etag = client.get("/plan.json").headers["ETag"]
    assert client.get("/plan.json", headers={"If-None-Match": etag}).status_code == 304


def test_htmx_gets_the_cards_beside_the_grid(cast):
    part = client_of(cast["admin"]).get("/plan", headers={"HX-Request": "true"})
    assert "This cycle" in part.content.decode()
    assert "<html" not in part.content.decode()


def test_twice_the_runs_take_as_many_queries(cast, day):
    client = client_of(cast["admin"])
    queries(client, "/plan")
    few = queries(client, "/plan"), queries(client, "/plan.json")
    for n in range(10):
        job = make.make_job(day.place.tern, state="completed", gpus=1)
        node = day.place.nodes[0]
        make.make_run(job, {node: 1}, started_at=T0 - HOUR, ended_at=T0 - HOUR * n / 20)
    assert (queries(client, "/plan"), queries(client, "/plan.json")) == few
