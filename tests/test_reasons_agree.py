"""Why a job waits is one answer: the same in the API, on pages and in the client.

Every situation is brought about by the real cycle, and told to somebody who may see everything.
"""

import re
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import pytest
from rest_framework.test import APIClient

from allocator import cycle
from allocator.models import Outlook
from allocator.pages import queue
from allocator.pages.names import Names
from client import tables
from clusters.connectors.base import Refusal
from clusters.connectors.simulated import SimulatedConnector
from clusters.models import Drain
from ledger.models import Entry
from tests import factories as make
from tests.factories import HOUR, T0, make_nodes, make_pool
from tests.helpers import CREDIT, Institute, make_institute
from tests.ledger_world import write_entry
from tests.pages_day import stand_at
from tests.pages_world import client_of, text_of
from workloads.models import Job

pytestmark = [pytest.mark.django_db, pytest.mark.once]
MINUTE = timedelta(minutes=1)
NOW = T0 + 2 * MINUTE


def full(**more: Any) -> Institute:
    """Two nodes that Petrel's runs hold, protected for four hours."""
    place = make_institute(**more)
    for n in range(2):
        place.submit(
            place.petrel, name=f"run{n}", minimum_runtime_s=4 * 3600, expected_duration_s=4 * 3600
        )
    cycle.run(at=T0, trigger="test")
    return place


def not_funded() -> Job:
    """Petrel itself has 104 credits; Science above it has 4."""
    place = make_institute(credits={"orlo/science/petrel": 4, "orlo/vision/tern": 100})
    write_entry(
        kind=Entry.Kind.GRANT, budget=place.petrel, period=place.period, at=T0, created_at=T0,
        amount_mgpus=100 * CREDIT, author=place.user, key="grant:own",
    )  # fmt: skip
    return place.submit(place.petrel, T0 + MINUTE)


def behind() -> Job:
    """Tern has used nothing, and comes first when the nodes are free."""
    place = full()
    place.submit(place.tern, T0 + MINUTE, name="first", gpus=16, expected_duration_s=10 * 3600)
    return place.submit(place.petrel, T0 + MINUTE, gpus=16)


def behind_its_own() -> Job:
    place = full()
    place.submit(place.petrel, T0 + MINUTE, name="older", gpus=16)
    return place.submit(place.petrel, T0 + MINUTE, gpus=16)


def unfunded() -> Job:
    place = full()
    place.submit(place.tern, T0 + MINUTE, name="paid", gpus=16, expected_duration_s=10 * 3600)
    return place.submit(place.auk, T0 + MINUTE, gpus=16, minimum_runtime_s=0)


def no_block() -> Job:
    place = full()
    return place.submit(place.tern, T0 + MINUTE)


def draining() -> Job:
    """One node is taken, the other is drained before the job would have ended."""
    place = make_institute()
    place.submit(place.petrel, minimum_runtime_s=4 * 3600, expected_duration_s=4 * 3600)
    cycle.run(at=T0, trigger="test")
    Drain.objects.create(
        node=place.nodes[1], starts_at=T0 + HOUR, ends_at=T0 + 9 * HOUR, reason="new fans"
    )
    return place.submit(place.tern, T0 + MINUTE)


def dependency() -> Job:
    place = full()
    first = Job.objects.get(name="run0")
    return place.submit(place.tern, T0 + MINUTE, dependencies=(first.pk,))


def other_pool() -> Job:
    place = full()
    make_nodes(make_pool("b200", cluster=place.cluster))
    return place.submit(place.tern, T0 + MINUTE, pools=("h100",))


def refused() -> Job:
    place = make_institute()
    job = place.submit(place.tern)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            SimulatedConnector,
            "start",
            lambda self, order, *, at: Refusal(
                external_id=order.external_id, reason="image not found"
            ),
        )
        cycle.run(at=NOW, trigger="test")
    return job


@dataclass(frozen=True)
class Case:
    make: Any
    rule: str
    text: str
    sentence: str
    released_by: str
    data: dict[str, Any]


CASES = [
    Case(
        not_funded, "not_funded", "Not funded: Science",
        "Its hold needs 8.0 cr; spendable are 4.0 cr, and Science binds.",
        "Released by 4.0 cr more",
        {"binding": "orlo/science", "needed_mgpus": 8 * CREDIT, "spendable_mgpus": 4 * CREDIT},
    ),
    Case(
        behind, "behind", "Behind Tern",
        "Vision has 0.0 % of what was used in the window for 40.0 % of the shares, "
        "Science 100.0 % for 60.0 %; what the plan gives",
        "Released when they end",
        {"gpus": 16, "behind": ["first"]},
    ),
    Case(
        behind_its_own, "behind", "Behind #",
        "Another job of Petrel is before it: urgency, then age decide inside a budget.",
        "Released when they end",
        {"gpus": 16, "behind": ["older"]},
    ),
    Case(
        unfunded, "unfunded_behind", "Unfunded, one ahead of it",
        "It is unfunded, so funded work goes first.",
        "Released when they end",
        {"gpus": 16, "behind": ["paid"]},
    ),
    Case(
        no_block, "no_block", "No block of 8 before 04:00",
        "No 8 neighbouring GPUs are free for as long as it takes",
        "Released when they end",
        {"gpus": 8},
    ),
    Case(
        draining, "draining", "Draining h100-n1",
        "A block would be free, but h100-n1 in it is being emptied for maintenance.",
        "Released when the maintenance is over",
        {"gpus": 8, "node": "h100-n1"},
    ),
    Case(
        dependency, "dependency", "Waits for #",
        "It may start once petrel/run0 has completed.",
        "Released by that job’s end",  # noqa: RUF001
        {"name": "run0", "budget": "orlo/science/petrel", "state": "running"},
    ),
    Case(
        other_pool, "pool", "Its pools are full, b200 isn’t",  # noqa: RUF001
        "it could start in b200 now, if it asked for it.",
        "or submit it again with more pools.",
        {"gpus": 8, "pools": ["b200"]},
    ),
    Case(
        refused, "refused", "Refused, tried again at 00:03",
        "Mainland refused to start it: image not found.",
        "Others get its block meanwhile.",
        {"cluster": "Mainland", "reason": "image not found", "times": 1},
    ),
]  # fmt: skip


def _brief(data: dict[str, Any]) -> dict[str, Any]:
    """An outlook's particulars, those ahead by name."""
    return data | ({"behind": [one["name"] for one in data["behind"]]} if "behind" in data else {})


def _read(text: str) -> str:
    return re.sub(r"\s+", " ", text)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.make.__name__)
def test_each_reason_is_told_alike_everywhere(case, monkeypatch):
    job = case.make()
    cycle.run(at=NOW, trigger="test")
    monkeypatch.setattr("config.clock.now", lambda: NOW)
    stand_at(monkeypatch, NOW)
    root = make.make_user("root", is_superuser=True)
    api = APIClient()
    api.force_authenticate(root)

    outlook = Outlook.objects.get(job=job)
    assert outlook.rule == case.rule
    assert _brief(outlook.data) == _brief(outlook.data) | case.data
    shown = api.get(f"/api/v1/jobs/{job.pk}/").json()
    told = shown["outlook"]
    assert (told["rule"], told["data"]) == (outlook.rule, outlook.data)
    assert shown["waits"] == case.rule
    assert case.text in told["text"]
    assert case.sentence in told["sentence"]
    assert case.released_by in told["released_by"]

    [line] = [one for one in api.get("/api/v1/jobs/").json()["results"] if one["id"] == job.pk]
    assert (line["waits"], line["waits_text"]) == (case.rule, told["text"])
    reader = client_of(root)
    page, listed = (text_of(reader.get(url)) for url in (f"/jobs/{job.pk}", "/jobs?state=waiting"))
    for words in (told["text"], told["sentence"], told["released_by"]):
        assert words in page
    assert told["text"] in listed
    printed = _read(tables.job(shown))
    for words in (told["text"], told["sentence"], told["released_by"]):
        assert words in printed
    assert told["text"] in _read(tables.jobs([line]))
    for one in told["data"].get("behind", ()):
        assert f"{one['name']} #{one['job']}" in printed
        assert f'href="/jobs/{one["job"]}"' in reader.get(f"/jobs/{job.pk}").content.decode()
    why = queue.why(Job.objects.get(pk=job.pk), Names.load(root))
    for name, at in (("low", why.low), ("likely", why.likely), ("high", why.high)):
        assert told[f"start_{name}"] == (at and at.strftime("%Y-%m-%dT%H:%M:%SZ"))
        assert at is None or told[f"start_{name}"] in printed


def test_a_job_that_no_cycle_has_seen_yet_says_so_everywhere(monkeypatch):
    job = make_institute().submit(make.Budget.objects.get(slug="petrel"))
    monkeypatch.setattr("config.clock.now", lambda: NOW)
    stand_at(monkeypatch, NOW)
    root = make.make_user("root", is_superuser=True)
    api = APIClient()
    api.force_authenticate(root)
    shown = api.get(f"/api/v1/jobs/{job.pk}/").json()
    assert (shown["waits"], shown["outlook"], shown["waits_text"]) == (
        None,
        None,
        "Not planned yet",
    )
    assert "Not planned yet" in text_of(client_of(root).get(f"/jobs/{job.pk}"))
    assert "Not planned yet" in tables.job(shown)


@pytest.mark.parametrize("state", ["starting", "running", "cancelled", "completed"])
def test_a_job_that_waits_no_longer_has_no_reason_to(state, monkeypatch):
    """Until the next cycle its last outlook is still there."""
    job = no_block()
    cycle.run(at=NOW, trigger="test")
    ended = NOW if state in Job.ENDED else None
    Job.objects.filter(pk=job.pk).update(state=state, ended_at=ended)
    assert Outlook.objects.filter(job=job).exists()
    api = APIClient()
    api.force_authenticate(make.make_user("root", is_superuser=True))
    shown = api.get(f"/api/v1/jobs/{job.pk}/").json()
    assert (shown["waits"], shown["waits_text"], shown["outlook"]) == (None, None, None)


def test_figures_of_a_budget_that_one_may_not_know_are_told_nowhere(monkeypatch):
    """Petrel's member knows nothing of Vision, whose job comes first."""
    job = behind()
    cycle.run(at=NOW, trigger="test")
    monkeypatch.setattr("config.clock.now", lambda: NOW)
    stand_at(monkeypatch, NOW)
    member = make.make_user("member")
    make.make_role(member, job.budget, "member")
    api = APIClient()
    api.force_authenticate(member)
    told = api.get(f"/api/v1/jobs/{job.pk}/").json()["outlook"]
    compared = Outlook.objects.get(job=job).data["compared"]
    assert (compared["other"]["path"], compared["other"]["usage"]) == ("orlo/vision", 0)
    assert (told["rule"], told["data"]["compared"]) == ("behind", None)
    assert told["data"]["behind"] == [{"job": None, "name": None, "budget": None}]
    page = text_of(client_of(member).get(f"/jobs/{job.pk}"))
    for words in (told["text"], told["sentence"], page):
        assert "Vision" not in words
        assert "of the shares" not in words
