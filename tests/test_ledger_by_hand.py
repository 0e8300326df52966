"""Grants and adjustments by hand: over the API, by command, and what both refuse."""

from datetime import datetime
from typing import Any

import pytest

from allocator.models import AllocatorState
from budgets.models import Budget, Notice, Period
from ledger import reports, services
from ledger.models import Entry
from ledger.services import Kind
from tests import factories as make
from tests.ledger_world import CREDIT, give, give_alone
from tests.test_ledger_commands import run_command

pytestmark = pytest.mark.django_db
PETREL, AUK, SCIENCE = "orlo/science/petrel", "orlo/science/auk", "orlo/science"
URL = f"/api/v1/budgets/{PETREL}/by-hand/"
NOW = datetime.fromisoformat("2026-10-05T00:00:00+00:00")


@pytest.fixture(autouse=True)
def period(tree: dict[str, Budget]) -> Period:
    """10 credits for petrel and auk each, and 5 more in science's reserve."""
    period = make.make_period(starts_at=make.LONG_AGO, ends_at=make.LONG_AGO.replace(year=2100))
    for path in (PETREL, AUK):
        give(tree[path], 10, period)
    give(tree[SCIENCE], 5, period)
    return period


def body(kind: str = "grant", credits: int = 4, **given: Any) -> dict[str, Any]:
    return {"kind": kind, "amount_mgpus": credits * CREDIT, "reason": "a deadline", **given}


def test_a_grant_is_written_told_and_listed(api_of: Any, period: Period) -> None:
    before = AllocatorState.objects.first()
    answer = api_of("admin").post(URL, body())
    assert answer.status_code == 201
    row = answer.json()
    assert (row["kind"], row["budget"], row["amount_mgpus"]) == ("grant", PETREL, 4 * CREDIT)
    assert (row["author"], row["reason"], row["period"]) == ("admin", "a deadline", period.name)
    told = Notice.objects.order_by("user__username")
    assert {one.user.username for one in told} == {"member", "colleague", "manager"}
    assert {one.kind for one in told} == {"by_hand"}
    assert told[0].text == f"admin granted 4.00 credits to {PETREL}: a deadline"
    assert AllocatorState.objects.get().requested == (before.requested if before else 0) + 1
    (seen,) = api_of("member").get(URL).json()["results"]
    assert seen["id"] == row["id"]


def test_the_same_key_is_the_same_entry_and_another_request_conflicts(api_of: Any) -> None:
    admin = api_of("admin")
    first = admin.post(URL, body(idempotency_key="a"))
    planned = AllocatorState.objects.get().requested
    again = admin.post(URL, body(), headers={"Idempotency-Key": "a"})
    assert AllocatorState.objects.get().requested == planned
    assert (first.status_code, again.status_code) == (201, 200)
    assert first.json() == again.json()
    assert Notice.objects.count() == 3  # petrel's two members and science's manager
    for other in (body(credits=5), body("adjust", -4)):
        assert admin.post(URL, other | {"idempotency_key": "a"}).status_code == 409
    both = admin.post(URL, body(idempotency_key="b"), headers={"Idempotency-Key": "c"})
    assert both.status_code == 400
    assert "differs from the header" in both.json()["detail"]


def test_what_it_would_do_is_shown_and_nothing_written(
    api_of: Any, cast: Any, tree: dict[str, Budget], period: Period
) -> None:
    asked = {"kind": "grant", "amount_mgpus": 8 * CREDIT}
    answer = api_of("admin").post(f"{URL}preview/", asked)
    assert answer.status_code == 200
    found = answer.json()
    assert (found["goes_beyond_reserve"], found["beyond_reserve_mgpus"]) == (True, 3 * CREDIT)
    assert [one["path"] for one in found["changes"]] == [PETREL, SCIENCE, "orlo"]
    assert found["changes"][0]["granted_mgpus"] == {"before": 10 * CREDIT, "after": 18 * CREDIT}
    assert found["changes"][1]["reserve_mgpus"] == {"before": 5 * CREDIT, "after": -3 * CREDIT}
    spent = api_of("admin").post(f"{URL}preview/", {"kind": "adjust", "amount_mgpus": CREDIT})
    for one in spent.json()["changes"]:
        assert one["settled_mgpus"] == {"before": 0, "after": CREDIT}
    more = api_of("admin").post(f"{URL}preview/", {"kind": "adjust", "amount_mgpus": 11 * CREDIT})
    assert more.status_code == 400
    assert "petrel has 10.00 credits" in more.json()["detail"]
    assert not Entry.objects.filter(key__startswith="grant:by-hand:").exists()
    assert not Notice.objects.exists()


@pytest.fixture
def below(cast: Any, tree: dict[str, Budget]) -> str:
    """Return who administers petrel and sees nothing above it."""
    make.make_role(cast["nobody"], tree[PETREL], "administrator")
    return "nobody"


def test_of_a_reserve_out_of_sight_nothing_is_told_however_often_one_asks(
    api_of: Any, below: str
) -> None:
    for credits in (-5, 5, 6, 8000):
        asked = {"kind": "grant", "amount_mgpus": credits * CREDIT}
        answer = api_of(below).post(f"{URL}preview/", asked).json()
        assert [one["path"] for one in answer.pop("changes")] == [PETREL]
        assert answer == {"goes_beyond_reserve": None, "beyond_reserve_mgpus": None}
    args = ("by_hand", "grant", PETREL, "8", "--by", below, "--why", "new", "--dry-run")
    status, text = run_command(*args)
    assert status == 0
    shown, *rest = text.splitlines()
    assert shown.startswith(f"{PETREL}: granted 10.00 -> 18.00")
    assert rest == ["Nothing is written."]


def test_a_refusal_names_no_ancestor_out_of_sight_nor_what_it_has(
    api_of: Any, tree: dict[str, Budget], period: Period, below: str
) -> None:
    give_alone(tree[PETREL], 90, period)  # 100, of science's 25
    for address, asked in (
        (URL, body("adjust", 50)),
        (f"{URL}preview/", {"kind": "adjust", "amount_mgpus": 50 * CREDIT}),
    ):
        seen = api_of("admin").post(address, asked).json()["detail"]
        assert "has 25.00 credits that are neither spent nor set aside, not 50.00" in seen
        answer = api_of(below).post(address, asked)
        assert answer.status_code == 400
        assert answer.json()["detail"].endswith(
            "Above this budget there are fewer than 50.00 credits that are neither spent nor set "
            "aside: move less."
        )
        assert "25.00" not in answer.content.decode()
    # What is short in sight is named, even where a budget out of sight binds more.
    most = api_of(below).post(URL, body("adjust", 101)).json()["detail"]
    assert f"{PETREL} has 100.00 credits" in most
    assert not Entry.objects.filter(kind="adjust").exists()


def test_nothing_falls_below_what_is_spent(
    api_of: Any, tree: dict[str, Budget], period: Period
) -> None:
    admin = api_of("admin")
    assert admin.post(URL, body("adjust", 7)).status_code == 201
    for refused in (body("adjust", 4), body("grant", -4)):
        answer = admin.post(URL, refused)
        assert answer.status_code == 400
        assert "petrel has 3.00 credits" in answer.json()["detail"]
    assert admin.post(URL, body("grant", -3)).status_code == 201
    mine = reports.figures(period=period, now=make.T0)[tree[PETREL].pk]
    assert (mine.granted_mgpus, mine.settled_mgpus) == (7 * CREDIT, 7 * CREDIT)


def test_an_adjustment_counts_in_every_ancestor(tree: dict[str, Budget], api_of: Any) -> None:
    give_alone(tree[AUK], 90, Period.objects.get())
    answer = api_of("admin").post(f"/api/v1/budgets/{AUK}/by-hand/", body("adjust", 50))
    assert answer.status_code == 400
    assert "credits that are neither spent nor set aside" in answer.json()["detail"]
    assert not Entry.objects.filter(kind="adjust").exists()


def test_a_closed_period_is_corrected_in_the_open_one(api_of: Any, period: Period) -> None:
    closed = make.make_period(
        name="Past",
        status="closed",
        starts_at=make.LONG_AGO.replace(year=1999),
        ends_at=make.LONG_AGO,
    )
    admin = api_of("admin")
    answer = admin.post(URL, body("adjust", -1, of=closed.pk, idempotency_key="a"))
    assert answer.status_code == 201
    assert (answer.json()["period"], answer.json()["reason"]) == (
        period.name,
        "For Past: a deadline",
    )
    assert admin.post(URL, body("adjust", -1, idempotency_key="a")).status_code == 409
    assert "is not closed" in admin.post(URL, body("adjust", -1, of=period.pk)).json()["detail"]
    assert "leave the period out" in admin.post(URL, body(of=closed.pk)).json()["detail"]
    asked = {"kind": "adjust", "amount_mgpus": -CREDIT, "of": period.pk}
    assert "is not closed" in admin.post(f"{URL}preview/", asked).json()["detail"]
    long = admin.post(URL, body("adjust", -1, of=closed.pk, reason="x" * 291)).json()
    assert [one["field"] for one in long["errors"]] == ["reason"]
    assert "longer than 300 characters with 'For Past:' before it" in long["detail"]
    just = body("adjust", -1, of=closed.pk, reason="x" * 290)
    assert len(admin.post(URL, just).json()["reason"]) == 300
    assert "no such period" in admin.post(URL, body("adjust", -1, of=10**8)).json()["detail"]


@pytest.mark.parametrize(
    "changes",
    [
        {"amount_mgpus": 0},
        {"amount_mgpus": 10**18},
        {"amount_mgpus": "1"},
        {"amount_mgpus": 1.5},
        {"reason": " "},
        {"reason": "x" * 301},
        {"kind": "charge"},
        {"idempotency_key": "x" * 61},
    ],
)
def test_bad_input_is_refused_and_nothing_written(api_of: Any, changes: dict[str, Any]) -> None:
    answer = api_of("admin").post(URL, body() | changes)
    assert answer.status_code == 400
    assert answer.json()["detail"]
    assert not Notice.objects.exists()
    assert not Entry.objects.filter(key__startswith="grant:by-hand:").exists()


def test_credits_are_read_exactly() -> None:
    read = services.read_credits
    assert read("250.5") == 901_800_000
    assert read("-0.00001") == -36
    assert read(" +0.1 ") == 360_000
    assert read("0.0000025") == 9
    assert read("27777777777") == 27_777_777_777 * CREDIT


@pytest.mark.parametrize(
    "text",
    [
        "",
        "NaN",
        "inf",
        "1e3",
        "0",
        "0.0000001",
        "1.0000003",
        "99999999999",
        "1" * 400,
        "1.",
        "٣",
        "1,5",
    ],
)
def test_other_amounts_get_one_sentence(text: str) -> None:
    with pytest.raises(services.LedgerError) as refused:
        services.read_credits(text)
    assert str(refused.value).count("\n") == 0
    assert len(str(refused.value)) < 160


@pytest.mark.parametrize(("kind", "credits"), [(Kind.GRANT, 8), (Kind.GRANT, -6), (Kind.ADJUST, 7)])
def test_what_is_shown_is_what_is_there_afterwards(
    cast: Any, tree: dict[str, Budget], period: Period, kind: Kind, credits: int
) -> None:
    asked: dict[str, Any] = {
        "kind": kind, "budget": tree[PETREL], "amount_mgpus": credits * CREDIT, "now": NOW,
    }  # fmt: skip
    effect = services.preview_by_hand(**asked)
    services.write_by_hand(**asked, author=cast["admin"], note="x", key="k")
    after = reports.figures(period=period, now=NOW)
    assert [one.path for one in effect.changes] == [PETREL, SCIENCE, "orlo"]
    for one in effect.changes:
        mine = after[tree[one.path].pk]
        assert (one.granted[1], one.settled[1], one.spendable[1], one.reserve[1]) == (
            mine.granted_mgpus, mine.settled_mgpus, mine.spendable_mgpus, mine.reserve_mgpus,
        )  # fmt: skip
    assert effect.beyond == (3 * CREDIT if credits == 8 else 0)
    assert effect.goes_beyond is (credits == 8)


@pytest.mark.parametrize(("kind", "credits"), [(Kind.GRANT, -11), (Kind.ADJUST, 11)])
def test_what_would_be_refused_is_not_shown(
    tree: dict[str, Budget], kind: Kind, credits: int
) -> None:
    with pytest.raises(services.LedgerError, match=r"petrel has 10\.00 credits"):
        services.preview_by_hand(
            kind=kind, budget=tree[PETREL], amount_mgpus=credits * CREDIT, now=NOW
        )


def test_an_archived_budget_is_given_nothing(cast: Any, tree: dict[str, Budget]) -> None:
    tree[PETREL].archived_at = NOW
    with pytest.raises(services.LedgerError, match="is archived"):
        services.preview_by_hand(kind=Kind.GRANT, budget=tree[PETREL], amount_mgpus=1, now=NOW)


def test_the_command_shows_and_then_writes_once(cast: Any) -> None:
    args = ("by_hand", "grant", PETREL, "8", "--by", "admin", "--why", "new", "--key", "a")
    status, text = run_command(*args, "--dry-run")
    assert status == 0
    assert f"{PETREL}: granted 10.00 -> 18.00" in text
    assert "It gives 3.00 more than the parent's reserve." in text
    assert not Entry.objects.filter(key__startswith="grant:by-hand:").exists()
    assert run_command(*args)[1].startswith("Written: entry")
    assert run_command(*args)[1].startswith("Written before: entry")
    assert Entry.objects.filter(key__startswith="grant:by-hand:").count() == 1
    assert run_command("by_hand", "adjust", PETREL, "-1.5", "--by", "admin", "--why", "x")[0] == 0


OF = [
    ("adjust", "Nothing", "There are 0 periods called 'Nothing'"),
    ("adjust", "2026 Q4", "2026 Q4 is not closed"),
    ("grant", "Past", "Only an adjustment is about a closed period"),
    ("adjust", "Past", "longer than 300 characters with 'For Past:' before it"),
]


@pytest.mark.parametrize(("kind", "name", "sentence"), OF)
def test_the_command_refuses_a_period_in_a_dry_run_as_it_would_then(
    cast: Any, kind: str, name: str, sentence: str
) -> None:
    make.make_period(
        name="Past",
        status="closed",
        starts_at=make.LONG_AGO.replace(year=1999),
        ends_at=make.LONG_AGO,
    )
    why = "x" * 291 if "longer" in sentence else "x"
    args = ("by_hand", kind, PETREL, "-1", "--by", "admin", "--why", why, "--of", name)
    for dry in ((), ("--dry-run",)):
        status, text = run_command(*args, *dry)
        assert (status, sentence in text) == (2, True), dry
    assert not Entry.objects.filter(author__username="admin").exists()


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"by": "manager"}, "but not administer it"),
        ({"by": "stranger"}, "sees no budget"),
        ({"by": "no one"}, "no active account"),
        ({"credits": "NaN"}, "Give credits other than 0"),
        ({"credits": "-11"}, "petrel has 10.00 credits"),
        ({"why": " "}, "Give a reason"),
    ],
)
def test_the_command_refuses_in_one_line(cast: Any, changes: dict[str, str], sentence: str) -> None:
    asked = {"by": "admin", "credits": "1", "why": "x"} | changes
    status, text = run_command(
        "by_hand", "grant", PETREL, asked["credits"], "--by", asked["by"], "--why", asked["why"]
    )
    assert status == 2
    assert sentence in text
    assert "\n" not in text
