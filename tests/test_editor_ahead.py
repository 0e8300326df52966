"""Shares from a date after the running period: what they are worth there is told truly."""

from datetime import timedelta
from typing import Any

import pytest

from allocator.pages.effects import period_of
from ledger import services as ledger
from ledger.models import Entry
from tests import factories as make
from tests.ledger_world import CREDIT
from tests.pages_world import HOUR, T0, World, at, cells, client_of, granted, text_of

pytestmark = pytest.mark.django_db
URL = "/budgets/orlo/shares"
NOW = T0 + timedelta(hours=6)
END = T0 + timedelta(hours=12)  # of the running period
LATER = END + 24 * HOUR
API = "/api/v1/budgets/orlo/change-sets/preview/"


@pytest.fixture
def world(cast: Any, tree: Any, monkeypatch: pytest.MonkeyPatch, settings: Any) -> World:
    """Make twelve hours of 16 GPUs, half of them over, and no period after them."""
    settings.REPLAN_AT_ONCE = False
    world = granted(tree, ends_at=END)
    at(monkeypatch, NOW)
    monkeypatch.setattr("config.clock.now", lambda: NOW)
    return world


def following(world: World, status: str = "draft", *, hours: int = 100, **fields: Any) -> Any:
    """Return a day after the running period, with so many planned GPU-hours."""
    given: dict[str, Any] = {"starts_at": END, "ends_at": LATER} | fields
    capacity = {world.pool: hours * 3600}
    return make.make_period(
        f"next {status} {given['starts_at']:%d %H}", status=status, capacity=capacity, **given
    )


def typed(instant: Any, **changes: str) -> dict[str, str]:
    fields = {
        "base_version": "1", "when": "date", "effective_at": f"{instant:%Y-%m-%dT%H:%M}",
        "do": "preview", "reason": "", "share.science": "70", "share.vision": "30",
    }  # fmt: skip
    return fields | changes


def looked(cast: Any, instant: Any, **changes: str) -> Any:
    answer = client_of(cast["admin"]).post(URL, typed(instant, **changes))
    assert answer.status_code == 200
    return answer


def row_of(page: Any, name: str) -> list[str]:
    """The credits of a child: entitled and by how much its grant moves."""
    return cells(page, name)[4:6]


@pytest.mark.parametrize("status", ["draft", "proposed", "approved"])
def test_after_the_running_period_the_next_one_s_capacity_counts(
    cast: Any, world: World, status: str
) -> None:
    following(world, status)
    page = looked(cast, END)
    assert row_of(page, "Science") == ["70", "+10"]
    assert row_of(page, "Vision") == ["30", "−10"]
    text = text_of(page)
    assert f"Counts in next {status} 01 12 ({status}) from 1 Oct on" in text
    assert "Science gains most: +10 cr" in text
    assert "falls under what it burned" not in text
    assert "Entitled, cr 1 Oct – 2 Oct" in text


def test_where_all_lose_nobody_gains_most(cast: Any, world: World) -> None:
    following(world)
    page = text_of(looked(cast, END, **{"share.science": "50", "share.vision": "40"}))
    assert "Science loses most: −10 cr" in page
    assert "gains most" not in page


def test_of_a_date_inside_it_the_rest_of_it_counts(cast: Any, world: World) -> None:
    following(world)
    page = looked(cast, END + 12 * HOUR)
    assert row_of(page, "Science") == ["35", "+5"]


def test_up_to_its_end_the_running_period_counts(cast: Any, world: World) -> None:
    following(world)
    page = looked(cast, END - HOUR)
    assert row_of(page, "Science") == ["11", "+2"]  # of 16 credits
    assert "Counts in" not in text_of(page)


def test_without_a_later_period_it_is_said_in_words(cast: Any, world: World) -> None:
    page = looked(cast, END)
    assert row_of(page, "Science") == ["–", "–"]
    text = text_of(page)
    assert "No period is there yet on 1 Oct" in text
    assert "No period is running" not in text
    assert " 0 cr" not in text
    assert 'data-worth="h100" value=""' in page.content.decode()
    assert page.context["page"].data["pools"][0]["entitled_mgpus"] is None


def test_while_it_is_typed_the_days_and_what_is_known_are_swapped_in(
    cast: Any, world: World
) -> None:
    client = client_of(cast["admin"])
    none = client.post(f"{URL}/preview", typed(END)).content.decode()
    assert 'id="entitled" hx-swap-oob="true"' in none
    assert "No period is there yet" in none
    following(world)
    some = text_of(client.post(f"{URL}/preview", typed(END)))
    assert "Entitled, cr 1 Oct – 2 Oct" in some


def test_the_surest_period_that_the_date_lies_in_counts(world: World) -> None:
    """Of several: the one that covers it, an approved one first; else the next to begin."""
    far = following(world, "approved", starts_at=LATER, ends_at=LATER + 24 * HOUR)
    assert period_of(at=END, now=NOW) == far, "it comes first, as nothing covers that date"
    draft = following(world, "draft")
    assert period_of(at=END, now=NOW) == draft
    proposed = following(world, "proposed")
    assert period_of(at=END, now=NOW) == proposed
    assert period_of(at=LATER, now=NOW) == far
    assert period_of(at=far.ends_at, now=NOW) is None
    assert period_of(at=END - HOUR, now=NOW) == world.period


def test_without_a_running_period_nothing_counts_at_once(tree: Any) -> None:
    world = World(tree, make.make_pool("h100"), [], None)  # type: ignore[arg-type]
    draft = following(world)
    assert period_of(at=NOW, now=NOW) is None
    assert period_of(at=END, now=NOW) == draft


def test_a_period_that_starts_grants_what_was_shown(cast: Any, world: World) -> None:
    period = following(world, "approved")
    body = typed(END, do="approve", reason="ahead")
    assert client_of(cast["admin"]).post(URL, body).status_code == 302
    ledger.start_period(period=period, at=END)
    science = Entry.objects.get(period=period, budget=world.tree["orlo/science"])
    assert science.amount_mgpus == 70 * CREDIT


def test_the_api_tells_the_same(api_of: Any, world: World) -> None:
    asked = {"shares": {"science": 70_000, "vision": 30_000}, "effective_at": f"{END:%Y-%m-%dT%TZ}"}
    none = api_of("admin").post(API, asked).json()
    assert (none["period"], none["rows"][0]["entitled_gpu_seconds"]) == (None, None)
    period = following(world)
    some = api_of("admin").post(API, asked).json()
    assert (some["period"], some["gains"][0]) == (period.name, "orlo/science")
    science = next(row for row in some["rows"] if row["path"] == "orlo/science")
    assert (science["entitled_mgpus"], science["change_mgpus"]) == (70 * CREDIT, 10 * CREDIT)
    assert (science["kept_mgpus"], science["burned_mgpus"]) == (0, None)
    assert (science["spendable_mgpus"], science["runway_s"]) == (None, None)


@pytest.mark.browser
@pytest.mark.django_db(transaction=True)
def test_the_script_shows_no_credits_where_none_are_known(
    browser_page: Any, cast: Any, world: World
) -> None:
    page = browser_page(cast["admin"], URL)
    page.select_option("#id_when", "date")
    page.fill("#id_effective_at", f"{END:%Y-%m-%dT%H:%M}")
    page.wait_for_selector("#moves:has-text('No period is there yet')")
    page.fill("[data-share=science]", "55")
    assert page.inner_text("[data-entitled=science]") == "–"
    assert page.inner_text("[data-change=science]") == "–"
