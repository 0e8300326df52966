"""The page of grants and adjustments by hand: who finds it, what it shows, writes and tells."""

import re
from datetime import timedelta
from typing import Any

import pytest
from django.core import mail
from django.db import connection
from django.test.utils import CaptureQueriesContext

from allocator.models import AllocatorState
from budgets import notices
from budgets.models import Notice
from ledger import reports
from ledger import services as ledger
from ledger.models import Entry
from ledger.services import Kind
from tests import factories as make
from tests.ledger_world import CREDIT
from tests.pages_world import T0, World, at, client_of, granted, text_of

pytestmark = pytest.mark.django_db
NOW = T0 + timedelta(days=10)
SCIENCE, PETREL, AUK = "orlo/science", "orlo/science/petrel", "orlo/science/auk"
URL = f"/budgets/{PETREL}/by-hand"
PEOPLE = ("root", "admin", "manager", "member", "viewer", "stranger", "nobody")
KEY = "0123456789abcdef0123456789abcdef"


@pytest.fixture
def world(cast: Any, tree: Any, monkeypatch: pytest.MonkeyPatch, settings: Any) -> World:
    """Granted for the quarter: petrel and auk have 10,598.4 credits each, science all of it."""
    settings.REPLAN_AT_ONCE = False
    world = granted(tree)
    at(monkeypatch, NOW)
    return world


def typed(**changes: str) -> dict[str, str]:
    fields = {
        "kind": "grant", "amount": "40", "unit": "credits", "reason": "a <deadline>",
        "of": "", "do": "write", "key": KEY,
    }  # fmt: skip
    return fields | changes


def written() -> list[tuple[str, str, int]]:
    rows = Entry.objects.filter(author__isnull=False).exclude(kind="charge").order_by("pk")
    return list(rows.values_list("kind", "budget__path", "amount_mgpus"))


def key_in(page: Any) -> str:
    found = re.search(r'name="key" value="([0-9a-f]{32})"', page.content.decode())
    assert found is not None
    return found.group(1)


# --- Who ------------------------------------------------------------------------------------------

WHO = [(PETREL, {"root", "admin"}), ("orlo/nothing", set())]


@pytest.mark.once
@pytest.mark.once
@pytest.mark.parametrize(("path", "may"), WHO)
def test_the_page_is_there_for_administrators_and_linked_for_them_alone(
    cast: Any, world: World, path: str, may: set[str]
) -> None:
    for who in PEOPLE:
        client, status = client_of(cast[who]), 200 if who in may else 404
        assert client.get(f"/budgets/{path}/by-hand").status_code == status, who
        for address in (f"/budgets/{path}/by-hand", f"/budgets/{path}/by-hand/preview"):
            assert client.post(address, typed(do="preview")).status_code == status, (who, address)
        budget = client.get(f"/budgets/{path}")
        if budget.status_code == 200:
            linked = f'href="/budgets/{path}/by-hand"' in budget.content.decode()
            assert linked is (who in may), who
    assert written() == []


def test_who_may_not_writes_nothing(cast: Any, world: World) -> None:
    for who in ("manager", "member", "viewer", "stranger", "nobody"):
        assert client_of(cast[who]).post(URL, typed()).status_code == 404
    assert written() == []


def test_an_administrator_of_a_budget_reads_nothing_of_what_is_above(
    cast: Any, world: World
) -> None:
    make.make_role(cast["nobody"], world.tree[PETREL], "administrator")
    text = text_of(client_of(cast["nobody"]).post(URL, typed(do="preview", amount="40")))
    assert "Petrel Spendable 10,598.40" in text
    assert "Science" not in text.replace("orlo/science", "")
    assert "Whether there is as much in reserve above" in text
    assert "more than" not in text
    less = text_of(client_of(cast["nobody"]).post(URL, typed(do="preview", amount="-40")))
    assert "in reserve above" not in less


def test_a_refusal_by_what_is_above_tells_an_administrator_below_no_total(
    cast: Any, world: World
) -> None:
    make.make_role(cast["nobody"], world.tree[PETREL], "administrator")
    assert client_of(cast["nobody"]).post(URL, typed(amount="20000")).status_code == 302
    more = typed(kind="adjust", amount="30000", key="f" * 32)
    for address, who in ((URL, "nobody"), (f"{URL}/preview", "nobody"), (URL, "admin")):
        text = text_of(client_of(cast[who]).post(address, more))
        assert ("has 21,196.80 credits" in text) is (who == "admin")
        assert ("Above this budget there are fewer than 30,000.00 credits" in text) is (
            who == "nobody"
        )


# --- Before ---------------------------------------------------------------------------------------


def test_what_it_would_do_is_shown_for_the_budget_and_all_above_it(cast: Any, world: World) -> None:
    page = client_of(cast["admin"]).post(URL, typed(do="preview", reason=""))
    text = text_of(page)
    assert page.status_code == 200
    assert "+40.00 cr granted to Petrel" in text
    assert (
        "Petrel Spendable 10,598.40 10,638.40 Granted 10,598.40 10,638.40 Settled 0.00 0.00" in text
    )
    assert "Science Spendable 21,196.80 21,196.80 Granted 21,196.80 21,196.80" in text
    assert re.search(r"In reserve \? [^?]*0\.00 −40\.00 Orlo", text)
    assert "It gives 40.00 cr more than Science has in reserve" in text
    assert "Grant +40.00 cr" in text
    assert written() == []


def test_an_adjustment_is_shown_to_count_above_too(cast: Any, world: World) -> None:
    text = text_of(client_of(cast["admin"]).post(URL, typed(do="preview", kind="adjust")))
    assert "+40.00 cr settled in Petrel" in text
    assert "Petrel Spendable 10,598.40 10,558.40" in text
    assert text.count("Settled 0.00 40.00") == 3
    assert "Science Spendable 21,196.80 21,156.80" in text
    assert "Adjust by +40.00 cr" in text


@pytest.mark.parametrize(
    ("path", "kind", "amount"),
    [(PETREL, "grant", "40"), (PETREL, "grant", "-40"), (SCIENCE, "grant", "12.25"),
     (PETREL, "adjust", "40"), (AUK, "adjust", "0.0000025")],
)  # fmt: skip
def test_what_is_shown_is_what_is_there_afterwards(
    cast: Any, world: World, path: str, kind: str, amount: str
) -> None:
    effect = ledger.preview_by_hand(
        kind=Kind(kind),
        budget=world.tree[path],
        amount_mgpus=ledger.read_credits(amount),
        now=NOW,
    )
    answer = client_of(cast["admin"]).post(
        f"/budgets/{path}/by-hand", typed(kind=kind, amount=amount)
    )
    assert answer.status_code == 302
    assert written() == [(kind, path, ledger.read_credits(amount))]
    after = reports.figures(period=world.period, now=NOW)
    for one in effect.changes:
        mine = after[world.tree[one.path].pk]
        assert (one.granted[1], one.settled[1], one.spendable[1], one.reserve[1]) == (
            mine.granted_mgpus,
            mine.settled_mgpus,
            mine.spendable_mgpus,
            mine.reserve_mgpus,
        )


def test_the_preview_while_typing_is_a_fragment_that_says_what_is_wrong(
    cast: Any, world: World
) -> None:
    admin, address = client_of(cast["admin"]), f"{URL}/preview"
    empty = admin.post(address, {"kind": "grant", "amount": ""})
    assert "<html" not in empty.content.decode()
    assert "Say how much" in text_of(empty)
    assert "Give credits other than 0" in text_of(admin.post(address, typed(amount="1e3")))
    less = text_of(admin.post(address, typed(amount="-10598.41")))
    assert "orlo/science/petrel has 10,598.40 credits that are neither spent" in less
    assert "Grant" not in less
    assert "Grant +40.00 cr" in text_of(admin.post(address, typed()))
    # Small parts of a credit are shown as they are typed.
    assert "+0.0000025 cr granted" in text_of(admin.post(address, typed(amount="0.0000025")))
    assert written() == []


# --- Writing --------------------------------------------------------------------------------------


def test_it_is_written_told_and_shown_to_who_sees_the_budget(cast: Any, world: World) -> None:
    answer = client_of(cast["admin"]).post(URL, typed(), follow=True)
    assert answer.redirect_chain == [(f"/budgets/{PETREL}", 302)]
    assert "40.00 credits are granted to Petrel." in text_of(answer)
    entry = Entry.objects.get(key__startswith="grant:by-hand:")
    assert (entry.author, entry.note, entry.at) == (cast["admin"], "a <deadline>", NOW)
    assert AllocatorState.objects.get().requested == 1
    for address in (f"/budgets/{PETREL}", URL):
        for who in ("admin", "member"):
            page = client_of(cast[who]).get(address)
            if page.status_code == 200:
                text = text_of(page)
                assert "+40.00 cr granted, 11 Oct 2026 00:00 admin: “a <deadline>”" in text, who
                assert 'datetime="2026-10-11T00:00:00Z"' in page.content.decode()
    above = text_of(client_of(cast["admin"]).get(f"/budgets/{SCIENCE}"))
    assert "Granted and adjusted by hand" not in above


def test_who_leads_and_who_manages_the_budget_is_told_in_app_and_by_mail(
    cast: Any, world: World, settings: Any
) -> None:
    settings.EMAIL_BACKEND = "django.core.mail.backends.locmem.EmailBackend"
    client_of(cast["admin"]).post(URL, typed(kind="adjust", amount="-1.5", of=""))
    told = Notice.objects.order_by("user__username")
    assert [one.user.username for one in told] == ["colleague", "manager", "member"]
    assert {(one.kind, one.text, one.link) for one in told} == {
        (
            "by_hand",
            f"admin gave back 1.50 credits of what is settled of {PETREL}: a <deadline>",
            f"/budgets/{PETREL}",
        )
    }
    assert notices.send_due(now=NOW) == 3
    assert {one.subject for one in mail.outbox} == {f"[Allotment] {PETREL}: credits by hand"}
    assert all(one.body.startswith("admin gave back 1.50 credits") for one in mail.outbox)
    page = text_of(client_of(cast["member"]).get("/notices"))
    assert "gave back 1.50 credits" in page
    assert "credits by hand, Petrel" in page


def test_sent_twice_it_is_written_once(cast: Any, world: World) -> None:
    admin = client_of(cast["admin"])
    first, again = (admin.post(URL, typed(), follow=True) for _ in range(2))
    assert "are granted to Petrel" in text_of(first)
    assert "This was written before; it is not written again." in text_of(again)
    assert written() == [("grant", PETREL, 40 * CREDIT)]
    assert Notice.objects.count() == 3


@pytest.mark.parametrize("changes", [{"amount": "50"}, {"kind": "adjust"}])
def test_a_form_that_was_sent_is_asked_about_before_it_writes_something_else(
    cast: Any, world: World, changes: dict[str, str]
) -> None:
    """Somebody went back in the browser: what they see is from before the entry."""
    admin = client_of(cast["admin"])
    admin.post(URL, typed())
    again = admin.post(URL, typed(**changes))
    assert again.status_code == 422
    assert "This form was sent before, and an entry is written" in text_of(again)
    assert key_in(again) != KEY
    assert len(written()) == 1
    assert admin.post(URL, typed(**changes, key=key_in(again))).status_code == 302
    assert len(written()) == 2


def test_each_form_has_a_key_of_its_own(cast: Any, world: World) -> None:
    admin = client_of(cast["admin"])
    assert len({key_in(admin.get(URL)) for _ in range(2)}) == 2
    for _ in range(2):  # a key that no form of ours had is none
        assert admin.post(URL, typed(key="x")).status_code == 302
    assert len(written()) == 2


def test_gpu_hours_are_counted_at_the_pool_s_rate_of_now_and_may_be_below_0(
    cast: Any, world: World
) -> None:
    make.make_pool("b200", rate=2500)
    admin = client_of(cast["admin"])
    assert "b200 2.50 cr" in text_of(admin.get(URL))
    admin.post(URL, typed(amount="−10,5", unit="hours.b200"))
    assert written() == [("grant", PETREL, -105 * CREDIT * 25 // 100)]


def test_a_closed_period_is_corrected_by_name(cast: Any, world: World) -> None:
    closed = make.make_period(
        name="Past", status="closed", starts_at=make.LONG_AGO, ends_at=make.T0 - timedelta(days=1)
    )
    admin = client_of(cast["admin"])
    assert "the running one Past" in text_of(admin.get(URL))
    given = typed(kind="adjust", amount="-1", of=str(closed.pk))
    assert admin.post(URL, given).status_code == 302
    entry = Entry.objects.get(kind="adjust")
    assert (entry.note, entry.period) == ("For Past: a <deadline>", world.period)
    wrong = admin.post(URL, typed(of=str(closed.pk), key="f" * 32))
    assert wrong.status_code == 422
    assert text_of(wrong).count("leave the period out") == 1
    for do in ("write", "preview"):
        long = admin.post(URL, given | {"reason": "x" * 291, "key": "e" * 32, "do": do})
        assert long.status_code == 422
        assert long.context["form"].errors == {
            "reason": [
                "The reason is longer than 300 characters with 'For Past:' before it: shorten it."
            ]
        }
    assert len(written()) == 1
    given |= {"reason": "x" * 290, "key": "e" * 32}
    assert admin.post(URL, given).status_code == 302
    assert len(Entry.objects.filter(kind="adjust").latest("pk").note) == 300


BAD: list[tuple[dict[str, str], str]] = [
    ({"kind": ""}, "Choose whether to grant or to adjust."),
    ({"kind": "charge"}, "charge is not one of the available choices"),
    ({"amount": ""}, "Say how much."),
    ({"amount": "1e3"}, "Give credits other than 0 as a decimal number"),
    ({"amount": "0"}, "Give credits other than 0 as a decimal number"),
    ({"amount": "1.0000003"}, "give fewer decimals"),
    ({"amount": "99999999999"}, "of at most 27,777,777,777.78"),
    ({"amount": "-10598.41"}, "that are neither spent nor set aside"),
    ({"kind": "adjust", "amount": "10598.41"}, "that are neither spent nor set aside"),
    ({"unit": "hours.h100", "amount": "x"}, "Give GPU-hours with at most two decimals"),
    ({"unit": "hours.h100", "amount": "0"}, "Give an amount other than 0"),
    ({"unit": "hours.h100", "amount": "--1"}, "Give GPU-hours with at most two decimals"),
    ({"unit": "euros"}, "euros is not one of the available choices"),
    ({"of": "7"}, "That period is not closed: choose one of these."),
    ({"reason": "  "}, "Say why: it stands there for good."),
    ({"reason": "x" * 301}, "at most 300 characters"),
    ({"reason": "a\0b"}, "Null characters are not allowed"),
]


def test_bad_input_is_one_sentence_and_what_was_typed_stays(cast: Any, world: World) -> None:
    admin = client_of(cast["admin"])
    for changes, sentence in BAD:
        answer = admin.post(URL, given := typed(**changes))
        assert answer.status_code == 422, changes
        assert text_of(answer).count(sentence) == 1, changes
        html = answer.content.decode()
        assert f'value="{KEY}"' in html
        if "reason" not in changes:
            assert "a &lt;deadline&gt;" in html
        if given["amount"]:
            assert f'value="{given["amount"]}"' in html
        if "kind" not in changes:
            assert '<option value="grant" selected>' in html
    assert written() == []
    assert not Notice.objects.exists()


def test_without_a_period_nothing_can_be_written_and_the_page_says_so(
    cast: Any, tree: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    at(monkeypatch, NOW)
    admin = client_of(cast["admin"])
    assert "No period is running" in text_of(admin.get(URL))
    assert f'href="{URL}"' not in admin.get(f"/budgets/{PETREL}").content.decode()
    assert admin.post(URL, typed()).status_code == 422
    assert written() == []


@pytest.mark.skipif(connection.vendor != "sqlite", reason="it reads SQLite's query plans")
def test_the_list_reads_grants_and_not_all_that_a_budget_was_charged(
    cast: Any, world: World
) -> None:
    with CaptureQueriesContext(connection) as queries:
        client_of(cast["admin"]).get(URL)
    (asked,) = [q["sql"] for q in queries if "grant:by-hand:" in q["sql"]]
    with connection.cursor() as cursor:
        cursor.execute(f"EXPLAIN QUERY PLAN {asked}")
        steps = " ".join(row[3] for row in cursor.fetchall())
    assert "ledger_entry_sums (period_id=? AND budget_id=? AND kind=?" in steps


def test_more_budgets_cost_no_more_queries(cast: Any, world: World) -> None:
    def count() -> int:
        with CaptureQueriesContext(connection) as caught:
            client_of(cast["admin"]).post(URL, typed(do="preview"))
        return len(caught)

    few = count()
    more = {make.make_budget(f"b{n}", parent=world.tree["orlo/vision"]): 0 for n in range(5)}
    make.make_shares(world.tree["orlo/vision"], {world.tree["orlo/vision/tern"]: 100_000, **more})
    assert count() <= few
