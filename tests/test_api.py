"""The API: what each address answers to whom."""

from datetime import timedelta

import pytest
from rest_framework.authtoken.models import Token
from rest_framework.test import APIClient

from budgets import shares
from budgets.models import ChangeSet
from config import clock
from tests import factories as make
from workloads.models import Job

pytestmark = pytest.mark.django_db
T0, DAY = make.T0, timedelta(days=1)
NOW = T0 + DAY
PETREL = "orlo/science/petrel"


@pytest.fixture(autouse=True)
def _at(monkeypatch):
    """Every request comes at the same instant."""
    monkeypatch.setattr(clock, "now", lambda: NOW)


@pytest.fixture
def pool(tree):
    pool = make.make_pool("h100", rate=2000)
    make.make_nodes(pool, 4)
    return pool


def body(**changed):
    asked = {"budget": PETREL, "name": "train", "kind": "training", "gpus": 8, "pools": ["h100"]}
    return {name: value for name, value in (asked | changed).items() if value is not ...}


# --- Jobs ---------------------------------------------------------------------------------------


def test_a_submitted_job_is_queued_and_shown(api_of, pool):
    answer = api_of("member").post("/api/v1/jobs/", body(expected_duration_s=7200))
    assert answer.status_code == 201
    shown = answer.json()
    assert {name: shown[name] for name in ("budget", "state", "gpus", "pools", "submitted_by")} == {
        "budget": PETREL,
        "state": "queued",
        "gpus": 8,
        "pools": ["h100"],
        "submitted_by": "member",
    }
    assert shown["submitted_at"] == "2026-10-02T00:00:00Z"
    assert shown["estimate"] == {"p10_s": 3600, "p50_s": 7200, "p90_s": 10800}
    assert shown["forecasts"][0]["method"] == "declared"
    assert shown["events"][0]["kind"] == "submitted"
    assert api_of("viewer").get(f"/api/v1/jobs/{shown['id']}/").json() == shown
    assert Job.objects.get().budget.path == PETREL


def test_a_service_is_submitted_with_its_profile(api_of, pool):
    asked = body(kind="realtime", gpus=..., profile=[2] * 12 + [6] * 12, swap_cap=4)
    shown = api_of("member").post("/api/v1/jobs/", asked).json()
    assert (shown["gpus"], shown["service"]["swap_cap"]) == (6, 4)
    assert shown["service"]["profile"] == [2] * 12 + [6] * 12


def test_the_same_key_and_body_answers_the_same_job(api_of, pool):
    member = api_of("member")
    first = member.post("/api/v1/jobs/", body(idempotency_key="k1"))
    again = member.post("/api/v1/jobs/", body(), headers={"idempotency-key": "k1"})
    assert (first.status_code, again.status_code) == (201, 200)
    assert first.json()["id"] == again.json()["id"]
    assert Job.objects.count() == 1
    other = api_of("colleague").post("/api/v1/jobs/", body(idempotency_key="k1"))
    assert other.status_code == 201  # keys are each person's own


def test_the_same_key_and_another_body_is_a_conflict(api_of, pool):
    member = api_of("member")
    job = member.post("/api/v1/jobs/", body(idempotency_key="k1")).json()["id"]
    answer = member.post("/api/v1/jobs/", body(idempotency_key="k1", gpus=4))
    assert answer.status_code == 409
    assert answer["Content-Type"] == "application/problem+json"
    assert answer.json()["job"] == job
    assert f"belongs to job {job}" in answer.json()["detail"]
    both = member.post("/api/v1/jobs/", body(idempotency_key="a"), headers={"idempotency-key": "b"})
    assert both.status_code == 400
    assert Job.objects.count() == 1


def test_jobs_are_listed_newest_first_and_filtered(api_of, cast, tree, pool):
    mine = make.make_job(tree[PETREL], user=cast["member"])
    done = make.make_job(tree[PETREL], user=cast["colleague"], state="completed", ended_at=T0)
    auk = make.make_job(tree["orlo/science/auk"], user=cast["admin"])
    tern = make.make_job(tree["orlo/vision/tern"], user=cast["stranger"])

    def listed(name, query=""):
        answer = api_of(name).get(f"/api/v1/jobs/{query}").json()
        assert answer["count"] == len(answer["results"])
        return [job["id"] for job in answer["results"]]

    assert listed("admin") == [tern.pk, auk.pk, done.pk, mine.pk]
    assert listed("member") == [done.pk, mine.pk]
    assert listed("member", "?mine=true") == [mine.pk]
    assert listed("admin", "?state=queued&state=running") == [tern.pk, auk.pk, mine.pk]
    assert listed("admin", "?budget=orlo/science") == [auk.pk, done.pk, mine.pk]
    assert listed("manager", "?budget=orlo/vision/tern") == []


def test_pages_of_the_list_are_linked(api_of, tree, cast):
    for _ in range(5):
        make.make_job(tree[PETREL], user=cast["member"])
    first = api_of("member").get("/api/v1/jobs/?page_size=2").json()
    assert (first["count"], len(first["results"])) == (5, 2)
    assert "page=2" in first["next"]
    assert api_of("member").get("/api/v1/jobs/?page=9").status_code == 404


def test_a_job_shows_its_runs_and_which_gpus_they_held(api_of, tree, pool):
    job = make.make_job(tree[PETREL], pools=[pool])
    node = pool.nodes.first()
    make.make_run(job, {node: 0b1111_0000}, ended_at=T0 + make.HOUR)
    run = api_of("member").get(f"/api/v1/jobs/{job.pk}/").json()["runs"][0]
    assert (run["number"], run["pool"], run["state"]) == (1, "h100", "ended")
    assert run["holdings"] == [
        {
            "node": "h100-n0",
            "gpus": [4, 5, 6, 7],
            "funded": True,
            "started_at": "2026-10-01T00:00:00Z",
            "ended_at": "2026-10-01T01:00:00Z",
        }
    ]


def test_a_waiting_job_is_cancelled_at_once(api_of, pool):
    member = api_of("member")
    pk = member.post("/api/v1/jobs/", body()).json()["id"]
    answer = member.post(f"/api/v1/jobs/{pk}/cancel/")
    assert (answer.status_code, answer.json()["state"]) == (200, "cancelled")
    assert member.post(f"/api/v1/jobs/{pk}/cancel/").json()["state"] == "cancelled"


@pytest.mark.parametrize(
    ("who", "expected"),
    [
        ("member", 200),
        ("colleague", 403),
        ("viewer", 403),
        ("manager", 200),
        ("admin", 200),
        ("root", 200),
        ("stranger", 404),
        ("nobody", 404),
    ],
)
def test_who_may_cancel_a_members_job(api_of, cast, tree, pool, who, expected):
    job = make.make_job(tree[PETREL], user=cast["member"])
    answer = api_of(who).post(f"/api/v1/jobs/{job.pk}/cancel/")
    job.refresh_from_db()
    assert answer.status_code == expected
    assert job.state == ("cancelled" if expected == 200 else "queued")


def test_a_job_depends_only_on_jobs_that_one_may_see(api_of, tree, pool):
    mine, theirs = make.make_job(tree[PETREL]), make.make_job(tree["orlo/vision/tern"])
    member = api_of("member")
    assert member.post("/api/v1/jobs/", body(dependencies=[mine.pk])).json()["dependencies"] == [
        mine.pk
    ]
    hidden = member.post("/api/v1/jobs/", body(dependencies=[theirs.pk]))
    absent = member.post("/api/v1/jobs/", body(dependencies=[999_999]))
    assert (hidden.status_code, absent.status_code) == (400, 400)
    assert f"no job {theirs.pk}, or none that you may see" in hidden.json()["detail"]


# --- Budgets and shares -------------------------------------------------------------------------


def test_the_tree_shows_shares_and_what_is_visible(api_of, tree):
    period = make.make_period()
    shown = api_of("manager").get("/api/v1/budgets/").json()
    assert shown["period"]["name"] == period.name
    assert [
        (b["path"], b["share_thousandths"], b["effective_share"], b["effective_thousandths"])
        for b in shown["budgets"]
    ] == [
        ("orlo/science", 60_000, "3/5", 60_000),
        ("orlo/science/auk", 50_000, "3/10", 30_000),
        ("orlo/science/petrel", 50_000, "3/10", 30_000),
    ]
    assert shown["budgets"][1]["figures"]["granted_mgpus"] == 0
    assert len(api_of("admin").get("/api/v1/budgets/").json()["budgets"]) == 6
    assert api_of("nobody").get("/api/v1/budgets/").json()["budgets"] == []


def test_archived_budgets_are_shown_on_request(api_of, tree):
    make.make_shares(tree["orlo"], {tree["orlo/science"]: 1}, at=T0 + make.HOUR)
    admin = api_of("admin")
    assert len(admin.get("/api/v1/budgets/").json()["budgets"]) == 4
    everything = admin.get("/api/v1/budgets/?archived=true").json()["budgets"]
    assert [b["path"] for b in everything[4:]] == ["orlo/vision", "orlo/vision/tern"]
    assert everything[4]["share_thousandths"] is None


def test_one_budget_says_what_one_may_do_there(api_of, tree):
    shown = api_of("manager").get("/api/v1/budgets/orlo/science/").json()
    assert "edit_shares" in shown["actions"]
    assert "manage_roles" not in shown["actions"]
    assert (shown["shares_version"], shown["figures"]) == (1, None)
    viewer = api_of("viewer").get(f"/api/v1/budgets/{PETREL}/").json()
    assert viewer["actions"] == ["view", "comment"]


def change(**changed):
    asked = {
        "shares": {"petrel": 70_000, "auk": 30_000},
        "reason": "petrel needs more",
        "base_version": 1,
    }
    return asked | changed


def test_shares_are_proposed_and_approved(api_of, tree):
    manager = api_of("manager")
    proposed = manager.post("/api/v1/budgets/orlo/science/change-sets/", change())
    assert (proposed.status_code, proposed.json()["status"]) == (201, "proposed")
    assert shares.share_of(tree[PETREL], NOW) == 50_000
    approved = manager.post(f"/api/v1/change-sets/{proposed.json()['id']}/approve/")
    assert approved.json() | {"id": 0} == {
        "id": 0,
        "parent": "orlo/science",
        "version": 2,
        "status": "approved",
        "reason": "petrel needs more",
        "author": "manager",
        "created_at": "2026-10-02T00:00:00Z",
        "effective_at": "2026-10-02T00:00:00Z",
        "decided_by": "manager",
        "decided_at": "2026-10-02T00:00:00Z",
        "shares": {"petrel": 70_000, "auk": 30_000},
        "overrides": {},
        "moves": [
            {"child": "auk", "pool": "", "before": 50_000, "after": 30_000},
            {"child": "petrel", "pool": "", "before": 50_000, "after": 70_000},
        ],
    }
    assert shares.share_of(tree[PETREL], NOW) == 70_000
    listed = manager.get("/api/v1/budgets/orlo/science/change-sets/").json()["results"]
    assert [one["version"] for one in listed] == [2, 1]


def test_overrides_are_proposed_by_pool(api_of, tree, pool):
    asked = change(overrides={"auk": {"h100": 10_000}})
    shown = api_of("manager").post("/api/v1/budgets/orlo/science/change-sets/", asked).json()
    assert shown["overrides"] == {"auk": {"h100": 10_000}}


def test_a_stale_base_is_a_conflict_with_both_versions(api_of, tree):
    make.make_shares(
        tree["orlo/science"],
        {tree[PETREL]: 10_000, tree["orlo/science/auk"]: 20_000},
        at=T0 + make.HOUR,
    )
    answer = api_of("manager").post("/api/v1/budgets/orlo/science/change-sets/", change())
    assert answer.status_code == 409
    assert (answer.json()["theirs_version"], answer.json()["mine_version"]) == (2, 1)


@pytest.mark.parametrize(
    ("changed", "sentence"),
    [
        ({"shares": {"petrel": 70_000, "auk": 50_000}}, "petrel (70.000 %, was 50.000 %) binds"),
        ({"shares": {"petrel": 70_000}}, "orlo/science/auk is missing"),
        ({"shares": {"petrel": 1, "auk": 1, "kea": 1}}, "has no child 'kea': name auk, petrel"),
        ({"shares": {"petrel": -1, "auk": 1}}, "shares.petrel: "),
        ({"shares": {"petrel": "5", "auk": 1}}, "Give a whole number, without quotes."),
        ({"shares": [1, 2]}, "shares: "),
        ({"overrides": {"auk": {"x100": 1}}}, "There is no pool 'x100'"),
        ({"overrides": {"auk": 5}}, "overrides.auk: "),
        ({"reason": ""}, "reason: "),
        ({"reason": "a\0"}, "NUL"),
        ({"base_version": None}, "base_version: "),
        ({"base_version": 10**30}, "base_version: "),
        ({"effective_at": "2026-10-05T00:00:00"}, "with a zone"),
        ({"effective_at": "2026-10-05T00:00:00.5Z"}, "whole seconds"),
        ({"sharse": {}}, "did you mean 'shares'?"),
    ],
)
def test_wrong_changes_are_refused_in_a_sentence(api_of, tree, pool, changed, sentence):
    answer = api_of("manager").post("/api/v1/budgets/orlo/science/change-sets/", change(**changed))
    assert answer.status_code == 400
    assert sentence in answer.json()["detail"]
    assert ChangeSet.objects.filter(parent=tree["orlo/science"]).count() == 1


def test_a_decided_change_set_is_not_decided_again(api_of, tree):
    manager = api_of("manager")
    pk = manager.post("/api/v1/budgets/orlo/science/change-sets/", change()).json()["id"]
    assert manager.post(f"/api/v1/change-sets/{pk}/decline/").json()["status"] == "declined"
    again = manager.post(f"/api/v1/change-sets/{pk}/approve/")
    assert again.status_code == 400
    assert "is declined: write a new one" in again.json()["detail"]


# --- Clusters, people, addresses ----------------------------------------------------------------


def test_nodes_and_pools_are_shown_to_everyone_signed_in(api_of, pool):
    from clusters.models import GpuState, NodeState

    first, second = pool.nodes.all()[:2]
    GpuState.objects.create(node=first, at=T0, held=0, free=0xFF, down=0)
    GpuState.objects.create(node=first, at=T0 + make.HOUR, held=0xF, free=0xF0, down=0)
    GpuState.objects.create(node=first, at=NOW + DAY, held=0xFF, free=0, down=0)
    NodeState.objects.create(node=second, at=T0, state="down", reason="fan")
    first.drains.create(starts_at=NOW, reason="new kernel")
    nodes = api_of("nobody").get("/api/v1/nodes/").json()
    assert (nodes[0]["held_gpus"], nodes[0]["free_gpus"], nodes[0]["state"]) == (4, 4, "up")
    assert nodes[0]["drains"] == [
        {
            **{"window": None, "reason": "new kernel"},
            **{"starts_at": "2026-10-02T00:00:00Z", "ends_at": None},
        }
    ]
    assert (nodes[0]["free_from"], nodes[1]["free_from"], nodes[2]["free_from"]) == (
        *("2026-10-02T00:00:00Z", "2026-10-02T00:00:00Z"),
        None,
    )
    assert (nodes[1]["state"], nodes[1]["reason"], nodes[1]["held_gpus"]) == ("down", "fan", None)
    pools = api_of("nobody").get("/api/v1/pools/").json()
    assert [(p["slug"], p["nodes"], p["gpus"], p["rate_per_mille"]) for p in pools] == [
        ("h100", 4, 32, 2000)
    ]


def test_a_token_is_given_for_a_password_and_signs_in(cast):
    client = APIClient()
    token = client.post("/api/v1/token/", {"username": "member", "password": "secret"}).json()
    assert token == {"token": Token.objects.get(user=cast["member"]).key}
    client.credentials(HTTP_AUTHORIZATION=f"Token {token['token']}")
    assert client.get("/api/v1/me/").json() == {
        "username": "member",
        "name": "",
        "is_superuser": False,
        "roles": {PETREL: "member"},
    }


@pytest.mark.parametrize(
    "asked",
    [
        {"username": "member", "password": "wrong"},
        {"username": "member"},
        {"username": ["member"], "password": "secret"},
        {"username": "mem\0ber", "password": "secret"},
        [],
    ],
)
def test_a_wrong_password_gives_no_token(cast, asked):
    answer = APIClient().post("/api/v1/token/", asked)
    assert answer.status_code == 400
    assert answer["Content-Type"] == "application/problem+json"
    assert not Token.objects.exists()


def test_an_unknown_address_is_a_problem_object(api_of):
    answer = api_of("admin").get("/api/v1/quotas/")
    assert (answer.status_code, answer["Content-Type"]) == (404, "application/problem+json")
    assert "nothing at /api/v1/quotas/" in answer.json()["detail"]


def test_its_own_address_leads_to_its_documentation(api_of):
    answer = api_of("nobody").get("/api/v1/")
    assert (answer.status_code, answer["Location"]) == (302, "/api/v1/docs")


def test_the_schema_describes_every_address(api_of):
    schema = api_of("nobody").get("/api/v1/schema", headers={"accept": "application/json"}).json()
    assert {"/api/v1/jobs/", "/api/v1/budgets/{path}/change-sets/", "/api/v1/plan/"} <= set(
        schema["paths"]
    )
    assert api_of("nobody").get("/api/v1/docs").status_code == 200
