"""The share editor and the tree as a browser runs them: totals, edges, folds, and no fault."""

from datetime import timedelta

import pytest

from budgets import shares as reads
from tests.pages_world import T0, at, granted

pytestmark = pytest.mark.once

NOW = T0 + timedelta(days=10)
URL = "/budgets/orlo/shares"


@pytest.fixture
def world(cast, tree, monkeypatch, settings):
    settings.REPLAN_AT_ONCE = False
    world = granted(tree)
    at(monkeypatch, NOW)
    return world


@pytest.mark.browser
def test_totals_change_while_typing_and_over_100_percent_cannot_be_sent(browser_page, cast, world):
    page = browser_page(cast["admin"], URL)
    page.fill("[data-share=science]", "61")
    assert page.inner_text('[data-total=""]') == "101.000 %"
    assert page.inner_text("[data-over]") == (
        "The total is over 100 % by 1.000. Science rose most: it fits with 60.000."
    )
    assert page.is_disabled("button[value=approve]:visible")
    page.fill("[data-share=science]", "55")
    assert page.inner_text("[data-delta=science]") == "−5.000"
    assert page.is_enabled("button[value=approve]:visible")
    # What the server works out comes into the rows below, and agrees with the script.
    page.wait_for_selector("#below-science:has-text('30.00 → 27.50')")
    child = page.inner_text("#below-science tr:has-text('Petrel') td:nth-child(4)")
    assert child.startswith("−")
    assert page.inner_text("[data-change=science]").startswith("−")
    page.fill("#id_reason", "Storm season")
    page.click("button[value=approve]:visible")
    page.wait_for_selector(".al-msgs")
    assert reads.share_of(world.tree["orlo/science"], NOW) == 55_000


@pytest.mark.browser
def test_an_edge_is_dragged_and_moved_by_keys(browser_page, cast, world):
    page = browser_page(cast["admin"], URL)
    edge = page.locator("[data-edge=science]")
    edge.focus()
    page.keyboard.press("ArrowLeft")
    assert page.input_value("[data-share=science]") == "59.900"
    page.keyboard.press("Shift+ArrowLeft")
    assert page.input_value("[data-share=science]") == "58.900"
    box = edge.bounding_box()
    page.mouse.move(box["x"] + 3, box["y"] + 10)
    page.mouse.down()
    page.mouse.move(box["x"] - 97, box["y"] + 10, steps=5)
    page.mouse.up()
    assert float(page.input_value("[data-share=science]")) < 52
    page.click("[data-reset]")
    assert page.input_value("[data-share=science]") == "60.000"


@pytest.mark.browser
@pytest.mark.parametrize("url", ["/budgets", "/budgets/orlo/science", URL, "/search?q=zebra"])
def test_no_page_is_wider_than_a_phone_or_breaks_the_policy(browser_page, cast, world, url):
    page = browser_page(cast["admin"], url, width=390)
    root = "document.documentElement"
    assert page.evaluate(f"{root}.scrollWidth <= {root}.clientWidth")


@pytest.mark.browser
def test_rows_fold_and_words_filter(browser_page, cast, world):
    page = browser_page(cast["admin"], "/budgets")
    page.click("[aria-label='Fold Science']")
    assert not page.is_visible("td >> text=Petrel")
    assert page.is_visible("td >> text=Tern")
    page.fill("[data-filter=tree]", "vis")
    assert page.is_visible("td >> text=Vision")
    page.keyboard.press("Enter")
    page.wait_for_url("**/budgets?name=vis")
    assert page.locator("#tree tbody tr").count() == 3, "Tern is below Vision"
