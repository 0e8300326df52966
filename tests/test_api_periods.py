"""Periods over the API: drafted, decided on, planned, and told when they are closed."""

import csv
import io
from typing import Any

import pytest

from allocator import turning
from budgets.models import ChangeSet, Period
from config import clock
from ledger import services
from tests import factories as make
from tests.ledger_world import CREDIT, give

pytestmark = pytest.mark.django_db
T0, HOUR = make.T0, make.HOUR
TOKYO = {
    **{"calendar": ..., "time_zone": "Asia/Tokyo"},
    **{"starts_on": "2027-01-01", "ends_on": "2027-02-01"},
}
Q1 = {"name": "2027 Q1", "calendar": "2027-Q1", "time_zone": "America/New_York"}


@pytest.fixture(autouse=True)
def _at(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every request comes at the same instant."""
    monkeypatch.setattr(clock, "now", lambda: T0 + HOUR)


@pytest.fixture
def q4(tree: Any) -> Period:
    make.make_nodes(make.make_pool("h100", rate=1500), 1)
    period = make.make_period(time_zone="UTC")
    give(tree["orlo/science/petrel"], 50, period)
    return period


def draft(api_of: Any, **changed: Any) -> Any:
    asked = {name: value for name, value in (Q1 | changed).items() if value is not ...}
    return api_of("admin").post("/api/v1/periods/", asked)


def test_a_period_is_drafted_on_the_clocks_of_its_zone_proposed_and_approved(
    api_of: Any, q4: Period
) -> None:
    answer = draft(api_of, carry_over_cap=25_000, carry_over_max_mgpus=CREDIT * 10**6)
    assert answer.status_code == 201
    made = answer.json()
    assert made == {
        "id": made["id"],
        "name": "2027 Q1",
        "status": "draft",
        "starts_at": "2027-01-01T05:00:00Z",
        "ends_at": "2027-04-01T04:00:00Z",
        "time_zone": "America/New_York",
        "carry_over_cap": 25_000,
        "carry_over_max_mgpus": CREDIT * 10**6,
        "capacity": [{"pool": "h100", "gpu_seconds": 8 * 2159 * 3600, "rate_per_mille": 1500}],
        "concerns": [
            "No period covers 2027-01-01T00:00:00Z to 2027-01-01T05:00:00Z, between 2026 Q4 and "
            "2027 Q1: what runs then can't be charged, nor anything granted."
        ],
    }
    address = f"/api/v1/periods/{made['id']}/"
    again = api_of("admin").post(f"{address}redraft/", Q1 | {"time_zone": "UTC"}).json()
    assert (again["starts_at"], again["carry_over_cap"]) == ("2027-01-01T00:00:00Z", 0)
    assert again["concerns"] == []
    assert api_of("admin").post(f"{address}propose/").json()["status"] == "proposed"
    assert api_of("admin").post(f"{address}withdraw/").json()["status"] == "draft"
    assert api_of("admin").post(f"{address}approve/").json()["status"] == "approved"
    refused = api_of("admin").post(f"{address}propose/")
    assert refused.json()["detail"] == "status: 2027 Q1 is approved: it can't become proposed."
    seen = api_of("member").get(address).json()
    assert (seen["status"], seen["concerns"]) == ("approved", None)
    listed = api_of("nobody").get("/api/v1/periods/").json()
    assert [one["name"] for one in listed["results"]] == ["2027 Q1", "2026 Q4"]


@pytest.mark.parametrize(
    ("borders", "start", "end"),
    [
        ({"starts_on": "2027-03-14", "ends_on": "2027-03-15"}, "03-14T05", "03-15T04"),
        (
            {"starts_at": "2027-03-14T00:00:00-05:00", "ends_at": "2027-03-15T00:00:00-04:00"},
            *("03-14T05", "03-15T04"),
        ),
    ],
)
def test_borders_are_local_days_or_instants(
    api_of: Any, q4: Period, borders: dict[str, str], start: str, end: str
) -> None:
    made = draft(api_of, calendar=..., **borders).json()
    assert (made["starts_at"], made["ends_at"]) == (
        f"2027-{start}:00:00Z",
        f"2027-{end}:00:00Z",
    )


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"calendar": "2027-Q5"}, "calendar: '2027-Q5' is no month or quarter"),
        ({"calendar": ...}, "calendar: Give either a calendar"),
        ({"starts_on": "2027-01-01", "ends_on": "2027-02-01"}, "Give either a calendar"),
        ({"calendar": ..., "starts_on": "2027-01-01"}, "Give either a calendar"),
        ({"time_zone": "Mars/Base"}, "time_zone: 'Mars/Base' is no time zone"),
        ({"name": "2026 Q4"}, "name: Give a printable name"),
        ({"carry_over_max_mgpus": 5}, "carry_over_max_mgpus: Give a percent too"),
        ({"capacity": {"nope": 5}}, "capacity: There is no pool 'nope': choose from h100."),
        ({"capacity": {"h100": -1}}, "greater than or equal to 0"),
        ({"capacity": {"h100": 2**63 - 1}}, "plan fewer GPU-seconds."),
        (TOKYO | {"starts_on": "0001-01-01"}, "starts_on: Give a date of the years 1970 to 2199."),
        (TOKYO | {"ends_on": "9999-12-31"}, "ends_on: Give a date of the years 1970 to 2199."),
        (TOKYO | {"ends_on": "2200-01-01"}, "ends_on: Give a date of the years 1970 to 2199."),
        ({"starts": "x"}, "There is no field 'starts': did you mean 'starts_on'?"),
    ],
)
def test_what_is_wrong_with_a_draft_is_said(
    api_of: Any, q4: Period, changed: dict[str, Any], words: str
) -> None:
    answer = draft(api_of, **changed)
    assert answer.status_code == 400
    assert words in answer.json()["detail"]
    assert Period.objects.count() == 1


def test_a_period_that_overlaps_is_not_approved_and_one_with_entries_not_withdrawn(
    api_of: Any, q4: Period
) -> None:
    made = draft(api_of, calendar="2026-12").json()
    answer = api_of("admin").post(f"/api/v1/periods/{made['id']}/approve/")
    assert answer.json()["detail"] == "starts_at: 2027 Q1 overlaps 2026 Q4: change its dates."
    kept = api_of("admin").post(f"/api/v1/periods/{q4.pk}/withdraw/")
    assert (
        kept.json()["detail"] == "status: 2026 Q4 has entries: it stays, and is closed at its end."
    )


def test_a_plan_is_proposed_seen_by_row_and_approved_by_the_parent_s_manager(
    api_of: Any, tree: Any, q4: Period
) -> None:
    pk = draft(api_of, time_zone="UTC", capacity={"h100": 3600}).json()["id"]
    address = f"/api/v1/periods/{pk}/plan/"
    new = {"parent": "orlo/science", "shares": {"petrel": 100_000, "auk": 0}, "base_version": 1}
    answer = api_of("manager").post(address, {"change_sets": [new], "reason": "petrel trains"})
    (proposal,) = answer.json()
    assert (answer.status_code, proposal["status"]) == (201, "proposed")
    assert proposal["effective_at"] == "2027-01-01T00:00:00Z"
    seen = api_of("manager").get(address).json()
    assert [row["path"] for row in seen["rows"]] == [
        *("orlo/science", "orlo/science/auk", "orlo/science/petrel"),
    ]
    assert seen["rows"][2] == {
        "path": "orlo/science/petrel",
        "name": "Petrel",
        "depth": 2,
        "share_now": 50_000,
        "share_planned": 100_000,
        "granted_mgpus": 50 * CREDIT,
        "planned_mgpus": int(0.9 * CREDIT),
        "shares_version": 0,
    }
    assert [one["id"] for one in seen["change_sets"]] == [proposal["id"]]
    assert len(api_of("viewer").get(address).json()["rows"]) == 1
    assert api_of("viewer").get(address).json()["change_sets"] == []
    decided = api_of("manager").post(f"/api/v1/change-sets/{proposal['id']}/approve/")
    assert decided.json()["effective_at"] == "2027-01-01T00:00:00Z"
    assert len(api_of("admin").get(address).json()["rows"]) == 6


def test_a_plan_on_an_outdated_base_is_a_conflict_and_none_after_the_start(
    api_of: Any, q4: Period
) -> None:
    pk = draft(api_of).json()["id"]
    new = {"parent": "orlo/science", "shares": {"petrel": 1, "auk": 0}, "base_version": 0}
    body = {"change_sets": [new], "reason": "x"}
    answer = api_of("manager").post(f"/api/v1/periods/{pk}/plan/", body)
    assert (answer.status_code, answer.json()["theirs_version"]) == (409, 1)
    late = api_of("manager").post(f"/api/v1/periods/{q4.pk}/plan/", body)
    assert late.json()["detail"].startswith("period: 2026 Q4 has begun")
    assert not ChangeSet.objects.filter(status="proposed").exists()


@pytest.fixture
def closed(tree: Any, q4: Period) -> Period:
    """An hour with 5 credits settled, closed as the quarter begins; 2 of them were too much."""
    border, petrel = T0 + HOUR, tree["orlo/science/petrel"]
    Period.objects.filter(pk=q4.pk).update(starts_at=border, status="approved")
    hour = make.make_period("hour", ends_at=border)
    give(petrel, 9, hour)
    spent: dict[str, Any] = {"budget": petrel, "author": make.make_user("ada")}
    services.adjust(amount_mgpus=5 * CREDIT, note="by hand", key="1", now=T0, **spent)
    Period.objects.filter(pk=q4.pk).update(status="active")
    turning.close_over(at=border)
    hour.refresh_from_db()
    services.adjust(amount_mgpus=-2 * CREDIT, note="=1+1", key="2", now=border, of=hour, **spent)
    return hour


def test_a_statement_is_told_by_row_with_what_was_corrected_later(
    api_of: Any, closed: Period
) -> None:
    address = f"/api/v1/periods/{closed.pk}/statement/"
    found = api_of("viewer").get(address).json()
    assert (found["period"], found["closed_at"]) == ("hour", "2026-10-01T01:00:00Z")
    (row,) = found["rows"]
    assert (row["path"], row["granted_mgpus"]) == ("orlo/science/petrel", 9 * CREDIT)
    assert (row["settled_mgpus"], row["unspent_mgpus"]) == (5 * CREDIT, 4 * CREDIT)
    assert (row["corrected_later_mgpus"], row["owed_gpu_seconds"]) == (-2 * CREDIT, None)
    assert found["corrections"] == [
        {
            "path": "orlo/science/petrel",
            "kind": "adjust",
            "settled_mgpus": -2 * CREDIT,
            "period": "2026 Q4",
            "written_at": "2026-10-01T01:00:00Z",
            "author": "ada",
            "note": "=1+1",
        }
    ]
    others = api_of("stranger").get(address).json()
    assert [one["path"] for one in others["rows"]] == ["orlo/vision/tern"]
    assert others["corrections"] == []
    whole = api_of("admin").get(address).json()
    assert [one["corrected_later_mgpus"] // CREDIT for one in whole["rows"]] == [
        -2,
        -2,
        0,
        -2,
        0,
        0,
    ]


def test_a_statement_is_a_file_for_spreadsheets_too(api_of: Any, closed: Period) -> None:
    answer = api_of("manager").get(f"/api/v1/periods/{closed.pk}/statement.csv/")
    assert answer["Content-Type"] == "text/csv; charset=utf-8"
    rows = list(csv.DictReader(io.StringIO(answer.content.decode())))
    assert [row["path"] for row in rows] == [
        "orlo/science",
        "orlo/science/auk",
        "orlo/science/petrel",
    ]
    assert (rows[2]["settled_mgpus"], rows[2]["corrected_later_mgpus"]) == (
        str(5 * CREDIT),
        str(-2 * CREDIT),
    )
    assert rows[2]["owed_gpu_seconds"] == ""


def test_a_period_that_is_not_closed_has_no_statement(api_of: Any, q4: Period) -> None:
    answer = api_of("admin").get(f"/api/v1/periods/{q4.pk}/statement/")
    assert answer.json()["detail"] == (
        "2026 Q4 is active: its statement is written when it closes."
    )
    assert api_of("admin").get("/api/v1/periods/999999/").status_code == 404
