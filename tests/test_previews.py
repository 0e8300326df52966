"""A change of shares before it is approved: one computation for the API and the page."""

from datetime import timedelta
from fractions import Fraction
from typing import Any

import pytest

from allocator.pages.effects import effects
from budgets.models import ChangeSet
from budgets.shares import Vector
from ledger import reports
from ledger import services as ledger
from ledger.models import Entry
from tests import factories as make
from tests.ledger_world import CREDIT
from tests.pages_world import T0, World, at, client_of, closed, granted, ran, text_of
from tests.test_docs_budgets import rows

NOW = T0 + timedelta(hours=11)
END = T0 + timedelta(hours=12)
URL = "/api/v1/budgets/orlo/change-sets/preview/"


@pytest.fixture
def world(cast: Any, tree: Any, monkeypatch: pytest.MonkeyPatch, settings: Any) -> World:
    """Make twelve hours of 16 GPUs, of which eleven are over; tern held eight for nine."""
    settings.REPLAN_AT_ONCE = False
    world = granted(tree, ends_at=END)
    ran(world, "orlo/vision/tern", hours=9)
    closed(NOW)
    at(monkeypatch, NOW)
    monkeypatch.setattr("config.clock.now", lambda: NOW)
    return world


def asked(api_of: Any, science: int, vision: int, **more: Any) -> dict[str, Any]:
    shares = {"science": science, "vision": vision}
    answer = api_of("admin").post(URL, {"shares": shares, **more})
    assert answer.status_code == 200, answer.content
    body: dict[str, Any] = answer.json()
    return body


def rows_of(body: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {row["path"]: row for row in body["rows"]}


def test_entitlements_are_those_of_the_rest_of_the_period(api_of: Any, world: World) -> None:
    """An hour of 16 GPUs is left: 57,600 GPU-seconds, 60 % of them and then 70 %."""
    body = asked(api_of, 70_000, 30_000)
    assert (body["period_ends_at"], body["effective_at"]) == (
        "2026-10-01T12:00:00Z",
        "2026-10-01T11:00:00Z",
    )
    found = {
        path: (row["entitled_before_gpu_seconds"], row["entitled_gpu_seconds"])
        for path, row in rows_of(body).items()
    }
    assert found == {
        "orlo/science": (34_560, 40_320),
        "orlo/science/auk": (17_280, 20_160),
        "orlo/science/petrel": (17_280, 20_160),
        "orlo/vision": (23_040, 17_280),
        "orlo/vision/tern": (23_040, 17_280),
    }
    science = rows_of(body)["orlo/science"]
    assert science["entitled_mgpus"] == 40_320_000
    assert science["change_mgpus"] == 5_760_000
    assert (science["effective_before_thousandths"], science["effective_thousandths"]) == (
        60_000,
        70_000,
    )


def test_it_says_who_gains_who_loses_and_who_falls_under_what_it_burned(
    api_of: Any, world: World
) -> None:
    """tern was granted 76.8 GPU-hours of 192 and burned 72; without the last 6.4 it has 70.4."""
    body = asked(api_of, 100_000, 0)
    assert body["gains"] == ["orlo/science", "orlo/science/petrel", "orlo/science/auk"]
    assert body["loses"] == ["orlo/vision", "orlo/vision/tern"]
    assert body["under_burned"] == ["orlo/vision", "orlo/vision/tern"]
    tern = rows_of(body)["orlo/vision/tern"]
    assert tern["burned_mgpus"] == 72 * 3_600_000
    assert tern["under_burned_mgpus"] == int(1.6 * 3_600_000)
    assert tern["kept_mgpus"] == int(1.6 * 3_600_000)
    assert tern["change_mgpus"] == -int(4.8 * 3_600_000)
    assert tern["spendable_mgpus"] == 0
    assert asked(api_of, 65_000, 35_000)["under_burned"] == []


def test_what_is_only_set_aside_is_kept_but_not_burned(api_of: Any, world: World) -> None:
    """4.8 GPU-hours are free and 4 of them are held: losing 3.2 cuts into the hold alone."""
    job = make.make_job(world.tree["orlo/vision/tern"])
    ledger.place_hold(job=job, amount_mgpus=4 * 3_600_000, now=NOW)
    tern = rows_of(asked(api_of, 80_000, 20_000))["orlo/vision/tern"]
    assert tern["kept_mgpus"] == int(2.4 * 3_600_000)
    assert tern["under_burned_mgpus"] == 0


def test_page_and_api_show_one_computation(api_of: Any, cast: Any, world: World) -> None:
    tree = world.tree
    vector: Vector = {tree["orlo/science"].pk: {None: 100_000}, tree["orlo/vision"].pk: {None: 0}}
    shown = effects(parent=tree["orlo"], vector=vector, period=world.period, at=NOW, now=NOW)
    rows = rows_of(asked(api_of, 100_000, 0))
    assert {one.budget.path: one.change_mgpus for one in shown} == {
        path: row["change_mgpus"] for path, row in rows.items()
    }
    typed = {
        "base_version": "1", "when": "now", "effective_at": "", "do": "preview", "reason": "",
        "share.science": "100", "share.vision": "0",
    }  # fmt: skip
    page = text_of(client_of(cast["admin"]).post("/budgets/orlo/shares/preview", typed))
    assert "Vision keeps 2 cr more than its new share" in page
    assert "It burned 2 cr more than that already" in page
    assert "+6 GPU-hours until 1 Oct" in page


def test_it_writes_nothing_and_approving_writes_what_it_said(api_of: Any, world: World) -> None:
    sets, entries = ChangeSet.objects.count(), Entry.objects.count()
    said = rows_of(asked(api_of, 100_000, 0))
    assert (ChangeSet.objects.count(), Entry.objects.count()) == (sets, entries)
    before = reports.figures(period=world.period, now=NOW)
    body = {"shares": {"science": 100_000, "vision": 0}, "reason": "why", "base_version": 1}
    made = api_of("admin").post("/api/v1/budgets/orlo/change-sets/", body).json()
    assert api_of("admin").post(f"/api/v1/change-sets/{made['id']}/approve/").status_code == 200
    after = reports.figures(period=world.period, now=NOW)
    for path, row in said.items():
        pk = world.tree[path].pk
        assert after[pk].granted_mgpus - before[pk].granted_mgpus == row["change_mgpus"], path


@pytest.mark.parametrize(
    ("body", "says"),
    [
        ({"shares": {"science": 60_000}}, "orlo/vision is missing"),
        ({"shares": {"science": 60_000, "vision": 40_001}}, "0.001 % too much"),
        ({"shares": {"science": 60_000, "none": 1}}, "has no child"),
        ({"shares": {"science": 1, "vision": 1}, "overrides": {"science": {"x": 1}}}, "no pool"),
        ({}, "shares"),
    ],
)
def test_what_could_not_be_proposed_is_refused_in_the_same_words(
    api_of: Any, world: World, body: dict[str, Any], says: str
) -> None:
    answer = api_of("admin").post(URL, body)
    assert answer.status_code == 400
    assert says in answer.json()["detail"]


def test_without_a_period_the_effective_shares_are_told_alone(api_of: Any, tree: Any) -> None:
    body = asked(api_of, 70_000, 30_000)
    assert (body["period"], body["gains"], body["loses"]) == (None, [], [])
    science = rows_of(body)["orlo/science"]
    assert science["effective_thousandths"] == 70_000
    assert science["entitled_gpu_seconds"] is None


def test_a_date_ahead_leaves_less_of_the_period(api_of: Any, world: World) -> None:
    body = asked(api_of, 70_000, 30_000, effective_at="2026-10-01T11:30:00Z")
    assert rows_of(body)["orlo/science"]["entitled_gpu_seconds"] == 20_160


def test_the_page_s_table_is_recomputed(tree: Any, settings: Any) -> None:
    settings.REPLAN_AT_ONCE = False
    world, half = granted(tree, ends_at=END), T0 + timedelta(hours=6)
    job = make.make_job(tree["orlo/vision/tern"], state="completed")
    held = {world.nodes[0]: 0xFF, world.nodes[1]: 0b11}
    make.make_run(job, held, started_at=T0, ended_at=half)
    closed(half)
    queued = make.make_job(tree["orlo/vision/tern"])
    ledger.place_hold(job=queued, amount_mgpus=10 * CREDIT, now=half)
    vector: Vector = {tree["orlo/science"].pk: {None: 100_000}, tree["orlo/vision"].pk: {None: 0}}
    figures = reports.figures(period=world.period, now=half)
    found = {
        one.budget.path: one
        for one in effects(
            parent=tree["orlo"], vector=vector, period=world.period, at=half, now=half
        )
    }
    lines = [row for row in rows("budgets.md", 10) if row[0].strip("`") in found]
    assert len(lines) == 2
    for path, *cells in lines:
        one, mine = found[path.strip("`")], figures[tree[path.strip("`")].pk]
        assert one.entitled_before_gpu_seconds is not None
        assert one.entitled_gpu_seconds is not None
        assert one.change_mgpus is not None
        computed = (
            Fraction(one.entitled_before_gpu_seconds, 3600),
            Fraction(one.entitled_gpu_seconds, 3600),
            *(
                Fraction(amount, CREDIT)
                for amount in (
                    mine.granted_mgpus,
                    one.burned_mgpus or 0,
                    mine.held_mgpus,
                    one.change_mgpus - one.kept_mgpus,
                    one.kept_mgpus,
                    one.under_burned_mgpus,
                    mine.granted_mgpus + one.change_mgpus,
                )
            ),
        )
        assert tuple(map(Fraction, cells)) == computed
