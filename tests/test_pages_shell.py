"""What is around every page: signing in, the period, the reader's role, search, errors."""

from datetime import timedelta

import pytest
from django.test import Client, override_settings

from allocator.demo import people
from allocator.pages.search import number_in
from budgets.models import Budget
from tests import factories as make
from tests.pages_world import at, client_of, granted, text_of

pytestmark = pytest.mark.once

PAGES = ("/budgets", "/budgets/orlo", "/budgets/orlo/shares", "/search?q=orlo",
         "/budgets/orlo/burn.json", "/budgets/orlo/burn.csv")  # fmt: skip


@pytest.mark.parametrize("url", PAGES)
def test_pages_send_those_who_are_signed_out_to_sign_in(db, url):
    answer = Client().get(url)
    assert answer.status_code == 302
    assert answer.url.startswith("/sign-in?next=")


@pytest.mark.parametrize("url", ["/budgets/orlo/shares/preview", "/change-sets/1/approve"])
def test_what_is_posted_needs_someone_signed_in(db, url):
    answer = Client().post(url)
    assert answer.status_code == 302
    assert answer.url.startswith("/sign-in?next=")


def test_the_demos_accounts_are_offered_where_the_demo_was_loaded(db):
    assert "Demo accounts" not in text_of(Client().get("/sign-in"))
    people.create()
    page = text_of(Client().get("/sign-in"))
    assert "Demo accounts" in page
    assert all(name in page for name in people.SHOWN)
    answer = Client().post("/sign-in", {"username": "marta", "password": people.PASSWORD})
    assert answer.status_code == 302


def test_a_wrong_password_is_answered_with_a_sentence_and_the_name_is_kept(db):
    make.make_user("ada")
    answer = Client().post("/sign-in", {"username": "ada", "password": "wrong"})
    assert answer.status_code == 200
    assert "correct username and password" in text_of(answer)
    assert b'value="ada"' in answer.content


def test_the_shell_names_institute_period_role_and_what_waits(cast, tree, monkeypatch):
    granted(tree)
    at(monkeypatch, make.T0 + timedelta(days=9, hours=1))
    make.make_job(tree["orlo/science/petrel"])
    make.make_job(tree["orlo/vision/tern"])
    page = text_of(client_of(cast["manager"]).get("/budgets"))
    assert "Allotment Orlo" in page
    assert "2026 Q4, day 10 of 92" in page
    assert "manager of Science" in page
    assert "Jobs 1" in page, "of the two that wait, one may be seen"


def test_times_are_told_in_the_zone_of_the_running_period(cast, tree, monkeypatch):
    world = granted(tree)
    world.period.time_zone = "Asia/Tokyo"
    world.period.save()
    at(monkeypatch, make.T0 + timedelta(hours=1))
    page = client_of(cast["admin"]).get("/budgets").content.decode()
    assert 'data-zone="Asia/Tokyo"' in page
    assert ">10:00:00</time>" in page


def test_what_is_not_yours_and_what_is_not_there_look_the_same(cast, tree):
    client = client_of(cast["member"])
    theirs, none = client.get("/budgets/orlo/vision"), client.get("/budgets/orlo/nothing")
    assert theirs.status_code == none.status_code == 404
    assert text_of(theirs) == text_of(none)
    assert "Your budgets: Petrel" in text_of(theirs)
    assert "Live" not in text_of(theirs), "a page that isn't there is not live"


@override_settings(DEBUG=False)
def test_a_page_that_fails_says_so(cast, monkeypatch):
    client = client_of(cast["admin"])
    client.raise_request_exception = False
    monkeypatch.setattr("allocator.pages.tree.page", lambda *a, **k: 1 / 0)
    answer = client.get("/budgets")
    assert answer.status_code == 500
    assert "Something failed on our side" in text_of(answer)


def test_a_form_without_its_token_is_not_sent(cast):
    client = Client(enforce_csrf_checks=True)
    client.force_login(cast["admin"])
    answer = client.post("/budgets/orlo/shares", {"do": "approve"})
    assert answer.status_code == 403
    assert "This form was open for too long" in text_of(answer)


# --- Search --------------------------------------------------------------------------------------


@pytest.mark.parametrize("url", ["/", "/budgets", "/budgets/orlo", "/jobs", "/plan"])
def test_caches_tell_a_page_from_its_part(cast, tree, url):
    """Both have one address: going back to a page would else show the part it refreshed last."""
    client = client_of(cast["admin"])
    page, part = client.get(url), client.get(url, headers={"HX-Request": "true"})
    assert page.content != part.content
    for answer in (page, part):
        assert {"HX-Request", "Cookie"} <= {word.strip() for word in answer["Vary"].split(",")}


def test_a_path_and_a_job_number_lead_straight_to_what_they_name(cast, tree):
    client = client_of(cast["manager"])
    job = make.make_job(tree["orlo/science/petrel"], name="ens-forecast")
    assert client.get("/search", {"q": "orlo/science"}).url == "/budgets/orlo/science"
    assert client.get("/search", {"q": "PETREL"}).url == "/budgets/orlo/science/petrel"
    for words in (str(job.pk), f"#{job.pk}", "ens-fore"):
        assert client.get("/search", {"q": words}).url == f"/jobs/{job.pk}"


def test_search_lists_what_fits_and_finds_nothing_that_may_not_be_seen(cast, tree):
    make.make_nodes(make.make_pool("h100"), 2)
    seen = make.make_job(tree["orlo/science/petrel"], name="hot-1")
    hidden = make.make_job(tree["orlo/vision/tern"], name="hot-2")
    client = client_of(cast["member"])
    page = text_of(client.get("/search", {"q": "h"}))
    assert "hot-1" in page
    assert "h100-n0" in page
    assert "hot-2" not in page
    assert client.get("/search", {"q": str(hidden.pk)}).status_code == 200
    assert client.get("/search", {"q": str(seen.pk)}).status_code == 302
    assert "Nothing of yours fits “tern”" in text_of(client.get("/search", {"q": "tern"}))


@pytest.mark.parametrize(
    "words", ["", " ", "%", "\0", "x" * 5000, "\uff19\uff19", "99999999999", "#", "'"]
)
def test_search_takes_any_words(cast, words):
    answer = client_of(cast["root"]).get("/search", {"q": words})
    assert answer.status_code in (200, 302)


@pytest.mark.parametrize(
    ("words", "number"),
    [("48127", 48127), ("#48 127", 48127), ("#48\u202f127", 48127), ("48,127", 48127),
     ("x1", None), ("", None), ("-1", None), ("2147483648", None), ("\u0663", None)],
)  # fmt: skip
def test_job_numbers_are_read_as_people_write_them(words, number):
    assert number_in(words) == number


def test_before_there_is_an_organisation_the_page_says_what_comes_first(db):
    user = make.make_user(is_superuser=True)
    assert not Budget.objects.exists()
    assert "There is no organisation yet" in text_of(client_of(user).get("/budgets"))


@pytest.mark.django_db
def test_browsers_find_an_icon_where_they_look_for_one(client):
    answer = client.get("/favicon.ico")
    assert (answer.status_code, answer["Location"]) == (302, "/static/icon.svg")
