"""The audit log: every kind of decision, who sees it, and parts that go on from a key."""

import csv
from collections.abc import Callable
from datetime import datetime, timedelta
from io import StringIO
from typing import Any

import pytest
from django.contrib.admin.models import CHANGE, LogEntry
from django.contrib.auth.models import User
from django.contrib.contenttypes.models import ContentType
from rest_framework.authtoken.models import Token
from rest_framework.test import APIClient

from allocator import admission, steering, urgency
from allocator.audit import listing
from allocator.audit.rows import Filters, Row
from allocator.models import Simulation
from allocator.review_models import ReviewRecord
from budgets import services as budgets
from budgets.models import Budget, Decision, FormerName
from clusters import windows
from ledger import services as ledger
from tests import factories as make
from tests.factories import HOUR, T0
from tests.helpers import Institute, make_institute
from tests.pages_day import stand_at
from tests.pages_world import client_of, queries, text_of
from workloads.models import Job, JobEvent

pytestmark = pytest.mark.django_db
MINUTE = timedelta(minutes=1)
ALL = Filters()


@pytest.fixture
def place(monkeypatch: pytest.MonkeyPatch) -> Institute:
    made = make_institute(nodes=1)
    stand_at(monkeypatch, T0 + HOUR)
    return made


@pytest.fixture
def people(place: Institute) -> dict[str, User]:
    found = {name: make.make_user(name) for name in ("ada", "max", "mia", "vic", "zoe")}
    make.make_role(found["ada"], place.tree["orlo"], "administrator")
    make.make_role(found["max"], place.tree["orlo/science"], "manager")
    make.make_role(found["mia"], place.petrel, "member")
    make.make_role(found["vic"], place.tern, "viewer")
    return found


def rows(user: User, **filters: Any) -> list[Row]:
    return listing.part(user, filters=Filters(**filters), key="", size=100).rows


def texts(user: User, **filters: Any) -> list[str]:
    return [row.text for row in rows(user, **filters)]


def shares(place: Institute, by: User, *, at: datetime, at_once: bool = True) -> Any:
    science = place.tree["orlo/science"]
    return steering.change_shares(
        parent=science,
        shares={place.petrel: 30_000, place.auk: 30_000},
        reason="auk grows",
        author=by,
        base_version=1,
        approve_at_once=at_once,
        now=at,
    )


# --- Each kind -----------------------------------------------------------------------------------


def test_shares_are_told_with_before_and_after_once(
    place: Institute, people: dict[str, User]
) -> None:
    shares(place, people["max"], at=T0 + MINUTE)
    (row, *_) = rows(people["max"], kind="shares")
    assert (row.at, row.by, row.text) == (
        *(T0 + MINUTE, people["max"], "put shares below Science in force"),
    )
    assert row.reason == "auk grows"
    after = {name: now for name, _, now in row.moves}
    assert after == {"Petrel": "30.000 %", "Auk": "30.000 %"}
    assert all(before != now for _, before, now in row.moves)
    assert "proposed shares below Science" not in texts(people["max"])


def test_a_proposal_and_its_decision_are_two(place: Institute, people: dict[str, User]) -> None:
    made = shares(place, people["mia"], at=T0 + MINUTE, at_once=False)
    budgets.decline(change_set=made, by=people["max"], now=T0 + 2 * MINUTE)
    assert [(row.who, row.text) for row in rows(people["max"], kind="shares")][:2] == [
        ("max", "declined shares below Science"),
        ("mia", "proposed shares below Science"),
    ]


def test_requests_transfers_and_credits_by_hand(place: Institute, people: dict[str, User]) -> None:
    asked = make.make_request(place.petrel, unit="credits", asked=3_600_000, asked_by=people["mia"])
    ledger.decline_request(request=asked, by=people["max"], answer="later", now=T0 + HOUR)
    steering.transfer(
        source=place.petrel,
        target=place.auk,
        amount_mgpus=7_200_000,
        reason="swap",
        key="k:1",
        author=people["max"],
        now=T0 + 2 * HOUR,
    )
    steering.write_by_hand(
        kind=ledger.Kind.GRANT,
        budget=place.petrel,
        amount_mgpus=3_600_000,
        reason="gift",
        key="g",
        author=people["ada"],
        now=T0 + 3 * HOUR,
    )
    theirs = [row for row in rows(people["max"]) if row.who in people]
    assert [(row.who, row.text, row.reason) for row in theirs] == [
        ("ada", "granted 1.00 credits to Petrel by hand", "gift"),
        ("max", "moved 2.00 credits from orlo/science/petrel to orlo/science/auk", "swap"),
        ("max", "declined the request of Petrel for 1.00 credits", "later"),
        ("mia", "asked for 1.00 credits more for Petrel", asked.reason),
    ]
    # Who sees one side only learns of the other what its address is.
    (moved,) = rows(people["mia"], kind="credits", who="max")
    assert moved.text == "moved 2.00 credits from orlo/science/petrel to elsewhere/auk"
    assert rows(people["vic"], kind="credits", who="max") == []


def test_roles_periods_and_checkpoints_leave_a_trace(
    place: Institute, people: dict[str, User]
) -> None:
    client = APIClient()
    client.force_authenticate(people["ada"])
    url = "/api/v1/budgets/orlo/science/petrel/roles/"
    assert client.post(url, {"username": "zoe", "kind": "viewer"}).status_code == 200
    assert client.post(url, {"username": "zoe", "kind": "viewer"}).status_code == 200  # the same
    assert client.post(url, {"username": "zoe", "kind": "member"}).status_code == 200
    assert client.delete(f"{url}zoe/").status_code == 204
    found = [(row.who, row.text, row.moves) for row in rows(people["max"], kind="roles")]
    words = "changed the role of zoe in Petrel"
    assert found == [
        ("ada", words, (("", "member", "–"),)),
        ("ada", words, (("", "viewer", "member"),)),
        ("ada", words, (("", "–", "viewer"),)),
    ]
    assert rows(people["vic"], kind="roles") == []
    period = steering.draft_period(
        name="Next", starts_at=make.T1, ends_at=make.T1 + 24 * HOUR, by=people["ada"], now=T0
    )
    for decision in ("propose", "approve", "withdraw"):
        steering.decide_period(period=period, decision=decision, by=people["ada"], now=T0 + MINUTE)
        period.refresh_from_db()
    assert [row.moves[0][1:] for row in rows(people["vic"], kind="periods")] == [
        *(("approved", "draft"), ("proposed", "approved"), ("draft", "proposed"), ("–", "draft")),
    ]
    checkpoint = make.make_checkpoint(place.period, T0 + 48 * HOUR, [(50, 20)])
    steering.remove_checkpoint(checkpoint=checkpoint, by=people["ada"], now=T0 + MINUTE)
    (gone,) = rows(people["vic"], kind="checkpoints")
    assert gone.text == f"took a checkpoint out of {place.period.name}"


def test_what_was_done_to_jobs(place: Institute, people: dict[str, User]) -> None:
    job = place.submit(place.petrel, name="sweep")
    urgency.change(job=job, urgency="high", by=people["mia"], now=T0 + MINUTE)
    admission.cancel(job=job, by=people["max"], now=T0 + 2 * MINUTE)
    assert [(row.who, row.text, row.changes) for row in rows(people["mia"], kind="jobs")] == [
        ("max", "cancelled petrel/sweep, which waited", ""),
        ("mia", "changed the urgency of petrel/sweep", "normal → high"),
    ]
    assert rows(people["vic"], kind="jobs") == []


def test_the_cluster_renames_simulations_reviews_and_tokens(
    place: Institute, people: dict[str, User]
) -> None:
    far = {"starts_at": T0 + 5 * HOUR, "ends_at": T0 + 6 * HOUR}
    windows.set_window(nodes=place.nodes, reason="disk", by=people["ada"], now=T0, **far)
    place.nodes[0].states.create(at=T0 + MINUTE, state="down", reason="fan")
    budgets.rename_budget(budget=place.petrel, name="Storm", author=people["max"], now=T0 + HOUR)
    place.petrel.refresh_from_db()
    budgets.rename_budget(
        budget=place.petrel, name="Gull", slug="gull", author=people["max"], now=T0 + 2 * HOUR
    )
    simulation = {"asked_by": people["max"], "budget": place.tree["orlo/science"]}
    Simulation.objects.create(created_at=T0 + 3 * HOUR, **simulation)
    ReviewRecord.objects.create(
        period=place.period,
        budget=place.auk,
        version=1,
        held_on=T0.date(),
        decision="go on",
        kept_by=people["max"],
        kept_at=T0 + 4 * HOUR,
        pack={},
    )
    Token.objects.create(user=people["mia"])
    seen = {row.text: row for row in rows(people["max"])}
    name = place.nodes[0].name
    assert seen[f"set a window of maintenance for {name}"].reason == "disk"
    assert seen[f"{name} went down"].by is None
    assert seen["renamed Petrel"].moves == (("", "Petrel", "Storm"),)
    assert seen["renamed Storm"].moves == (("", "Storm", "Gull"), ("address", "petrel", "gull"))
    assert "asked for a simulation for Science" in seen
    assert seen[f"held the review of Auk for {place.period.name}"].reason == "go on"
    assert "was given a token for the API" not in seen
    assert "was given a token for the API" in texts(people["ada"])
    assert "was given a token for the API" in texts(people["mia"])


def test_what_the_administration_changed_is_for_administrators(
    place: Institute, people: dict[str, User]
) -> None:
    LogEntry.objects.create(
        user=people["ada"],
        content_type=ContentType.objects.get_for_model(Budget),
        object_id="1",
        object_repr="H100",
        action_flag=CHANGE,
        change_message="rate",
    )
    (row,) = rows(people["ada"], kind="settings")
    assert (row.text, row.reason) == ("changed the budget H100", "rate")
    assert rows(people["max"], kind="settings") == []


# --- Filters, parts, files -----------------------------------------------------------------------


def filled(place: Institute, by: User, number: int, *, start: datetime = T0) -> Job:
    """Many decisions, three at each instant."""
    job = place.submit(place.petrel, name="many")
    JobEvent.objects.bulk_create(
        JobEvent(job=job, at=start + n // 3 * MINUTE, kind="cancel_requested", actor=by)
        for n in range(number)
    )
    Decision.objects.bulk_create(
        Decision(kind="rate", subject="h100", at=start + n // 3 * MINUTE, by=by)
        for n in range(number)
    )
    return job


def test_parts_go_on_from_a_key_without_a_gap(place: Institute, people: dict[str, User]) -> None:
    filled(place, people["max"], 20)
    whole = listing.part(people["max"], filters=ALL, key="", size=1000)
    assert whole.older == ""
    seen, key = [], ""
    while True:
        part = listing.part(people["max"], filters=ALL, key=key, size=7)
        seen += part.rows
        key = part.older
        if not key:
            break
        # What is decided meanwhile stands before: it moves no part.
        JobEvent.objects.create(
            job=Job.objects.get(), at=T0 + 99 * HOUR, kind="cancelled", actor=people["max"]
        )
    assert [(row.reader, row.pk) for row in seen] == [(r.reader, r.pk) for r in whole.rows]
    assert [row.at for row in seen] == sorted((row.at for row in seen), reverse=True)
    for wrong in ("", "x", "1.2~jobs~x", "9" * 40 + "~jobs~1", "1~nobody~1", "~~"):
        assert listing.read_key(wrong) is None


def test_filters_narrow_it(place: Institute, people: dict[str, User]) -> None:
    filled(place, people["max"], 6)
    urgency.change(job=Job.objects.get(), urgency="low", by=people["mia"], now=T0 + HOUR)
    assert texts(people["ada"], who="mi", kind="jobs") == ["changed the urgency of petrel/many"]
    assert len(rows(people["ada"], kind="jobs")) == 7
    assert len(rows(people["ada"], kind="jobs", budget="orlo/science")) == 7
    assert rows(people["ada"], kind="jobs", budget="orlo/vision") == []
    assert rows(people["ada"], kind="jobs", budget="orlo/sci") == []
    assert len(rows(people["ada"], kind="jobs", start=T0 + MINUTE, end=T0 + HOUR)) == 3
    assert rows(people["ada"], who="nobody at all") == []
    assert {row.kind for row in rows(people["ada"], kind="settings")} == {"settings"}


def test_the_page_shows_it_and_its_file_too(place: Institute, people: dict[str, User]) -> None:
    shares(place, people["max"], at=T0 + MINUTE)
    client = client_of(people["max"])
    text = text_of(client.get("/audit"))
    assert "put shares below Science in force" in text
    assert "auk grows" in text
    assert "No decision matches" in text_of(client.get("/audit?who=zoe"))
    day = f"{T0:%Y-%m-%d}"
    assert "auk grows" in text_of(client.get(f"/audit?from={day}&to={day}"))
    assert "auk grows" not in text_of(client.get("/audit?from=2030-01-01&kind=shares"))
    assert client.get("/audit?from=x&to=0001-01-01&before=y&kind=z").status_code == 200
    lines = list(csv.reader(StringIO(client.get("/audit.csv?kind=shares").content.decode())))
    assert lines[0] == ["at", "who", "kind", "what", "changes", "reason", "budget", "link"]
    assert lines[1][:4] == [
        *("2026-10-01T00:01:00Z", "max", "shares", "put shares below Science in force"),
    ]
    nobody = client_of(people["zoe"])
    assert "Nothing has been decided yet" in text_of(nobody.get("/audit"))


def test_the_api_gives_the_same_in_parts(place: Institute, people: dict[str, User]) -> None:
    filled(place, people["max"], 9)
    client = APIClient()
    client.force_authenticate(people["max"])
    given: dict[str, Any] = {"kind": "jobs", "page_size": 5}
    first = client.get("/api/v1/audit/", given).json()
    given["before"] = first["next"]
    second = client.get("/api/v1/audit/", given).json()
    assert (len(first["results"]), len(second["results"]), second["next"]) == (5, 4, None)
    assert first["results"][0] == {
        "at": "2026-10-01T00:02:00Z",
        "who": "max",
        "kind": "jobs",
        "what": "cancelled petrel/many, which ran",
        "moves": [],
        "reason": "",
        "budget": "orlo/science/petrel",
        "link": f"/jobs/{Job.objects.get().pk}",
    }
    refused: list[dict[str, Any]] = [
        {"kind": "x"},
        {"page_size": 0},
        {"from": "now"},
        {"who_": "x"},
    ]
    for wrong in refused:
        assert client.get("/api/v1/audit/", wrong).status_code == 400


def test_it_takes_as_many_queries_however_long_it_is(
    place: Institute, people: dict[str, User]
) -> None:
    def grow(number: int, start: datetime) -> None:
        asked: dict[str, Any] = {"unit": "credits", "asked": 9, "decided_at": start}
        filled(place, people["max"], number, start=start)
        for n in range(number):
            FormerName.objects.create(
                budget=place.petrel, slug="old", name=f"P{n}", until=start, author=people["max"]
            )
            make.make_request(place.auk, status="declined", decided_by=people["max"], **asked)

    client: Callable[[], Any] = lambda: client_of(people["ada"])  # noqa: E731
    shares(place, people["max"], at=T0)
    grow(1, T0 + HOUR)
    few = queries(client(), "/audit")
    grow(40, T0 + 2 * HOUR)
    assert queries(client(), "/audit") == few
