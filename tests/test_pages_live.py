"""What JavaScript does on the overview, jobs and the plan, in a real browser."""

import re
from datetime import timedelta

import pytest

from allocator.models import Alarm
from tests import factories as make
from tests.pages_day import NOW, play, stand_at
from workloads.models import Job

pytestmark = [pytest.mark.browser, pytest.mark.once]

# The tab's visibility as a test wants it.
HIDDEN = "Object.defineProperty(document, 'hidden', {get: () => window.tabIsHidden === true})"


@pytest.fixture
def day(transactional_db, monkeypatch):
    stand_at(monkeypatch, NOW)
    return play()


@pytest.fixture
def member(day):
    user = make.make_user("ines")
    make.make_role(user, day.place.tree["orlo/science"], "manager")
    return user


@pytest.fixture
def tab(browser_page, live_server, member):
    """Return a function that opens an address as Science's manager."""
    return lambda path="/", width=1440: browser_page(member, path, width)


def paths(day):
    job = day.jobs["storm"].pk
    return ["/", "/jobs", "/jobs/new", f"/jobs/{job}", "/plan", "/plan?view=table"]


@pytest.mark.parametrize("width", [1440, 390])
def test_no_page_breaks_the_policy_or_scrolls_sideways(tab, day, live_server, width):
    page = tab(width=width)
    for path in paths(day):
        for theme in ("light", "dark"):
            page.goto(f"{live_server.url}{path}{'&' if '?' in path else '?'}theme={theme}")
            page.wait_for_load_state("networkidle")
            beyond = "document.documentElement.scrollWidth - document.documentElement.clientWidth"
            assert page.evaluate(beyond) <= 0, f"{path} at {width}"
            assert page.locator("html").get_attribute("data-bs-theme") == theme


def test_the_overview_is_asked_again_while_its_tab_is_seen(tab, live_server):
    page = tab()
    page.context.add_init_script(HIDDEN)
    page.clock.install()
    page.goto(live_server.url)
    assert page.get_by_text("mainland has not answered").count() == 0
    Alarm.objects.create(kind="unreachable:mainland", raised_at=NOW, text="timed out")
    page.evaluate("window.tabIsHidden = true")
    page.clock.run_for(25_000)
    assert page.get_by_text("mainland has not answered").count() == 0
    page.evaluate("window.tabIsHidden = false")
    page.clock.run_for(11_000)
    page.get_by_text("mainland has not answered").wait_for()


def test_the_quote_follows_what_is_typed(tab):
    page = tab("/jobs/new?budget=orlo/science/petrel")
    quote = page.locator("#quote")
    assert "Choose a project" in quote.inner_text()
    page.fill("#id_gpus", "8")
    page.fill("#id_expected_duration_s", "2 h")
    quote.get_by_text("Funded: the hold fits").wait_for()
    page.fill("#id_minimum_runtime_s", "0")
    quote.get_by_text("Unfunded by choice").wait_for()


def test_the_form_shows_what_belongs_to_the_kind(tab):
    page = tab("/jobs/new")
    assert page.locator("#id_gpus").is_visible()
    assert not page.locator("#id_profile").is_visible()
    page.select_option("#id_kind", "realtime")
    assert page.locator("#id_profile").is_visible()
    assert not page.locator("#id_gpus").is_visible()


def test_a_double_click_submits_once(tab):
    page = tab("/jobs/new?budget=orlo/science/petrel")
    page.fill("#id_name", "twice")
    page.fill("#id_gpus", "1")
    page.get_by_role("button", name="Submit").dblclick(no_wait_after=True)
    # Not the address: the second click breaks off the first one's navigation.
    page.get_by_text("Submitted. This page follows it to its end.").first.wait_for()
    assert re.search(r"/jobs/\d+$", page.url)
    assert Job.objects.filter(name="twice").count() == 1


def test_a_job_is_cancelled_after_a_question(tab, day):
    flood = day.jobs["flood"]
    page = tab(f"/jobs/{flood.pk}")
    page.get_by_role("button", name="Cancel", exact=True).click()
    page.get_by_role("button", name="Keep it").click()
    assert not page.locator("dialog#cancel").is_visible()
    page.get_by_role("button", name="Cancel", exact=True).click()
    page.get_by_role("button", name="Cancel the job").click()
    page.get_by_text("before it ran; it cost nothing").wait_for()
    assert day.job("flood").state == "cancelled"


def test_the_plan_s_picture_tells_and_opens_jobs_by_key_and_pointer(tab, day):
    storm = day.jobs["storm"]
    page = tab(f"/plan#job={storm.pk}")
    card = page.locator(".plan .hover")
    card.wait_for()
    assert "petrel/storm" in card.inner_text()
    assert "running, protected until 02:30" in card.inner_text()
    picture = page.locator(".plan canvas").first
    picture.focus()
    picture.press("ArrowRight")
    assert "petrel/flood" in card.inner_text()
    assert "planned" in card.inner_text()
    picture.press("ArrowLeft")
    picture.press("Enter")
    page.wait_for_url(re.compile(rf"/jobs/{storm.pk}$"))


def test_the_plan_zooms_in_time_and_out_again(tab):
    page = tab("/plan")
    whole = page.locator("[data-plan-whole]")
    assert not whole.is_visible()
    page.locator(".plan canvas").first.focus()
    page.keyboard.press("+")
    whole.click()
    assert not whole.is_visible()


def test_the_plan_is_replaced_when_it_changes(tab, live_server, monkeypatch):
    page = tab("/plan")
    page.clock.install()
    with page.expect_response("**/plan.json"):  # the first picture, whenever it comes
        page.goto(f"{live_server.url}/plan")
    card = page.locator(".plan .hover")
    later = NOW + timedelta(minutes=5)
    stand_at(monkeypatch, later)
    with page.expect_response("**/plan.json") as answered:
        page.clock.run_for(31_000)
    assert answered.value.json()["now"] == "2026-10-01T02:17:08Z"
    assert card.count() == 1
