"""The level fair share over time: each point is what the allocator would have compared then."""

from copy import deepcopy
from datetime import datetime
from typing import Any

import pytest
from django.contrib.auth.models import User

from allocator.pages import fair_history, fairness
from budgets import shares
from budgets.access import standing
from tests import factories as make
from tests.factories import HOUR, T0
from tests.pages_world import World, at, client_of, closed, granted, queries, ran, text_of

NOW = T0 + 60 * HOUR
PETREL, AUK = "orlo/science/petrel", "orlo/science/auk"


@pytest.fixture(scope="module")
def made(module_rows: None) -> tuple[World, dict[str, User]]:
    """Petrel and auk take turns, and petrel's share falls after 40 hours."""
    tree = make.make_tree()
    world = granted(tree)
    ran(world, PETREL, hours=5)
    ran(world, AUK, hours=3, node=1, since=T0 + HOUR)
    ran(world, AUK, hours=20, since=T0 + 30 * HOUR)
    ran(world, PETREL, hours=2, node=1, since=T0 + 45 * HOUR)
    fewer = {tree[PETREL]: 30_000, tree[AUK]: 50_000}
    make.make_shares(tree["orlo/science"], fewer, at=T0 + 40 * HOUR)
    closed(NOW)
    return world, make.make_cast(tree)


@pytest.fixture
def world(made: tuple[World, dict[str, User]], db: None) -> World:
    return deepcopy(made[0])


@pytest.fixture
def cast(made: tuple[World, dict[str, User]], db: None) -> dict[str, User]:
    return deepcopy(made[1])


def lines(cast: Any, name: str = "admin", path: str = PETREL) -> dict[str, dict[datetime, Any]]:
    chart = fair_history.chart(cast[name], path=path, now=NOW)
    assert chart is not None
    return {
        line["name"]: {datetime.fromisoformat(at_): level for at_, level in line["points"]}
        for line in chart["lines"]
    }


def compared(cast: Any, world: World, when: datetime) -> dict[str, float | None]:
    """The levels that the page's table tells at an instant."""
    found = fairness.of_budget(
        budget=world.tree[PETREL],
        tree=shares.tree(at=when),
        held=standing(cast["admin"]),
        now=when,
    )
    assert found is not None
    return {
        place.budget.name: None if place.level is None else float(place.level)
        for place in found.places
        if place.budget
    }


def test_each_point_is_what_was_compared_then(cast, world):
    found = lines(cast)
    assert set(found) == {"Petrel", "Auk"}
    assert list(found["Petrel"]) == [
        *(T0 + 24 * HOUR * day for day in range(-11, 2)),
        *(T0 + HOUR * hour for hour in range(36, 61)),
    ]
    assert {level for line in found.values() for at_, level in line.items() if at_ <= T0} == {None}
    for when in (one for one in found["Petrel"] if one > T0):
        told = compared(cast, world, when)
        for name, line in found.items():
            assert line[when] == (told[name] and pytest.approx(told[name], abs=0.006)), when
    assert found["Petrel"][T0 + 24 * HOUR] is not None


def test_a_change_of_shares_moves_the_levels_from_its_instant_on(cast, world):
    petrel = lines(cast)["Petrel"]
    assert petrel[T0 + 39 * HOUR] > petrel[T0 + 40 * HOUR]


def test_older_use_counts_less_with_a_half_life(cast, world, settings):
    plain = lines(cast)["Auk"]
    settings.USAGE_HALF_LIFE_HOURS = 6
    decayed = lines(cast)["Auk"]
    assert decayed[T0 + 48 * HOUR] < plain[T0 + 48 * HOUR]  # auk's use is the newer
    told = compared(cast, world, T0 + 48 * HOUR)
    assert decayed[T0 + 48 * HOUR] == pytest.approx(told["Auk"], abs=0.006)


def test_siblings_that_may_not_be_seen_count_and_stay_unnamed(cast, world):
    mine = lines(cast, "member")
    assert set(mine) == {"Petrel"}
    assert mine["Petrel"] == lines(cast)["Petrel"]


def test_a_program_is_compared_with_programs_by_all_below_it(cast, world):
    found = lines(cast, path="orlo/science")
    assert found["Science"][NOW] is not None
    assert found["Vision"][NOW] is None


def test_a_budget_without_siblings_has_no_chart(cast, world, monkeypatch):
    at(monkeypatch, NOW)
    assert fair_history.chart(cast["admin"], path="orlo", now=NOW) is None
    assert client_of(cast["admin"]).get("/budgets/orlo/levels.json").status_code == 404


def test_lost_runs_are_marked_at_their_level_and_lead_to_their_jobs(cast, world, monkeypatch):
    at(monkeypatch, NOW)
    job = make.make_job(world.tree[PETREL], name="storm", state="queued")
    lost = T0 + 50 * HOUR
    make.make_run(
        job,
        {world.nodes[0]: 0xFF},
        started_at=lost - HOUR,
        ended_at=lost,
        end_reason="preempted",
        funded=False,
    )
    chart = fair_history.chart(cast["admin"], path=PETREL, now=NOW)
    assert chart is not None
    (mark,) = chart["lost"]
    assert mark == {
        "at": "2026-10-03T02:00:00Z",
        "level": lines(cast)["Petrel"][lost],
        "label": "storm",
        "url": f"/jobs/{job.pk}",
    }
    page = client_of(cast["admin"]).get(f"/budgets/{PETREL}")
    assert "Lost last: storm Sat 3 Oct 02:00" in text_of(page)
    assert f'href="/jobs/{job.pk}"' in page.content.decode()
    later = fair_history.chart(cast["admin"], path=PETREL, now=NOW + 24 * 14 * HOUR)
    assert later is not None
    assert later["lost"] == []


def test_constant_queries(cast, world, monkeypatch):
    at(monkeypatch, NOW)
    client = client_of(cast["admin"])
    before = queries(client, f"/budgets/{PETREL}/levels.json")
    more = {make.make_budget(f"new{n}", parent=world.tree["orlo/science"]): 1_000 for n in range(6)}
    kept = {world.tree[PETREL]: 30_000, world.tree[AUK]: 40_000}
    make.make_shares(world.tree["orlo/science"], kept | more, at=T0 + 41 * HOUR)
    assert queries(client, f"/budgets/{PETREL}/levels.json") == before
