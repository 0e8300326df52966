"""The whole walk in browsers: plan and approve, submit, wait, start, ask for more, review."""

import re
from datetime import timedelta

import pytest

from allocator import cycle
from budgets import shares
from budgets.models import Request
from tests.factories import HOUR, make_cast
from tests.pages_day import NOW, go_on, play, stand_at
from workloads.models import Job

pytestmark = [pytest.mark.browser, pytest.mark.once, pytest.mark.slow]
PETREL = "orlo/science/petrel"
EDITOR = "/budgets/orlo/science/shares"


@pytest.fixture
def day(transactional_db, monkeypatch, settings):
    settings.REPLAN_AT_ONCE = False
    stand_at(monkeypatch, NOW)
    return play()


@pytest.fixture
def cast(day):
    return make_cast(day.place.tree)


def edit(page, share, reason):
    page.fill("[data-share=petrel]", share)
    page.fill("#id_reason", reason)


def test_from_a_plan_of_shares_to_the_review(browser_page, day, cast, monkeypatch, tmp_path):
    petrel = day.place.petrel

    # A manager plans, sees what it moves, and hands it in; who is above approves it.
    page = browser_page(cast["manager"], EDITOR)
    edit(page, "45", "Storm season")
    page.wait_for_selector("[data-delta=petrel]:has-text('−5.000')")
    page.click("button[value=propose]:visible")
    page.wait_for_selector(".al-msgs:not([hidden])")
    before = shares.share_of(petrel, NOW)
    above = browser_page(cast["admin"], EDITOR)
    assert "Storm season" in above.inner_text("[aria-labelledby=h-b]")
    above.get_by_role("button", name="Approve").click()
    above.wait_for_selector(".al-msgs:not([hidden])")
    assert (before, shares.share_of(petrel, NOW)) == (50_000, 45_000)

    # A researcher submits, reads why it waits, and sees it start.
    page = browser_page(cast["member"], f"/jobs/new?budget={PETREL}")
    page.fill("#id_name", "voyage")
    page.fill("#id_gpus", "16")
    page.fill("#id_expected_duration_s", "2 h")
    page.get_by_text("Funded: the hold fits").wait_for()
    page.get_by_role("button", name="Submit").click()
    page.get_by_text("Submitted. This page follows it to its end.").wait_for()
    job = Job.objects.get(name="voyage")
    cycle.run(at=NOW + timedelta(minutes=1), trigger="test")
    stand_at(monkeypatch, NOW + timedelta(minutes=2))
    page.goto(re.sub(r"\?.*", "", page.url))
    said = page.inner_text("main")
    assert re.search(r"Waits|waits", said)
    assert re.search(r"[Bb]ehind|No block of 16", said)
    go_on(NOW + timedelta(minutes=2), NOW + 12 * HOUR)
    stand_at(monkeypatch, NOW + 12 * HOUR)
    page.goto(page.url)
    job.refresh_from_db()
    assert job.state in (Job.State.RUNNING, Job.State.COMPLETED)
    assert page.get_by_text(job.get_state_display()).first.is_visible()

    # Who needs more asks for it, and finds it in the list.
    page.goto(re.sub(r"/jobs/.*", f"/budgets/{PETREL}/requests", page.url))
    page.fill("[name=amount]", "25")
    page.select_option("[name=unit]", "credits")
    page.fill("[name=reason]", "The storm lasts")
    page.get_by_role("button", name="Ask").click()
    page.wait_for_url(re.compile(r"/requests/\d+$"))
    assert Request.objects.get().reason == "The storm lasts"

    # The review is opened, and taken along.
    address = f"/reviews/{day.place.period.pk}/orlo/science"
    page = browser_page(cast["manager"], address)
    assert "The storm lasts" in page.inner_text("main")
    with page.expect_download() as taken:
        page.locator("a[href$='.pdf']").first.click()
    kept = tmp_path / "review.pdf"
    taken.value.save_as(kept)
    assert kept.read_bytes().startswith(b"%PDF-")


def test_two_managers_collide_and_nothing_is_lost(browser_page, day, cast):
    one, other = (browser_page(cast[who], EDITOR) for who in ("manager", "admin"))
    edit(one, "45", "Storm season")
    edit(other, "40", "Calm season")
    one.click("button[value=approve]:visible")
    one.wait_for_selector(".al-msgs:not([hidden])")
    other.click("button[value=approve]:visible")
    other.get_by_text("Two versions of the same shares").wait_for()
    row = other.inner_text("table.conf tbody tr:has-text('Petrel')")
    assert all(value in row for value in ("50.000", "45.000", "40.000", "both changed"))
    result = other.locator("tr:has-text('Petrel') [data-result]")
    assert result.inner_text() == "40.000"  # both changed it: what was typed is chosen beforehand
    other.locator("input[name='pick.petrel'][value=theirs]").check()
    assert result.inner_text() == "45.000"
    assert other.inner_text("[data-result-sum]") == "95.000"
    other.locator(
        "input[name='pick.petrel'][value=mine], input[name$='petrel'][value=mine]"
    ).check()
    other.get_by_role("button", name=re.compile("Take the result")).click()
    other.wait_for_load_state("networkidle")
    assert other.input_value("#id_reason") == "Calm season"
    other.click("button[value=approve]:visible")
    other.wait_for_selector(".al-msgs:not([hidden])")
    assert shares.share_of(day.place.petrel, NOW) == 40_000
    # The browser tells of every answer that isn't 200.
    assert all("409" in fault for fault in browser_page.faults)
    browser_page.faults.clear()
