"""Pages of requests and notices: who sees what, what is typed and refused, what is written."""

from datetime import timedelta

import pytest

from budgets import requests
from budgets.models import Notice, Request
from ledger import services as ledger
from ledger.models import Entry
from tests import factories as make
from tests.ledger_world import CREDIT
from tests.pages_world import T0, at, client_of, granted, queries, text_of

pytestmark = [pytest.mark.django_db, pytest.mark.once]
NOW = T0 + timedelta(days=10)
PETREL, AUK, SCIENCE = "orlo/science/petrel", "orlo/science/auk", "orlo/science"
ASK = f"/budgets/{PETREL}/requests"


@pytest.fixture
def world(cast, tree, monkeypatch):
    """Granted for the quarter: 16 GPUs, of which petrel and auk have 30 % each."""
    world = granted(tree)
    at(monkeypatch, NOW)
    return world


@pytest.fixture
def asked(world, cast, tree):
    return requests.ask(
        budget=tree[PETREL], unit="credits", asked=40 * CREDIT, reason="a <deadline>",
        until=NOW + timedelta(days=3), by=cast["member"], now=NOW,
    )  # fmt: skip


TABLE = [
    # address, status of each who is signed in
    ("/requests", dict.fromkeys(("admin", "manager", "member", "stranger", "nobody"), 200)),
    ("/requests/{pk}", {"admin": 200, "manager": 200, "member": 200, "viewer": 200,
                        "stranger": 404, "nobody": 404}),
    (ASK, {"admin": 200, "manager": 200, "member": 200, "viewer": 200, "stranger": 404}),
    ("/notices", dict.fromkeys(("admin", "manager", "member", "stranger", "nobody"), 200)),
]  # fmt: skip


@pytest.mark.parametrize(("address", "statuses"), TABLE)
def test_pages_are_there_for_those_who_may_see_them(cast, asked, address, statuses):
    url = address.format(pk=asked.pk)
    for who, status in statuses.items():
        assert client_of(cast[who]).get(url).status_code == status, who


POSTS = [
    # address, who may
    ("/requests/{pk}", {"admin": 302, "manager": 302, "member": 422, "viewer": 422,
                        "stranger": 404, "nobody": 404}),
    ("/requests/{pk}/withdraw", {"admin": 302, "member": 302, "stranger": 404, "nobody": 404}),
    ("/notices/{notice}/read", {"manager": 302, "member": 404, "admin": 404, "stranger": 404}),
]  # fmt: skip


@pytest.mark.parametrize(("address", "statuses"), POSTS)
def test_what_is_posted_is_done_by_those_who_may(cast, asked, address, statuses):
    notice = Notice.objects.get(user=cast["manager"])
    for who, status in statuses.items():
        Request.objects.update(status="open", decided_by=None, decided_at=None)
        url = address.format(pk=asked.pk, notice=notice.pk)
        answer = client_of(cast[who]).post(url, {"do": "decline", "reason": "no"})
        assert answer.status_code == status, who
        asked.refresh_from_db()
        acts = status == 302 and "notices" not in url
        assert (asked.status != "open") is acts, who


def test_somebody_elses_request_is_not_withdrawn(cast, asked):
    page = client_of(cast["colleague"]).post(f"/requests/{asked.pk}/withdraw", follow=True)
    assert "Who asked may withdraw it" in text_of(page)
    asked.refresh_from_db()
    assert asked.status == "open"


# --- Asking ---------------------------------------------------------------------------------------


def test_a_member_asks_on_the_budgets_page(world, cast):
    member = client_of(cast["member"])
    page = member.get(f"/budgets/{PETREL}").content.decode()
    assert f'action="{ASK}"' in page
    body = {"amount": "250.5", "unit": "credits", "until": "2026-10-20T00:00", "reason": "why"}
    answer = member.post(ASK, body, follow=True)
    made = Request.objects.get()
    assert answer.redirect_chain == [(f"/requests/{made.pk}", 302)]
    assert (made.asked, made.asked_by) == (2505 * CREDIT // 10, cast["member"])
    assert made.until == T0.replace(day=20)
    assert "250.50 cr more for Petrel open" in text_of(answer)
    assert f"#{made.pk} 250.50 cr more for Petrel" in text_of(member.get(f"/budgets/{PETREL}"))


def test_who_decides_edits_shares_and_is_offered_no_form(world, cast):
    page = client_of(cast["manager"]).get(f"/budgets/{PETREL}").content.decode()
    assert f'action="{ASK}"' not in page
    assert "<textarea" not in client_of(cast["viewer"]).get(ASK).content.decode()


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"amount": ""}, "Say how much"),
        ({"amount": "1e3"}, "Give credits with at most two decimals"),
        ({"amount": "0"}, "Ask for more than nothing"),
        ({"amount": "60", "unit": "percent"}, "ask for at most 50.000 % more"),
        ({"amount": "1.2345", "unit": "percent"}, "at most three decimals"),
        ({"unit": "gpus"}, "gpus is not one of the available choices"),
        ({"until": "tomorrow"}, "Give a date and a time"),
        ({"until": "2026-10-02T00:00"}, "That date has passed"),
        ({"until": "9999-12-31T23:59"}, "Give a year from 1970 to 2199."),
        ({"until": "1969-12-31T00:00"}, "Give a year from 1970 to 2199."),
        ({"reason": " "}, "who decides reads it"),
    ],
)
def test_what_was_typed_stays_beside_the_sentence_that_refuses_it(world, cast, change, words):
    body = {"amount": "40", "unit": "credits", "until": "", "reason": "the reason"} | change
    answer = client_of(cast["member"]).post(ASK, body)
    assert answer.status_code == 422
    assert words in text_of(answer)
    assert not Request.objects.exists()
    if "reason" not in change:
        assert "the reason" in answer.content.decode()


def test_the_same_asked_twice_names_the_open_one(cast, asked):
    body = {"amount": "1", "unit": "credits", "reason": "too"}
    answer = client_of(cast["colleague"]).post(ASK, body)
    assert answer.status_code == 422
    assert f"Request {asked.pk} of member asks for 40.00 credits" in text_of(answer)


# --- Deciding -------------------------------------------------------------------------------------


def test_the_list_says_what_each_decision_would_leave(world, cast, asked, tree):
    # petrel and auk have 30 % of 16 GPUs × 2,208 h; science has nothing in reserve
    page = text_of(client_of(cast["manager"]).get("/requests"))
    assert "One request for more waits for your decision" in page
    assert "reserve of Science It has only 0.00 credits in reserve. 0.00" in page
    assert "Auk 10,598.40 → 10,558.40" in page
    member = text_of(client_of(cast["member"]).get("/requests"))
    assert "Nothing waits for your decision. One waits for others." in member
    assert "10,598.40" not in member


def test_a_manager_grants_a_part_out_of_a_sibling(cast, asked):
    manager = client_of(cast["manager"])
    body = {"do": "grant", "source": AUK, "amount": "30", "reason": "agreed", "base_version": "1"}
    answer = manager.post(f"/requests/{asked.pk}", body, follow=True)
    asked.refresh_from_db()
    assert (asked.status, asked.given, asked.answer) == ("granted", 30 * CREDIT, "agreed")
    assert f"Request {asked.pk} is granted." in text_of(answer)
    member = text_of(client_of(cast["member"]).get(f"/requests/{asked.pk}"))
    assert "Given 30.00 cr Out of a budget beside it" in member  # auk is not theirs to know
    assert "Out of Auk" in text_of(manager.get(f"/requests/{asked.pk}"))


def test_all_of_it_is_granted_to_the_last_unit(cast, asked):
    Request.objects.update(asked=40 * CREDIT + 1)
    body = {"do": "grant", "source": AUK, "amount": "40.00"}
    client_of(cast["manager"]).post(f"/requests/{asked.pk}", body)
    asked.refresh_from_db()
    assert asked.given == 40 * CREDIT + 1


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"source": ""}, "Choose what it comes out of"),
        ({"source": "orlo/vision"}, "not one of the available choices"),
        ({"amount": "41"}, "at most 40.00 credits"),
        ({"amount": "x"}, "Give credits with at most two decimals"),
        ({"source": SCIENCE}, "0.00 credits in reserve"),
        ({"do": "decline", "reason": ""}, "Say why not: who asked reads it"),
    ],
)
def test_a_decision_that_can_not_be_is_refused_beside_the_form(cast, asked, change, words):
    body = {"do": "grant", "source": AUK, "amount": "40", "reason": ""} | change
    answer = client_of(cast["manager"]).post(f"/requests/{asked.pk}", body)
    assert answer.status_code == 422
    assert words in text_of(answer)
    asked.refresh_from_db()
    assert asked.status == "open"
    assert not Entry.objects.filter(kind="transfer").exists()


def test_who_comes_second_is_told_who_decided(cast, asked):
    ledger.decline_request(request=asked, answer="no", by=cast["admin"], now=NOW)
    answer = client_of(cast["manager"]).post(
        f"/requests/{asked.pk}", {"do": "grant", "source": AUK, "amount": "40"}
    )
    assert answer.status_code == 422
    assert "declined" in text_of(answer)
    assert not Entry.objects.filter(kind="transfer").exists()


def test_a_share_decided_on_what_has_changed_meanwhile_is_refused(world, cast, tree):
    made = requests.ask(
        budget=tree[PETREL], unit="percent", asked=1000, reason="why", by=cast["member"], now=NOW
    )
    manager = client_of(cast["manager"])
    page = manager.get(f"/requests/{made.pk}").content.decode()
    assert 'name="base_version" value="1"' in page
    make.make_shares(tree[SCIENCE], {tree[PETREL]: 40_000, tree[AUK]: 60_000})
    body = {"do": "grant", "source": AUK, "amount": "1.000", "base_version": "1"}
    answer = manager.post(f"/requests/{made.pk}", body)
    assert answer.status_code == 422
    assert "are at version 2 now" in text_of(answer)


def test_a_list_of_many_costs_as_many_queries_as_one(world, cast, tree):
    def count() -> int:
        return queries(client_of(cast["manager"]), "/requests")

    for unit in ("credits", "percent"):
        make.make_request(tree[PETREL], unit=unit, asked=1)
    first = count()
    for unit in ("credits", "percent"):
        make.make_request(tree[AUK], unit=unit, asked=1)
    assert count() == first


# --- Notices --------------------------------------------------------------------------------------


def test_the_bell_counts_and_the_page_lists_what_is_new(cast, asked):
    manager = client_of(cast["manager"])
    page = manager.get("/notices")
    assert "1 notice to read" in page.content.decode()
    assert "One is new to you" in text_of(page)
    assert "a &lt;deadline&gt;" in page.content.decode()
    notice = Notice.objects.get(user=cast["manager"])
    answer = manager.post(f"/notices/{notice.pk}/read")
    assert answer.url == f"/requests/{asked.pk}"
    after = manager.get("/notices")
    assert "0 notices to read" in after.content.decode()
    assert "You have read all of them" in text_of(after)


def test_all_are_read_at_once_and_only_ones_own(cast, tree, world):
    for who in ("member", "member", "manager"):
        make.tell(cast[who], tree[PETREL])
    answer = client_of(cast["member"]).post("/notices/read")
    assert answer.url == "/notices"
    unread = Notice.objects.filter(read_at=None)
    assert [notice.user.username for notice in unread] == ["manager"]


def test_a_notice_is_not_read_by_looking_alone(cast, tree, world):
    make.tell(cast["member"], tree[PETREL])
    client = client_of(cast["member"])
    assert client.get("/notices/read").status_code == 405
    client.get("/notices")
    assert Notice.objects.filter(read_at=None).count() == 1
