"""One budget's page: facts equal the report's, and siblings stay hidden from who may not see."""

import csv
import io
from datetime import timedelta

import pytest

from allocator.pages import fairness, treemap
from allocator.pages.treemap import Box
from budgets import services as budgets
from budgets import shares as reads
from budgets.access import standing
from budgets.core.plans import Span, even, stepped
from budgets.models import Budget
from ledger import curves, reports
from ledger import services as ledger
from ledger.instants import from_seconds, to_seconds
from tests import factories as make
from tests.pages_world import HOUR, T0, at, cells, client_of, granted, queries, ran, text_of

pytestmark = pytest.mark.once

NOW = T0 + timedelta(days=10)
CREDIT = 3_600_000
PETREL = "/budgets/orlo/science/petrel"


@pytest.fixture
def world(cast, tree, monkeypatch):
    world = granted(tree)
    ran(world, "orlo/science/petrel", hours=30, since=T0 + timedelta(days=9))
    ran(world, "orlo/science/auk", hours=10, node=1, since=T0 + timedelta(days=9))
    return world


@pytest.fixture
def played(world, monkeypatch):
    """The ten days, charged, and the pages' clock at their end."""
    since = T0 + timedelta(days=9)
    end = since
    while end < NOW:
        start, end = end, end + make.TIMESTEP
        ledger.close_timestep(start=start, end=end, parked={}, now=end)
    at(monkeypatch, NOW)
    return world


@pytest.mark.parametrize(
    ("who", "path", "status"),
    [
        ("admin", "orlo", 200), ("admin", "orlo/science/auk", 200), ("manager", "orlo", 404),
        ("manager", "orlo/science", 200), ("member", "orlo/science/petrel", 200),
        ("member", "orlo/science", 404), ("member", "orlo/science/auk", 404),
        ("viewer", "orlo/science/petrel", 200), ("nobody", "orlo", 404),
        ("admin", "orlo/none", 404), ("admin", "orlo/%00", 404),
    ],
)  # fmt: skip
def test_a_budget_is_shown_to_those_who_may(cast, world, monkeypatch, who, path, status):
    at(monkeypatch, NOW)
    client = client_of(cast[who])
    for tail in ("", "/burn.json", "/burn.csv"):
        assert client.get(f"/budgets/{path}{tail}").status_code == status


def test_the_facts_are_those_of_the_report(cast, played):
    mine = reports.figures(period=played.period, now=NOW)[played.tree["orlo/science/petrel"].pk]
    page = text_of(client_of(cast["member"]).get(PETREL))
    assert f"Granted {mine.granted_mgpus / CREDIT:,.0f} cr effective share 30.00 %" in page
    assert mine.settled_mgpus == 8 * 24 * CREDIT
    assert "Settled 192 cr" in page
    assert f"Why {mine.spendable_mgpus / CREDIT:,.0f} are spendable" in page
    assert "bound by Petrel itself" in page


def test_days_and_their_split_add_up_to_what_was_settled(cast, played):
    answer = client_of(cast["member"]).get(PETREL)
    assert cells(answer, "Sat 10 Oct")[2:4] == ["192.0", "192.0"]
    assert cells(answer, "Busy")[1:] == ["192.0", "100.0 %"]
    with pytest.raises(AssertionError, match="no row"):
        cells(answer, "Fri 9 Oct")


def test_parked_and_real_time_are_told_apart(cast, world, monkeypatch):
    service = make.make_service(world.tree["orlo/science/auk"])
    make.make_run(service, {world.nodes[1]: 0xF}, started_at=T0, ended_at=T0 + HOUR)
    job = make.make_job(world.tree["orlo/science/auk"], state="completed")
    run = make.make_run(job, {world.nodes[0]: 0xFF}, started_at=T0, ended_at=T0 + HOUR)
    free = make.make_job(world.tree["orlo/science/auk"], state="completed")
    make.make_run(free, {world.nodes[1]: 0xF0}, started_at=T0, ended_at=T0 + HOUR, funded=False)
    half = T0 + make.TIMESTEP
    parked = {(run.pk, T0): 7200}
    ledger.close_timestep(start=T0, end=half, parked=parked, now=half)
    ledger.close_timestep(start=half, end=T0 + HOUR, parked={}, now=T0 + HOUR)
    at(monkeypatch, T0 + 2 * HOUR)
    answer = client_of(cast["root"]).get("/budgets/orlo/science/auk")
    assert cells(answer, "Busy")[1] == "6.0"
    assert cells(answer, "Real time")[1] == "4.0"
    assert cells(answer, "Parked ?")[1] == "2.0"
    assert cells(answer, "Unfunded, free")[1] == "4.0"


def test_siblings_that_may_not_be_seen_stay_unnamed(cast, played):
    page = text_of(client_of(cast["member"]).get(PETREL))
    assert "one other" in page
    assert "Auk" not in page
    assert "Auk" in text_of(client_of(cast["manager"]).get(PETREL))


def test_level_fair_share_spells_out_its_division(cast, played):
    answer = client_of(cast["manager"]).get(PETREL)
    assert cells(answer, "2. Petrel")[1:] == ["50.0 %", "70.6 %", "0.71"]
    assert cells(answer, "1. Auk")[1:] == ["50.0 %", "29.4 %", "1.70"]
    page = text_of(answer)
    assert "50.0 ÷ 70.6 = 0.71." in page
    assert "so its siblings now go first" in page
    assert "Use counts half" not in page


def test_a_half_life_is_told_where_usage_is(cast, played, settings):
    settings.USAGE_HALF_LIFE_HOURS = 36
    page = text_of(client_of(cast["manager"]).get(PETREL))
    assert "Use counts half after 36 hours." in page


def test_siblings_stand_in_the_allocators_order(cast, played):
    tree = reads.tree(at=NOW)
    mine = fairness.of_budget(
        budget=played.tree["orlo/vision"], tree=tree, held=standing(cast["root"]), now=NOW
    )
    assert [place.budget.slug for place in mine.places] == ["vision", "science"]
    assert mine.own.level is None, "vision used nothing, so it goes first"
    assert fairness.of_budget(
        budget=played.tree["orlo"], tree=tree, held=standing(cast["root"]), now=NOW
    ) is None  # fmt: skip


def test_a_programs_page_lists_its_children_and_their_dearest_jobs(cast, played):
    answer = client_of(cast["manager"]).get("/budgets/orlo/science")
    assert cells(answer, "Petrel")[1] == "50.0"
    page = text_of(answer)
    assert page.index("192.0 192.0") < page.index("80.0 80.0"), "the dearest first"
    assert "member of" not in page.split("People")[1].split("Changes")[0]
    assert 'href="/budgets/orlo/science/shares"' in answer.content.decode()


def test_what_is_submitted_and_edited_is_offered_to_those_who_may(cast, played):
    member = client_of(cast["member"]).get(PETREL).content.decode()
    viewer = client_of(cast["viewer"]).get(PETREL).content.decode()
    assert "Submit a job" in member
    assert "Submit a job" not in viewer


def test_the_chart_starts_at_the_grant_and_ends_at_what_is_left(cast, played):
    data = client_of(cast["member"]).get(f"{PETREL}/burn.json").json()
    mine = reports.figures(period=played.period, now=NOW)[played.tree["orlo/science/petrel"].pk]
    assert data["left_mgpus"][0] == ["2026-10-01T00:00:00Z", mine.granted_mgpus]
    left = mine.granted_mgpus - mine.settled_mgpus - mine.in_flight_mgpus
    assert data["left_mgpus"][-1] == ["2026-10-11T00:00:00Z", left]
    assert data["plan_mgpus"][-1] == ["2027-01-01T00:00:00Z", 0]
    assert [data[key] for key in ("from", "to", "now", "zone")] == [
        "2026-10-01T00:00:00Z", "2027-01-01T00:00:00Z", "2026-10-11T00:00:00Z", "UTC",
    ]  # fmt: skip


def test_a_change_of_the_share_is_marked_and_steps_the_lines(cast, played, settings):
    settings.REPLAN_AT_ONCE = False
    client = client_of(cast["manager"])
    client.post(
        "/budgets/orlo/science/shares",
        {"base_version": "1", "when": "now", "reason": "Storms", "do": "approve",
         "share.petrel": "75", "share.auk": "25"},
    )  # fmt: skip
    data = client.get(f"{PETREL}/burn.json").json()
    assert [mark["label"].partition(" ")[2] for mark in data["marks"]] == ["50 → 75"]
    at_now = [amount for when, amount in data["left_mgpus"] if when == "2026-10-11T00:00:00Z"]
    assert len(at_now) == 2
    assert at_now[1] > at_now[0]


def test_a_transfer_is_marked_with_its_amount(cast, played):
    ledger.transfer(
        source=played.tree["orlo/science/auk"],
        target=played.tree["orlo/science/petrel"],
        amount_mgpus=1_500 * CREDIT,
        author=cast["manager"],
        note="Storms",
        key="one",
        now=NOW - HOUR,
    )
    marks = client_of(cast["member"]).get(f"{PETREL}/burn.json").json()["marks"]
    assert marks == [{"at": "2026-10-10T23:00:00Z", "label": "+1,500 cr"}]
    auk = client_of(cast["manager"]).get("/budgets/orlo/science/auk/burn.json").json()["marks"]
    assert [mark["label"] for mark in auk] == ["−1,500 cr"]


def test_the_plan_line_uses_each_grant_up_evenly_to_the_periods_end(played):
    middle = T0 + (make.T1 - T0) / 2
    steps = [curves.Step(T0, 1000), curves.Step(middle, 300)]
    curve = even(start=to_seconds(T0), end=to_seconds(make.T1))
    assert curves.plan(curve=curve, steps=steps) == [
        (T0, 1000), (middle, 500), (middle, 800), (make.T1, 0),
    ]  # fmt: skip
    quarter = middle + (make.T1 - middle) / 2
    assert curves.planned_left(curve=curve, steps=steps, at=quarter) == 400


def test_the_plan_line_bends_with_the_plan_of_the_budget(cast, played):
    petrel = played.tree["orlo/science/petrel"]
    make.make_plan(petrel, played.period, [20, 30, 50])
    data = client_of(cast["member"]).get(f"{PETREL}/burn.json").json()
    (_, given), (november, first), (december, second), (_, last) = data["plan_mgpus"]
    assert (november, december) == ("2026-11-01T00:00:00Z", "2026-12-01T00:00:00Z")
    assert (first, second, last) == (given * 8 // 10, given // 2, 0)


def test_a_grant_after_all_is_planned_counts_as_used():
    curve = stepped([100_000, 0], [Span(0, 100), Span(100, 200)])
    steps = [curves.Step(from_seconds(0), 1000), curves.Step(from_seconds(150), 500)]
    assert curves.planned_left(curve=curve, steps=steps, at=from_seconds(150)) == 0
    assert curves.planned_left(curve=curve, steps=steps[:1], at=from_seconds(25)) == 750


def test_the_burn_report_is_a_file_whose_rows_add_up(cast, played):
    answer = client_of(cast["admin"]).get("/budgets/orlo/burn.csv")
    assert answer["Content-Disposition"] == 'attachment; filename="burn-orlo-2026-10-11.csv"'
    rows = list(csv.DictReader(io.StringIO(answer.content.decode())))
    total = rows[-1]
    assert total["row"] == "total"
    for column in reports.ADDITIVE:
        assert sum(int(row[column]) for row in rows[:-1]) == int(total[column])
    assert int(total["settled_mgpus"]) == (192 + 80) * CREDIT


def test_a_spreadsheet_shows_a_budget_s_name_and_computes_nothing(cast, played):
    Budget.objects.filter(path="orlo/science").update(name="=HYPERLINK(1)")
    answer = client_of(cast["admin"]).get("/budgets/orlo/burn.csv")
    names = [row["name"] for row in csv.DictReader(io.StringIO(answer.content.decode()))]
    assert "'=HYPERLINK(1)" in names
    assert not [name for name in names if name.startswith(("=", "+", "-", "@"))]


def test_htmx_gets_the_figures_alone(cast, played):
    answer = client_of(cast["member"]).get(PETREL, headers={"HX-Request": "true"})
    assert b"<html" not in answer.content
    assert "Settled 192 cr" in text_of(answer)


def test_before_anything_ran_and_without_a_period_the_page_says_so(cast, tree, monkeypatch):
    at(monkeypatch, NOW)
    client = client_of(cast["admin"])
    page = text_of(client.get("/budgets/orlo"))
    assert "No period is running" in page
    assert "No job has been charged here in this period." in page
    part = client.get("/budgets/orlo", headers={"HX-Request": "true"})  # of a page still open
    assert "No period is running." in text_of(part)
    assert client.get("/budgets/orlo/burn.json").status_code == 404
    assert client.get("/budgets/orlo/burn.csv").status_code == 404
    granted(tree)
    page = text_of(client.get(PETREL))
    assert "Nothing has run here in this period." in page
    assert "the larger share goes first" in page


def test_an_archived_budget_keeps_its_page(cast, world, monkeypatch):
    at(monkeypatch, NOW)
    budgets.archive_budget(
        budget=world.tree["orlo/vision/tern"], author=cast["root"], reason="Over", now=NOW
    )
    page = text_of(client_of(cast["admin"]).get("/budgets/orlo/vision/tern"))
    assert "archived" in page


def test_the_number_of_queries_stays_the_same_however_many_children_and_jobs(cast, played):
    science = played.tree["orlo/science"]
    halves = {played.tree[f"orlo/science/{slug}"]: 50_000 for slug in ("petrel", "auk")}
    make.make_shares(science, halves, at=T0 + HOUR)
    client = client_of(cast["admin"])
    before = queries(client, "/budgets/orlo/science")
    more = {make.make_budget(f"new{n}", parent=science): 5_000 for n in range(8)}
    make.make_shares(science, {b: 20_000 for b in halves} | more, at=T0 + 2 * HOUR)
    for child in more:
        make.make_job(child)
        make.make_role(make.make_user(), child)
    assert queries(client, "/budgets/orlo/science") == before


# --- The treemap's geometry ----------------------------------------------------------------------


@pytest.mark.parametrize("weights", [[1], [3, 2, 1], [40, 20, 25, 12, 3], [5] * 9, [7, 0, 1]])
def test_boxes_fill_the_space_in_proportion_and_do_not_overlap(weights):
    space = Box(1, 2, 300, 560)
    boxes = treemap.squarify(weights, space)
    for weight, box in zip(weights, boxes, strict=True):
        assert box.width * box.height == pytest.approx(300 * 560 * weight / sum(weights))
        assert box.x >= 1 - 1e-9
        assert box.y >= 2 - 1e-9
        assert box.x + box.width <= 301 + 1e-6
        assert box.y + box.height <= 562 + 1e-6
    solid = [box for box in boxes if box.width * box.height > 0]
    for n, one in enumerate(solid):
        for other in solid[n + 1 :]:
            apart = (
                one.x + one.width <= other.x + 1e-6
                or other.x + other.width <= one.x + 1e-6
                or one.y + one.height <= other.y + 1e-6
                or other.y + other.height <= one.y + 1e-6
            )
            assert apart


def test_nothing_to_show_has_no_area():
    assert treemap.squarify([0, 0], Box(0, 0, 10, 10)) == [Box(0, 0, 0, 0)] * 2
    assert treemap.squarify([], Box(0, 0, 10, 10)) == []
