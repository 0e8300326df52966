"""Maintenance windows: what may be set, changed, ended and called off, and what is kept of it."""

from functools import partial
from importlib import import_module
from threading import Barrier, Thread

import pytest
from django.apps import apps
from django.db import connection, connections

from allocator import maintenance, requests
from clusters import windows
from clusters.models import Drain, Window, WindowEvent
from clusters.node_lists import MOST, WrongList, expand
from clusters.refusals import Refused
from tests import factories as make
from tests.factories import HOUR, T0

NOW = T0
DAY = 24 * HOUR


@pytest.fixture
def nodes(db):
    return make.make_nodes(make.make_pool("h100"), 4)


def put(nodes, starts_at=NOW + HOUR, ends_at=NOW + 3 * HOUR, *, now=NOW, **asked):
    given = {"reason": "firmware", "by": make.someone()} | asked
    return maintenance.set_window(
        nodes=nodes, starts_at=starts_at, ends_at=ends_at, now=now, **given
    )


def told(window):
    fields = ("version", "kind", "at", "nodes", "starts_at", "ends_at", "reason", "by__username")
    return list(window.events.values_list(*fields))


# --- Lists of nodes ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("a b,c;\n d", ["a", "b", "c", "d"]),
        ("n[1-3] n2", ["n1", "n2", "n3"]),
        ("h100-n[08-11,20]", ["h100-n08", "h100-n09", "h100-n10", "h100-n11", "h100-n20"]),
        ("r[1-2]-n[1,3]", ["r1-n1", "r1-n3", "r2-n1", "r2-n3"]),
        (" ,; ", []),
    ],
)
def test_a_list_of_nodes_is_read_as_people_write_it(text, names):
    assert expand(text) == names


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("n[1-3", "not closed"),
        ("n[[1]]", "don't nest"),
        ("n[1-x]", "no range of numbers"),
        ("n[]", "no range of numbers"),
        ("n[3-1]", "runs backwards"),
        (f"n[1-{MOST + 1}]", "more than 10,000"),
        ("n[1-999999999]", "more than 10,000"),
    ],
)
def test_a_list_that_cant_be_read_says_what_to_change(text, says):
    with pytest.raises(WrongList, match=says):
        expand(text)


def test_nodes_are_found_in_the_order_of_the_grid(nodes):
    found = windows.find("h100-n[2-3] h100-n0", at=NOW)
    assert [node.name for node in found] == ["h100-n0", "h100-n2", "h100-n3"]
    nodes[1].active_until = NOW
    nodes[1].save()
    with pytest.raises(Refused, match="h100-n1 is not in use any more"):
        windows.find("h100-n[0-1]", at=NOW)
    with pytest.raises(Refused, match="There is no node x, y, z and 1 more"):
        windows.find("x y z h100-n0 w", at=NOW)
    with pytest.raises(Refused, match="Name a node"):
        windows.find("", at=NOW)


# --- Set -----------------------------------------------------------------------------------------


def test_a_window_is_kept_with_its_drains_its_record_and_a_replan(nodes):
    asked = requests.state().requested
    made = put(nodes[:2], reason="  firmware ")
    assert made.state(NOW) == "planned"
    span = (NOW + HOUR, NOW + 3 * HOUR, "firmware")
    drains = made.drains.values_list("node__name", "starts_at", "ends_at", "reason")
    assert list(drains.order_by("node__name")) == [("h100-n0", *span), ("h100-n1", *span)]
    assert told(made) == [(1, "set", NOW, ["h100-n0", "h100-n1"], *span, "someone")]
    assert requests.state().requested == asked + 1


def test_a_window_without_begin_begins_now_and_one_without_end_is_open(nodes):
    made = put(nodes[:1], None, None)
    assert (made.starts_at, made.ends_at, made.state(NOW + 99 * DAY)) == (NOW, None, "open")


@pytest.mark.parametrize(
    ("asked", "field", "says"),
    [
        ({"starts_at": NOW - HOUR / 3600}, "starts_at", "begin in the past"),
        ({"ends_at": NOW + HOUR}, "ends_at", "before it begins"),
        ({"reason": " "}, "reason", "Say why"),
        ({"reason": "x" * 201}, "reason", "at most 200"),
        ({"nodes": []}, "nodes", "Name a node"),
        ({"starts_at": (NOW + HOUR).replace(microsecond=1)}, "starts_at", "fraction of a second"),
        ({"ends_at": (NOW + 9 * HOUR).replace(tzinfo=None)}, "ends_at", "no time zone"),
    ],
)
def test_what_is_refused_says_what_to_change_and_writes_nothing(nodes, asked, field, says):
    with pytest.raises(Refused, match=says) as refused:
        put(**({"nodes": nodes[:1]} | asked))
    assert refused.value.field == field
    assert not Window.objects.exists()
    assert not Drain.objects.exists()


@pytest.mark.parametrize(
    ("starts", "ends", "fits"),
    [(0, 1, True), (3, 4, True), (3, None, True), (0, 2, False), (2, 9, False), (0, None, False)],
)
def test_windows_of_one_node_never_overlap(nodes, starts, ends, fits):
    first = put(nodes[:2])
    until = None if ends is None else NOW + ends * HOUR
    put(nodes[2:], NOW + starts * HOUR, until)  # other nodes are another matter
    if fits:
        put(nodes[1:2], NOW + starts * HOUR, until)
        return
    with pytest.raises(Refused) as refused:
        put(nodes[1:2], NOW + starts * HOUR, until)
    assert refused.value.sentence == (
        f"h100-n1 has window {first.pk} already, 01 Oct 2026 01:00 UTC to 01 Oct 2026 03:00 UTC: "
        "change that one, or choose another time or node."
    )


# --- Changed, ended, called off ------------------------------------------------------------------


def test_a_change_moves_the_drains_and_is_kept(nodes):
    made = put(nodes[:2])
    later = {"starts_at": NOW + 2 * HOUR, "ends_at": None, "reason": "new disks"}
    maintenance.change(window=made, by=make.someone(), now=NOW + HOUR / 2, version=1, **later)
    assert set(made.drains.values_list("starts_at", "ends_at", "reason")) == {tuple(later.values())}
    assert [row[:3] for row in told(made)] == [
        (1, "set", NOW),
        (2, "changed", NOW + HOUR / 2),
    ]
    assert told(made)[1][4:7] == tuple(later.values())


@pytest.mark.parametrize(
    ("at", "to", "says"),
    [
        (0, {}, "already"),
        (0, {"starts_at": NOW - HOUR}, "in the past"),
        (2, {"starts_at": NOW + 2.5 * HOUR}, "It has begun"),
        (2, {"ends_at": NOW + 1.5 * HOUR}, "end in the past"),
        (2, {"ends_at": NOW + 0.5 * HOUR}, "before it begins"),
        (3, {"reason": "x"}, "It is over"),
        (0, {"ends_at": NOW + 6 * HOUR}, "h100-n0 has window"),
    ],
)
def test_a_change_that_is_refused_leaves_all_as_it_was(nodes, at, to, says):
    made = put(nodes[:1])
    put(nodes[:1], NOW + 5 * HOUR, NOW + 6 * HOUR)
    with pytest.raises(Refused, match=says):
        maintenance.change(window=made, by=None, now=NOW + at * HOUR, **to)
    made.refresh_from_db()
    assert (made.version, made.ends_at, made.events.count()) == (1, NOW + 3 * HOUR, 1)


def test_one_that_has_begun_is_ended_and_its_end_may_move(nodes):
    made = put(nodes[:1])
    with pytest.raises(Refused, match="hasn't begun"):
        maintenance.end_now(window=made, by=None, now=NOW + HOUR)
    maintenance.change(window=made, by=None, now=NOW + 2 * HOUR, ends_at=NOW + 9 * HOUR)
    maintenance.end_now(window=made, by=None, now=NOW + 2.5 * HOUR)
    made.refresh_from_db()
    assert made.state(NOW + 2.5 * HOUR) == "over"
    assert made.drains.get().ends_at == NOW + 2.5 * HOUR
    with pytest.raises(Refused, match="It is over"):
        maintenance.end_now(window=made, by=None, now=NOW + 2.5 * HOUR)
    put(nodes[:1], NOW + 2.5 * HOUR, None)  # there is room for the next


def test_one_that_is_called_off_leaves_its_record_and_room(nodes):
    made = put(nodes[:2])
    with pytest.raises(Refused, match="end it instead"):
        maintenance.call_off(window=made, by=None, now=NOW + 2 * HOUR)
    maintenance.call_off(window=made, by=make.someone(), now=NOW + HOUR)
    made.refresh_from_db()
    assert (made.state(NOW + 9 * HOUR), made.drains.count()) == ("called_off", 0)
    assert told(made)[1][:4] == (2, "called_off", NOW + HOUR, ["h100-n0", "h100-n1"])
    with pytest.raises(Refused, match="called off"):
        maintenance.change(window=made, by=None, now=NOW, reason="x")
    put(nodes[:2], now=NOW + HOUR)


def test_who_looked_at_an_older_version_is_asked_to_look_again(nodes):
    made = put(nodes[:1])
    maintenance.change(window=made, by=None, now=NOW, version=1, reason="disks")
    for deed in (maintenance.change, maintenance.call_off):
        more = {"reason": "cables"} if deed is maintenance.change else {}
        with pytest.raises(windows.Stale, match="meanwhile"):
            deed(window=made, by=None, now=NOW, version=1, **more)
    assert made.events.count() == 2


def test_states_are_the_same_in_a_row_and_in_a_query(nodes):
    ended = put(nodes[:1], None, NOW + HOUR)
    ahead = put(nodes[1:2], NOW + 9 * HOUR, None)
    dropped = put(nodes[2:3], NOW + HOUR, None)
    maintenance.call_off(window=dropped, by=None, now=NOW)
    now_open = put(nodes[3:], None, None)
    at = NOW + 2 * HOUR
    wanted = {"over": ended, "planned": ahead, "called_off": dropped, "open": now_open}
    for state, one in wanted.items():
        assert Window.objects.get(pk=one.pk).state(at) == state
        assert list(windows.in_state(state, at=at)) == [one]
    assert windows.in_state(at=at).count() == 4
    assert set(windows.in_state("open", "planned", at=at)) == {ahead, now_open}


def test_what_it_takes_is_counted_in_gpu_seconds(nodes):
    made = put(nodes[:3])
    assert windows.span_of(made).capacity_gpu_seconds == 3 * 8 * 2 * 3600
    made = put(nodes[3:], None, None)
    assert windows.span_of(made).capacity_gpu_seconds is None


def test_drains_that_were_set_before_there_were_windows_get_one_each(nodes):
    span = {"starts_at": NOW, "ends_at": None, "reason": "fan"}
    for node in nodes[:2]:
        Drain.objects.create(node=node, **span)
    made = put(nodes[2:])
    migration = import_module("clusters.migrations.0004_windows_of_drains")
    migration.give_each_drain_a_window(apps, None)
    old = list(Window.objects.exclude(pk=made.pk))
    assert [windows.span_of(one).nodes for one in old] == [(nodes[0],), (nodes[1],)]
    assert told(old[0]) == [(1, "set", NOW, ["h100-n0"], NOW, None, "fan", None)]
    assert made.drains.count() == 2


# --- Two administrators at once ------------------------------------------------------------------


def _at_once(deeds):
    """Do both at one time, each with a connection of its own; return what each said."""
    barrier, said = Barrier(len(deeds)), {}

    def play(n, deed):
        barrier.wait(timeout=60)
        try:
            deed()
            said[n] = "done"
        except Refused as refused:
            said[n] = refused.sentence
        finally:
            connections.close_all()

    threads = [Thread(target=play, args=one) for one in enumerate(deeds)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=120)
    return said


@pytest.mark.django_db(transaction=True)
def test_two_administrators_at_once_never_overlap():
    if connection.vendor != "postgresql":
        pytest.skip("SQLite has one writer at a time")
    made = make.make_nodes(make.make_pool("h100"), 2)
    make.someone()
    said = _at_once([lambda: put(made), lambda: put(made[1:], NOW + 2 * HOUR, None)])
    assert sorted(one == "done" for one in said.values()) == [False, True]
    assert WindowEvent.objects.count() == Window.objects.count() == 1

    window = Window.objects.get()
    put(made[:1], NOW + 50 * HOUR, NOW + 51 * HOUR)
    said = _at_once(
        [
            partial(maintenance.change, window=window, by=None, now=NOW, version=1, reason=why)
            for why in ("disks", "cables")
        ]
    )
    assert sorted(said.values()) == ["Somebody has changed it meanwhile: look at it again.", "done"]
    assert list(window.events.values_list("version", flat=True)) == [1, 2]
