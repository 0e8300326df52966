"""Plans, checkpoints and exemptions over the API: answers, refusals and who may."""

from typing import Any

import pytest

from budgets.models import Budget, BudgetPlan, Checkpoint, Exemption, Period
from config import clock
from tests.factories import HOUR, T0, make_checkpoint, make_period, make_plan, someone
from tests.ledger_world import CREDIT, give
from tests.takeback_world import DAY, NREL, QUARTER, carry_out, use

pytestmark = pytest.mark.django_db
PLAN = "/api/v1/budgets/orlo/science/petrel/plan/"
EXEMPTIONS = "/api/v1/budgets/orlo/science/petrel/exemptions/"
NOW = T0 - DAY
STEPS = [{"below": 20_000, "remove": 80_000}, {"below": 70_000, "remove": 20_000}]
WANTED: dict[str, Any] = {
    "at": "2026-10-24T00:00:00Z", "measured": "planned", "removed_of": "planned",
    "cumulative": True, "steps": STEPS,
}  # fmt: skip


@pytest.fixture
def petrel(tree: dict[str, Budget]) -> Budget:
    return tree["orlo/science/petrel"]


@pytest.fixture
def period(petrel: Budget) -> Period:
    made = make_period()
    give(petrel, 100_000, made)
    return made


@pytest.fixture(autouse=True)
def _clock(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clock, "now", lambda: NOW)


def at(monkeypatch: pytest.MonkeyPatch, now: Any) -> None:
    monkeypatch.setattr(clock, "now", lambda: now)


# --- Plans ----------------------------------------------------------------------------------------


def post_plan(client: Any, period: Period, *percents: int, **fields: Any) -> Any:
    parts = [percent * 1000 for percent in percents]
    body = {"period": period.pk, "by": "month", "parts": parts, "base_version": 0} | fields
    return client.post(PLAN, body, format="json")


def test_a_plan_is_given_and_read(api_of, period, petrel, monkeypatch) -> None:
    made = post_plan(api_of("member"), period, 10, 20, 70, note="the release")
    assert made.status_code == 201
    assert (made.json()["version"], made.json()["author"]) == (1, "member")
    use(petrel, 4_500, T0 + DAY)
    at(monkeypatch, T0 + 15 * DAY + 12 * HOUR)
    found = api_of("viewer").get(PLAN).json()
    assert found["note"] == "the release"
    assert [part["thousandths"] for part in found["parts"]] == [10_000, 20_000, 70_000]
    assert [part["begun"] for part in found["parts"]] == [True, False, False]
    assert [part["planned_mgpus"] // CREDIT for part in found["parts"]] == [10_000, 20_000, 70_000]
    assert found["parts"][1]["starts_at"] == "2026-11-01T00:00:00Z"
    assert found["planned_to_date_mgpus"] == 5_000 * CREDIT
    assert found["pace_per_mille"] == 900


def test_without_a_plan_time_is_the_plan(api_of, period, monkeypatch) -> None:
    at(monkeypatch, T0 + 2 * QUARTER)
    found = api_of("member").get(PLAN).json()
    assert (found["version"], found["author"], found["created_at"]) == (0, None, None)
    assert found["planned_to_date_mgpus"] == 50_000 * CREDIT
    assert sum(part["thousandths"] for part in found["parts"]) == 100_000
    quarters = api_of("member").get(PLAN, {"by": "quarter"}).json()["parts"]
    assert [part["thousandths"] for part in quarters] == [100_000]


def test_a_plan_that_makes_no_sense_is_refused_with_what_to_change(api_of, period) -> None:
    client = api_of("member")
    nowhere = {"by": "month", "parts": [], "base_version": 0}
    answers = [
        (post_plan(client, period, 10, 20, 69), "The parts total 99.000 %: make it 100.000 %."),
        (post_plan(client, period, 50, 50), "2026 Q4 has 3 months: give a percent for each."),
        (post_plan(client, period, 10, 20, 70, base_version=3), "is at version 0 now"),
        (client.post(PLAN, nowhere | {"period": 9_999}, format="json"), "There is no such period."),
        (client.post(PLAN, nowhere, format="json"), "No period is active now"),
        (post_plan(client, period, 10, 20, 70, by="week"), "week"),
        (post_plan(client, period, 10, 20, 70, parts=["1"]), "whole number"),
    ]  # fmt: skip
    for answer, said in answers:
        assert answer.status_code == 400, said
        assert said in answer.json()["detail"]
    assert not BudgetPlan.objects.exists()


def test_who_may_plan(api_of, period) -> None:
    for name, status in (("viewer", 403), ("stranger", 404), ("nobody", 404), ("manager", 201)):
        assert post_plan(api_of(name), period, 10, 20, 70).status_code == status, name
    assert api_of("stranger").get(PLAN).status_code == 404


# --- Checkpoints ----------------------------------------------------------------------------------


def address(period: Period, tail: str = "") -> str:
    return f"/api/v1/periods/{period.pk}/checkpoints/{tail}"


def test_an_administrator_adds_and_removes_checkpoints(api_of, period) -> None:
    admin = api_of("admin")
    wanted = WANTED | {"gives_back": True, "initial_only": True}
    made = admin.post(address(period), wanted, format="json")
    assert made.status_code == 201
    assert (made.json()["gives_back"], made.json()["initial_only"]) == (True, True)
    assert made.json()["steps"] == STEPS
    assert (made.json()["author"], made.json()["own_plans"]) == ("admin", True)
    (row,) = api_of("nobody").get(address(period)).json()
    assert (row["at"], row["results"]) == ("2026-10-24T00:00:00Z", [])
    assert admin.delete(f"/api/v1/checkpoints/{row['id']}/").status_code == 204
    assert api_of("nobody").get(address(period)).json() == []
    assert admin.delete(f"/api/v1/checkpoints/{row['id']}/").status_code == 404


def test_nobody_else_does(api_of, period) -> None:
    checkpoint = make_checkpoint(period, T0 + QUARTER, NREL)
    for name in ("manager", "member", "viewer", "nobody"):
        assert api_of(name).post(address(period), WANTED, format="json").status_code == 403
        assert api_of(name).delete(f"/api/v1/checkpoints/{checkpoint.pk}/").status_code == 403
    assert Checkpoint.objects.count() == 1


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"steps": []}, "1 to 10 steps"),
        ({"steps": STEPS[::-1]}, "Order the steps"),
        ({"at": "2026-09-01T00:00:00Z"}, "must lie inside"),
        ({"measured": "spent"}, "spent"),
        ({"cumulative": "yes"}, "true or false"),
        ({"cumulative": False, "gives_back": True}, "counted in all is given back"),
        ({"removed": "planned"}, "did you mean 'removed_of'?"),
    ],
)
def test_a_checkpoint_that_makes_no_sense_is_refused(api_of, period, fields, said) -> None:
    answer = api_of("admin").post(address(period), WANTED | fields, format="json")
    assert answer.status_code == 400
    assert said in answer.json()["detail"]
    assert not Checkpoint.objects.exists()


def test_a_dry_run_shows_what_the_next_would_take(
    api_of, tree, period, petrel, monkeypatch
) -> None:
    checkpoint = make_checkpoint(period, T0 + QUARTER, NREL)
    make_checkpoint(period, T0 + 2 * QUARTER, NREL)
    use(petrel, 3_000, T0 + DAY)
    at(monkeypatch, T0 + 3 * DAY)
    answer = api_of("manager").get(address(period, "dry-run/")).json()
    assert answer["checkpoint"]["id"] == checkpoint.pk
    auk, mine = answer["budgets"]
    assert (auk["budget"], auk["amount_mgpus"], auk["below"]) == ("orlo/science/auk", 0, None)
    assert mine == {
        "budget": "orlo/science/petrel",
        "granted_mgpus": 100_000 * CREDIT,
        "used_mgpus": 3_000 * CREDIT,
        "planned_mgpus": 25_000 * CREDIT,
        "measured_mgpus": 25_000 * CREDIT,
        "below": 20_000,
        "remove": 80_000,
        "due_mgpus": 20_000 * CREDIT,
        "amount_mgpus": 20_000 * CREDIT,
        "back_mgpus": 0,
        "missing_mgpus": 14_500 * CREDIT,
        "missing_a_day_mgpus": 725 * CREDIT,
        "rate_mgpus": 0,
        "due_at_rate_mgpus": 20_000 * CREDIT,
        "spared": "",
    }
    assert api_of("stranger").get(address(period, "dry-run/")).json()["budgets"][0]["budget"] == (
        "orlo/vision/tern"
    )
    assert api_of("nobody").get(address(period, "dry-run/")).json()["budgets"] == []


def test_a_dry_run_without_a_checkpoint_ahead(api_of, period) -> None:
    answer = api_of("admin").get(address(period, "dry-run/")).json()
    assert answer == {"checkpoint": None, "budgets": []}
    assert api_of("admin").get("/api/v1/periods/9999/checkpoints/dry-run/").status_code == 404


def test_results_are_shown_to_those_who_see_the_budget(api_of, period, petrel) -> None:
    carry_out(make_checkpoint(period, T0 + QUARTER, NREL))
    (seen,) = api_of("member").get(address(period)).json()
    (result,) = seen["results"]
    assert (result["budget"], result["taken_mgpus"]) == (petrel.path, 20_000 * CREDIT)
    (hidden,) = api_of("nobody").get(address(period)).json()
    assert hidden["results"] == []


# --- Exemptions -----------------------------------------------------------------------------------


def ask(client: Any, checkpoint: Checkpoint, reason: str = "the new cluster is late") -> Any:
    body = {"checkpoint": checkpoint.pk, "reason": reason}
    return client.post(EXEMPTIONS, body, format="json")


def test_a_member_asks_and_the_manager_decides(api_of, period, monkeypatch) -> None:
    at(monkeypatch, T0)
    checkpoint = make_checkpoint(period, T0 + QUARTER, NREL)
    made = ask(api_of("member"), checkpoint)
    assert made.status_code == 201
    assert made.json()["status"] == "asked"
    assert ask(api_of("member"), checkpoint).status_code == 400
    decide = f"/api/v1/exemptions/{made.json()['id']}/"
    for name, status in (("member", 403), ("viewer", 403), ("stranger", 404), ("nobody", 404)):
        answer = api_of(name).post(decide + "approve/", {"reason": "x"}, format="json")
        assert answer.status_code == status, name
    silent = api_of("manager").post(decide + "approve/", {}, format="json")
    assert silent.status_code == 400
    answer = api_of("manager").post(decide + "approve/", {"reason": "it is"}, format="json")
    assert (answer.status_code, answer.json()["status"]) == (200, "approved")
    (row,) = api_of("viewer").get(EXEMPTIONS).json()
    assert (row["answer"], row["decided_by"]) == ("it is", "manager")
    assert carry_out(checkpoint) == {}


def test_a_declined_exemption_spares_nobody(api_of, period, monkeypatch) -> None:
    at(monkeypatch, T0)
    checkpoint = make_checkpoint(period, T0 + QUARTER, NREL)
    pk = ask(api_of("member"), checkpoint).json()["id"]
    client = api_of("manager")
    answer = client.post(f"/api/v1/exemptions/{pk}/decline/", {"reason": "no"}, format="json")
    assert answer.json()["status"] == "declined"
    again = client.post(f"/api/v1/exemptions/{pk}/approve/", {"reason": "yes"}, format="json")
    assert again.status_code == 400
    assert carry_out(checkpoint) == {"petrel": 20_000}


def test_who_may_ask_for_an_exemption(api_of, period) -> None:
    checkpoint = make_checkpoint(period, T0 + QUARTER, NREL)
    for name, status in (("viewer", 403), ("stranger", 404), ("nobody", 404)):
        assert ask(api_of(name), checkpoint).status_code == status, name
        assert api_of(name).get(EXEMPTIONS).status_code == (200 if status == 403 else 404)
    unknown = {"checkpoint": 9_999, "reason": "x"}
    assert api_of("member").post(EXEMPTIONS, unknown, format="json").status_code == 400
    assert not Exemption.objects.exists()


def test_a_plan_shows_its_period_whatever_it_is(api_of, period, petrel) -> None:
    draft = make_period(
        "2027 Q1", starts_at=period.ends_at, ends_at=period.ends_at + 90 * DAY, status="draft"
    )
    make_plan(petrel, draft, [30, 30, 40], author=someone())
    found = api_of("member").get(PLAN, {"period": draft.pk}).json()
    assert (found["period"], found["version"], found["granted_mgpus"]) == ("2027 Q1", 1, 0)
    assert (found["pace_per_mille"], found["planned_to_date_mgpus"]) == (None, 0)
