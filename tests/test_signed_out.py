"""A session that ends while somebody works: nothing that was typed is lost."""

import pytest
from django.contrib.sessions.models import Session
from django.test import Client

from tests.pages_world import T0, at, granted

pytestmark = pytest.mark.once
URL = "/budgets/orlo/shares"


@pytest.fixture
def world(cast, tree, monkeypatch, settings):
    settings.REPLAN_AT_ONCE = False
    made = granted(tree)
    at(monkeypatch, T0)
    cast["admin"].set_password("secret")
    cast["admin"].save()
    return made


@pytest.mark.django_db
def test_a_part_of_a_page_is_refused_rather_than_replaced_by_a_form():
    answer = Client().get("/jobs", HTTP_HX_REQUEST="true")
    assert (answer.status_code, answer["HX-Trigger"]) == (401, "signed-out")
    assert answer.content == b""


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("told", "leads"),
    [
        ("http://testserver/jobs/5?tab=runs", "%2Fjobs%2F5%3Ftab%3Druns"),
        ("http://elsewhere.org/jobs/5", "%2F"),
        ("", "%2F"),
    ],
)
def test_signing_in_leads_to_the_page_that_a_form_stood_on(told, leads):
    answer = Client().post("/jobs/5/cancel", HTTP_REFERER=told)
    assert (answer.status_code, answer["Location"]) == (302, f"/sign-in?next={leads}")


def sign_in(page, cast):
    page.fill("#id_username", cast["admin"].username)
    page.fill("#id_password", "secret")
    page.get_by_role("button", name="Sign in", exact=True).click()


@pytest.mark.browser
def test_what_was_sent_too_late_is_back_after_signing_in(browser_page, cast, world):
    page = browser_page(cast["admin"], URL)
    page.fill("[data-share=science]", "55")
    page.wait_for_selector("#below-science:has-text('30.00 → 27.50')")
    page.fill("#id_reason", "Storm season")
    Session.objects.all().delete()
    page.click("button[value=approve]:visible")
    page.wait_for_url("**/sign-in?next=*")
    sign_in(page, cast)
    page.wait_for_url(f"**{URL}")
    page.get_by_text("What you had typed is back").wait_for()
    assert page.input_value("#id_reason") == "Storm season"
    assert page.inner_text("[data-delta=science]") == "−5.000"
    page.click("button[value=approve]:visible")
    page.wait_for_selector(".al-msgs:not([hidden])")
    page.goto(page.url)
    assert not page.get_by_text("What you had typed is back").is_visible()


@pytest.mark.browser
def test_nothing_comes_back_for_somebody_else(browser_page, cast, world):
    page = browser_page(cast["admin"], URL)
    page.fill("#id_reason", "between us")
    Session.objects.all().delete()
    page.click("button[value=propose]:visible")
    page.wait_for_url("**/sign-in?next=*")
    other = cast["owner"] if "owner" in cast else cast["manager"]
    other.is_superuser = True
    other.set_password("secret")
    other.save()
    page.fill("#id_username", other.username)
    page.fill("#id_password", "secret")
    page.get_by_role("button", name="Sign in", exact=True).click()
    page.wait_for_url(f"**{URL}")
    page.wait_for_load_state("networkidle")
    assert page.input_value("#id_reason") == ""
