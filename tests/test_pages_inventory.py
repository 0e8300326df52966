"""Pages of pools and nodes: what they show, what a change would do, where a refusal stands."""

import re
from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client

from allocator import inventory
from budgets.models import Decision
from clusters.models import Node, Pool
from tests import factories as make
from tests.factories import HOUR, T0
from tests.helpers import Institute, make_institute
from tests.pages_day import stand_at
from tests.pages_world import cells, client_of, queries, text_of

pytestmark = pytest.mark.django_db
NOW = T0 + HOUR
POOL = "/settings/pools/h100"
NODES = f"{POOL}/nodes"


@pytest.fixture
def place(monkeypatch: pytest.MonkeyPatch) -> Institute:
    stand_at(monkeypatch, NOW)
    monkeypatch.setattr("clusters.views.now", lambda: NOW)
    return make_institute(nodes=2)


@pytest.fixture
def ada(place: Institute) -> User:
    user = make.make_user("ada")
    make.make_role(user, place.tree["orlo"], "administrator")
    return user


@pytest.fixture
def client(ada: User) -> Client:
    return client_of(ada)


def error_at(answer: Any, field: str) -> str:
    """Return what stands at a field of the form that was refused."""
    assert answer.status_code == 422
    found = re.search(rf'id="\w*{field}_error">(.*?)</p>', answer.content.decode())
    assert found, text_of(answer)
    return found[1]


def test_a_pool_is_made_and_gets_nodes(client: Client, place: Institute) -> None:
    form = {"cluster": "mainland", "slug": "b200", "name": "B200", "gpu_type": "B200"}
    form |= {"rate": "1.8", "reason": "new hall"}
    said = client.post("/settings/pools/new", form)
    assert said["Location"] == "/settings/pools/b200/nodes"
    assert "There is a pool b200" in error_at(client.post("/settings/pools/new", form), "slug")
    nodes = {"nodes": "b200-n[1-3]", "gpus": "8", "label": "hall 2", "reason": "bought"}
    looked = client.post("/settings/pools/b200/nodes", nodes | {"do": "look"})
    assert looked.status_code == 200
    assert not Node.objects.filter(pool__slug="b200").exists()
    done = client.post("/settings/pools/b200/nodes", nodes | {"do": "set"}, follow=True)
    assert cells(done, "b200-n2")[1:3] == ["hall 2", "8 GPUs"]
    told = text_of(done)
    assert "3 nodes in use with 24 GPUs of type B200." in told
    assert "b200-n3: b200, 8 × GPU, from 2026-10-01 01:00 UTC , bought" in told
    assert "hall 2" in text_of(client.get("/nodes"))


def test_what_more_nodes_do_to_entitlements_is_shown_before(
    client: Client, place: Institute
) -> None:
    nodes = {"nodes": "n9", "gpus": "16", "reason": ""}
    for address in (NODES, f"{NODES}/preview"):
        said = client.post(address, nodes | {"do": "look"})
        told = text_of(said)
        assert "h100 has 32 GPUs from 1 Oct 2026 01:00 on, 16 GPUs before." in told
        assert cells(said, "Science")[1:] == ["230", "461"]  # 60 % of 16 and 32 GPUs, 24 h
        assert cells(said, "h100, all GPU-hours")[1:] == ["384", "768"]
    assert Node.objects.count() == 2
    assert "required" in error_at(client.post(NODES, nodes | {"do": "set"}), "reason")
    wrong = client.post(f"{NODES}/preview", nodes | {"nodes": place.nodes[0].name})
    assert "a name is given once only" in text_of(wrong)
    assert "Entitled a day" not in text_of(wrong)


@pytest.mark.parametrize(
    ("given", "field"),
    [
        ({"nodes": "a b/c"}, "nodes"),
        ({"gpus": "63"}, "gpus"),
        ({"effective_at": "2026-09-01T00:00"}, "effective_at"),
        ({"effective_at": "9999-01-01T00:00"}, "effective_at"),
    ],
)
def test_a_refusal_stands_at_its_field(
    client: Client, place: Institute, given: dict[str, str], field: str
) -> None:
    form = {"nodes": "n9", "gpus": "8", "reason": "why", "do": "set"}
    assert error_at(client.post(NODES, form | given), field)
    assert Node.objects.count() == 2


def test_a_pool_is_called_otherwise(client: Client, place: Institute) -> None:
    form = {"name": "Old hall", "gpu_type": "H100 SXM", "reason": "two halls"}
    told = text_of(client.post(POOL, form, follow=True))
    assert "Old hall, H100 SXM , two halls" in told
    assert "ada" in told
    assert "called already" in error_at(client.post(POOL, form), "name")
    row = text_of(client.get("/audit?kind=settings"))
    assert "changed the pool h100" in row


def test_a_node_leaves_after_what_runs_on_it_and_may_stay(client: Client, place: Institute) -> None:
    node = place.nodes[0]
    address = f"/settings/nodes/{node.pk}"
    place.submit(place.petrel, gpus=16, minimum_runtime_s=2 * 3600, lasts=8 * 3600)
    place.play(T0, NOW)
    retire = {"effective_at": "2026-10-01T02:00", "reason": "sold", "do": "set"}
    assert "surely empty at 01 Oct 2026 02:00 UTC" in error_at(
        client.post(address, retire), "effective_at"
    )
    retire["effective_at"] = "2026-10-02T00:00"
    said = client.post(f"{address}/preview", retire | {"do": "look", "reason": ""})
    assert "h100 has 8 GPUs from 2 Oct 2026 00:00 on, 16 GPUs before." in text_of(said)
    assert "One run on it ends or leaves by" in text_of(said)
    assert cells(said, "Science")[1:] == ["230", "115"]
    done = text_of(client.post(address, retire, follow=True))
    assert "in use until 2 Oct 2026 00:00" in done
    assert "in use until 2 Oct 2026 00:00" in text_of(client.get("/nodes"))
    assert "ways" not in error_at(client.post(address, {"do": "keep", "reason": ""}), "reason")
    done = text_of(client.post(address, {"do": "keep", "reason": "needed"}, follow=True))
    assert "until 2026-10-02 00:00 UTC → in use , needed" in done


def test_a_node_that_comes_later_is_called_off(client: Client, place: Institute, ada: User) -> None:
    asked: dict[str, Any] = {"nodes": "n9", "gpus": 8, "label": "", "reason": "bought"}
    inventory.add_nodes(
        pool=place.pool, by=ada, now=NOW, effective_at=NOW + timedelta(days=2), **asked
    )
    node = Node.objects.get(name="n9")
    assert cells(client.get(POOL), "n9")[-1] == "comes 3 Oct 2026 01:00"
    page = text_of(client.get(f"/settings/nodes/{node.pk}"))
    assert "Take it out of use" not in page
    form = {"do": "call_off", "reason": "not delivered"}
    done = client.post(f"/settings/nodes/{node.pk}", form, follow=True)
    assert done.redirect_chain[-1][0] == POOL
    assert not Node.objects.filter(name="n9").exists()


def test_a_label_is_written(client: Client, place: Institute) -> None:
    address = f"/settings/nodes/{place.nodes[0].pk}"
    form = {"do": "label", "label": "rack 7", "reason": "moved"}
    assert "rack 7" in text_of(client.post(address, form, follow=True))
    assert "already" in error_at(client.post(address, form), "label")
    assert Decision.objects.get().reason == "moved"
    assert client.post(address, {"do": "nonsense"}).status_code == 200


def test_others_look_and_change_nothing(place: Institute) -> None:
    member = make.make_user("member")
    make.make_role(member, place.petrel, "member")
    client = client_of(member)
    address = f"/settings/nodes/{place.nodes[0].pk}"
    for page in ("/settings/pools", POOL, address):
        said = client.get(page)
        assert said.status_code == 200
        body = said.content.decode().partition("<main")[2]
        assert 'method="post"' not in body
        assert "/new" not in body
        assert "/h100/nodes" not in body
    for page in (POOL, address):
        assert client.post(page, {"do": "keep"}).status_code == 403
    for page in ("/settings/pools/new", NODES, f"{NODES}/preview", f"{address}/preview"):
        assert client.post(page, {}).status_code == 404
    for page in ("/settings/pools/none", "/settings/nodes/999999"):
        assert client.get(page).status_code == 404


def test_queries_stay_as_nodes_come(client: Client, place: Institute, ada: User) -> None:
    pages = (POOL, f"/settings/nodes/{place.nodes[0].pk}", "/settings/pools", NODES)
    few = [queries(client, page) for page in pages]
    asked: dict[str, Any] = {"nodes": "n[1-9]", "gpus": 8, "label": "", "reason": "bought"}
    inventory.add_nodes(pool=place.pool, by=ada, now=NOW, effective_at=None, **asked)
    make.make_pool("b200", cluster=place.cluster)
    assert [queries(client, page) for page in pages] == few
    assert Pool.objects.count() == 2
