"""The page of the tree: its figures are the reports', and nobody sees more than they may."""

from datetime import timedelta

import pytest

from allocator.models import Delivery
from allocator.pages.tree import COLUMNS
from ledger import reports
from tests import factories as make
from tests.pages_world import HOUR, T0, at, cells, client_of, closed, granted, queries, ran, text_of

pytestmark = pytest.mark.once

NOW = T0 + timedelta(days=10)


@pytest.fixture
def world(cast, tree, monkeypatch):
    world = granted(tree)
    ran(world, "orlo/science/petrel", hours=10)
    ran(world, "orlo/vision/tern", hours=10, node=1)
    closed(T0 + 11 * HOUR)
    at(monkeypatch, NOW)
    return world


def test_each_line_has_the_figures_of_the_report(cast, world):
    answer = client_of(cast["admin"]).get("/budgets")
    found = reports.figures(period=world.period, now=NOW)
    for path, share, effective in (
        ("orlo/science", "60.0", "60.00"),
        ("orlo/science/petrel", "50.0", "30.00"),
        ("orlo/vision/tern", "100.0", "40.00"),
    ):
        budget = world.tree[path]
        mine = found[budget.pk]
        row = cells(answer, budget.name)
        assert row[1:3] == [share, effective]
        granted_cr = mine.granted_mgpus / 3_600_000
        assert row[4] == f"{granted_cr:,.0f}"
        assert row[6] == f"{mine.settled_mgpus * 100 / mine.granted_mgpus:.1f}"
        assert row[10] == f"{mine.spendable_mgpus / 3_600_000:,.0f}"


def test_the_page_opens_with_its_answer(cast, world):
    page = text_of(client_of(cast["admin"]).get("/budgets"))
    assert "100.0 % of Orlo is shared, 0.0 % is in reserve." in page
    assert "It has settled 0.5 % of its grant at 10.9 % of" in page
    assert "2026 Q4 (pace 0.04)." in page
    assert "None is ahead of plan." in page


def test_pace_is_red_from_1_10_on_and_counted_as_above_plan(cast, tree, monkeypatch):
    world = granted(tree, ends_at=T0 + timedelta(days=4))
    ran(world, "orlo/science/petrel", hours=20)
    closed(T0 + 20 * HOUR)
    at(monkeypatch, T0 + 20 * HOUR)
    client = client_of(cast["admin"])
    pace = cells(client.get("/budgets"), "Petrel")[7]
    assert float(pace) == pytest.approx(8 / 16 / 0.3, abs=0.01)
    assert f'<span class="bad">{pace}</span>' in client.get("/budgets").content.decode()
    above = client.get("/budgets", {"show": "above"})
    assert "Petrel" in text_of(above)
    assert "Tern" not in text_of(above).split("Spendable, cr")[1].split("settled")[0]
    assert cells(above, "Science"), "what is above it stays, so that the tree stays one"


def test_a_reserve_is_a_row_of_its_own(cast, tree, monkeypatch):
    make.make_shares(
        tree["orlo"], {tree["orlo/science"]: 60_000, tree["orlo/vision"]: 30_000}, at=T0
    )
    world = granted(tree)
    at(monkeypatch, NOW)
    row = cells(client_of(cast["admin"]).get("/budgets"), "Reserve")
    reserve = reports.figures(period=world.period, now=NOW)[tree["orlo"].pk].reserve_mgpus
    assert row[1:3] == ["10.0", "10.00"]
    assert row[4] == f"{reserve / 3_600_000:,.0f}"


def test_people_see_their_subtree_and_nothing_of_other_budgets(cast, world):
    page = text_of(client_of(cast["member"]).get("/budgets"))
    assert "Petrel" in page
    assert not {"Auk", "Science", "Vision", "Tern"} & set(page.split())
    assert "No budget is yours yet" in text_of(client_of(cast["nobody"]).get("/budgets"))


def test_edit_is_offered_to_those_who_may(cast, world):
    assert 'href="/budgets/orlo/science/shares"' in _html(cast["manager"])
    assert 'href="/budgets/orlo/shares"' in _html(cast["admin"])
    assert "/shares" not in _html(cast["viewer"])


def _html(user, url="/budgets"):
    return client_of(user).get(url).content.decode()


@pytest.mark.parametrize("key", [*COLUMNS, "nothing"])
@pytest.mark.parametrize("sign", ["", "-"])
def test_every_column_sorts_siblings_among_themselves(cast, world, key, sign):
    html = _html(cast["admin"], f"/budgets?sort={sign}{key}")
    places = {name: html.index(f">{name}</a>") for name in ("Orlo", "Science", "Petrel", "Auk")}
    assert places["Orlo"] < places["Science"] < min(places["Petrel"], places["Auk"])


def test_sorting_by_share_falls_and_rises(cast, world):
    falling, rising = (_html(cast["admin"], f"/budgets?sort={s}share") for s in ("-", ""))
    assert falling.index(">Science</a>") < falling.index(">Vision</a>")
    assert rising.index(">Vision</a>") < rising.index(">Science</a>")


def test_words_filter_and_keep_what_is_above(cast, world):
    answer = client_of(cast["admin"]).get("/budgets", {"name": "auk"})
    assert cells(answer, "Auk")
    assert cells(answer, "Science")
    with pytest.raises(AssertionError, match="no row"):
        cells(answer, "Vision")
    empty = text_of(client_of(cast["admin"]).get("/budgets", {"name": "zebra"}))
    assert "No budget fits these filters." in empty


def test_a_pool_shows_the_shares_that_hold_in_it(cast, world):
    other = make.make_pool("b200")
    science, vision = world.tree["orlo/science"], world.tree["orlo/vision"]
    make.make_shares(
        world.tree["orlo"],
        {science: 60_000, vision: 40_000},
        overrides={(science, other): 10_000},
        at=T0 + HOUR,
    )
    client = client_of(cast["admin"])
    assert cells(client.get("/budgets"), "Science")[1] == "60.0"
    assert cells(client.get("/budgets", {"pool": "b200"}), "Science")[1] == "10.0"


def test_htmx_gets_the_table_alone_and_nothing_new_twice(cast, world):
    client = client_of(cast["admin"])
    first = client.get("/budgets", headers={"HX-Request": "true"})
    assert first.content.lstrip().startswith(b"<div")
    assert b"<html" not in first.content
    again = client.get("/budgets", headers={"HX-Request": "true", "If-None-Match": first["ETag"]})
    assert again.status_code == 304


def test_without_a_period_the_shares_still_stand(cast, tree):
    page = client_of(cast["admin"]).get("/budgets")
    assert "No period is running" in text_of(page)
    assert cells(page, "Science")[1:3] == ["60.0", "60.00"]


def test_the_number_of_queries_stays_the_same_however_many_budgets(cast, world):
    client = client_of(cast["admin"])
    science = world.tree["orlo/science"]
    halves = {world.tree[f"orlo/science/{slug}"]: 50_000 for slug in ("petrel", "auk")}
    make.make_shares(science, halves, at=T0 + HOUR)
    before = queries(client, "/budgets")
    more = {make.make_budget(f"new{n}", parent=science): 5_000 for n in range(8)}
    old = {world.tree[f"orlo/science/{slug}"]: 20_000 for slug in ("petrel", "auk")}
    make.make_shares(science, old | more, at=T0 + 2 * HOUR)
    for child in more:
        make.make_job(child)
    assert queries(client, "/budgets") == before


def test_delivered_is_each_budgets_own_and_the_whole_is_that_of_its_programs(cast, world):
    for path, owed, got in (
        ("orlo", 900, 900),
        ("orlo/science", 600, 540),
        ("orlo/science/petrel", 300, 300),
        ("orlo/vision", 400, 400),
    ):
        Delivery.objects.create(
            timestep=NOW - HOUR,
            budget=world.tree[path],
            pool=world.pool,
            entitled_gpu_seconds=owed,
            demand_gpu_seconds=owed + 50,
            funded_gpu_seconds=got,
        )
    answer = client_of(cast["admin"]).get("/budgets")
    parts = {name: cells(answer, name)[8] for name in ("Orlo", "Science", "Petrel", "Auk")}
    assert parts == {"Orlo": "94.0", "Science": "90.0", "Petrel": "100.0", "Auk": "–"}
    assert '<span class="bad">90.0</span>' in answer.content.decode()
