"""The sunburst of the tree's page: its geometry, and that it says what the treemap says."""

import re
from math import hypot
from typing import Any

import pytest

from allocator.pages import painting
from allocator.pages import tree as pages
from allocator.pages.sunburst import CENTRE, HOLE, OUTER, Band, _name_at
from budgets.models import WHOLE
from tests import factories as make
from tests.factories import T0
from tests.pages_world import HOUR, World, at, client_of, closed, granted, ran, text_of

NOW = T0 + 2 * HOUR


def points(path: str) -> list[tuple[float, float]]:
    """Where the pen stands in a path of M, A, L and Z."""
    found = re.findall(r"[MAL]((?:-?[\d.]+ ?)+)", path)
    return [(x, y) for *_, x, y in (tuple(map(float, one.split())) for one in found)]


def radii(path: str) -> set[float]:
    return {round(hypot(x - CENTRE, y - CENTRE), 0) for x, y in points(path)}


@pytest.mark.parametrize(("start", "end"), [(0.0, 0.25), (0.1, 0.9), (0.7, 0.71)])
def test_a_band_lies_between_its_radii(start, end):
    band = Band(50, 100, start, end)
    assert radii(band.path()) == {50, 100}
    assert radii(band.up_to(0.5).path()) == {50, 75}
    assert radii(band.up_to(0.5).edge()) == {75}
    assert (" 0 1 1 " in band.path()) == (end - start > 0.5)


def test_a_quarter_begins_at_the_top_and_goes_clockwise():
    first, second, third, last = points(Band(50, 100, 0.0, 0.25).path())
    assert first == (CENTRE, CENTRE - 100)
    assert second == (CENTRE + 100, CENTRE)
    assert third == (CENTRE + 50, CENTRE)
    assert last == (CENTRE, CENTRE - 50)


def test_a_whole_ring_is_drawn_in_two_halves():
    assert Band(50, 100, 0.0, 1.0).path().count("Z") == 2


@pytest.mark.parametrize("middle", [n / 24 for n in range(24)])
def test_a_name_stands_upright_and_in_its_band(middle):
    at_ = _name_at(Band(70, 140, middle - 0.08, middle + 0.08), 40)
    x, y, tilt = map(float, re.findall(r"-?[\d.]+", at_))
    assert -90 <= tilt <= 90
    assert hypot(x - CENTRE, y - CENTRE) == pytest.approx(105, abs=0.2)


def test_a_name_without_room_is_left_out():
    assert _name_at(Band(70, 140, 0.0, 0.01), 40) == ""
    assert _name_at(Band(70, 80, 0.0, 0.01), 40) == ""


# --- On the page ----------------------------------------------------------------------------------


@pytest.fixture
def world(tree: Any) -> World:
    world = granted(tree)
    ran(world, "orlo/science/petrel")
    closed(NOW)
    return world


def shown(cast: Any, **asked: str) -> pages.Page:
    return pages.page(cast["admin"], now=NOW, **asked)


def test_every_budget_below_the_top_has_one_sector_and_the_top_the_middle(cast, world):
    page = shown(cast)
    budgets = {line.budget.path for line in page.lines if not line.is_reserve} - {"orlo"}
    named = [one.line.budget.path for one in page.rings.sectors if not one.line.is_reserve]
    assert sorted(named) == sorted(budgets)
    assert page.rings.top is not None
    assert page.rings.top.budget.path == "orlo"
    assert page.rings.top_part == page.rings.top.burn.settled_part


def test_levels_are_rings_and_a_child_lies_over_its_parent(cast, world):
    by_path = {one.line.budget.path: one for one in shown(cast).rings.sectors}
    thick = (OUTER - HOLE) / 2
    assert max(radii(by_path["orlo/science"].path)) == round(HOLE + thick)
    assert max(radii(by_path["orlo/science/petrel"].path)) == round(OUTER)


def test_it_is_filled_as_far_as_the_treemap(cast, world):
    page = shown(cast)
    petrel = next(t for t in page.tiles if t.line.budget.path == "orlo/science/petrel")
    sector = next(s for s in page.rings.sectors if s.line == petrel.line)
    assert petrel.part == sector.part == petrel.line.burn.settled_part > 0
    low, high = min(radii(sector.path)), max(radii(sector.path))
    filled = float(petrel.fill_height) / float(petrel.height)
    assert max(radii(sector.filled)) == pytest.approx(low + (high - low) * filled, abs=1.5)
    assert (
        shown(cast, fill="anything").fill == page.fill == painting.Filling("settled", page.elapsed)
    )


def test_both_may_be_filled_with_what_was_delivered(cast, world):
    page = shown(cast, fill="delivered")
    petrel = next(s for s in page.rings.sectors if s.line.budget.path == "orlo/science/petrel")
    assert petrel.part == petrel.line.burn.delivered_part
    assert page.fill.mark == 95_000


def test_a_budget_that_used_more_than_it_has_fills_its_sector_and_no_more(cast, world):
    line = next(one for one in shown(cast).lines if one.burn)
    assert 0 <= painting.Filling("settled", None).drawn(line) <= 1
    assert painting.Filling("settled", WHOLE).mark == WHOLE


def test_each_sector_is_a_link_with_its_figures(cast, world, monkeypatch):
    at(monkeypatch, NOW)
    html = client_of(cast["admin"]).get("/budgets").content.decode()
    part = html[html.index("Sunburst of entitlement") :]
    label = re.search(r'href="/budgets/orlo/science/petrel" aria-label="([^"]+)"', part)
    assert label
    assert re.fullmatch(r"Petrel [\d.]+ % effective share, [\d.]+ % settled", label[1])
    delivered = text_of(client_of(cast["admin"]).get("/budgets?fill=delivered"))
    assert "delivered of owed in the last 7 days. Dashed line: 95 %." in delivered


def test_one_budget_alone_compares_with_nothing(cast, world, monkeypatch):
    at(monkeypatch, NOW)
    assert "Sunburst" not in text_of(client_of(cast["member"]).get("/budgets"))
    assert pages.page(cast["member"], now=NOW).rings.sectors == []


def test_unfunded_siblings_have_no_angle(cast, world):
    make.make_shares(world.tree["orlo/science"], dict.fromkeys(
        (world.tree["orlo/science/petrel"], world.tree["orlo/science/auk"]), 0
    ), at=T0 + HOUR)  # fmt: skip
    named = {one.line.budget.path for one in shown(cast).rings.sectors if not one.line.is_reserve}
    assert "orlo/science/petrel" not in named
    assert "orlo/science" in named
