"""What the API says of money agrees with the ledger to the last unit, and costs few queries."""

from datetime import timedelta

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from allocator import cycle
from budgets import periods
from clusters.connectors import simulated
from config import clock
from ledger import reports
from ledger import services as ledger
from tests import factories as make
from workloads.models import Job

pytestmark = pytest.mark.django_db
T0, STEP = make.T0, make.TIMESTEP
PETREL = "orlo/science/petrel"


@pytest.fixture(autouse=True)
def _at(monkeypatch):
    """Every request comes six timesteps after the start, and jobs run as long as expected."""
    monkeypatch.setattr(clock, "now", lambda: T0 + 6 * STEP)
    monkeypatch.setattr(simulated, "_error", lambda external_id: 1.0)


@pytest.fixture
def started(cast, tree):
    """Q4 on 16 GPUs with its grants, one funded job in petrel, and six timesteps of cycles."""
    pool = make.make_pool("h100", rate=2000)
    make.make_nodes(pool, 2)
    period = periods.draft_period(name="2026 Q4", starts_at=T0, ends_at=make.T1, now=T0)
    periods.approve_period(period=period)
    ledger.start_period(period=period, at=T0)
    return pool


def submit(api_of, **changed):
    asked = {
        "budget": PETREL,
        "name": "train",
        "kind": "training",
        "gpus": 8,
        "minimum_runtime_s": 7200,
        "expected_duration_s": 36000,
    }
    return api_of("member").post("/api/v1/jobs/", asked | changed).json()


def play(steps):
    for number in range(steps + 1):
        cycle.run(at=T0 + number * STEP, trigger="test")


def queries_of(client, address):
    with CaptureQueriesContext(connection) as captured:
        assert client.get(address).status_code == 200
    return len(captured)


def test_a_jobs_charges_are_those_of_the_ledger(api_of, started):
    job = Job.objects.get(pk=_submitted_at_start(api_of))
    play(6)
    shown = api_of("viewer").get(f"/api/v1/jobs/{job.pk}/").json()
    charges = shown["charges"]
    of_ledger = reports.job_charges(job=job)
    assert len(charges["lines"]) == 6
    assert charges["charged_mgpus"] == of_ledger.charged_mgpus == 6 * 1800 * 8 * 2000
    assert charges["lines"][0] == {
        "run_number": 1,
        "timestep": "2026-10-01T00:00:00Z",
        "start": "2026-10-01T00:00:00Z",
        "end": "2026-10-01T00:30:00Z",
        "funded": True,
        "gpu_seconds": 1800 * 8,
        "parked_gpu_seconds": charges["lines"][0]["parked_gpu_seconds"],
        "amount_mgpus": 1800 * 8 * 2000,
    }
    assert shown["state"] == "running"


def test_burn_is_told_by_child_and_by_day_and_adds_up(api_of, started):
    _submitted_at_start(api_of)
    play(6)
    shown = api_of("manager").get("/api/v1/budgets/orlo/science/burn/").json()
    by_path = {row["path"]: row for row in shown["rows"]}
    assert by_path[PETREL]["burned_mgpus"] == 6 * 1800 * 8 * 2000
    assert shown["total"]["burned_mgpus"] == sum(row["burned_mgpus"] for row in shown["rows"])
    assert [(day["day"], day["settled_mgpus"]) for day in shown["days"]] == [
        ("2026-10-01", 6 * 1800 * 8 * 2000)
    ]
    assert (shown["start"], shown["end"]) == ("2026-10-01T00:00:00Z", "2026-10-01T03:00:00Z")
    leaf = api_of("viewer").get(f"/api/v1/budgets/{PETREL}/burn/?by=leaf").json()
    assert leaf["total"]["settled_mgpus"] == 6 * 1800 * 8 * 2000


def test_the_trees_figures_are_those_of_the_ledger(api_of, started, tree):
    _submitted_at_start(api_of)
    play(6)
    rows = api_of("admin").get("/api/v1/budgets/").json()["budgets"]
    root = next(row for row in rows if row["path"] == "orlo")
    seconds = int((make.T1 - T0).total_seconds())
    assert root["figures"]["granted_mgpus"] == 16 * seconds * 2000
    assert root["figures"]["settled_mgpus"] == 6 * 1800 * 8 * 2000
    petrel = next(row for row in rows if row["path"] == PETREL)
    assert petrel["figures"]["granted_mgpus"] == root["figures"]["granted_mgpus"] * 3 // 10


def test_an_approval_writes_the_grants_it_moves(api_of, started, tree):
    manager = api_of("manager")
    before = api_of("viewer").get(f"/api/v1/budgets/{PETREL}/").json()["figures"]["granted_mgpus"]
    change = {"shares": {"petrel": 70_000, "auk": 30_000}, "reason": "x", "base_version": 1}
    made = manager.post("/api/v1/budgets/orlo/science/change-sets/", change).json()
    assert manager.post(f"/api/v1/change-sets/{made['id']}/approve/").status_code == 200
    after = api_of("viewer").get(f"/api/v1/budgets/{PETREL}/").json()["figures"]["granted_mgpus"]
    left = int((make.T1 - (T0 + 6 * STEP)).total_seconds())
    assert after - before == 16 * left * 2000 * 12 // 100  # 20 % of science's 60 %


def test_a_waiting_job_says_why_and_when(api_of, started):
    _submitted_at_start(api_of, gpus=16)
    waits = _submitted_at_start(api_of, gpus=16)
    play(1)
    shown = api_of("member").get(f"/api/v1/jobs/{waits}/").json()
    assert (shown["state"], shown["waits"]) == ("queued", shown["outlook"]["rule"])
    assert shown["outlook"]["rule"] == "no_block"
    assert shown["outlook"]["data"]["gpus"] == 16, shown["outlook"]
    low, likely, high = (shown["outlook"][f"start_{n}"] for n in ("low", "likely", "high"))
    assert low <= likely <= high


@pytest.mark.parametrize(
    "address",
    [
        *("jobs/", "budgets/", "budgets/orlo/burn/", "budgets/orlo/change-sets/"),
        *("nodes/", "pools/", "cycles/", "plan/"),
    ],
)
def test_twice_the_rows_take_the_same_queries(api_of, started, tree, address):
    admin, vision = api_of("admin"), tree["orlo/vision"]

    def more(number):
        for _ in range(number):
            leaf = make.make_budget(parent=vision)
            make.make_shares(vision, dict.fromkeys(vision.children.all(), 1), at=T0)
            both = {vision: 1, tree["orlo/science"]: 2}
            make.make_shares(tree["orlo"], both, at=T0)
            make.make_job(leaf, pools=[started], minimum_runtime_s=0)
            make.make_nodes(make.make_pool(), 2)

    more(3)
    play(3)
    first = queries_of(admin, f"/api/v1/{address}")
    more(3)
    # Charged up to the middle of an hour both times: at its end no entries are read for the edge.
    cycle.run(at=T0 + 5 * STEP, trigger="test")
    assert queries_of(admin, f"/api/v1/{address}") == first


def test_a_job_with_twice_the_runs_takes_the_same_queries(api_of, tree):
    pool = make.make_pool()
    nodes = make.make_nodes(pool, 2)
    job = make.make_job(tree[PETREL])
    address = f"/api/v1/jobs/{job.pk}/"

    def more(number):
        for _ in range(number):
            ended = T0 + timedelta(hours=job.runs.count() + 1)
            make.make_run(job, dict.fromkeys(nodes, 1), ended_at=ended)
            job.events.create(at=ended, kind="checkpoint")
            job.dependencies.add(make.make_job(tree[PETREL]))

    more(2)
    first = queries_of(api_of("admin"), address)
    more(2)
    assert queries_of(api_of("admin"), address) == first


def _submitted_at_start(api_of, **changed):
    """Submit through the API, as if it had been at T0."""
    pk = submit(api_of, **changed)["id"]
    Job.objects.filter(pk=pk).update(submitted_at=T0, state_since=T0)
    return pk
