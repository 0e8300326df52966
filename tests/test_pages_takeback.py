"""Pages of plans and checkpoints: what they say, what they write, and to whom."""

from typing import Any

import pytest

from budgets.models import Budget, BudgetPlan, Checkpoint, Exemption, Period
from tests.factories import HOUR, T0, make_checkpoint, make_period, make_plan
from tests.ledger_world import give
from tests.pages_world import at, client_of, text_of
from tests.takeback_world import DAY, NREL, QUARTER, carry_out, use

pytestmark = [pytest.mark.django_db, pytest.mark.once]
PETREL = "/budgets/orlo/science/petrel"
NOW = T0 + 10 * DAY


@pytest.fixture
def petrel(tree: dict[str, Budget]) -> Budget:
    return tree["orlo/science/petrel"]


@pytest.fixture
def period(petrel: Budget, monkeypatch: pytest.MonkeyPatch) -> Period:
    made = make_period()
    give(petrel, 100_000, made)
    at(monkeypatch, NOW)
    return made


def parts(*percents: str, **fields: Any) -> dict[str, Any]:
    typed = {f"part.{number}": percent for number, percent in enumerate(percents)}
    return {"by": "month", "base_version": 0, "note": ""} | typed | fields


def test_a_plan_is_typed_and_in_force(cast, period, petrel, monkeypatch) -> None:
    at(monkeypatch, T0 - DAY)
    Period.objects.filter(pk=period.pk).update(status="approved")
    client = client_of(cast["member"])
    address = f"{PETREL}/plan?period={period.pk}"
    answer = client.post(address, parts("10", "20.5", "69.5", note="the release"), follow=True)
    assert answer.status_code == 200
    plan = BudgetPlan.objects.get()
    assert (plan.parts, plan.note) == ([10_000, 20_500, 69_500], "the release")
    assert (plan.budget, plan.author) == (petrel, cast["member"])
    assert "Version 1 is the plan of 2026 Q4 now." in text_of(answer)


@pytest.mark.parametrize(
    ("typed", "said"),
    [
        (parts("0", "30", "30"), "The parts total 93.695 %: make it 100.000 %."),
        (parts("0", "30", "120"), "Give a percent from 0 to 100"),
        (parts("0", "30", "x"), "Give a percent from 0 to 100"),
        (parts("0", "30", ""), "Give it a percent; 0 is one."),
        (parts("0", "30", "36.305", base_version=4), "is at version 0 now"),
    ],
)
def test_a_plan_that_makes_no_sense_stays_in_the_form(cast, period, typed, said) -> None:
    answer = client_of(cast["member"]).post(f"{PETREL}/plan", typed)
    assert answer.status_code == 422
    assert said in text_of(answer)
    assert 'value="30"' in answer.content.decode()
    assert not BudgetPlan.objects.exists()


def test_what_has_begun_is_shown_and_not_typed(cast, period) -> None:
    answer = client_of(cast["member"]).get(f"{PETREL}/plan")
    text = text_of(answer)
    assert "October 2026 33.695" in text
    assert "has begun, stays" in text
    assert 'name="part.1"' in answer.content.decode()
    assert 'name="part.0"' not in answer.content.decode()
    made = client_of(cast["member"]).post(f"{PETREL}/plan", parts("99", "30", "36.305"))
    assert made.status_code == 302
    assert BudgetPlan.objects.get().parts == [33_695, 30_000, 36_305]


def test_a_plan_is_seen_by_quarter_too(cast, period, petrel) -> None:
    make_plan(petrel, period, [10, 20, 70])
    text = text_of(client_of(cast["viewer"]).get(f"{PETREL}/plan?by=quarter"))
    assert "1 October 2026 100.000" in text
    assert "Plan it so" not in text


def test_who_sees_and_who_plans(cast, period) -> None:
    for name, seen, planned in (
        ("member", 200, 302), ("manager", 200, 422), ("viewer", 200, 403), ("stranger", 404, 404),
        ("nobody", 404, 404),
    ):  # fmt: skip
        client = client_of(cast[name])
        assert client.get(f"{PETREL}/plan").status_code == seen, name
        answer = client.post(f"{PETREL}/plan", parts("0", "30", "36.305"))
        assert answer.status_code == planned, name  # the manager's is on an outdated version
    assert BudgetPlan.objects.count() == 1


def test_a_budget_s_page_says_what_it_would_lose(cast, period, petrel) -> None:
    make_checkpoint(period, T0 + QUARTER, NREL)
    use(petrel, 3_000, T0 + DAY)
    for address in (PETREL, f"{PETREL}/plan"):
        text = text_of(client_of(cast["viewer"]).get(address))
        assert "20,000 credits on" in text, address
        assert "To lose nothing, use by then 14,500 cr" in text
        assert "That is a day 1,115 cr" in text


def test_without_a_checkpoint_nothing_is_said_of_losses(cast, period) -> None:
    assert "What it would lose" not in text_of(client_of(cast["viewer"]).get(PETREL))
    text = text_of(client_of(cast["viewer"]).get(f"{PETREL}/plan"))
    assert "Nothing: no checkpoint lies ahead in this period." in text


def test_without_a_period_there_is_nothing_to_plan(cast, tree, monkeypatch) -> None:
    at(monkeypatch, NOW)
    client = client_of(cast["member"])
    assert "there is nothing to plan" in text_of(client.get(f"{PETREL}/plan"))
    assert client.post(f"{PETREL}/plan", parts()).status_code == 200
    assert client.post(f"{PETREL}/exemptions", {"reason": "x"}).status_code == 200


# --- Exemptions -----------------------------------------------------------------------------------


def test_an_exemption_is_asked_for_and_decided(cast, period, petrel) -> None:
    checkpoint = make_checkpoint(period, T0 + QUARTER, NREL)
    member = client_of(cast["member"])
    empty = member.post(f"{PETREL}/exemptions", {"reason": " "})
    assert (empty.status_code, Exemption.objects.count()) == (422, 0)
    answer = member.post(f"{PETREL}/exemptions", {"reason": "late data"}, follow=True)
    assert "Asked for by member: asked. “late data”" in text_of(answer)
    asked = Exemption.objects.get()
    manager, page = client_of(cast["manager"]), f"/periods/{period.pk}/checkpoints"
    assert "Exemptions to decide" in text_of(manager.get(page))
    assert "Exemptions to decide" not in text_of(member.get(page))
    for name, status in (("member", 403), ("viewer", 403), ("stranger", 404)):
        client = client_of(cast[name])
        done = client.post(f"/exemptions/{asked.pk}/approve", {"reason": "x"})
        assert done.status_code == status, name
    without = manager.post(f"/exemptions/{asked.pk}/approve", {"reason": ""}, follow=True)
    assert "Give a reason" in text_of(without)
    done = manager.post(f"/exemptions/{asked.pk}/approve", {"reason": "it is"}, follow=True)
    assert "The exemption of Petrel is approved." in text_of(done)
    assert "exempt" in text_of(done)
    assert carry_out(checkpoint) == {}


def test_who_may_not_ask(cast, period) -> None:
    make_checkpoint(period, T0 + QUARTER, NREL)
    for name, status in (("viewer", 403), ("stranger", 404), ("nobody", 404)):
        answer = client_of(cast[name]).post(f"{PETREL}/exemptions", {"reason": "x"})
        assert answer.status_code == status, name


# --- Checkpoints ----------------------------------------------------------------------------------

TYPED = {
    "at": "2026-11-16T00:00", "measured": "planned", "removed_of": "planned",
    "steps": "20 80\n40 % 55 %\n\n70,5 20".replace(",", "."), "cumulative": "on", "own_plans": "on",
    "spared_days": "0",
}  # fmt: skip


def test_an_administrator_sets_and_removes_a_checkpoint(cast, period) -> None:
    client, page = client_of(cast["admin"]), f"/periods/{period.pk}/checkpoints"
    answer = client.post(page, TYPED, follow=True)
    made = Checkpoint.objects.get()
    assert made.steps == [[20_000, 80_000], [40_000, 55_000], [70_500, 20_000]]
    assert (made.at, made.author, made.cumulative) == (T0 + 46 * DAY, cast["admin"], True)
    assert (made.gives_back, made.initial_only) == (False, False)
    assert "As things stand one budget loses 40,000 credits" in text_of(answer)
    answer = client.post(f"/checkpoints/{made.pk}/remove", follow=True)
    assert not Checkpoint.objects.exists()
    assert "nothing is taken back" in text_of(answer)


@pytest.mark.parametrize(
    ("typed", "said"),
    [
        ({"steps": "20"}, "A step is two percents"),
        ({"steps": "20 x"}, "Give a percent from 0 to 100"),
        ({"steps": "70 20\n20 80"}, "Order the steps"),
        ({"at": "2026-10-12T00:00"}, "7 days at least"),
        ({"at": "2027-10-12T00:00"}, "must lie inside"),
        ({"at": "soon"}, "Give a date and a time"),
        ({"at": "1969-10-12T00:00"}, "Give a year from 1970 to 2199."),
        ({"spared_days": "400"}, "366"),
        ({"cumulative": "", "gives_back": "on"}, "counted in all is given back"),
    ],
)
def test_a_checkpoint_that_makes_no_sense_stays_in_the_form(cast, period, typed, said) -> None:
    answer = client_of(cast["admin"]).post(f"/periods/{period.pk}/checkpoints", TYPED | typed)
    assert answer.status_code == 422
    assert said in text_of(answer)
    assert not Checkpoint.objects.exists()


def test_nobody_else_sets_or_removes_one(cast, period) -> None:
    checkpoint = make_checkpoint(period, T0 + QUARTER, NREL)
    for name in ("manager", "member", "nobody"):
        client = client_of(cast[name])
        assert client.get(f"/periods/{period.pk}/checkpoints").status_code == 200
        assert client.post(f"/periods/{period.pk}/checkpoints", TYPED).status_code == 403
        assert client.post(f"/checkpoints/{checkpoint.pk}/remove").status_code == 403
    assert Checkpoint.objects.count() == 1
    assert client_of(cast["admin"]).get("/periods/9999/checkpoints").status_code == 404


def test_the_dry_run_shows_what_one_may_see_and_its_total(cast, tree, period, petrel) -> None:
    give(tree["orlo/vision/tern"], 1_000, period)
    make_checkpoint(period, T0 + QUARTER, NREL)
    page = f"/periods/{period.pk}/checkpoints"
    everything = text_of(client_of(cast["admin"]).get(page))
    assert "As things stand 2 budgets lose 20,200 credits" in everything
    assert "below 20.0 %: 80.0 %" in everything
    mine = text_of(client_of(cast["member"]).get(page))
    assert "one budget loses 20,000 credits" in mine
    assert "Tern" not in mine
    assert "You see none" in text_of(client_of(cast["nobody"]).get(page))


def test_what_a_checkpoint_took_is_shown_afterwards(cast, period, monkeypatch) -> None:
    checkpoint = make_checkpoint(period, T0 + QUARTER, NREL)
    carry_out(checkpoint)
    at(monkeypatch, checkpoint.at + 2 * HOUR)
    page = f"/periods/{period.pk}/checkpoints"
    assert "Took 20,000 credits: Petrel 20,000" in text_of(client_of(cast["viewer"]).get(page))
    hidden = text_of(client_of(cast["stranger"]).get(page))
    assert "Took nothing of the budgets that you see." in hidden
    answer = client_of(cast["admin"]).post(f"/checkpoints/{checkpoint.pk}/remove", follow=True)
    assert "is over" in text_of(answer)


def test_what_a_checkpoint_gives_back_is_said_before_and_after(
    cast, period, petrel, monkeypatch
) -> None:
    rule: dict[str, Any] = {"removed_of": "unused", "gives_back": True, "initial_only": True}
    first, second = (
        make_checkpoint(period, T0 + n * QUARTER, [(100, 100)], **rule) for n in (1, 2)
    )
    carry_out(first)
    use(petrel, 40_000, first.at + DAY)
    at(monkeypatch, first.at + 2 * DAY)
    page = f"/periods/{period.pk}/checkpoints"
    said = text_of(client_of(cast["admin"]).get(page))
    assert "in all, gives back, of first grants alone" in said
    assert "gets back 15,000" in said
    mine = text_of(client_of(cast["member"]).get("/budgets/orlo/science/petrel/plan"))
    assert "it gets back 15,000 credits out of the reserve of Science" in mine
    carry_out(second)
    at(monkeypatch, second.at + 2 * HOUR)
    assert "Gave back: Petrel 15,000" in text_of(client_of(cast["viewer"]).get(page))


def test_a_checkpoint_that_gives_back_is_set_on_the_page(cast, period) -> None:
    typed = TYPED | {"gives_back": "on", "initial_only": "on"}
    client_of(cast["admin"]).post(f"/periods/{period.pk}/checkpoints", typed)
    made = Checkpoint.objects.get()
    assert (made.gives_back, made.initial_only) == (True, True)
