"""Bad input gets 4xx and a sentence on what to change; never 500, and nothing is written."""

import json

import pytest
from django.test import Client
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from rest_framework.test import APIClient

from tests import factories as make
from workloads.models import Job

pytestmark = [pytest.mark.django_db, pytest.mark.once]
PETREL = "orlo/science/petrel"
GOOD = {"budget": PETREL, "name": "train", "kind": "training", "gpus": 8}
SERVICE = {"kind": "realtime", "gpus": None, "profile": [4] * 24, "swap_cap": 4}

BAD_JOBS = [
    # changed fields, part of the sentence that is answered
    ({"budget": None}, "budget: "),
    ({"budget": 5}, "budget: Give a string."),
    ({"budget": ["orlo"]}, "budget: Give a string."),
    ({"budget": "orlo/nothing"}, "no such budget, or none that you may see"),
    ({"budget": "orlo/science/\0"}, "Leave out NUL"),
    ({"budget": "orlo/science"}, "has budgets below it: choose one of those"),
    ({"budget": "orlo/old"}, "is archived: choose an active project"),
    ({"name": ""}, "name: "),
    ({"name": "x" * 101}, "Give a name of 1 to 100 characters."),
    ({"name": "a\0b"}, "Leave out NUL"),
    ({"name": "\ud800"}, "half surrogates"),
    ({"name": 5}, "Give a string."),
    ({"kind": "mining"}, "Choose one of training, batch_inference"),
    ({"kind": None}, "kind: "),
    ({"gpus": 0}, "Ask for 1 to 4,096 GPUs."),
    ({"gpus": -8}, "gpus: "),
    ({"gpus": 3}, "Ask for a power of two: 2 or 4 GPUs, not 3."),
    ({"gpus": 64}, "The largest acceptable pool has 32 GPUs: ask for 32 or fewer."),
    ({"gpus": "8"}, "Give a whole number, without quotes."),
    ({"gpus": 8.0}, "Give a whole number"),
    ({"gpus": True}, "Give a whole number"),
    ({"gpus": 10**400}, "gpus: "),
    ({"gpus": None}, "Say how many GPUs"),
    ({"pools": "h100"}, "pools: "),
    ({"pools": ["x100"]}, "There is no pool 'x100': choose from h100."),
    ({"pools": [5]}, "Give a string."),
    ({"pools": ["h100\0"]}, "Leave out NUL"),
    ({"minimum_runtime_s": -1}, "minimum_runtime_s: "),
    ({"minimum_runtime_s": 9 * 3600}, "at most 8 h"),
    ({"minimum_runtime_s": 2, "time_limit_s": 1}, "not above the time limit"),
    ({"minimum_runtime_s": "1h"}, "Give a whole number"),
    ({"expected_duration_s": 0}, "expected_duration_s"),
    ({"expected_duration_s": 2**31}, "expected_duration_s: "),
    ({"time_limit_s": 367 * 86400}, "time_limit_s"),
    ({"resumable": "yes"}, "Give true or false, without quotes."),
    ({"resumable": 1}, "Give true or false"),
    ({"urgency": "highest"}, "low, normal, high"),
    ({"when_unfunded": "beg"}, "wait, run"),
    ({"command": "run\0"}, "Leave out NUL"),
    ({"command": "x" * 100_001}, "command"),
    ({"spec": []}, "Give a JSON object."),
    ({"spec": {"a": "\0"}}, "Leave out NUL"),
    ({"spec": {"\0": 1}}, "Leave out NUL"),
    ({"spec": {"a": ["\udc00"]}}, "half surrogates"),
    ({"dependencies": [0]}, "dependencies"),
    ({"dependencies": ["1"]}, "Give a whole number"),
    ({"dependencies": [2**63]}, "dependencies"),
    ({"dependencies": [2**63 - 1]}, "There is no job 9223372036854775807, or none"),
    ({"dependencies": 5}, "dependencies: "),
    ({"idempotency_key": ""}, "idempotency_key: "),
    ({"idempotency_key": "k" * 101}, "idempotency_key"),
    ({"idempotency_key": 7}, "Give a string."),
    ({"profile": [1] * 24}, "Only a real-time service has a profile"),
    ({"gpu": 8}, "There is no field 'gpu': did you mean 'gpus'?"),
    ({"qqqq": 8}, "There is no field 'qqqq'; there are budget, name,"),
    (SERVICE | {"profile": [4] * 23}, "24 or 168 steps of 60 min, not 23."),
    (SERVICE | {"profile": []}, "not 0"),
    (SERVICE | {"profile": [0] * 24}, "above 0 in one at least"),
    (SERVICE | {"profile": [-1] * 24}, "profile"),
    (SERVICE | {"profile": [64] * 24}, "The largest acceptable pool has 32 GPUs"),
    (SERVICE | {"profile": ["4"] * 24}, "Give a whole number"),
    (SERVICE | {"swap_cap": 0}, "Give a swap cap of 1 to 4,096"),
    (SERVICE | {"swap_cap": None}, "Give a swap cap"),
    (SERVICE | {"gpus": 4}, "Leave gpus out"),
    (SERVICE | {"step_minutes": 0}, "step_minutes"),
    (SERVICE | {"step_minutes": 7}, "profile"),
    (SERVICE | {"time_zone": "Mars/Base"}, "IANA time zone"),
    (SERVICE | {"time_zone": "../../etc/passwd"}, "IANA time zone"),
]


@pytest.fixture
def member(api_of, tree):
    """A client for one who may submit to all of orlo, on a cluster of 32 GPUs."""
    pool = make.make_pool("h100")
    make.make_nodes(pool, 4)
    make.make_budget("old", parent=tree["orlo"], archived_at=make.T0)
    return api_of("admin")


def is_a_refusal(answer):
    assert 400 <= answer.status_code < 500, answer.content
    assert answer["Content-Type"] == "application/problem+json"
    problem = answer.json()
    assert set(problem) >= {"type", "title", "status", "detail", "errors"}
    assert problem["detail"].endswith((".", "?", ")")), problem["detail"]
    return problem["detail"]


@pytest.mark.parametrize(("changed", "sentence"), BAD_JOBS)
def test_a_bad_job_is_refused_with_what_to_change(member, changed, sentence):
    sent = json.dumps(GOOD | changed)
    answer = member.post("/api/v1/jobs/", sent, content_type="application/json")
    assert sentence in is_a_refusal(answer)
    assert not Job.objects.exists()


@pytest.mark.parametrize("field", ["budget", "name", "kind", "gpus"])
def test_what_is_missing_is_named(member, field):
    answer = member.post("/api/v1/jobs/", {k: v for k, v in GOOD.items() if k != field})
    assert field in is_a_refusal(answer)


@pytest.mark.parametrize(
    ("sent", "status"),
    [
        (b"", 400),
        (b"{", 400),
        (b"null", 400),
        (b"[]", 400),
        (b'"text"', 400),
        (b"\xff\xfe", 400),
        (b'{"gpus": NaN}', 400),
        (b'{"gpus": 1e999}', 400),
        (b'{"spec": {"a": 1e999}}', 400),
        (b"[" * 100_000, 400),
        (b'{"a":' * 50_000, 400),
        (b'{"gpus": ' + b"9" * 10_000 + b"}", 400),
        (b'{"spec": ' + b'{"a":' * 30 + b"1" + b"}" * 30 + b"}", 400),
        (b" " * 1_000_001, 413),
    ],
)
def test_a_body_that_is_no_proper_json_is_refused(member, sent, status):
    answer = member.post("/api/v1/jobs/", sent, content_type="application/json")
    is_a_refusal(answer)
    assert answer.status_code == status


def test_a_number_beyond_all_bounds_is_refused(member):
    sent = json.dumps(GOOD | {"spec": {"rate": 0.5}}).replace("0.5", "1e999")
    answer = member.post("/api/v1/jobs/", sent, content_type="application/json")
    assert "numbers beyond all bounds" in is_a_refusal(answer)


def test_another_media_type_is_refused(member):
    answer = member.post("/api/v1/jobs/", "gpus=8", content_type="text/plain")
    is_a_refusal(answer)
    assert answer.status_code == 415


@pytest.mark.parametrize(
    ("query", "sentence"),
    [
        ("state=sleeping", "state: "),
        ("mine=maybe", "mine: "),
        ("budget=a%00b", "Leave out NUL"),
        ("page=0", "page: "),
        ("page=x", "page: "),
        ("page_size=100000", "page_size: "),
        ("stat=queued", "did you mean 'state'?"),
    ],
)
def test_a_bad_query_is_refused(member, query, sentence):
    assert sentence in is_a_refusal(member.get(f"/api/v1/jobs/?{query}"))


@pytest.mark.parametrize(
    "address",
    [
        f"jobs/{10**30}/",
        f"cycles/{10**30}/",
        f"cycles/{10**30}/plan/",
        "jobs/0/",
        "budgets/%00/",
        "budgets/orlo%00/burn/",
        "budgets/../../etc/passwd/",
        "budgets/orlo//",
        "budgets/" + "a/" * 2000,
    ],
)
def test_addresses_of_nothing_are_not_found(member, address):
    assert member.get(f"/api/v1/{address}").status_code == 404


@pytest.mark.parametrize("key", ["k" * 101, "a\0b", ""])
def test_a_bad_key_in_the_header_is_refused(member, key):
    is_a_refusal(member.post("/api/v1/jobs/", GOOD, headers={"idempotency-key": key}))


@pytest.mark.parametrize(
    ("query", "sentence"),
    [
        ("from=yesterday", "with a zone and whole seconds"),
        ("from=2026-10-01", "with a zone and whole seconds"),
        ("from=2026-10-02T00:00:00Z&to=2026-10-01T00:00:00Z", "before it starts"),
        ("from=0001-01-01T00:00:00Z", "with a zone"),
        ("to=9999-12-31T23:59:59Z", "with a zone"),
        ("form=2026-10-01T00:00:00Z", "did you mean 'from'?"),
        ("by=colour", "by: "),
        ("", "No period is open now: give both from and to."),
        ("from=2020-01-01T00:00:00Z&to=2020-02-01T00:00:00Z", "No started period covers"),
    ],
)
def test_a_bad_interval_is_refused(member, query, sentence):
    assert sentence in is_a_refusal(member.get(f"/api/v1/budgets/orlo/burn/?{query}"))


ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner),
    max_leaves=6,
)
FIELDS = sorted({*GOOD, *SERVICE, "pools", "spec", "dependencies", "idempotency_key", "command"})


@settings(
    max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(changed=st.dictionaries(st.sampled_from(FIELDS), ANYTHING, min_size=1, max_size=4))
def test_whatever_is_sent_there_is_never_a_fault_of_ours(member: APIClient, changed):
    try:
        sent = json.dumps(GOOD | changed)
    except (TypeError, ValueError):
        return
    answer = member.post("/api/v1/jobs/", sent, content_type="application/json")
    assert answer.status_code in (200, 201, 400, 409), (changed, answer.content)


@pytest.mark.parametrize("name", ["%00", "a%00b", "%ED%A0%80"])
def test_addresses_with_what_no_database_keeps_are_not_there(api_of, cast, name):
    """PostgreSQL refuses NUL in any text that it is asked for."""
    root = api_of("root")
    assert root.delete(f"/api/v1/budgets/orlo/roles/{name}/").status_code == 404
    assert root.get(f"/api/v1/budgets/{name}/").status_code == 404
    page = Client()
    page.force_login(cast["root"])
    assert page.get(f"/plan?pool={name}").status_code == 404
    assert page.get(f"/plan.json?pool={name}").status_code == 404
    for url in ("/", "/jobs", "/budgets"):
        for key in ("q", "name", "pool", "budget", "reason"):
            assert page.get(f"{url}?{key}={name}").status_code == 200
