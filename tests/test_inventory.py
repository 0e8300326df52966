"""Pools and nodes that come and go: what is refused, what is kept of it, and that it adds up."""

from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth.models import User

from allocator import installing, inventory, maintenance, requests
from budgets.models import Decision
from clusters.models import Drain, Node, Pool, PoolRate
from clusters.refusals import Refused
from tests import factories as make
from tests.factories import HOUR, T0
from tests.helpers import Institute, make_institute
from workloads.models import Job, Run

pytestmark = pytest.mark.django_db
NOW = T0 + HOUR


@pytest.fixture
def place() -> Institute:
    return make_institute(nodes=1)


@pytest.fixture
def ada(place: Institute) -> User:
    return make.make_user("ada")


def add(place: Institute, by: User, **given: Any) -> inventory.Addition:
    asked: dict[str, Any] = {
        "nodes": "h100-n[11-12]",
        "gpus": 8,
        "label": "rack 4",
        "reason": "bought",
    }
    asked |= {"effective_at": None, "now": NOW}
    return inventory.add_nodes(pool=place.pool, by=by, **(asked | given))


def retire(node: Node, by: User, **given: Any) -> Node:
    asked: dict[str, Any] = {"effective_at": None, "reason": "sold", "now": NOW}
    return inventory.retire(node=node, by=by, **(asked | given))


def add_pool(place: Institute, by: User, **given: Any) -> Pool:
    asked: dict[str, Any] = {"slug": "b200", "name": "B200", "gpu_type": "B200", "now": NOW}
    asked |= {"rate_per_mille": 1800, "reason": "new hall", "cluster": place.cluster}
    return installing.add_pool(by=by, **(asked | given))


def told() -> list[tuple[str, str, str, str]]:
    rows = Decision.objects.order_by("pk")
    return list(rows.values_list("subject", "before", "after", "reason"))


def refused(do: Any, *args: Any, **given: Any) -> str:
    before = (told(), Node.objects.count(), Drain.objects.count())
    with pytest.raises(Refused) as error:
        do(*args, **given)
    assert before == (told(), Node.objects.count(), Drain.objects.count())
    return error.value.field


def test_nodes_that_come_are_planned_on_and_accounted_for(place: Institute, ada: User) -> None:
    place.play(T0, NOW)
    made = add(place, ada, nodes="h100-n11 h100-n12")
    assert [(n.name, n.position, n.label) for n in Node.objects.filter(active_from=NOW)] == [
        ("h100-n11", place.nodes[-1].position + 1, "rack 4"),
        ("h100-n12", place.nodes[-1].position + 2, "rack 4"),
    ]
    assert (made.gpus, requests.is_open()) == (16, True)
    assert told() == [
        (name, "", "h100, 8 × GPU, from 2026-10-01 01:00 UTC", "bought")
        for name in ("h100-n11", "h100-n12")
    ]
    place.submit(place.petrel, NOW, gpus=16, lasts=7200)
    place.play(NOW, NOW + 3 * HOUR)
    assert Run.objects.get().holdings.count() == 2


@pytest.mark.parametrize(
    ("given", "field"),
    [
        ({"nodes": ""}, "nodes"),
        ({"nodes": "n[1-"}, "nodes"),
        ({"nodes": "n[0001-1001]"}, "nodes"),
        ({"nodes": "a/b"}, "nodes"),
        ({"nodes": "x" * 65}, "nodes"),
        ({"nodes": "n9 {known}"}, "nodes"),
        ({"gpus": 0}, "gpus"),
        ({"gpus": 63}, "gpus"),
        ({"label": "x" * 101}, "label"),
        ({"label": "a\tb"}, "label"),
        ({"reason": " "}, "reason"),
        ({"effective_at": NOW - timedelta(seconds=1)}, "effective_at"),
    ],
)
def test_nodes_that_cannot_be_are_refused(
    place: Institute, ada: User, given: dict[str, Any], field: str
) -> None:
    known = place.nodes[0].name
    given = {k: v.format(known=known) if isinstance(v, str) else v for k, v in given.items()}
    assert refused(add, place, ada, **given) == field


def test_what_is_charged_or_observed_gets_no_other_nodes(place: Institute, ada: User) -> None:
    place.play(T0, NOW)
    early = NOW - HOUR / 2
    assert refused(add, place, ada, effective_at=early, now=early) == "effective_at"
    assert refused(retire, place.nodes[0], ada, effective_at=early, now=early) == "effective_at"
    assert add(place, ada, now=early).at == NOW
    assert retire(place.nodes[0], ada, now=early).active_until == NOW


def test_a_node_leaves_once_it_is_surely_empty_and_nothing_is_lost(
    place: Institute, ada: User
) -> None:
    (node,) = place.nodes
    job = place.submit(place.petrel, minimum_runtime_s=2 * 3600, lasts=8 * 3600)
    place.play(T0, NOW)
    assert refused(retire, node, ada) == "effective_at"
    assert refused(retire, node, ada, effective_at=T0 + 2 * HOUR) == "effective_at"
    until = retire(node, ada, effective_at=T0 + 3 * HOUR).active_until
    assert until == T0 + 3 * HOUR
    place.play(NOW, T0 + 5 * HOUR)
    run = Run.objects.get()
    assert run.end_reason == Run.EndReason.PREEMPTED  # not lost with the node
    assert run.ended_at is not None
    assert T0 + 2 * HOUR <= run.ended_at < until
    assert Job.objects.get(pk=job.pk).state == Job.State.QUEUED
    assert refused(retire, node, ada, now=T0 + 5 * HOUR) == "effective_at"


def test_nothing_is_started_that_would_outlast_a_node(place: Institute, ada: User) -> None:
    (node,) = place.nodes
    retire(node, ada, effective_at=T0 + 2 * HOUR, now=T0)
    place.submit(place.petrel, minimum_runtime_s=3 * 3600, expected_duration_s=4 * 3600)
    place.play(T0, T0 + 3 * HOUR)
    assert not Run.objects.exists()


def test_a_node_that_was_to_leave_can_stay(place: Institute, ada: User) -> None:
    (node,) = place.nodes
    assert refused(inventory.keep, node=node, reason="why", by=ada, now=NOW) == "reason"
    retire(node, ada, effective_at=NOW + HOUR)
    assert refused(retire, node, ada, effective_at=NOW + HOUR) == "effective_at"
    later = retire(node, ada, effective_at=NOW + 9 * HOUR)
    assert later.active_until is not None
    assert [d.starts_at for d in Drain.objects.all()] == [later.active_until - make.TIMESTEP]
    inventory.keep(node=node, reason="needed", by=ada, now=NOW)
    assert Node.objects.get().active_until is None
    assert not Drain.objects.exists()
    assert told()[1:] == [
        (node.name, "until 2026-10-01 02:00 UTC", "until 2026-10-01 10:00 UTC", "sold"),
        (node.name, "until 2026-10-01 10:00 UTC", "in use", "needed"),
    ]


def test_a_window_may_be_set_and_changed_whether_its_node_leaves_or_not(
    place: Institute, ada: User
) -> None:
    (node,) = place.nodes
    span: dict[str, Any] = {"starts_at": NOW + HOUR, "ends_at": None, "reason": "fan"}
    window = maintenance.set_window(nodes=[node], by=ada, now=NOW, **span)
    retire(node, ada, effective_at=NOW + 2 * HOUR)
    maintenance.change(window=window, by=ada, now=NOW, reason="both fans")
    maintenance.end_now(window=window, by=ada, now=NOW + HOUR + HOUR / 2)
    assert Drain.objects.filter(window=None).count() == 1
    place.play(T0, NOW + 3 * HOUR)


def test_a_node_that_never_came_is_called_off(place: Institute, ada: User) -> None:
    add(place, ada, nodes="n1 n2", effective_at=NOW + HOUR)
    one, two = Node.objects.filter(active_from=NOW + HOUR)
    assert refused(retire, one, ada, effective_at=NOW + HOUR) == "effective_at"
    known: dict[str, Any] = {"node": place.nodes[0], "reason": "why", "by": ada, "now": NOW}
    assert refused(inventory.call_off, **known) == "reason"
    inventory.call_off(node=one, reason="not delivered", by=ada, now=NOW)
    add(place, ada, nodes="n1", effective_at=NOW + 2 * HOUR)
    span: dict[str, Any] = {"starts_at": NOW + HOUR, "ends_at": None, "reason": "fan"}
    maintenance.set_window(nodes=[two], by=ada, now=NOW, **span)
    assert refused(inventory.call_off, node=two, reason="x", by=ada, now=NOW) == "reason"


def test_nobody_changes_nodes_under_a_cycle(place: Institute, ada: User, settings: Any) -> None:
    if settings.DATABASES["default"]["ENGINE"].endswith("sqlite3"):
        with requests.single_flight() as alone:
            assert alone
            assert refused(add, place, ada) == "reason"
    assert add(place, ada).gpus == 16


def test_a_label_is_peoples_word(place: Institute, ada: User) -> None:
    asked: dict[str, Any] = {"node": place.nodes[0], "by": ada, "now": NOW, "reason": "moved"}
    inventory.label_node(label=" rack 7 ", **asked)
    assert Node.objects.get().label == "rack 7"
    assert refused(inventory.label_node, label="rack 7", **asked) == "label"
    assert refused(inventory.label_node, label="x" * 101, **asked) == "label"
    inventory.label_node(label="", **asked)
    assert [row[1:3] for row in told()] == [("", "rack 7"), ("rack 7", "")]


def test_a_pool_is_made_with_its_rate_and_called_otherwise(place: Institute, ada: User) -> None:
    pool = add_pool(place, ada)
    assert (pool.position, PoolRate.objects.get(pool=pool).rate_per_mille) == (
        place.pool.position + 1,
        1800,
    )
    to: dict[str, Any] = {"name": "B200 hall", "gpu_type": "B200", "reason": "two halls"}
    installing.change_pool(pool=pool, by=ada, now=NOW, **to)
    assert told() == [
        ("b200", "", "B200, 1.800", "new hall"),
        ("b200", "B200, B200", "B200 hall, B200", "two halls"),
    ]
    assert refused(installing.change_pool, pool=pool, by=ada, now=NOW, **to) == "name"
    to["name"] = place.pool.name.upper()
    assert refused(installing.change_pool, pool=pool, by=ada, now=NOW, **to) == "name"


@pytest.mark.parametrize(
    ("given", "field"),
    [
        ({"slug": "H100"}, "slug"),
        ({"slug": "a b"}, "slug"),
        ({"slug": ""}, "slug"),
        ({"slug": "new"}, "slug"),
        ({"slug": "x" * 51}, "slug"),
        ({"name": " "}, "name"),
        ({"gpu_type": "x" * 51}, "gpu_type"),
        ({"rate_per_mille": -1}, "rate"),
        ({"reason": ""}, "reason"),
    ],
)
def test_a_pool_that_cannot_be_is_refused(
    place: Institute, ada: User, given: dict[str, Any], field: str
) -> None:
    assert refused(add_pool, place, ada, **given) == field
    assert Pool.objects.count() == 1
