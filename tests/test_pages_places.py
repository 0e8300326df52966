"""The page that moves, archives or brings back a budget: who finds it, what it shows and does."""

from datetime import timedelta
from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from budgets.models import Budget, ChangeSet
from ledger.models import Entry
from tests import factories as make
from tests.factories import LONG_AGO, T0, make_role, make_shares, make_tree
from tests.pages_world import at, cells, client_of, granted, text_of
from tests.test_placing import AUK, PETREL, SCIENCE, TERN, VISION, of, proposed
from tests.test_previews_tree import spend

pytestmark = pytest.mark.django_db
Tree = dict[str, Budget]
NOW = T0 + timedelta(days=10)
PEOPLE = ("root", "admin", "manager", "member", "viewer", "stranger", "nobody")


@pytest.fixture
def tree(settings: Any) -> Tree:
    """Vision has given three quarters away; all is granted for the quarter of 16 GPUs."""
    settings.REPLAN_AT_ONCE = False
    found = make_tree(at=LONG_AGO)
    make_shares(found[VISION], {found[TERN]: 75_000}, at=LONG_AGO)
    granted(found)
    return found


@pytest.fixture(autouse=True)
def clock(monkeypatch: pytest.MonkeyPatch) -> None:
    at(monkeypatch, NOW)
    monkeypatch.setattr("config.clock.now", lambda: NOW)


def url(path: str, more: str = "") -> str:
    return f"/budgets/{path}/move{more}"


def typed(tree: Tree, **changes: str) -> dict[str, str]:
    """What a browser sends to move petrel below vision."""
    vision = tree[VISION].pk
    fields = {
        "does": "move", "to": VISION, "share": "25", "reason": "a <deadline>", "do": "approve",
        f"base.{vision}": "2", f"keeps.{vision}.tern": "75.000",
    }  # fmt: skip
    return fields | changes


def places(response: Any) -> list[str]:
    return [value for value, _ in response.context["form"].fields["to"].choices if value]


# --- Who ------------------------------------------------------------------------------------------

WHO = [
    (PETREL, {"root", "admin", "manager"}),
    (SCIENCE, {"root", "admin"}),
    ("orlo", set()),
    ("orlo/nothing", set()),
]


@pytest.mark.once
@pytest.mark.parametrize(("path", "may"), WHO)
def test_it_is_there_for_who_may_propose_shares_in_the_parent_and_linked_for_them_alone(
    cast: Any, tree: Tree, path: str, may: set[str]
) -> None:
    for who in PEOPLE:
        client, status = client_of(cast[who]), 200 if who in may else 404
        assert client.get(url(path)).status_code == status, who
        data = typed(tree, do="preview", to="", share="")
        assert (client.post(url(path), data).status_code == 404) is (status == 404), who
        assert client.post(url(path, "/preview"), data).status_code == status, who
        for page in (f"/budgets/{path}", "/budgets"):
            answer = client.get(page)
            if answer.status_code == 200:
                linked = f'href="{url(path)}"' in answer.content.decode()
                assert linked is (who in may), (who, page)


def test_it_goes_only_where_one_may_propose_and_it_may_stand(cast: Any, tree: Tree) -> None:
    make.make_budget("petrel", parent=tree["orlo"], archived_at=T0)
    page = client_of(cast["admin"]).get(url(PETREL))
    assert places(page) == [AUK, VISION, TERN]
    assert places(client_of(cast["manager"]).get(url(PETREL))) == [AUK]
    make.make_job(tree[AUK], state="completed")
    page = client_of(cast["manager"]).get(url(PETREL))
    assert page.context["page"].choices == ("archive",)
    assert "no other budget that it could move below" in text_of(page)


def test_who_may_not_place_it_there_writes_nothing(cast: Any, tree: Tree) -> None:
    written = (Entry.objects.count(), ChangeSet.objects.count())
    for who in ("manager", "member", "viewer", "stranger", "nobody"):
        answer = client_of(cast[who]).post(url(PETREL), typed(tree))
        assert answer.status_code == (422 if who == "manager" else 404)
    assert (Entry.objects.count(), ChangeSet.objects.count()) == written


# --- Before ---------------------------------------------------------------------------------------


def test_it_says_where_the_budget_is_now(cast: Any, tree: Tree) -> None:
    text = text_of(client_of(cast["admin"]).get(url(PETREL)))
    assert "It is below Science now, with 50.000 % of it: 30.00 % of everything." in text
    assert "At the instant of its approval" in text


def test_the_page_says_what_the_api_does(cast: Any, api_of: Any, tree: Tree) -> None:
    client = client_of(cast["admin"])
    page = client.post(url(PETREL, "/preview"), typed(tree, do="", reason=""))
    assert page.status_code == 200
    body = {"move": {"to": VISION, "share": 25_000}}
    answer = api_of("admin").post(f"/api/v1/budgets/{PETREL}/change-sets/preview/", body).json()
    effects = page.context["preview"].look.effects
    assert {one.budget.path: one.change_mgpus for one in effects} == {
        row["path"]: row["change_mgpus"] for row in answer["rows"]
    }
    assert cells(page, "Petrel")[1:4] == ["−6,298", "9,446 → 3,149", "30.00 → 10.00"]
    text = text_of(page)
    assert "Those below Vision have 100.000 % together then 0.000 % is in reserve." in text
    along = answer["taken_along_mgpus"] / 3_600_000
    assert f"Petrel takes {along:,.0f} cr along" in text
    assert "Petrel loses most: −6,298 GPU-hours until 31 Dec" in text
    assert "No budget falls under what it burned" in text


def test_who_falls_under_what_it_burned_is_said(cast: Any, tree: Tree) -> None:
    """Petrel spent all but 100 of 10,598.4 credits, and its share would be worth 6,297.6 less."""
    spend(tree[PETREL], 10_498)
    page = client_of(cast["admin"]).post(url(PETREL, "/preview"), typed(tree, do=""))
    assert "Petrel falls 6,197 cr under what it burned" in text_of(page)
    assert "No savings go along" in text_of(page)


def test_looking_writes_nothing_and_asks_a_constant_number_of_queries(
    cast: Any, tree: Tree
) -> None:
    def asked() -> int:
        with CaptureQueriesContext(connection) as caught:
            answer = client_of(cast["admin"]).post(url(PETREL, "/preview"), typed(tree, do=""))
        assert answer.status_code == 200
        return len(caught)

    written = (Entry.objects.count(), ChangeSet.objects.count())
    few = asked()
    for number in range(6):
        make.make_budget(f"more-{number}", parent=tree[VISION])
        make.make_budget(f"more-{number}", parent=tree[SCIENCE])
    assert asked() <= few
    assert (Entry.objects.count(), ChangeSet.objects.count()) == written


def test_those_beside_it_come_with_the_parent_that_is_chosen(cast: Any, tree: Tree) -> None:
    client = client_of(cast["admin"])
    found = client.post(url(PETREL, "/preview"), typed(tree, to="orlo", part="beside", do=""))
    html = found.content.decode()
    assert f'name="keeps.{tree["orlo"].pk}.science" value="60.000"' in html
    assert f'name="base.{tree["orlo"].pk}" value="1"' in html
    assert "tern" not in html
    assert "Reserve 0.000" in text_of(found)


# --- Doing it -------------------------------------------------------------------------------------


def test_who_manages_both_moves_it(cast: Any, tree: Tree) -> None:
    client = client_of(cast["admin"])
    answer = client.post(url(PETREL), typed(tree))
    assert (answer.status_code, answer["Location"]) == (302, f"/budgets/{VISION}/petrel")
    moved = of(f"{VISION}/petrel")
    assert moved.pk == tree[PETREL].pk
    found = ChangeSet.objects.get(parent=tree[VISION], version=3)
    assert (found.status, found.reason, found.author) == (
        "approved", "a <deadline>", cast["admin"],
    )  # fmt: skip
    page = client.get(answer["Location"])
    assert "Petrel is below Vision now, with the grants it moves." in text_of(page)


def test_those_beside_it_get_what_was_typed(cast: Any, tree: Tree) -> None:
    tern = f"keeps.{tree[VISION].pk}.tern"
    client = client_of(cast["admin"])
    answer = client.post(url(PETREL), typed(tree, share="40", **{tern: "60"}))
    assert answer.status_code == 302
    rows = ChangeSet.objects.get(parent=tree[VISION], version=3).shares
    assert dict(rows.values_list("budget__slug", "thousandths")) == {
        "petrel": 40_000, "tern": 60_000,
    }  # fmt: skip


def test_it_is_archived_and_comes_back(cast: Any, tree: Tree) -> None:
    client, base = client_of(cast["manager"]), f"base.{tree[SCIENCE].pk}"
    data = {"does": "archive", "reason": "over", "do": "approve", base: "1"}
    answer = client.post(url(AUK), data)
    assert answer["Location"] == f"/budgets/{AUK}"
    assert of(AUK).archived_at == NOW
    text = text_of(client.get(f"/budgets/{AUK}"))
    assert "Auk is archived; what is free of its grant has gone back." in text
    assert "Bring back" in text
    page = client.get(url(AUK))
    assert page.context["page"].choices == ("reactivate",)
    assert "It was below Science and is archived since 11 Oct" in text_of(page)
    data = {"does": "reactivate", "share": "50", "reason": "again", "do": "approve", base: "2"}
    assert client.post(url(AUK), data).status_code == 302
    assert of(AUK).archived_at is None


# --- Proposing, and approving on the page of the parent's shares ----------------------------------


def test_who_manages_one_of_the_two_proposes_and_who_manages_both_approves(
    cast: Any, tree: Tree
) -> None:
    make_role(cast["manager"], tree[VISION], "member")
    client, admin = client_of(cast["manager"]), client_of(cast["admin"])
    look = client.post(url(PETREL), typed(tree, do="preview"))
    assert "Submit for approval" in text_of(look)
    assert 'value="approve"' not in look.content.decode()
    assert "Who manages both Science and Vision approves it." in text_of(look)
    answer = client.post(url(PETREL), typed(tree))  # asks for more than is offered
    assert answer["Location"] == f"/budgets/{VISION}/shares"
    one = ChangeSet.objects.get(status="proposed")
    assert (of(PETREL).pk, one.parent) == (tree[PETREL].pk, tree[VISION])
    text = text_of(client.get(answer["Location"]))
    assert f"Change set #{one.pk} is proposed to who manages Science and Vision." in text
    listed = text_of(admin.get(answer["Location"]))
    assert f"#{one.pk} Petrel moves here → 25.0, reserve 25.0 → 0.0" in listed
    assert "Approve" in listed
    shown = admin.get(f"/budgets/{VISION}/shares?set={one.pk}")
    assert shown["Location"] == f"{url(PETREL)}?set={one.pk}"
    page = admin.get(shown["Location"])
    assert f"Change set #{one.pk} is proposed" in text_of(page)
    assert cells(page, "Petrel")[3] == "30.00 → 10.00"
    assert admin.post(f"/change-sets/{one.pk}/approve").status_code == 302
    assert of(f"{VISION}/petrel").pk == tree[PETREL].pk


def test_who_manages_one_of_the_two_does_not_approve(cast: Any, tree: Tree) -> None:
    make_role(cast["stranger"], tree[VISION], "manager")
    one = proposed("move", PETREL, VISION, share=25_000)
    client = client_of(cast["stranger"])
    answer = client.post(f"/change-sets/{one.pk}/approve", follow=True)
    assert "ask who manages both." in text_of(answer)
    assert of(PETREL).parent == tree[SCIENCE]
    assert client.get(f"/budgets/{VISION}/shares?set={one.pk}").status_code == 200
    assert client.post(f"/change-sets/{one.pk}/decline").status_code == 302
    one.refresh_from_db()
    assert one.status == "declined"


def test_the_parent_that_it_would_leave_sees_it_and_declines_it(cast: Any, tree: Tree) -> None:
    """Its manager has nothing to say of vision, and may not know that there is one."""
    tree[VISION].name = "Hidden"
    tree[VISION].save()
    one = proposed("move", PETREL, VISION, share=25_000)
    client = client_of(cast["manager"])
    for page in (f"/budgets/{SCIENCE}/shares", f"/budgets/{SCIENCE}", "/budgets"):
        answer = client.get(page)
        assert f"#{one.pk} " in text_of(answer), page
        assert "Petrel moves away" in text_of(answer), page
        assert "Hidden" not in text_of(answer), page
    body = client.get(f"/budgets/{SCIENCE}/shares?set={one.pk}").content.decode()
    assert f'formaction="/change-sets/{one.pk}/decline"' in body
    assert f"/change-sets/{one.pk}/approve" not in body
    assert f'href="?set={one.pk}"' not in body, "he may not look at it there"
    answer = client.post(f"/change-sets/{one.pk}/approve", follow=True)
    assert "ask who manages both." in text_of(answer)
    answer = client.post(f"/change-sets/{one.pk}/decline", follow=True)
    assert answer.redirect_chain == [(f"/budgets/{SCIENCE}/shares", 302)]
    assert f"Change set #{one.pk} is declined." in text_of(answer)
    assert f"#{one.pk} Petrel" not in text_of(answer), "nothing leaves any more"
    assert client.post(f"/change-sets/{one.pk}/decline").status_code == 404


def test_who_manages_both_finds_it_at_either(cast: Any, tree: Tree) -> None:
    one = proposed("move", PETREL, VISION, share=25_000)
    client = client_of(cast["admin"])
    page = client.get(f"/budgets/{SCIENCE}/shares")
    assert f"#{one.pk} Petrel moves away, below Vision" in text_of(page)
    assert f'formaction="/change-sets/{one.pk}/approve"' in page.content.decode()
    shown = client.get(f"/budgets/{SCIENCE}/shares?set={one.pk}")
    assert shown["Location"] == f"{url(PETREL)}?set={one.pk}"
    assert client.get(f"/budgets/orlo/shares?set={one.pk}").status_code == 200, "none of theirs"
    listed = text_of(client.get("/budgets"))
    assert f"#{one.pk} Vision : Petrel moves here" in listed
    assert "moves away" not in listed, "both are on this page: it is said once"
    assert client.post(f"/change-sets/{one.pk}/approve").status_code == 302
    after = text_of(client.get(f"/budgets/{SCIENCE}/shares"))
    assert "moves away" not in after
    assert "Petrel 50.0 → out" in after, "its old parent has a set of its own now"


def test_a_proposal_to_a_budget_with_nothing_below_it_is_decided_there_too(
    cast: Any, tree: Tree
) -> None:
    one = proposed("move", AUK, PETREL, share=10_000)
    page = client_of(cast["manager"]).get(f"/budgets/{PETREL}/shares")
    assert f'formaction="/change-sets/{one.pk}/approve"' in page.content.decode()
    assert "Auk moves here → 10.0" in text_of(page)


def test_what_is_proposed_is_what_the_form_opens_with(cast: Any, tree: Tree) -> None:
    one = proposed("archive", AUK, siblings={tree[PETREL]: 70_000}, reason="it is <over>")
    page = client_of(cast["manager"]).get(f"{url(AUK)}?set={one.pk}")
    form = page.context["form"]
    assert (form.chosen, form.keeps) == ("archive", {tree[PETREL]: 70_000})
    assert "it is &lt;over&gt;" in page.content.decode()
    other = client_of(cast["manager"]).get(f"{url(PETREL)}?set={one.pk}")
    assert other.context["page"].proposal is None
    for nothing in ("", "x", "9" * 12, "99999"):
        assert client_of(cast["manager"]).get(f"{url(AUK)}?set={nothing}").status_code == 200


# --- Refused --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"reason": " "}, "Say why: the reason stands beside the change for good."),
        ({"share": ""}, "Give it a share; 0 is one."),
        ({"share": "x"}, "Give a percent from 0 to 100"),
        ({"share": "25.001"}, "The shares of orlo/vision total 100.001 %, 0.001 % too much."),
        ({"to": ""}, "Choose the budget below which it goes."),
        ({"to": "orlo/elsewhere"}, "It can't move there: choose one of these."),
        ({"does": "reactivate"}, "That can't become of it now: choose one of these."),
        ({"base": "1"}, "The shares of Vision were changed since you looked"),
        ({"base": ""}, "See first what those below Vision keep, then confirm."),
        ({"tern": "-1"}, "Give a percent from 0 to 100"),
        ({"tern": ""}, "Give Tern a share; 0 is one."),
    ],
)
def test_what_is_wrong_is_said_in_a_sentence_and_nothing_that_was_typed_is_lost(
    cast: Any, tree: Tree, changes: dict[str, str], says: str
) -> None:
    vision = tree[VISION].pk
    names = {"base": f"base.{vision}", "tern": f"keeps.{vision}.tern"}
    data = typed(tree, **{names.get(name, name): value for name, value in changes.items()})
    if changes.get("base") == "":
        del data[f"base.{vision}"]
    written = ChangeSet.objects.count()
    answer = client_of(cast["admin"]).post(url(PETREL), data)
    assert answer.status_code == 422
    assert says in text_of(answer)
    assert text_of(answer).count(says) == 1
    assert (of(PETREL).parent, ChangeSet.objects.count()) == (tree[SCIENCE], written)
    form = answer.context["form"]
    for name in ("share", "reason"):
        assert form[name].value() == data[name]
    if form.beside:
        assert f'name="{form.base_name}" value="2"' in answer.content.decode()


def test_what_runs_keeps_its_budget_and_the_page_says_so_before(cast: Any, tree: Tree) -> None:
    make.make_job(tree[AUK])
    says = "1 jobs of orlo/science/auk wait or run: cancel them or let them end first."
    data = {"does": "archive", "reason": "over", "do": "preview"}
    page = client_of(cast["manager"]).post(url(AUK), data)
    assert says in text_of(page)
    assert 'value="approve"' not in page.content.decode()
    data |= {"do": "approve", f"base.{tree[SCIENCE].pk}": "1"}
    answer = client_of(cast["manager"]).post(url(AUK), data)
    assert (answer.status_code, text_of(answer).count(says)) == (422, 1)


def test_figures_of_what_one_may_not_see_are_not_shown(cast: Any, tree: Tree) -> None:
    """The manager of science moves auk below petrel; the organisation's figures stay out."""
    page = client_of(cast["manager"]).post(
        url(AUK, "/preview"), {"does": "move", "to": PETREL, "share": "10"}
    )
    assert [one.budget.path for one in page.context["preview"].rows] == [SCIENCE, PETREL, AUK]
    assert "Orlo" not in text_of(page)
