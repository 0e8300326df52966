"""Pages of periods: the list, a draft with its plan, a closed one with its statement."""

from datetime import timedelta
from typing import Any

import pytest
from django.test import Client

from allocator import turning
from budgets import period_plans, periods
from budgets.models import Period
from budgets.period_plans import NewShares
from config import clock
from ledger import services
from tests import factories as make
from tests.ledger_world import CREDIT, give

pytestmark = [pytest.mark.django_db, pytest.mark.once]
T0, T1, HOUR = make.T0, make.T1, make.HOUR
NOW = T0 + timedelta(days=20)


@pytest.fixture(autouse=True)
def _at(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clock, "now", lambda: NOW)
    monkeypatch.setattr("budgets.views.now", lambda: NOW)
    monkeypatch.setattr("config.shell.now", lambda: NOW)


@pytest.fixture
def browse(cast: Any) -> Any:
    """Return a function from a name of the cast to a client that is signed in as them."""

    def sign_in(name: str) -> Client:
        client = Client()
        client.force_login(cast[name])
        return client

    return sign_in


@pytest.fixture
def world(tree: Any) -> dict[str, Period]:
    """A closed hour that was corrected, the running quarter, and the draft of the next."""
    make.make_nodes(make.make_pool("h100"), 1)
    border, petrel = T0 + HOUR, tree["orlo/science/petrel"]
    running = make.make_period("2026 Q4", starts_at=border, status="approved")
    hour = make.make_period("the first hour", ends_at=border)
    give(petrel, 9, hour)
    give(petrel, 600, running)
    spent: dict[str, Any] = {"budget": petrel, "author": make.make_user("ada")}
    services.adjust(amount_mgpus=5 * CREDIT, note="by hand", key="1", now=T0, **spent)
    Period.objects.filter(pk=running.pk).update(status="active")
    turning.close_over(at=border)
    hour.refresh_from_db()
    services.adjust(
        amount_mgpus=-2 * CREDIT, note="<b>too much</b>", key="2", now=border, of=hour, **spent
    )
    following = periods.draft_period(
        name="2027 Q1", starts_at=T1, ends_at=T1 + timedelta(days=90), now=T0,
        carry_over_cap=25_000,
    )  # fmt: skip
    return {"closed": hour, "running": running, "draft": following}


def text(client: Client, url: str, status: int = 200) -> str:
    answer = client.get(url)
    assert answer.status_code == status
    return " ".join(answer.content.decode().split())


def test_the_list_says_what_runs_and_what_follows(browse: Any, world: dict[str, Period]) -> None:
    page = text(browse("member"), "/periods")
    assert "<b>2026 Q4</b> runs until 1 Jan 2027 00:00." in page
    assert "None is approved to follow." in page
    assert "Draft a period" not in page
    periods.approve_period(period=world["draft"])
    page = text(browse("admin"), "/periods")
    assert "2027 Q1 is approved and starts by itself on 1 Jan 2027 00:00." in page
    assert "2027 Q1 ends as 2027-04-01 begins." in page
    assert [page.index(f">{name}</a>") for name in ("2027 Q1", "2026 Q4", "the first hour")] == (
        sorted(page.index(f">{name}</a>") for name in ("2027 Q1", "2026 Q4", "the first hour"))
    )


def test_administrators_draft_a_period_in_the_form(browse: Any, world: dict[str, Period]) -> None:
    asked = {
        "name": "2027 Q2", "calendar": "2027-Q2", "time_zone": "America/New_York",
        "carry_over": "12.5", "carry_over_most": "1000",
    }  # fmt: skip
    made = browse("admin").post("/periods", asked)
    period = Period.objects.get(name="2027 Q2")
    assert made["Location"] == f"/periods/{period.pk}"
    assert period.starts_at.isoformat() == "2027-04-01T04:00:00+00:00"
    assert (period.carry_over_cap, period.carry_over_max_mgpus) == (12_500, 1000 * CREDIT)
    browse("manager").post("/periods", asked | {"name": "mine"})
    assert not Period.objects.filter(name="mine").exists()


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"name": ""}, "Give the period a name"),
        ({"name": "2026 Q4"}, "that no other has"),
        ({"calendar": "Q2"}, "&#x27;Q2&#x27; is no month or quarter"),
        ({"calendar": ""}, "Give either a calendar"),
        (
            {"calendar": "", "starts_on": "0001-01-01", "ends_on": "2027-07-01"},
            "Give a date of the years 1970 to 2199.",
        ),
        ({"time_zone": "Mars"}, "&#x27;Mars&#x27; is no time zone"),
        ({"carry_over": "101"}, "Give a percent from 0 to 100"),
        ({"carry_over": ""}, "Give a percent too"),
        ({"carry_over_most": "x"}, "Give whole credits"),
    ],
)
def test_what_is_wrong_in_the_form_is_said_and_nothing_lost(
    browse: Any, world: dict[str, Period], changed: dict[str, str], words: str
) -> None:
    asked = {
        "name": "2027 Q2", "calendar": "2027-Q2", "time_zone": "Asia/Tokyo",
        "carry_over": "10", "carry_over_most": "77",
    } | changed  # fmt: skip
    answer = browse("admin").post("/periods", asked)
    assert answer.status_code == 422
    page = answer.content.decode()
    assert words in page
    assert 'value="77"' in page or "carry_over_most" in changed
    assert Period.objects.count() == 3


def test_a_draft_shows_its_plan_beside_what_is_in_force(
    browse: Any, world: dict[str, Period], tree: Any, cast: Any
) -> None:
    shares = {tree["orlo/science/petrel"]: 90_000, tree["orlo/science/auk"]: 10_000}
    (proposal,) = period_plans.plan_shares(
        period=world["draft"], changes=[NewShares(tree["orlo/science"], shares, 1)],
        reason="petrel trains", author=cast["member"], now=T0,
    )  # fmt: skip
    url = f"/periods/{world['draft'].pk}"
    page = text(browse("manager"), url)
    assert "Starting it would grant Science <b>10,368</b> credits" in page
    assert "; in 2026 Q4 it was granted 600." in page
    assert '<b class="w6">90.000</b>' in page
    assert "9,331" in page
    assert f"/budgets/orlo/science/shares?set={proposal.pk}&amp;period={world['draft'].pk}" in page
    assert "Look and decide" in page
    assert "Tern" not in page
    assert "Before you decide" not in page
    assert "<form" not in page.split("<main")[-1]
    assert "25.0 % of what was left" in page
    admin = text(browse("admin"), url)
    assert "Before you decide" in admin
    assert "the planned shares of orlo/science, is not decided." in admin
    assert "Approve</button>" in admin
    seen = text(browse("viewer"), url)
    assert "Look and decide" not in seen
    assert "Science" not in seen.split("<main")[-1]


def test_the_share_editor_opens_on_the_start_of_the_period(
    browse: Any, world: dict[str, Period]
) -> None:
    def editor(pk: object) -> str:
        return text(browse("manager"), f"/budgets/orlo/science/shares?period={pk}")

    page = editor(world["draft"].pk)
    assert 'value="date" selected' in page
    assert 'value="2027-01-01T00:00"' in page
    for other in (world["running"].pk, 999_999, "x"):
        page = editor(other)
        assert 'value="now" selected' in page
        assert "2027-01-01T00:00" not in page


def test_administrators_decide_on_the_page(browse: Any, world: dict[str, Period]) -> None:
    draft, client = world["draft"], browse("admin")

    def decide(what: str) -> str:
        answer = client.post(f"/periods/{draft.pk}/{what}", follow=True)
        assert answer.status_code == 200
        return " ".join(answer.content.decode().split())

    assert "2027 Q1: proposed." in decide("propose")
    assert "2027 Q1: draft." in decide("withdraw")
    assert "2027 Q1: approved." in decide("approve")
    assert "2027 Q1 is approved: it can&#x27;t become approved." in decide("approve")
    assert browse("manager").post(f"/periods/{draft.pk}/withdraw").status_code == 403
    draft.refresh_from_db()
    assert draft.status == "approved"


def test_a_running_period_says_how_far_it_is(browse: Any, world: dict[str, Period]) -> None:
    page = text(browse("admin"), f"/periods/{world['running'].pk}")
    assert "Orlo has settled <b>−2</b> of <b>600</b> credits so far." in page
    assert "closes by itself" in page


def test_a_closed_period_shows_its_statement_and_beside_it_what_was_corrected(
    browse: Any, world: dict[str, Period]
) -> None:
    url = f"/periods/{world['closed'].pk}"
    page = text(browse("manager"), url)
    assert (
        "Science settled <b>5</b> credits and left <b>4</b> unspent. Corrected later: −2." in page
    )
    assert "as it was on 1 Oct 2026 01:00" in page
    assert "&lt;b&gt;too much&lt;/b&gt;" in page
    assert "Vision" not in page
    answer = browse("manager").get(f"{url}/statement.csv")
    lines = answer.content.decode().splitlines()
    assert lines[0].startswith("path,name,granted_mgpus,")
    assert [line.split(",")[0] for line in lines[1:]] == [
        *("orlo/science", "orlo/science/auk", "orlo/science/petrel"),
    ]
    others = text(browse("stranger"), url)
    assert "too much" not in others
    assert "Petrel" not in others
    assert browse("admin").get(f"/periods/{world['draft'].pk}/statement.csv").status_code == 404
    assert browse("admin").get("/periods/999999").status_code == 404


def test_the_pages_are_for_those_who_are_signed_in_and_stand_in_the_side_bar(
    browse: Any, world: dict[str, Period]
) -> None:
    for url in ("/periods", f"/periods/{world['draft'].pk}"):
        assert Client().get(url)["Location"].startswith("/sign-in")
    page = text(browse("nobody"), "/periods")
    assert 'href="/periods" aria-current="page"' in page
