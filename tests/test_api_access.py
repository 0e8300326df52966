"""Every address of the API × everyone of the cast: not yours is not there.

A table, and a test that no address is missing from it.
"""

from typing import Any

import pytest
from django.urls import URLPattern
from rest_framework.test import APIClient

from allocator import cycle
from allocator.models import Cycle
from allocator.reviews import commenting
from allocator.simulating import asking
from budgets.models import Notice, Period
from clusters import windows
from clusters.models import Pool
from config import urls
from tests import factories as make
from tests.ledger_world import give, give_alone
from tests.undoing import undone

pytestmark = [pytest.mark.django_db, pytest.mark.once]  # who may do what is no matter of databases
PEOPLE = ("root", "admin", "manager", "member", "viewer", "stranger", "nobody")
EVERYONE = dict.fromkeys(PEOPLE, 200)
WHOLE_TREE = dict.fromkeys(PEOPLE, 404) | {"root": 200, "admin": 200}
PETREL = dict.fromkeys(PEOPLE, 200) | {"stranger": 404, "nobody": 404}
SCIENCE = PETREL | {"member": 404, "viewer": 404}
SUBMIT = {"name": "x", "kind": "training", "gpus": 1}
SHARES = {"shares": {"petrel": 1, "auk": 2}, "base_version": 1}
CHANGE = SHARES | {"reason": "why"}
ADMINISTRATORS = dict.fromkeys(PEOPLE, 403) | {"root": 200, "admin": 200}

REFUSED = {"root": 400, "admin": 400}
NEVER = "2150-01-01T00:00:00Z"

REASON = {"reason": "why"}
# Whoever edits science's shares may create, archive and move below it; those who see but not edit
# are told so.
BELOW_SCIENCE = PETREL | {"member": 403, "viewer": 403}

TRACE = "job_id,submit_time_s,gpus,duration_s,group\n1,0,1,60,a\n"
# What the manager of science asked for.
SIMULATED = dict.fromkeys(PEOPLE, 404) | {"root": 200, "admin": 200, "manager": 200}

# Who may change a service is told that this job is none.
NO_SERVICE = PETREL | dict.fromkeys(("root", "admin", "manager", "member"), 400) | {"viewer": 403}

HELD = {"held_on": "2026-10-01", "decision": "go on", "base_version": 0}
# Somebody else's comment.
COMMENTED = PETREL | dict.fromkeys(("root", "admin", "manager", "member", "viewer"), 403)

TABLE: list[Any] = [
    # method, address, body, expected answer of each; the route's pattern is found by the address
    ("get", "me/", None, EVERYONE),
    ("get", "nodes/", None, EVERYONE),
    ("get", "pools/", None, EVERYONE),
    ("post", "nodes/", REASON | {"pool": "h100", "nodes": ["n[1-2]"], "gpus": 8}, ADMINISTRATORS),
    ("post", "nodes/h100-n0/label/", REASON | {"label": "rack 4"}, ADMINISTRATORS),
    ("post", "nodes/h100-n0/retire/", REASON | {"effective_at": NEVER}, ADMINISTRATORS),
    # Who may do it is told that there is nothing to undo.
    ("post", "nodes/h100-n0/keep/", REASON, ADMINISTRATORS | REFUSED),
    ("post", "nodes/h100-n0/call-off/", REASON, ADMINISTRATORS | REFUSED),
    (
        "post",
        "pools/",
        REASON | {"slug": "b200", "name": "B200", "gpu_type": "B200", "rate_per_mille": 1800},
        ADMINISTRATORS,
    ),
    ("post", "pools/h100/change/", REASON | {"name": "Hall"}, ADMINISTRATORS),
    ("post", "pools/h100/rate/", REASON | {"rate_per_mille": 3000}, ADMINISTRATORS),
    ("get", "windows/", None, EVERYONE),
    ("post", "windows/", REASON | {"nodes": ["h100-n1"]}, ADMINISTRATORS),
    ("post", "windows/preview/", REASON | {"nodes": ["h100-n1"]}, ADMINISTRATORS),
    ("get", "windows/{window}/", None, EVERYONE),
    ("post", "windows/{window}/change/", {"reason": "disks"}, ADMINISTRATORS),
    ("post", "windows/{window}/change/preview/", {"reason": "fans"}, ADMINISTRATORS),
    ("post", "windows/{begun}/end/", None, ADMINISTRATORS),
    ("post", "windows/{window}/call-off/", None, ADMINISTRATORS),
    ("get", "budgets/", None, EVERYONE),
    (
        "post",
        "budgets/",
        REASON | {"parent": "orlo/science", "slug": "kea", "name": "Kea"},
        dict.fromkeys(PEOPLE, 400) | {"root": 200, "admin": 200, "manager": 200},
    ),
    ("post", "budgets/orlo/science/auk/archive/", REASON, SCIENCE),
    ("post", "budgets/orlo/science/old/reactivate/", REASON | {"share": 0}, SCIENCE),
    (
        "post",
        "budgets/orlo/science/auk/move/",
        REASON | {"to": "orlo/vision", "share": 0},
        SCIENCE | {"manager": 400},  # vision is not visible
    ),
    ("post", "budgets/orlo/science/petrel/rename/", {"slug": "albatross"}, BELOW_SCIENCE),
    ("post", "budgets/orlo/science/rename/", {"name": "Physics"}, SCIENCE | {"manager": 403}),
    ("get", "budgets/orlo/science/petrel/roles/", None, PETREL),
    (
        "post",
        "budgets/orlo/science/petrel/roles/",
        {"username": "nobody", "kind": "viewer"},
        BELOW_SCIENCE,
    ),
    ("delete", "budgets/orlo/science/petrel/roles/viewer/", None, BELOW_SCIENCE),
    ("get", "budgets/orlo/", None, WHOLE_TREE),
    ("get", "budgets/orlo/science/", None, SCIENCE),
    ("get", "budgets/orlo/science/petrel/", None, PETREL),
    ("get", "budgets/orlo/science/asked/", None, SCIENCE),
    ("get", "budgets/orlo/science/burn/", None, SCIENCE),
    ("get", "budgets/orlo/science/burn/csv/", None, SCIENCE),
    ("get", "budgets/orlo/science/change-sets/", None, SCIENCE),
    ("post", "budgets/orlo/science/change-sets/", CHANGE, SCIENCE),
    ("post", "budgets/orlo/science/change-sets/preview/", CHANGE, SCIENCE),
    (
        "post",
        "budgets/orlo/science/auk/change-sets/preview/",
        {"move": {"to": "orlo/vision", "share": 0}},
        SCIENCE | {"manager": 400},  # vision is not visible
    ),
    ("post", "budgets/orlo/science/auk/change-sets/preview/", {"archive": {}}, SCIENCE),
    ("get", "budgets/orlo/science/diff/", None, SCIENCE),
    ("post", "change-sets/{change_set}/approve/", None, SCIENCE),
    ("post", "change-sets/{change_set}/decline/", None, SCIENCE),
    ("get", "budgets/orlo/science/petrel/requests/", None, PETREL),
    (
        "post",
        "budgets/orlo/science/petrel/requests/",
        REASON | {"thousandths": 1000},
        PETREL | {"viewer": 403},
    ),
    ("get", "budgets/orlo/science/petrel/transfers/", None, PETREL),
    (
        "post",
        "budgets/orlo/science/petrel/transfers/",
        REASON | {"to": "orlo/science/auk", "amount_mgpus": 1},
        PETREL | {"member": 400, "viewer": 400},  # auk is not visible
    ),
    (
        "post",
        "budgets/orlo/science/petrel/transfers/",
        REASON | {"to": "orlo/science/petrel", "amount_mgpus": 1},
        dict.fromkeys(PEOPLE, 400) | {"member": 403, "viewer": 403, "stranger": 404, "nobody": 404},
    ),
    (
        "post",
        "budgets/orlo/science/transfers/",
        REASON | {"to": "orlo/science/auk", "amount_mgpus": 1},
        SCIENCE,
    ),
    (
        "post",
        "budgets/orlo/science/petrel/transfers/",
        REASON | {"to": "orlo", "amount_mgpus": 1},
        WHOLE_TREE | {"manager": 400, "member": 400, "viewer": 400},
    ),
    ("get", "budgets/orlo/science/petrel/by-hand/", None, PETREL),
    (
        "post",
        "budgets/orlo/science/petrel/by-hand/",
        REASON | {"kind": "grant", "amount_mgpus": 1},
        PETREL | {"manager": 403, "member": 403, "viewer": 403},
    ),
    (
        "post",
        "budgets/orlo/science/petrel/by-hand/preview/",
        {"kind": "adjust", "amount_mgpus": -1},
        PETREL | {"manager": 403, "member": 403, "viewer": 403},
    ),
    ("get", "requests/", None, EVERYONE),
    ("get", "requests/{request}/", None, PETREL),
    (
        "post",
        "requests/{request}/grant/",
        REASON | {"source": "orlo/science"},
        BELOW_SCIENCE,
    ),
    (
        "post",
        "requests/{request}/grant/",
        REASON | {"source": "orlo"},
        BELOW_SCIENCE | {"manager": 400},  # orlo is not visible
    ),
    ("post", "requests/{request}/decline/", REASON, BELOW_SCIENCE),
    ("post", "requests/{request}/withdraw/", None, BELOW_SCIENCE),
    ("get", "notices/", None, EVERYONE),
    ("post", "notices/read/", None, EVERYONE),
    ("post", "notices/{notice}/read/", None, dict.fromkeys(PEOPLE, 404) | {"member": 200}),
    ("get", "periods/", None, EVERYONE),
    ("post", "periods/", {"name": "2101 Q1", "calendar": "2101-Q1"}, ADMINISTRATORS),
    ("get", "periods/{draft}/", None, EVERYONE),
    (
        "post",
        "periods/{draft}/redraft/",
        {"name": "2100 Q2", "calendar": "2100-Q2"},
        ADMINISTRATORS,
    ),
    ("post", "periods/{draft}/propose/", None, ADMINISTRATORS),
    ("post", "periods/{draft}/approve/", None, ADMINISTRATORS),
    ("post", "periods/{approved}/withdraw/", None, ADMINISTRATORS),
    ("get", "periods/{draft}/plan/", None, EVERYONE),
    (
        "post",
        "periods/{draft}/plan/",
        REASON | {"change_sets": [SHARES | {"parent": "orlo/science"}]},
        dict.fromkeys(PEOPLE, 400) | {"root": 200, "admin": 200, "manager": 200},
    ),
    ("get", "periods/{closed}/statement/", None, EVERYONE),
    ("get", "periods/{closed}/statement.csv/", None, EVERYONE),
    ("get", "periods/{draft}/statement/", None, dict.fromkeys(PEOPLE, 404)),
    ("get", "budgets/orlo/science/petrel/plan/", None, PETREL),
    (
        "post",
        "budgets/orlo/science/petrel/plan/",
        {"by": "month", "parts": [], "base_version": 0},
        dict.fromkeys(PEOPLE, 400) | {"viewer": 403, "stranger": 404, "nobody": 404},
    ),
    ("get", "budgets/orlo/science/petrel/exemptions/", None, PETREL),
    (
        "post",
        "budgets/orlo/science/petrel/exemptions/",
        REASON | {"checkpoint": 0},
        dict.fromkeys(PEOPLE, 400) | {"viewer": 403, "stranger": 404, "nobody": 404},
    ),
    ("post", "exemptions/{exemption}/approve/", REASON, BELOW_SCIENCE),
    ("post", "exemptions/{exemption}/decline/", REASON, BELOW_SCIENCE),
    ("get", "periods/{draft}/checkpoints/", None, EVERYONE),
    (
        "post",
        "periods/{draft}/checkpoints/",
        {
            "at": "2100-02-01T00:00:00Z",
            "measured": "planned",
            "removed_of": "planned",
            "cumulative": True,
            "steps": [{"below": 20_000, "remove": 80_000}],
        },
        ADMINISTRATORS,
    ),
    ("get", "periods/{draft}/checkpoints/dry-run/", None, EVERYONE),
    ("delete", "checkpoints/{checkpoint}/", None, ADMINISTRATORS),
    ("get", "jobs/", None, EVERYONE),
    (
        "post",
        "jobs/",
        SUBMIT | {"budget": "orlo/science/petrel"},
        PETREL | {"viewer": 403, "stranger": 400, "nobody": 400},
    ),
    (
        "post",
        "estimates/",
        SUBMIT | {"budget": "orlo/science/petrel"},
        PETREL | {"viewer": 403, "stranger": 400, "nobody": 400},
    ),
    ("get", "forecasts/track-record/", None, EVERYONE),
    ("get", "jobs/{job}/", None, PETREL),
    ("post", "jobs/{job}/cancel/", None, PETREL | {"member": 403, "viewer": 403}),
    (
        "post",
        "jobs/{job}/extend/",
        {"more_s": 60},
        # Who may is told that it is no session.
        PETREL | dict.fromkeys(("root", "admin", "manager"), 409) | {"member": 403, "viewer": 403},
    ),
    (
        "post",
        "jobs/{job}/urgency/",
        {"urgency": "high"},
        PETREL | {"member": 403, "viewer": 403},
    ),
    ("get", "jobs/{job}/traffic/", None, PETREL),
    (
        "post",
        "jobs/{job}/traffic/",
        {"traffic": [{"at": "2026-10-01T00:00:00Z", "rate": 1}]},
        NO_SERVICE,
    ),
    ("get", "jobs/{job}/traffic.csv/", None, PETREL),
    ("get", "jobs/{job}/calibration/", None, NO_SERVICE | {"viewer": 400}),
    ("post", "jobs/{job}/calibration/", {"calibrated": True}, NO_SERVICE),
    ("post", "jobs/{job}/recalibrate/", None, NO_SERVICE),
    ("get", "plan/", None, EVERYONE),
    ("get", "cycles/", None, EVERYONE),
    ("get", "cycles/{cycle}/", None, EVERYONE),
    ("get", "cycles/{cycle}/snapshot/", None, WHOLE_TREE),
    ("get", "cycles/{cycle}/plan/", None, WHOLE_TREE),
    ("post", "cycles/{cycle}/replay/", None, EVERYONE),
    ("get", "reviews/", None, EVERYONE),
    ("get", "reviews/{q4}/orlo/science/", None, SCIENCE),
    ("get", "reviews/{q4}/orlo/science/petrel/", None, PETREL),
    ("get", "reviews/files/csv/{q4}/orlo/science/petrel/", None, PETREL),
    ("get", "reviews/files/docx/{q4}/orlo/science/petrel/", None, dict.fromkeys(PEOPLE, 404)),
    ("post", "reviews/comment/{q4}/orlo/science/petrel/", {"text": "why"}, PETREL),
    ("post", "reviews/comments/{comment}/edit/", {"text": "so"}, COMMENTED),
    ("post", "reviews/comments/{comment}/withdraw/", None, COMMENTED),
    ("post", "reviews/hold/{q4}/orlo/science/petrel/", HELD, BELOW_SCIENCE),
    ("get", "audit/", None, EVERYONE),
    ("get", "simulations/", None, EVERYONE),
    (
        "post",
        "simulations/",
        {"trace": {"text": TRACE}, "equal_shares": True},
        dict.fromkeys(PEOPLE, 403) | {"root": 200, "admin": 200, "manager": 200},
    ),
    (
        "post",
        "simulations/",
        {"trace": {"text": TRACE}, "equal_shares": True, "budget": "orlo/science"},
        dict.fromkeys(PEOPLE, 400) | {"root": 200, "admin": 200, "manager": 200},
    ),
    (
        "post",
        "simulations/",
        {"history": {"days": 7}, "change_set": 10**8},  # none that anybody sees
        dict.fromkeys(PEOPLE, 400),
    ),
    ("get", "simulations/{simulation}/", None, SIMULATED),
    ("post", "simulations/{simulation}/cancel/", None, SIMULATED),
]
OPEN = {"", "schema", "docs", "token/"}


@pytest.fixture(scope="module")
def tree(module_rows):
    return make.make_tree()


@pytest.fixture(scope="module")
def cast(tree):
    return make.make_cast(tree)


@pytest.fixture(scope="module")
def ids(cast, tree):
    """A job of somebody else in petrel, its cycle, and a proposal for science."""
    pool = make.make_pool("h100")
    make.make_nodes(pool, 2)
    period = make.make_period(starts_at=make.LONG_AGO, ends_at=make.LONG_AGO.replace(year=2100))
    give(tree["orlo/science/petrel"], 10, period)
    for path, credits in (("orlo", 20), ("orlo/science", 10)):
        give_alone(tree[path], credits, period)
    petrel = tree["orlo/science/petrel"]
    request = make.make_request(petrel, unit="credits", asked=1, asked_by=cast["colleague"])
    make.tell(cast["member"], petrel)
    make.make_budget("old", parent=tree["orlo/science"], archived_at=make.T0)
    job = make.make_job(tree["orlo/science/petrel"], user=cast["colleague"], minimum_runtime_s=0)
    made = cycle.run(at=make.T0, trigger="test")
    client = APIClient()
    client.force_authenticate(cast["root"])
    proposal = client.post("/api/v1/budgets/orlo/science/change-sets/", CHANGE).json()
    return {
        "job": job.pk,
        "cycle": made.pk,
        "change_set": proposal["id"],
        "request": request.pk,
        "notice": Notice.objects.get(user=cast["member"]).pk,
        "simulation": _simulation(cast["manager"]),
        "q4": period.pk,
        "comment": commenting.add(
            budget=petrel, period=period, author=cast["colleague"], text="why", now=make.T0
        ).pk,
        **_other_periods(),
        **_asked_of_a_checkpoint(tree),
        **_windows(pool),
    }


def _windows(pool):
    """Windows of a node that is retired for good: one to come, one that has begun."""
    (node,) = make.make_nodes(pool, 1, active_until=make.LONG_AGO)
    far = make.LONG_AGO.replace(year=2100)
    asked = {"nodes": [node], "reason": "why", "by": None, "now": make.LONG_AGO}
    begun = windows.set_window(starts_at=None, ends_at=far.replace(month=2), **asked)
    later = windows.set_window(starts_at=far.replace(month=3), ends_at=None, **asked)
    return {"window": later.pk, "begun": begun.pk}


def _simulation(user):
    return asking.ask(by=user, now=make.T0, trace=TRACE, equal=True).pk


def _asked_of_a_checkpoint(tree):
    """A checkpoint of the running period, and an exemption of petrel that isn't decided."""
    period = Period.objects.get(status="active")
    checkpoint = make.make_checkpoint(period, make.LONG_AGO.replace(year=2099), [(20, 80)])
    exemption = checkpoint.exemptions.create(
        budget=tree["orlo/science/petrel"], reason="why", asked_by=make.someone(), asked_at=make.T0
    )
    return {"checkpoint": checkpoint.pk, "exemption": exemption.pk}


def _other_periods():
    """Before the running period a closed one, after it a draft and an approved one."""
    year = {"ends_at": make.LONG_AGO, "starts_at": make.LONG_AGO.replace(year=2025)}
    ids = {"closed": make.make_period("2025", status="closed", **year).pk}
    for status, year in (("draft", 2100), ("approved", 2102)):
        start = make.LONG_AGO.replace(year=year)
        dates = {"starts_at": start, "ends_at": start.replace(month=4)}
        capacity = {Pool.objects.get(): 3600}
        ids[status] = make.make_period(status, status=status, capacity=capacity, **dates).pk
    return ids


@pytest.mark.parametrize(("method", "address", "body", "expected"), TABLE)
def test_each_address_answers_each_person_as_the_table_says(
    api_of, ids, method, address, body, expected
):
    wrong = []
    for who in PEOPLE:
        with undone():
            answer = getattr(api_of(who), method)(f"/api/v1/{address.format(**ids)}", body)
        status = {201: 200, 204: 200}.get(answer.status_code, answer.status_code)
        if status != expected[who]:
            wrong.append((who, status, expected[who], answer.content))
        if status != 200 and not _says_what_is_wrong(answer):
            wrong.append((who, status, "no problem is named", answer.content))
    assert wrong == []


def _says_what_is_wrong(answer):
    problem = answer["Content-Type"] == "application/problem+json"
    return problem and bool(answer.json()["detail"].strip())


def test_nobody_who_is_signed_out_gets_anything(ids):
    for method, address, body, _ in TABLE:
        answer = getattr(APIClient(), method)(f"/api/v1/{address.format(**ids)}", body)
        assert answer.status_code == 401, (method, address)
        assert answer["WWW-Authenticate"] == "Token"


DELETES = {row[1] for row in TABLE if row[0] == "delete"}


def test_no_address_changes_or_deletes_anything_otherwise(api_of, ids):
    root, found = api_of("root"), {}
    for address in sorted({row[1] for row in TABLE} - DELETES):
        for method in ("delete", "put", "patch"):
            with undone():
                answer = getattr(root, method)(f"/api/v1/{address.format(**ids)}")
            found[method, address] = answer.status_code
    assert {asked: status for asked, status in found.items() if status != 405} == {}
    assert len(found) > 100


def test_the_table_has_every_address():
    listed = {row[1] for row in TABLE}
    for route in urls.api:
        if not isinstance(route, URLPattern) or str(route.pattern) in {*OPEN, "^.*/$"}:
            continue
        found = [a for a in listed if route.resolve(_numbered(a))]
        assert found, f"{route.pattern} is not in the table"


def test_a_session_wants_its_csrf_token(cast, tree):
    client = APIClient(enforce_csrf_checks=True)
    client.force_login(cast["member"])
    assert client.get("/api/v1/jobs/").status_code == 200
    answer = client.post("/api/v1/jobs/", SUBMIT | {"budget": "orlo/science/petrel"})
    assert answer.status_code == 403
    assert "CSRF" in answer.json()["detail"]


def test_names_of_unknown_budgets_are_taken_out_of_the_plan(api_of, ids):
    mine = api_of("member").get("/api/v1/plan/").json()
    theirs = api_of("stranger").get("/api/v1/plan/").json()
    (bar,), (hidden,) = mine["bars"], theirs["bars"]
    assert (bar["job"], bar["budget"], bar["gpus"]) == (ids["job"], "orlo/science/petrel", 8)
    assert hidden == bar | {"job": None, "name": None, "budget": None, "kind": None}
    assert (bar["start"], mine["cycle"]["status"]) == ("2026-10-01T00:00:00Z", "committed")
    assert [node["name"] for node in mine["nodes"]] == ["h100-n0", "h100-n1"]


def test_what_a_cycle_relaxed_names_jobs_and_is_for_who_may_see_the_whole_tree(api_of, ids):
    Cycle.objects.update(problems=["secret sheds at most 1 GPUs a timestep from 8."])
    for address in ("/api/v1/cycles/", f"/api/v1/cycles/{ids['cycle']}/", "/api/v1/plan/"):
        assert "secret" in str(api_of("admin").get(address).json())
        for who in ("manager", "member", "stranger", "nobody"):
            assert "secret" not in str(api_of(who).get(address).json())


def test_a_cycle_is_given_in_the_file_formats(api_of, ids):
    admin = api_of("admin")
    snapshot = admin.get(f"/api/v1/cycles/{ids['cycle']}/snapshot/").json()
    plan = admin.get(f"/api/v1/cycles/{ids['cycle']}/plan/").json()
    assert {"name", "horizon", "timestep_minutes", "nodes", "jobs"} <= set(snapshot)
    assert (len(plan["grid"]), len(plan["grid"][0])) == (16, snapshot["horizon"])
    listed = admin.get("/api/v1/cycles/").json()["results"]
    assert listed[0] == admin.get(f"/api/v1/cycles/{ids['cycle']}/").json()


def _numbered(address):
    others = (
        "draft",
        "q4",
        "comment",
        "approved",
        "closed",
        "checkpoint",
        "exemption",
        "simulation",
        "window",
        "begun",
    )
    for name in ("job", "cycle", "change_set", "request", "notice", *others):
        address = address.replace(f"{{{name}}}", "1")
    return address
