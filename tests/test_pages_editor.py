"""The share editor: what is typed is kept, refused with a sentence, compared, put in force."""

import json
import re
from datetime import timedelta

import pytest

from allocator import steering
from allocator.models import AllocatorState
from allocator.pages.effects import effects
from budgets import services as budgets
from budgets import shares as reads
from budgets.models import ChangeSet
from ledger import reports
from ledger.models import Entry
from tests import factories as make
from tests.pages_world import HOUR, T0, at, cells, client_of, closed, granted, queries, ran, text_of

pytestmark = pytest.mark.once

NOW = T0 + timedelta(days=10)
URL = "/budgets/orlo/shares"


@pytest.fixture
def world(cast, tree, monkeypatch, settings):
    settings.REPLAN_AT_ONCE = False
    world = granted(tree)
    at(monkeypatch, NOW)
    return world


def form(**changes):
    fields = {
        "base_version": "1",
        "when": "now",
        "effective_at": "",
        "do": "approve",
        "reason": "Storm season",
        "share.science": "60.000",
        "share.vision": "40.000",
    }
    return fields | {name.replace("__", "."): value for name, value in changes.items()}


@pytest.mark.parametrize(
    ("who", "status"),
    [("root", 200), ("admin", 200), ("manager", 404), ("member", 404), ("nobody", 404)],
)
def test_only_those_who_may_open_the_editor(cast, world, who, status):
    assert client_of(cast[who]).get(URL).status_code == status
    assert client_of(cast[who]).post(URL, form()).status_code in (status, 302)


def test_a_viewer_may_look_and_not_edit(cast, world):
    assert client_of(cast["viewer"]).get("/budgets/orlo/science/petrel").status_code == 200
    assert client_of(cast["viewer"]).get("/budgets/orlo/science/petrel/shares").status_code == 404


def test_new_shares_are_in_force_with_their_grants_and_a_replan(cast, world):
    before = reports.figures(period=world.period, now=NOW)
    answer = client_of(cast["admin"]).post(URL, form(share__science="62.5", share__vision="37,5"))
    assert answer.status_code == 302
    assert answer.url == URL
    science, vision = world.tree["orlo/science"], world.tree["orlo/vision"]
    assert reads.share_of(science, NOW) == 62_500
    assert reads.share_of(vision, NOW) == 37_500
    after = reports.figures(period=world.period, now=NOW)
    rest = (make.T1 - NOW) / (make.T1 - T0)
    moved = after[science.pk].granted_mgpus - before[science.pk].granted_mgpus
    whole = before[world.tree["orlo"].pk].granted_mgpus
    assert moved == pytest.approx(whole * 0.025 * rest, abs=2)
    assert after[vision.pk].granted_mgpus - before[vision.pk].granted_mgpus == -moved
    assert AllocatorState.objects.get().requested == 1


def test_the_preview_shows_what_approving_writes(cast, world):
    ran(world, "orlo/science/petrel", hours=2)
    closed(T0 + 3 * HOUR)
    tree = world.tree
    vector = {tree["orlo/science"].pk: {None: 70_000}, tree["orlo/vision"].pk: {None: 30_000}}
    shown = effects(parent=tree["orlo"], vector=vector, period=world.period, at=NOW, now=NOW)
    client_of(cast["admin"]).post(URL, form(share__science="70", share__vision="30"))
    written = {
        entry.budget_id: entry.amount_mgpus
        for entry in Entry.objects.filter(key__startswith="grant:change:").exclude(amount_mgpus=0)
    }
    assert {one.budget.pk: one.change_mgpus for one in shown if one.change_mgpus} == written
    assert set(written) == {budget.pk for path, budget in tree.items() if path != "orlo"}


def test_a_fall_stops_at_what_is_spent_or_set_aside_and_the_preview_says_so(
    cast, tree, monkeypatch, settings
):
    settings.REPLAN_AT_ONCE = False
    now = T0 + 11 * HOUR
    world = granted(tree, ends_at=T0 + 12 * HOUR)
    ran(world, "orlo/vision/tern", hours=9)
    closed(now)
    monkeypatch.setattr("budgets.views.now", lambda: now)
    client = client_of(cast["root"])
    typed = form(share__science="100", share__vision="0")
    page = text_of(client.post(f"{URL}/preview", typed))
    assert "Vision keeps" in page
    assert "more than its new share" in page
    client.post(URL, typed)
    free = reports.figures(period=world.period, now=now)[tree["orlo/vision"].pk]
    assert free.granted_mgpus == free.settled_mgpus


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"share__science": "60.001"}, "The shares of orlo total 100.001 %, 0.001 % too much."),
        ({"share__science": "60", "share__vision": "50"}, "orlo/vision (50.000 %, was 40.000 %)"),
        ({"share__science": "x"}, "Give a percent from 0 to 100"),
        ({"share__science": "-1"}, "Give a percent from 0 to 100"),
        ({"share__science": "100.5"}, "Give a percent from 0 to 100"),
        ({"share__science": "1.2345"}, "at most three decimals"),
        ({"share__science": "٣"}, "Give a percent from 0 to 100"),
        ({"share__science": ""}, "Give Science a share; 0 is one."),
        ({"reason": "  "}, "Say why: the reason stands beside the change for good."),
        ({"reason": "x" * 2001}, "at most 2000 characters"),
        ({"reason": "a\0b"}, "Null characters are not allowed"),
        ({"when": "date"}, "Say from when on"),
        ({"when": "date", "effective_at": "2026-10-10T00:00"}, "That has passed"),
        ({"when": "date", "effective_at": "soon"}, "Give a date and a time"),
        ({"when": "date", "effective_at": "9999-12-31T23:59"}, "Give a year from 1970 to 2199."),
        ({"when": "later"}, "not one of the available choices"),
    ],
)
def test_bad_input_is_refused_with_a_sentence_and_nothing_typed_is_lost(
    cast, world, changes, sentence
):
    typed = form(**changes)
    assert client_of(cast["admin"]).post(f"{URL}/preview", typed).status_code == 200
    answer = client_of(cast["admin"]).post(URL, typed)
    assert answer.status_code == 422
    assert sentence in text_of(answer)
    html = answer.content.decode()
    for name in ("share.science", "share.vision"):
        field = re.search(rf'<input[^>]*name="{name}"[^>]*>', html)
        assert field is not None
        value = re.search(r'value="([^"]*)"', field[0])
        assert (value[1] if value else "") == typed[name]
    assert ChangeSet.objects.filter(parent=world.tree["orlo"]).count() == 1


def test_over_100_percent_in_one_pool_names_the_pool_and_the_row(cast, world):
    make.make_pool("b200")
    typed = form(**{"share.vision.b200": "50"})
    answer = client_of(cast["admin"]).post(URL, typed)
    assert answer.status_code == 422
    assert "total 110.000 % in b200" in text_of(answer)
    assert "orlo/vision (50.000 %, was 40.000 %) binds" in text_of(answer)
    assert 'value="50"' in answer.content.decode()


def test_shares_in_single_pools_are_written_and_offered_again(cast, world):
    pool = make.make_pool("b200")
    client = client_of(cast["admin"])
    client.post(URL, form(**{"share.science.b200": "30"}))
    vector = reads.vector_of(reads.head(world.tree["orlo"]))
    assert vector[world.tree["orlo/science"].pk] == {None: 60_000, pool.pk: 30_000}
    assert 'value="30.000"' in client.get(URL).content.decode()


def test_a_change_may_take_effect_on_a_date_in_the_zone_of_the_period(cast, world):
    world.period.time_zone = "America/Sao_Paulo"
    world.period.save()
    typed = form(share__science="55", when="date", effective_at="2026-11-27T00:00")
    answer = client_of(cast["admin"]).post(URL, typed, follow=True)
    assert "it takes effect on 27 Nov 00:00" in text_of(answer)
    made = reads.head(world.tree["orlo"])
    assert made.effective_at.isoformat() == "2026-11-27T03:00:00+00:00"
    assert reads.share_of(world.tree["orlo/science"], NOW) == 60_000


def test_looking_at_what_it_would_do_writes_nothing_and_asks_for_no_reason(cast, world):
    typed = form(do="preview", reason="", share__science="50")
    answer = client_of(cast["admin"]).post(URL, typed)
    assert answer.status_code == 200
    assert cells(answer, "Petrel")[1] == "30.00 → 25.00 effective"
    assert ChangeSet.objects.filter(parent=world.tree["orlo"]).count() == 1


def test_htmx_gets_the_rows_below_each_child(cast, world):
    answer = client_of(cast["admin"]).post(f"{URL}/preview", form(share__science="50"))
    html = answer.content.decode()
    assert '<tbody id="below-science" hx-swap-oob="true">' in html
    assert "30.00 → 25.00" in text_of(answer)
    worth = int(re.search(r'data-worth="h100" value="(\d+)"', html)[1])
    assert worth == 16 * int((make.T1 - NOW).total_seconds()) * 1000


def test_the_editor_hands_its_numbers_to_the_script(cast, world):
    html = client_of(cast["admin"]).get(URL).content.decode()
    block = re.search(r'<script id="shares" type="application/json">(.*?)</script>', html)
    data = json.loads(block[1])
    assert data["rows"][0] == {
        "slug": "science", "name": "Science", "share": 60_000, "overrides": {},
    }  # fmt: skip
    assert data["pools"][0]["entitled_mgpus"] == 16_000 * int((make.T1 - NOW).total_seconds())


def test_a_budget_without_children_says_that_there_is_nothing_to_share(cast, world):
    answer = client_of(cast["admin"]).get("/budgets/orlo/science/petrel/shares")
    assert answer.status_code == 200
    assert "There are no shares here yet" in text_of(answer)


# --- Proposals -----------------------------------------------------------------------------------


@pytest.fixture
def proposer(cast, tree):
    """A member of a program: may propose how it is divided, not approve it."""
    user = make.make_user("proposer")
    make.make_role(user, tree["orlo/science"], "member")
    return user


PROPOSED = {
    "base_version": "1", "when": "now", "reason": "Auk is done", "do": "propose",
    "share.petrel": "80", "share.auk": "20",
}  # fmt: skip


def test_a_member_proposes_and_the_manager_decides(cast, world, proposer):
    url = "/budgets/orlo/science/shares"
    assert "Submit for approval" in text_of(client_of(proposer).get(url))
    client_of(proposer).post(url, PROPOSED)
    made = ChangeSet.objects.get(status="proposed")
    assert reads.share_of(world.tree["orlo/science/petrel"], NOW) == 50_000
    assert "Approve" not in text_of(client_of(proposer).get(url))
    assert client_of(proposer).post(f"/change-sets/{made.pk}/approve").status_code == 404
    manager = client_of(cast["manager"])
    assert "Approve" in text_of(manager.get(url))
    looked_at = manager.get(url, {"set": made.pk}).content.decode()
    assert 'value="80.000"' in looked_at
    answer = manager.post(f"/change-sets/{made.pk}/approve", follow=True)
    assert "is in force, with the grants it moves" in text_of(answer)
    assert reads.share_of(world.tree["orlo/science/petrel"], NOW) == 80_000
    assert Entry.objects.filter(key__startswith=f"grant:change:{made.pk}:").exists()


def test_a_member_who_asks_to_approve_only_proposes(cast, world, proposer):
    client_of(proposer).post("/budgets/orlo/science/shares", PROPOSED | {"do": "approve"})
    assert ChangeSet.objects.filter(status="proposed").count() == 1


def test_a_proposal_is_declined_once(cast, world, proposer):
    client_of(proposer).post("/budgets/orlo/science/shares", PROPOSED)
    made = ChangeSet.objects.get(status="proposed")
    manager = client_of(cast["manager"])
    answer = manager.post(f"/change-sets/{made.pk}/decline", follow=True)
    assert "is declined" in text_of(answer)
    again = manager.post(f"/change-sets/{made.pk}/approve", follow=True)
    assert "This change set is declined: write a new one." in text_of(again)
    assert reads.share_of(world.tree["orlo/science/petrel"], NOW) == 50_000


@pytest.mark.parametrize("who", ["member", "stranger", "nobody"])
def test_nobody_decides_on_what_is_not_theirs(cast, world, proposer, who):
    client_of(proposer).post("/budgets/orlo/science/shares", PROPOSED)
    made = ChangeSet.objects.get(status="proposed")
    assert client_of(cast[who]).post(f"/change-sets/{made.pk}/approve").status_code == 404
    assert client_of(cast["manager"]).get(f"/change-sets/{made.pk}/approve").status_code == 405


# --- Two at once ---------------------------------------------------------------------------------


def test_a_stale_base_shows_both_versions_and_keeps_what_was_typed(cast, world):
    tree = world.tree
    make.make_budget("lab", parent=tree["orlo"])
    steering.change_shares(
        parent=tree["orlo"],
        shares={tree["orlo/science"]: 55_000, tree["orlo/vision"]: 40_000},
        reason="Science waits", author=cast["root"], base_version=1,
        approve_at_once=True, now=NOW,
    )  # fmt: skip
    client = client_of(cast["admin"])
    typed = form(share__vision="39", share__science="60", reason="Mine")
    answer = client.post(URL, typed)
    assert answer.status_code == 409
    page = text_of(answer)
    assert "Yours is based on version 1, in force is version 2" in page
    assert cells(answer, "Science") == [
        *("Science", "60.000", "55.000 −5.0", "60.000 same", "55.000")
    ]
    assert cells(answer, "Vision") == [
        *("Vision", "40.000", "40.000 same", "39.000 −1.0", "39.000")
    ]
    assert cells(answer, "Total")[1:] == ["100.000", "95.000", "99.000", "94.000"]
    assert cells(answer, "Reserve")[1:] == ["0.000", "5.000", "1.000", "6.000"]
    assert "“Science waits”" in page
    assert "“Mine”" in page
    assert reads.version(tree["orlo"]) == 2
    # Rows that only one changed are chosen beforehand: theirs of Science, mine of Vision.
    html = answer.content.decode()
    hidden = dict(re.findall(r'<input type="hidden" name="([^"]+)" value="([^"]*)"', html))
    chosen = dict(re.findall(r'name="(pick\.[^"]+)" value="(\w+)" checked', html))
    assert chosen == {"pick.science": "theirs", "pick.vision": "mine"}
    merged = client.post(URL, hidden | chosen)
    assert merged.status_code == 200
    assert 'value="55.000"' in merged.content.decode()
    assert 'value="39"' in merged.content.decode()
    assert "Mine" in text_of(merged)
    assert reads.version(tree["orlo"]) == 2, "nothing is written before it is put in force"
    done = client.post(
        URL, form(base_version="2", share__science="55", share__vision="39", reason="Mine")
    )
    assert done.status_code == 302
    assert reads.version(tree["orlo"]) == 3


def test_a_child_that_came_or_went_meanwhile_is_told(cast, world):
    tree = world.tree
    budgets.create_budget(
        parent=tree["orlo"], slug="lab", name="Lab", share=0, author=cast["root"],
        reason="New", now=NOW,
    )  # fmt: skip
    budgets.archive_budget(budget=tree["orlo/vision"], author=cast["root"], reason="Over", now=NOW)
    answer = client_of(cast["admin"]).post(URL, form())
    assert answer.status_code == 409
    assert "vision is not here any more" in text_of(answer)
    assert cells(answer, "Lab") == ["Lab", "–", "0.000 ±0.0", "0.000 ±0.0", "0.000"]


def test_a_base_that_is_no_number_is_a_stale_base(cast, world):
    assert client_of(cast["admin"]).post(URL, form(base_version="x")).status_code == 409


# --- One function for pages and API --------------------------------------------------------------


def test_a_refused_change_leaves_no_draft_behind(cast, world):
    tree = world.tree
    with pytest.raises(budgets.Refused):
        steering.change_shares(
            parent=tree["orlo"], shares={tree["orlo/science"]: 1}, reason="x",
            author=cast["root"], base_version=1, approve_at_once=True, now=NOW,
        )  # fmt: skip
    assert ChangeSet.objects.filter(parent=tree["orlo"]).count() == 1
    assert not AllocatorState.objects.filter(requested__gt=0).exists()


def test_the_number_of_queries_stays_the_same_however_many_children(cast, world):
    science = world.tree["orlo/science"]
    halves = {world.tree[f"orlo/science/{slug}"]: 50_000 for slug in ("petrel", "auk")}
    make.make_shares(science, halves, at=T0 + HOUR)
    client = client_of(cast["admin"])
    url = "/budgets/orlo/science/shares"
    before = queries(client, url)
    more = {make.make_budget(f"new{n}", parent=science): 5_000 for n in range(8)}
    make.make_shares(science, {b: 20_000 for b in halves} | more, at=T0 + 2 * HOUR)
    assert queries(client, url) == before
