"""The simulated cluster keeps the connector's contract: every call may come twice, time decides."""

from datetime import timedelta
from typing import Any

import pytest

from clusters import services as clusters
from clusters.connectors import connector_for
from clusters.connectors.base import IdleWindow, Placement, Refusal, RunReport, StartOrder
from clusters.connectors.simulated import SimulatedConnector, next_change
from clusters.models import Cluster, GpuState, Node, NodeState, SimulatedFault
from tests.factories import HOUR, LONG_AGO, T0, make_cluster, make_nodes, make_pool

pytestmark = pytest.mark.django_db
MINUTE = timedelta(minutes=1)


@pytest.fixture
def cluster() -> Cluster:
    made = make_cluster("mainland")
    make_nodes(make_pool("h100", cluster=made), 2)
    return made


@pytest.fixture
def connector(cluster) -> Any:
    return connector_for(cluster)


def order(name: str = "a", masks: tuple[int, ...] = (0xFF,), **given: Any) -> StartOrder:
    simulate = {
        key: given.pop(key) for key in ("duration_s", "fails_after_s", "idle") if key in given
    }
    return StartOrder(
        external_id=name,
        placements=tuple(
            Placement(node=f"h100-n{n}", mask=mask) for n, mask in enumerate(masks) if mask
        ),
        command="",
        spec={"simulate": simulate},
        **{"expected_s": 3600, **given},
    )


def seen(connector: SimulatedConnector, at, *live: str, since=None) -> dict[str, RunReport]:
    found = connector.observe(since=since, at=at, live=set(live))
    return {report.external_id: report for report in found.runs}


def test_an_unknown_kind_of_cluster_has_no_connector():
    with pytest.raises(KeyError):
        connector_for(make_cluster(connector="abacus"))


def test_a_run_lasts_as_long_as_it_was_told(connector):
    connector.start(order(duration_s=600), at=T0)
    assert seen(connector, T0 + 9 * MINUTE, "a")["a"].ended_at is None
    ended = seen(connector, T0 + HOUR, "a")["a"]
    assert (ended.ended_at, ended.outcome) == (T0 + 10 * MINUTE, "completed")


def test_a_start_repeated_answers_as_the_first_did(connector):
    first = connector.start(order(), at=T0)
    assert connector.start(order(), at=T0 + MINUTE) == first
    assert first.started_at == T0


def test_an_undeclared_duration_is_drawn_from_the_run_s_name(connector):
    for n in range(20):
        connector.start(order(f"r{n}", masks=()), at=T0)
    reports = seen(connector, T0 + 100 * HOUR, *(f"r{n}" for n in range(20)))
    lasted = {(report.ended_at - T0).total_seconds() for report in reports.values()}
    assert len(lasted) == 20
    assert 1800 < sum(lasted) / 20 < 7200, "around the expected hour"


@pytest.mark.parametrize(
    ("given", "outcome", "after"),
    [
        ({"duration_s": 900, "time_limit_s": 600}, "timed_out", 600),
        ({"duration_s": 500, "time_limit_s": 600}, "completed", 500),
        ({"duration_s": 900, "fails_after_s": 300}, "failed", 300),
        ({"duration_s": 900, "progress_s": 400}, "completed", 500),
    ],
)
def test_how_a_run_ends(connector, given, outcome, after):
    connector.start(order(**given), at=T0)
    report = seen(connector, T0 + HOUR, "a")["a"]
    assert (report.outcome, report.ended_at) == (outcome, T0 + timedelta(seconds=after))


def test_a_service_runs_until_it_is_stopped(connector):
    connector.start(order(open_ended=True), at=T0)
    assert seen(connector, T0 + 1000 * HOUR, "a")["a"].ended_at is None
    stopped = connector.stop("a", at=T0 + 1001 * HOUR)
    assert (stopped.ended_at, stopped.outcome) == (T0 + 1001 * HOUR, "stopped")


def test_stopping_a_run_that_has_ended_tells_how_it_ended(connector):
    connector.start(order(duration_s=600), at=T0)
    late = connector.stop("a", at=T0 + HOUR)
    assert (late.ended_at, late.outcome) == (T0 + 10 * MINUTE, "completed")
    assert connector.stop("a", at=T0 + 2 * HOUR) == late


def test_taken_absent_and_broken_gpus_are_refused(connector):
    connector.start(order("a", masks=(0x0F,)), at=T0)
    assert isinstance(connector.start(order("b", masks=(0x18,)), at=T0), Refusal)
    assert isinstance(connector.start(order("c", masks=(0x100,)), at=T0), Refusal)
    assert isinstance(connector.start(order("d", masks=(0, 0, 1)), at=T0), Refusal)
    node = Node.objects.get(name="h100-n1")
    SimulatedFault.objects.create(node=node, starts_at=T0, ends_at=T0 + HOUR)
    assert isinstance(connector.start(order("e", masks=(0, 1)), at=T0), Refusal)
    assert isinstance(connector.start(order("f", masks=(0xF0,)), at=T0), RunReport)


def test_a_run_dies_with_any_of_its_nodes(connector):
    connector.start(order(masks=(0xFF, 0xFF)), at=T0)
    node = Node.objects.get(name="h100-n1")
    fault = T0 + 20 * MINUTE
    SimulatedFault.objects.create(node=node, starts_at=fault, ends_at=fault + HOUR)
    report = seen(connector, T0 + HOUR, "a")["a"]
    assert (report.outcome, report.ended_at) == ("node_failure", fault)


def test_a_run_dies_when_its_node_is_taken_away(connector):
    connector.start(order(), at=T0)
    Node.objects.filter(name="h100-n0").update(active_until=T0 + 5 * MINUTE)
    assert next_change(after=T0) == T0 + 5 * MINUTE
    report = seen(connector, T0 + HOUR, "a")["a"]
    assert (report.outcome, report.ended_at) == ("node_failure", T0 + 5 * MINUTE)


def test_a_resize_is_dated_and_may_be_repeated(connector):
    connector.start(order(masks=(0x03,), open_ended=True), at=T0)
    wider = (Placement(node="h100-n0", mask=0x0F),)
    assert connector.resize("a", wider, at=T0 + HOUR) == T0 + HOUR
    assert connector.resize("a", wider, at=T0 + 2 * HOUR) == T0 + HOUR
    assert connector.resize("a", (), at=T0 + 3 * HOUR) == T0 + 3 * HOUR
    assert connector.resize("a", (), at=T0 + 4 * HOUR) == T0 + 3 * HOUR


def test_idle_seconds_are_those_of_the_window(connector):
    connector.start(order(duration_s=7200, idle=[[600, 1200], [3000, None]]), at=T0)

    def idle(start, end, name="a"):
        return connector.idle([IdleWindow(external_id=name, start=start, end=end, gpus=8)])

    assert idle(T0, T0 + 30 * MINUTE) == [8 * 600]
    assert idle(T0 + 15 * MINUTE, T0 + 30 * MINUTE) == [8 * 300]
    assert idle(T0 + 30 * MINUTE, T0 + HOUR) == [8 * 600]
    assert idle(T0, T0 + HOUR, "nobody") == [0]


def test_the_logs_tell_what_was_held_free_and_down(cluster, connector):
    connector.start(order(masks=(0x0F,), duration_s=1200), at=T0)
    node = Node.objects.get(name="h100-n0")
    SimulatedFault.objects.create(node=node, starts_at=T0 + HOUR, ends_at=T0 + 2 * HOUR)
    clusters.record(cluster, connector.observe(since=None, at=T0 + 3 * HOUR, live={"a"}))
    states = GpuState.objects.filter(node=node).values_list("at", "held", "free", "down")
    assert list(states) == [
        (LONG_AGO, 0, 0xFF, 0),
        (T0, 0x0F, 0xF0, 0),
        (T0 + 20 * MINUTE, 0, 0xFF, 0),
        (T0 + HOUR, 0, 0, 0xFF),
        (T0 + 2 * HOUR, 0, 0xFF, 0),
    ]
    said = NodeState.objects.filter(node=node).values_list("at", "state")
    assert list(said) == [(LONG_AGO, "up"), (T0 + HOUR, "down"), (T0 + 2 * HOUR, "up")]
    assert clusters.nodes_down(at=T0 + 90 * MINUTE) == {node.pk: "node failure"}
    assert clusters.nodes_down(at=T0 + 2 * HOUR) == {}


def test_observing_twice_writes_nothing_twice(cluster, connector):
    connector.start(order(duration_s=1200), at=T0)
    for at in (T0 + HOUR, T0 + HOUR, T0 + 2 * HOUR):
        found = connector.observe(since=cluster.observed_until, at=at, live={"a"})
        clusters.record(cluster, found)
    assert NodeState.objects.count() == 2
    assert GpuState.objects.filter(node__name="h100-n0").count() == 3
    assert cluster.observed_until == T0 + 2 * HOUR


def test_healthy_time_is_what_was_in_use_and_not_down(cluster, connector):
    first, second = Node.objects.order_by("position")
    SimulatedFault.objects.create(node=first, starts_at=T0, ends_at=T0 + HOUR)
    Node.objects.filter(pk=second.pk).update(active_until=T0 + HOUR)
    clusters.record(cluster, connector.observe(since=None, at=T0 + 4 * HOUR, live=set()))
    healthy = clusters.healthy_gpu_seconds(start=T0, end=T0 + 2 * HOUR)
    assert healthy == {first.pool_id: 8 * 3600 + 8 * 3600}


def test_a_node_that_left_while_it_was_down_is_missed_by_nobody(cluster, connector):
    first, second = Node.objects.order_by("position")
    SimulatedFault.objects.create(node=first, starts_at=T0, ends_at=T0 + 9 * HOUR)
    Node.objects.filter(pk=first.pk).update(active_until=T0 + HOUR)
    clusters.record(cluster, connector.observe(since=None, at=T0 + 4 * HOUR, live=set()))
    healthy = clusters.healthy_gpu_seconds(start=T0, end=T0 + 4 * HOUR)
    assert healthy == {second.pool_id: 8 * 4 * 3600}


def test_what_was_down_before_a_window_counts_in_it_while_it_lasts(cluster, connector):
    node = Node.objects.earliest("position")
    for hours in (1, 5):
        fault = T0 + hours * HOUR
        SimulatedFault.objects.create(node=node, starts_at=fault, ends_at=fault + 2 * HOUR)
    clusters.record(cluster, connector.observe(since=None, at=T0 + 9 * HOUR, live=set()))
    healthy = clusters.healthy_gpu_seconds(start=T0 + 2 * HOUR, end=T0 + 6 * HOUR)
    assert healthy == {node.pool_id: 16 * 4 * 3600 - 2 * 8 * 3600}


def test_the_next_change_is_the_first_of_all(connector):
    assert next_change(after=T0) is None
    connector.start(order(duration_s=3600), at=T0)
    assert next_change(after=T0) == T0 + HOUR
    node = Node.objects.get(name="h100-n1")
    SimulatedFault.objects.create(node=node, starts_at=T0 + MINUTE, ends_at=T0 + 2 * MINUTE)
    assert [next_change(after=T0 + n * MINUTE) for n in range(3)] == [
        T0 + MINUTE,
        T0 + 2 * MINUTE,
        T0 + HOUR,
    ]
