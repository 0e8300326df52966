"""Requests, transfers and notices over the API: what is sent, answered and refused."""

from typing import Any

import pytest

from budgets.models import Notice, Request
from ledger.models import Entry
from tests import factories as make
from tests.ledger_world import CREDIT, give, give_alone

pytestmark = pytest.mark.django_db
PETREL, AUK, SCIENCE = "orlo/science/petrel", "orlo/science/auk", "orlo/science"


@pytest.fixture(autouse=True)
def period(tree):
    """10 credits for petrel and auk each, and 5 more in science's reserve."""
    period = make.make_period(starts_at=make.LONG_AGO, ends_at=make.LONG_AGO.replace(year=2100))
    for path in (PETREL, AUK):
        give(tree[path], 10, period)
    give(tree[SCIENCE], 5, period)
    return period


def ask(client: Any, path: str = PETREL, **asked: Any) -> Any:
    body = {"amount_mgpus": 4 * CREDIT, "reason": "a deadline", **asked}
    return client.post(f"/api/v1/budgets/{path}/requests/", body)


def grant(client: Any, pk: int, **given: Any) -> Any:
    body = {"source": SCIENCE, "reason": "agreed", **given}
    return client.post(f"/api/v1/requests/{pk}/grant/", body)


def test_a_request_from_asking_to_its_answer(api_of):
    made = ask(api_of("member"), until="2099-12-01T00:00:00Z")
    assert made.status_code == 201
    asked = made.json()
    assert (asked["unit"], asked["amount_mgpus"], asked["thousandths"]) == (
        "credits", 4 * CREDIT, None,
    )  # fmt: skip
    assert (asked["status"], asked["until"]) == ("open", "2099-12-01T00:00:00Z")
    assert (asked["choices"], asked["may_withdraw"]) == ([], True)  # a member decides nothing
    manager = api_of("manager")
    done = grant(manager, asked["id"], given=3 * CREDIT).json()
    assert (done["status"], done["given_mgpus"], done["given_thousandths"]) == (
        "granted", 3 * CREDIT, None,
    )  # fmt: skip
    assert (done["decision"], done["source"], done["answer"]) == ("reserve", SCIENCE, "agreed")
    assert (done["choices"], done["may_withdraw"]) == ([], False)
    for address in ("requests/", f"budgets/{PETREL}/requests/"):
        listed = manager.get(f"/api/v1/{address}").json()["results"]
        assert [one["id"] for one in listed] == [asked["id"]]
        assert manager.get(f"/api/v1/{address}?status=open").json()["count"] == 0
    assert manager.get("/api/v1/requests/?status=late").status_code == 400


def test_who_decides_sees_what_each_choice_would_leave(api_of):
    pk = ask(api_of("member"), amount_mgpus=11 * CREDIT).json()["id"]
    reserve, auk = api_of("manager").get(f"/api/v1/requests/{pk}/").json()["choices"]
    assert (reserve["source"], reserve["decision"]) == (SCIENCE, "reserve")
    assert (reserve["before_mgpus"], reserve["after_mgpus"]) == (5 * CREDIT, -6 * CREDIT)
    assert (reserve["most"], reserve["problem"]) == (
        5 * CREDIT, "It has only 5.00 credits in reserve.",
    )  # fmt: skip
    assert (auk["source"], auk["decision"]) == (AUK, "sibling")
    assert (auk["before_mgpus"], auk["after_mgpus"]) == (10 * CREDIT, -1 * CREDIT)
    sources = [
        one["source"] for one in api_of("admin").get(f"/api/v1/requests/{pk}/").json()["choices"]
    ]
    assert sources == [SCIENCE, "orlo", AUK]


def test_what_a_choice_said_is_what_the_decision_does(api_of, tree, period):
    pool = make.make_pool()
    period.capacities.create(pool=pool, gpu_seconds=10**9, rate_per_mille=1000)
    make.make_shares(tree[SCIENCE], {tree[PETREL]: 40_000, tree[AUK]: 50_000})
    give(tree[AUK], 500_000, period)
    pk = ask(api_of("member"), amount_mgpus=None, thousandths=10_000).json()
    assert pk["status"] == 400  # null is no number
    body = {"thousandths": 10_000, "reason": "why"}
    made = api_of("member").post(f"/api/v1/budgets/{PETREL}/requests/", body).json()
    manager = api_of("manager")
    reserve, auk = manager.get(f"/api/v1/requests/{made['id']}/").json()["choices"]
    assert (reserve["share_before"], reserve["share_after"]) == (10_000, 0)
    assert (auk["share_before"], auk["share_after"]) == (50_000, 40_000)
    done = grant(manager, made["id"], source=AUK)
    assert done.json()["given_thousandths"] == 10_000
    after = manager.get(f"/api/v1/budgets/{AUK}/").json()
    assert after["share_thousandths"] == 40_000
    # Between the look and the decision a second or two of the period may go by.
    left = after["figures"]["spendable_mgpus"]
    assert auk["before_mgpus"] - left > 0
    assert abs(left - auk["after_mgpus"]) < 10**9 // 100


def test_the_same_again_points_to_the_open_one(api_of):
    pk = ask(api_of("member")).json()["id"]
    again = ask(api_of("colleague"))
    assert (again.status_code, again.json()["request"]) == (409, pk)
    assert f"Request {pk} of member" in again.json()["detail"]


def test_the_second_decision_is_a_conflict_that_names_the_first(api_of):
    pk = ask(api_of("member")).json()["id"]
    assert grant(api_of("manager"), pk).status_code == 200
    second = grant(api_of("admin"), pk, source="orlo")
    assert (second.status_code, second.json()["request_status"]) == (409, "granted")
    assert "manager decided first" in second.json()["detail"]
    assert Entry.objects.filter(kind="transfer").count() == 1


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ({"reason": "why"}, "Give thousandths (percent) or amount_mgpus (credits)"),
        ({"reason": "why", "thousandths": 1, "amount_mgpus": 1}, "Give thousandths"),
        ({"reason": "why", "thousandths": "1"}, "whole number, without quotes"),
        ({"reason": "why", "thousandths": 50_001}, "ask for at most 50.000 % more"),
        ({"reason": "why", "thousandths": 1, "until": "2020-01-01T00:00:00Z"}, "has passed"),
        ({"reason": "why", "thousandths": 1, "untill": None}, "did you mean 'until'"),
        ({"thousandths": 1}, "reason: This field is required"),
    ],
)
def test_bad_requests_are_refused(api_of, body, words):
    answer = api_of("member").post(f"/api/v1/budgets/{PETREL}/requests/", body)
    assert answer.status_code == 400
    assert words in answer.json()["detail"]
    assert not Request.objects.exists()


def test_a_grant_that_can_not_be_is_refused_and_nothing_is_written(api_of):
    pk = ask(api_of("member"), amount_mgpus=6 * CREDIT).json()["id"]
    manager = api_of("manager")
    for given, words in (
        ({}, "5.00 credits in reserve"),
        ({"given": 7 * CREDIT}, "at most 6.00 credits"),
        ({"source": "orlo/vision"}, "none that you may see"),
        ({"source": PETREL}, "neither above"),
    ):
        answer = grant(manager, pk, **given)
        assert answer.status_code == 400
        assert words in answer.json()["detail"]
    assert Request.objects.get().status == "open"


def test_a_share_decided_on_an_outdated_base_is_a_conflict(api_of, tree):
    made = api_of("member").post(
        f"/api/v1/budgets/{PETREL}/requests/", {"thousandths": 1, "reason": "why"}
    )
    make.make_shares(tree[SCIENCE], {tree[PETREL]: 1, tree[AUK]: 2})
    answer = grant(api_of("manager"), made.json()["id"], base_version=1)
    assert answer.status_code == 409
    assert (answer.json()["theirs_version"], answer.json()["mine_version"]) == (2, 1)


def test_the_sibling_it_came_from_is_named_to_who_knows_it(api_of):
    pk = ask(api_of("member")).json()["id"]
    assert grant(api_of("manager"), pk, source=AUK).json()["source"] == AUK
    for who, source in (("admin", AUK), ("member", None), ("viewer", None)):
        assert api_of(who).get(f"/api/v1/requests/{pk}/").json()["source"] == source
    told = Notice.objects.get(kind="decided")
    assert AUK not in told.text


def test_declined_and_withdrawn(api_of):
    pk = ask(api_of("member")).json()["id"]
    address = f"/api/v1/requests/{pk}/decline/"
    assert api_of("manager").post(address, {}).status_code == 400
    assert api_of("manager").post(address, {"reason": "no"}).json()["status"] == "declined"
    pk = ask(api_of("member")).json()["id"]
    address = f"/api/v1/requests/{pk}/withdraw/"
    assert api_of("colleague").post(address).status_code == 403
    assert api_of("member").post(address).json()["status"] == "withdrawn"


# --- Transfers ------------------------------------------------------------------------------------


def test_a_transfer_is_made_once_for_a_key_and_told_to_both_sides(api_of, tree):
    make.make_role(lead := make.make_user("lead"), tree[AUK], "manager")
    address = f"/api/v1/budgets/{AUK}/transfers/"
    body = {"to": PETREL, "amount_mgpus": 4 * CREDIT, "reason": "swap", "idempotency_key": "a"}
    manager = api_of("manager")
    first, again = manager.post(address, body), manager.post(address, body)
    assert (first.status_code, again.status_code) == (201, 201)
    assert first.json() == again.json()
    assert [(one["budget"], one["amount_mgpus"]) for one in first.json()] == [
        (AUK, -4 * CREDIT),
        (PETREL, 4 * CREDIT),
    ]
    told = Notice.objects.filter(kind="transferred").order_by("user__username")
    assert [(one.user.username, one.budget.path) for one in told] == [
        ("colleague", PETREL),
        (lead.username, AUK),
        ("member", PETREL),
    ]
    assert told[0].text == (
        "manager moved 4.00 credits from a budget beside it to orlo/science/petrel: swap"
    )
    (seen,) = api_of("member").get(f"/api/v1/budgets/{PETREL}/transfers/").json()["results"]
    assert (seen["amount_mgpus"], seen["author"], seen["reason"]) == (4 * CREDIT, "manager", "swap")
    other = manager.post(address, body | {"amount_mgpus": 1})
    assert other.status_code == 409
    assert "another decision" in other.json()["detail"]


def test_a_key_is_its_owners(api_of, tree, period):
    give_alone(tree[SCIENCE], 5, period)
    address = f"/api/v1/budgets/{SCIENCE}/transfers/"
    body = {"to": PETREL, "amount_mgpus": CREDIT, "reason": "x", "idempotency_key": "a"}
    assert api_of("manager").post(address, body).status_code == 201
    assert api_of("admin").post(address, body).status_code == 201
    assert Entry.objects.filter(kind="transfer").count() == 2


def test_a_transfer_of_what_is_not_there_is_refused(api_of):
    body = {"to": PETREL, "amount_mgpus": 11 * CREDIT, "reason": "swap"}
    answer = api_of("manager").post(f"/api/v1/budgets/{AUK}/transfers/", body)
    assert answer.status_code == 400
    assert "auk has 10.00 credits" in answer.json()["detail"]
    assert not Entry.objects.filter(kind="transfer").exists()


# --- Notices --------------------------------------------------------------------------------------


def test_one_reads_ones_own_notices(api_of, cast, tree):
    for who in ("member", "manager"):
        for number in range(2):
            make.tell(cast[who], tree[PETREL], text=f"{who} {number}", link="/requests/3")
    member = api_of("member")
    found = member.get("/api/v1/notices/").json()["results"]
    assert [one["text"] for one in found] == ["member 1", "member 0"]
    assert (found[0]["budget"], found[0]["link"], found[0]["read_at"]) == (
        PETREL, "/requests/3", None,
    )  # fmt: skip
    read = member.post(f"/api/v1/notices/{found[0]['id']}/read/").json()
    assert read["read_at"] is not None
    unread = member.get("/api/v1/notices/?unread=true").json()["results"]
    assert [one["text"] for one in unread] == ["member 0"]
    assert member.post("/api/v1/notices/read/").json() == {"read": 1}
    assert Notice.objects.filter(read_at=None).count() == 2  # the manager's
