"""Pools and nodes over the API: the same services as the pages, refusals by field."""

from typing import Any

import pytest
from rest_framework.test import APIClient

from budgets.models import Decision
from clusters.models import Node
from config import clock
from tests import factories as make
from tests.factories import HOUR, T0
from tests.helpers import Institute, make_institute

pytestmark = [pytest.mark.django_db, pytest.mark.once]
NOW = T0 + HOUR
WHY = {"reason": "why"}


@pytest.fixture
def place(monkeypatch: pytest.MonkeyPatch) -> Institute:
    monkeypatch.setattr(clock, "now", lambda: NOW)
    return make_institute(nodes=1)


@pytest.fixture
def api(place: Institute) -> Any:
    user = make.make_user("ada")
    make.make_role(user, place.tree["orlo"], "administrator")
    client = APIClient()
    client.force_authenticate(user)

    def ask(address: str, **body: Any) -> Any:
        return client.post(f"/api/v1/{address}/", WHY | body)

    ask.get = lambda address: client.get(f"/api/v1/{address}/").json()  # type: ignore[attr-defined]
    return ask


def refused(answer: Any) -> list[str]:
    assert answer.status_code == 400
    return [error["field"] for error in answer.json()["errors"]]


def test_a_pool_is_made_priced_and_called_otherwise(api: Any) -> None:
    asked: dict[str, Any] = {"slug": "b200", "name": "B200", "gpu_type": "B200"}
    asked["rate_per_mille"] = 1800
    made = api("pools", **asked)
    assert (made.status_code, made.json()["cluster"]) == (201, "mainland")
    assert refused(api("pools", **asked)) == ["slug"]
    assert refused(api("pools", **asked, cluster="none")) == ["cluster"]
    now = api("pools/b200/rate", rate_per_mille=2000)  # it was made this second
    assert refused(now) == ["effective_at"]
    later = api("pools/b200/rate", rate_per_mille=2000, effective_at="2026-10-02T00:00:00Z")
    assert later.status_code == 201
    assert api("pools/b200/change", name="Hall 2").json()["gpu_type"] == "B200"
    assert api("pools/none/change", name="Hall 2").status_code == 404
    assert [p["name"] for p in api.get("pools")] == ["h100", "Hall 2"]


def test_nodes_come_and_go(api: Any) -> None:
    asked: dict[str, Any] = {"pool": "h100", "nodes": ["n[1-2]"], "gpus": 8}
    made = api("nodes", **asked).json()
    assert [one["name"] for one in made] == ["n1", "n2"]
    assert (made[0]["active_from"], made[0]["active_until"]) == ("2026-10-01T01:00:00Z", None)
    assert refused(api("nodes", **asked)) == ["nodes"]
    assert refused(api("nodes", **asked | {"pool": "none"})) == ["pool"]
    assert api("nodes/n1/label", label="rack 4").json()["label"] == "rack 4"
    late = {"effective_at": "2026-10-03T00:00:00Z"}
    assert api("nodes/n1/retire", **late).json()["active_until"] == late["effective_at"]
    listed = {one["name"]: one for one in api.get("nodes")}
    assert (listed["n1"]["label"], listed["n1"]["active_until"]) == (
        "rack 4",
        late["effective_at"],
    )
    assert api("nodes/n1/keep").json()["active_until"] is None
    assert refused(api("nodes/n1/keep")) == ["reason"]
    early = {"effective_at": "2026-10-01T00:00:00Z"}
    assert refused(api("nodes/n1/retire", **early)) == ["effective_at"]
    api("nodes", **asked | late | {"nodes": ["n9"]})
    assert api("nodes/n9/call-off").status_code == 204
    assert not Node.objects.filter(name="n9").exists()
    assert api("nodes/n9/label", label="x").status_code == 404
    assert set(Decision.objects.values_list("reason", flat=True)) == {"why"}
