"""The page of direct transfers: who finds it, what it shows, what it moves, whom it tells."""

import re
from datetime import timedelta
from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from allocator.models import AllocatorState
from budgets.models import Notice
from ledger import reports
from ledger import services as ledger
from ledger.models import Entry
from tests import factories as make
from tests.ledger_world import CREDIT
from tests.pages_world import T0, World, at, client_of, granted, text_of

pytestmark = pytest.mark.django_db
NOW = T0 + timedelta(days=10)
SCIENCE, PETREL, AUK = "orlo/science", "orlo/science/petrel", "orlo/science/auk"
URL = f"/budgets/{PETREL}/transfers"
PEOPLE = ("root", "admin", "manager", "member", "viewer", "stranger", "nobody")


@pytest.fixture
def world(cast: Any, tree: Any, monkeypatch: pytest.MonkeyPatch, settings: Any) -> World:
    """Granted for the quarter: petrel and auk have 10,598.4 credits each, tern 14,131.2."""
    settings.REPLAN_AT_ONCE = False
    world = granted(tree)
    at(monkeypatch, NOW)
    return world


def typed(**changes: str) -> dict[str, str]:
    fields = {
        "to": AUK, "amount": "40", "unit": "credits", "reason": "auk's <deadline>",
        "do": "transfer", "key": "0123456789abcdef0123456789abcdef",
    }  # fmt: skip
    return fields | changes


def moved() -> dict[str, int]:
    rows = Entry.objects.filter(kind="transfer").order_by("pk")
    return dict(rows.values_list("budget__path", "amount_mgpus"))


# --- Who ------------------------------------------------------------------------------------------

WHO = [
    # source, who may move something out of it
    (PETREL, {"root", "admin", "manager"}),
    (SCIENCE, {"root", "admin", "manager"}),
    ("orlo", {"root", "admin"}),
    ("orlo/vision/tern", {"root", "admin"}),
    ("orlo/nothing", set()),
]


@pytest.mark.once
@pytest.mark.parametrize(("path", "may"), WHO)
def test_the_page_is_there_for_who_manages_where_both_meet(
    cast: Any, world: World, path: str, may: set[str]
) -> None:
    for who in PEOPLE:
        client, status = client_of(cast[who]), 200 if who in may else 404
        for address in (f"/budgets/{path}/transfers", f"/budgets/{path}/transfers/preview"):
            assert client.post(address, typed(do="preview")).status_code in (
                {200, 422} if who in may else {404}
            ), (who, address)
        assert client.get(f"/budgets/{path}/transfers").status_code == status, who
        if client.get(f"/budgets/{path}").status_code == 200:
            page = client.get(f"/budgets/{path}").content.decode()
            assert (f'href="/budgets/{path}/transfers"' in page) is (who in may), who


def test_a_leaf_s_own_manager_has_nobody_to_give_to(cast: Any, world: World) -> None:
    make.make_role(cast["nobody"], world.tree[PETREL], "manager")
    assert client_of(cast["nobody"]).get(f"/budgets/{PETREL}").status_code == 200
    assert client_of(cast["nobody"]).get(URL).status_code == 404
    assert client_of(cast["nobody"]).post(URL, typed(to=SCIENCE)).status_code == 404
    assert moved() == {}


def options(page: Any) -> list[str]:
    html = re.search(r'<select name="to".*?</select>', page.content.decode(), re.DOTALL)
    assert html is not None
    return re.findall(r'<option value="([^"]+)"', html.group())


def test_only_budgets_that_one_sees_and_may_give_to_are_offered(cast: Any, world: World) -> None:
    manager, admin = client_of(cast["manager"]), client_of(cast["admin"])
    assert options(manager.get(URL)) == [SCIENCE, AUK]
    assert options(manager.get(f"/budgets/{SCIENCE}/transfers")) == [AUK, PETREL]
    everything = ["orlo", SCIENCE, AUK, "orlo/vision", "orlo/vision/tern"]
    assert options(admin.get(URL)) == everything
    assert "Science, its reserve" in text_of(manager.get(URL))


def test_an_archived_budget_neither_gives_nor_gets(cast: Any, world: World) -> None:
    make.make_shares(world.tree[SCIENCE], {world.tree[PETREL]: 50_000}, at=NOW)
    manager = client_of(cast["manager"])
    assert manager.get(f"/budgets/{AUK}/transfers").status_code == 404
    assert options(manager.get(URL)) == [SCIENCE]


# --- Before ---------------------------------------------------------------------------------------


def test_both_sides_are_shown_before_and_after_and_nothing_moves(cast: Any, world: World) -> None:
    page = client_of(cast["manager"]).post(URL, typed(do="preview", reason=""))
    text = text_of(page)
    assert page.status_code == 200
    assert "40.00 cr from Petrel to Auk" in text
    assert "Petrel Spendable 10,598.40 10,558.40 Granted 10,598.40 10,558.40" in text
    assert "Auk Spendable 10,598.40 10,638.40 Granted 10,598.40 10,638.40" in text
    assert "Move 40.00 cr" in text
    assert moved() == {}


def test_what_is_shown_is_what_is_there_afterwards(cast: Any, world: World) -> None:
    """Over two programs: what is between the two moves along."""
    tree, tern = world.tree, "orlo/vision/tern"
    shown = {
        side.budget_id: side
        for side in ledger.preview_transfer(
            source=tree[PETREL], target=tree[tern], amount_mgpus=40 * CREDIT, now=NOW
        )
    }
    assert set(shown) == {tree[path].pk for path in (PETREL, SCIENCE, tern, "orlo/vision")}
    text = text_of(client_of(cast["admin"]).post(URL, typed(do="preview", to=tern)))
    assert "Granted to Science 21,196.80 21,156.80" in text
    assert "Granted to Vision 14,131.20 14,171.20" in text
    client_of(cast["admin"]).post(URL, typed(to=tern))
    after = reports.figures(period=world.period, now=NOW)
    for pk, side in shown.items():
        mine = after[pk]
        assert (side.granted[1], side.spendable[1], side.reserve[1]) == (
            mine.granted_mgpus,
            mine.spendable_mgpus,
            mine.reserve_mgpus,
        )


def test_a_reserve_gets_and_gives(cast: Any, world: World) -> None:
    manager = client_of(cast["manager"])
    text = text_of(manager.post(URL, typed(do="preview", to=SCIENCE)))
    assert "In reserve ? 0.00 40.00" in re.sub(r"\? \S.*? below it", "?", text)
    assert manager.post(URL, typed(to=SCIENCE)).status_code == 302
    assert moved() == {PETREL: -40 * CREDIT}
    out = f"/budgets/{SCIENCE}/transfers"
    short = manager.post(out, typed(do="preview", to=AUK, amount="41"))
    assert "orlo/science has 40.00 credits in reserve, not 41.00" in text_of(short)
    assert manager.post(out, typed(to=AUK, key="f" * 32)).status_code == 302
    assert moved() == {PETREL: -40 * CREDIT, AUK: 40 * CREDIT}


def test_the_preview_while_typing_is_a_fragment_that_says_what_is_wrong(
    cast: Any, world: World
) -> None:
    manager, address = client_of(cast["manager"]), f"{URL}/preview"
    empty = manager.post(address, {"to": "", "amount": ""})
    assert "<html" not in empty.content.decode()
    assert "Choose a budget and say how much" in text_of(empty)
    wrong = text_of(manager.post(address, typed(amount="1e3")))
    assert "Give credits with at most two decimals" in wrong
    more = text_of(manager.post(address, typed(amount="10598.41")))
    assert "orlo/science/petrel has 10,598.40 credits that are neither spent" in more
    assert "Move" not in more
    assert "Move 40.00 cr" in text_of(manager.post(address, typed()))
    assert moved() == {}


# --- Moving ---------------------------------------------------------------------------------------


def test_credits_move_both_sides_are_told_and_the_plan_is_made_anew(
    cast: Any, world: World
) -> None:
    make.make_role(cast["stranger"], world.tree[AUK], "member")
    answer = client_of(cast["manager"]).post(URL, typed(), follow=True)
    assert answer.redirect_chain == [(f"/budgets/{PETREL}", 302)]
    assert "40.00 credits have moved from Petrel to Auk." in text_of(answer)
    assert moved() == {PETREL: -40 * CREDIT, AUK: 40 * CREDIT}
    entry = Entry.objects.filter(kind="transfer").first()
    assert entry is not None
    assert (entry.author, entry.note, entry.at) == (cast["manager"], "auk's <deadline>", NOW)
    told = dict(Notice.objects.values_list("user__username", "budget__path"))
    assert told == {"member": PETREL, "colleague": PETREL, "stranger": AUK}
    assert AllocatorState.objects.get().requested == 1


def test_gpu_hours_are_counted_at_the_pool_s_rate_of_now(cast: Any, world: World) -> None:
    make.make_pool("b200", rate=2500)
    manager = client_of(cast["manager"])
    page = text_of(manager.get(URL))
    assert "b200 2.50 cr" in page
    manager.post(URL, typed(amount="10.5", unit="hours.b200"))
    assert moved()[AUK] == 105 * CREDIT * 25 // 100
    assert "Give GPU-hours with at most two decimals" in text_of(
        manager.post(URL, typed(amount="x", unit="hours.b200"))
    )


def test_sent_twice_it_is_one_transfer(cast: Any, world: World) -> None:
    manager = client_of(cast["manager"])
    assert [manager.post(URL, typed()).status_code for _ in range(2)] == [302, 302]
    assert moved() == {PETREL: -40 * CREDIT, AUK: 40 * CREDIT}
    assert Entry.objects.filter(kind="transfer").count() == 2
    assert Notice.objects.count() == 2  # to the two members of petrel


def test_another_amount_on_a_form_that_was_sent_is_asked_about_first(
    cast: Any, world: World
) -> None:
    """Somebody went back in the browser: what they see is from before the transfer."""
    manager = client_of(cast["manager"])
    manager.post(URL, typed())
    again = manager.post(URL, typed(amount="50"))
    assert again.status_code == 422
    assert "This form was sent before, and credits have moved" in text_of(again)
    assert 'value="50"' in again.content.decode()
    key = re.search(r'name="key" value="([0-9a-f]{32})"', again.content.decode())
    assert key is not None
    assert key.group(1) != typed()["key"]
    assert manager.post(URL, typed(amount="50", key=key.group(1))).status_code == 302
    assert Entry.objects.filter(budget__path=AUK, kind="transfer").count() == 2


def test_each_form_has_a_key_of_its_own(cast: Any, world: World) -> None:
    manager = client_of(cast["manager"])
    found = {re.search(r'name="key" value="([0-9a-f]{32})"', manager.get(URL).content.decode())
             for _ in range(2)}  # fmt: skip
    assert len({one.group(1) for one in found if one}) == 2
    assert manager.post(URL, typed(key="x")).status_code == 302
    assert manager.post(URL, typed(key="x")).status_code == 302
    assert Entry.objects.filter(budget__path=AUK, kind="transfer").count() == 2


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"to": ""}, "Choose which budget gets it."),
        ({"to": "orlo/vision"}, "You may not give to that budget"),
        ({"to": PETREL}, "You may not give to that budget"),
        ({"amount": ""}, "Say how much."),
        ({"amount": "1e3"}, "Give credits with at most two decimals"),
        ({"amount": "-4"}, "Give credits with at most two decimals"),
        ({"amount": "0"}, "A transfer needs an amount above 0"),
        ({"amount": "10598.41"}, "that are neither spent nor set aside"),
        ({"amount": "99999999999"}, "that are neither spent nor set aside"),
        ({"unit": "euros"}, "euros is not one of the available choices"),
        ({"reason": "  "}, "Say why: both sides read it."),
        ({"reason": "x" * 301}, "at most 300 characters"),
        ({"reason": "a\0b"}, "Null characters are not allowed"),
    ],
)
def test_bad_input_is_one_sentence_and_what_was_typed_stays(
    cast: Any, world: World, changes: dict[str, str], sentence: str
) -> None:
    answer = client_of(cast["manager"]).post(URL, typed(**changes))
    assert answer.status_code == 422
    assert text_of(answer).count(sentence) == 1
    html = answer.content.decode()
    if "reason" not in changes:
        assert "auk&#x27;s &lt;deadline&gt;" in html
    if "amount" not in changes:
        assert 'value="40"' in html
    if "to" not in changes:
        assert f'<option value="{AUK}" selected>' in html
    assert moved() == {}
    assert not Notice.objects.exists()


def test_what_moved_before_is_listed(cast: Any, world: World) -> None:
    manager = client_of(cast["manager"])
    manager.post(URL, typed())
    assert "−40.00 cr" in text_of(manager.get(URL))
    page = text_of(manager.get(f"/budgets/{AUK}/transfers"))
    assert "+40.00 cr" in page
    assert "manager: “auk's <deadline>”" in page


@pytest.mark.skipif(connection.vendor != "sqlite", reason="it reads SQLite's query plans")
def test_the_list_reads_transfers_and_not_all_that_a_budget_was_charged(
    cast: Any, world: World
) -> None:
    with CaptureQueriesContext(connection) as queries:
        client_of(cast["manager"]).get(URL)
    listed = ('FROM "ledger_entry"', "= 'transfer'")
    (asked,) = [q["sql"] for q in queries if all(part in q["sql"] for part in listed)]
    with connection.cursor() as cursor:
        cursor.execute(f"EXPLAIN QUERY PLAN {asked}")
        steps = " ".join(row[3] for row in cursor.fetchall())
    assert "ledger_entry_sums (period_id=? AND budget_id=? AND kind=?" in steps


def test_without_a_period_nothing_can_move_and_the_page_says_so(
    cast: Any, tree: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    at(monkeypatch, NOW)
    manager = client_of(cast["manager"])
    assert "No period is running" in text_of(manager.get(URL))
    assert f'href="{URL}"' not in manager.get(f"/budgets/{PETREL}").content.decode()
    assert manager.post(URL, typed()).status_code == 422
    assert moved() == {}


def test_more_budgets_cost_no_more_queries(cast: Any, world: World) -> None:
    def count() -> int:
        with CaptureQueriesContext(connection) as caught:
            client_of(cast["admin"]).post(URL, typed(do="preview"))
        return len(caught)

    few = count()
    more = {make.make_budget(f"b{n}", parent=world.tree["orlo/vision"]): 0 for n in range(5)}
    make.make_shares(world.tree["orlo/vision"], {world.tree["orlo/vision/tern"]: 100_000, **more})
    assert count() <= few
