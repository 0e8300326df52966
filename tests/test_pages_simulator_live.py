"""What JavaScript does on the simulator's pages and for a draft in the share editor."""

import pytest

from allocator.models import Simulation
from allocator.simulating import asking, running
from tests import factories as make
from tests.factories import T0
from tests.pages_day import NOW, play, stand_at

pytestmark = [pytest.mark.browser, pytest.mark.once]
TRACE = (
    "job_id,submit_time_s,gpus,duration_s,group\n"
    "1,0,4,600,nlp\n2,60,8,90000,vision\n3,400000,4,600,nlp\n"
)


@pytest.fixture
def manager(transactional_db, monkeypatch):
    stand_at(monkeypatch, NOW)
    day = play()
    user = make.make_user("ines")
    make.make_role(user, day.place.tree["orlo/science"], "manager")
    return user


@pytest.fixture
def tab(browser_page, live_server, manager):
    return lambda path, width=1440: browser_page(manager, path, width)


def played(**more):
    asking.ask(**({"now": NOW, "window": (T0, NOW)} | more))
    return running.run_next(clock=lambda: NOW)


def beyond(page):
    return page.evaluate(
        "document.documentElement.scrollWidth - document.documentElement.clientWidth"
    )


def test_no_page_breaks_the_policy_or_scrolls_sideways(tab, manager, live_server):
    row = played(by=manager, policies=["fairshare", "fifo", "backfill"])
    waits = asking.ask(by=manager, now=NOW, window=(T0, NOW))
    page = tab("/simulator")
    for path in ("", f"/{row.pk}", f"/{row.pk}/runs", f"/{waits.pk}"):
        for width in (1440, 390):
            page.set_viewport_size({"width": width, "height": 900})
            page.goto(f"{live_server.url}/simulator{path}?theme=dark")
            page.wait_for_load_state("networkidle")
            assert beyond(page) <= 0, f"{path} at {width}"


def test_the_form_shows_what_belongs_to_the_choice(tab):
    page = tab("/simulator")
    assert page.locator("#id_days").is_visible()
    assert not page.locator("#id_starts_on").is_visible()
    assert not page.locator("#id_file").is_visible()
    page.select_option("#id_days", "")
    assert page.locator("#id_starts_on").is_visible()
    page.select_option("#id_source", "trace")
    assert page.locator("#id_file").is_visible()
    assert not page.locator("#id_days").is_visible()
    assert not page.locator("#id_tree_file").is_visible()
    page.select_option("#id_shares", "file")
    assert page.locator("#id_tree_file").is_visible()


def test_progress_is_followed_to_the_figures(tab, manager):
    row = asking.ask(by=manager, now=NOW, window=(T0, NOW))
    page = tab(f"/simulator/{row.pk}")
    page.get_by_text("waits", exact=True).wait_for()
    Simulation.objects.update(state="running", progress_per_mille=250, simulated_s=3600)
    page.get_by_text("25 % done").wait_for()
    Simulation.objects.update(state="queued")
    running.run_next(clock=lambda: NOW)
    page.get_by_role("heading", name="Measures").wait_for()
    page.locator(".plan canvas").first.wait_for()


def test_days_change_in_all_pictures_without_leaving_the_page(tab, manager):
    more = {"window": None, "trace": TRACE, "equal": True, "nodes": "2x8"}
    row = played(by=manager, policies=["fairshare", "fifo"], **more)
    page = tab(f"/simulator/{row.pk}")
    page.evaluate("window.stays = true")
    with page.expect_response(lambda r: "picture.json?course=1&day=0" in r.url):
        page.locator("[data-days] a").first.click()
    assert page.evaluate("window.stays")
    assert "day=0" in page.url
    current = page.locator("[data-days] a[aria-current]")
    assert [current.nth(n).get_attribute("data-day") for n in range(2)] == ["0", "1"]
    page.keyboard.press("ArrowRight")
    assert "day=1" in page.url
    assert "day=1" in page.get_by_text("As a table").first.get_attribute("href")


def test_the_picture_tells_runs_by_key(tab, manager):
    row = played(by=manager)
    page = tab(f"/simulator/{row.pk}")
    picture = page.locator(".plan canvas").first
    picture.focus()
    page.keyboard.press("ArrowRight")
    card = page.locator(".plan .hover")
    card.wait_for()
    assert "ended, or goes on after these days" in card.inner_text() or "pre" in card.inner_text()


# Whether anything is outlined on the upper canvas of the so-manieth picture.
OUTLINED = """number => {
  const c = document.querySelectorAll('.plan')[number].querySelectorAll('canvas')[1];
  return c.getContext('2d').getImageData(0, 0, c.width, c.height).data.some(v => v);
}"""


def test_a_run_that_is_chosen_is_marked_in_the_picture_beside(tab, manager):
    row = played(by=manager, policies=["fairshare", "fifo"])
    page = tab(f"/simulator/{row.pk}")
    assert [page.evaluate(OUTLINED, n) for n in (0, 1)] == [False, False]
    first = page.locator(".plan").first
    first.locator("canvas").first.focus()
    page.keyboard.press("ArrowRight")
    first.locator(".hover").wait_for()
    assert [page.evaluate(OUTLINED, n) for n in (0, 1)] == [True, True]
    assert not page.locator(".plan").nth(1).locator(".hover").is_visible()
    page.keyboard.press("Escape")
    assert [page.evaluate(OUTLINED, n) for n in (0, 1)] == [False, False]


def test_a_draft_in_the_editor_is_played_in_place(tab, manager):
    page = tab("/budgets/orlo/science/shares")
    page.fill("[data-share=petrel]", "90")
    page.fill("[data-share=auk]", "10")
    page.get_by_role("button", name="Simulate").click()
    page.get_by_text("You may leave this page").wait_for()
    running.run_next(clock=lambda: NOW)
    page.get_by_text("the draft beside shares of today").wait_for()
    assert page.locator("[data-share=petrel]").input_value() == "90"
    assert beyond(page) <= 0
