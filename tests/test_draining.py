"""When drained nodes are empty: the planner's rule, the page's answer, and that both are true."""

from datetime import timedelta
from random import Random
from types import SimpleNamespace

import pytest

from allocator import cycle, draining, emptying, maintenance, snapshot, window_effects
from allocator.emptying import How
from clusters import windows
from clusters.models import Drain, Node, NodeState
from tests import factories as make
from tests.factories import HOUR, T0, TIMESTEP
from tests.helpers import make_institute
from workloads.models import Holding, Run

pytestmark = pytest.mark.django_db
MINUTE = timedelta(minutes=1)
NOW = T0 + 2 * HOUR


def held_on(nodes):
    return Holding.objects.filter(node__in=nodes, ended_at=None).count()


def put(nodes, starts_at, ends_at=None, *, now):
    return maintenance.set_window(
        nodes=nodes,
        starts_at=starts_at,
        ends_at=ends_at,
        reason="repair",
        by=make.someone(),
        now=now,
    )


def node_of(job):
    return Holding.objects.filter(run__job=job).latest("pk").node


# --- The rule by itself --------------------------------------------------------------------------


@pytest.fixture
def rule(db, monkeypatch):
    """A function: two drained nodes with a service on them → from which timestep each is free."""
    nodes = make.make_nodes(make.make_pool("h100"), 2)

    def starts(gpus, *, cap, protected=(0, 0), asked=(0, 0), given=(None, None), settled=False):
        plan = {n.name: T0 + t * TIMESTEP for n, t in zip(nodes, given, strict=True) if t}
        monkeypatch.setattr(draining, "planned_starts", lambda: plan)
        held = [
            SimpleNamespace(node_id=node.pk, gpus=n, ended_at=None)
            for node, n in zip(nodes, gpus, strict=True)
        ]
        job = SimpleNamespace(pk=1, service=SimpleNamespace(swap_cap=cap))
        run = SimpleNamespace(holdings=SimpleNamespace(all=lambda: held))
        found = draining.Draining(
            at=T0,
            origin=T0,
            horizon=48,
            nodes=nodes,
            down=(),
            protected={node.pk: t for node, t in zip(nodes, protected, strict=True)},
            services=[(job, run)],
            settled=settled,
            relaxed=[],
        ).emptied(
            Drain(node=node, starts_at=T0 + t * TIMESTEP, reason="repair")
            for node, t in zip(nodes, asked, strict=True)
        )
        by_node = {one.node: one.start for one in found}
        return tuple(by_node[node] for node in nodes)

    return starts


@pytest.mark.parametrize(
    ("gpus", "more", "starts"),
    [
        ((8, 8), {}, (1, 3)),  # both have one swap cap, so one after the other
        ((8, 8), {"settled": True}, (2, 4)),  # in the present timestep it stays
        ((8, 8), {"protected": (5, 0)}, (5, 1)),  # first what can be free first
        ((8, 8), {"asked": (9, 0)}, (9, 1)),
        ((8, 0), {"protected": (0, 2)}, (1, 2)),
        # The first node's run has ended early: what was said of the second stays.
        ((8, 8), {"given": (5, 1)}, (3, 1)),
        # One that is asked for now doesn't wait for one that has time.
        ((8, 4), {"asked": (20, 0), "given": (20, None)}, (20, 0)),
        ((8, 4), {"given": (1, None)}, (1, 2)),
    ],
)
def test_services_leave_drained_nodes_one_after_another(rule, gpus, more, starts):
    assert rule(gpus, cap=4, **more) == starts


def test_what_the_newest_plan_drains_is_read_with_its_instants():
    place = make_institute(nodes=2)
    place.submit(place.petrel, minimum_runtime_s=2 * 3600)
    place.cycle(T0)
    put([node_of(place.petrel.jobs.get())], T0 + HOUR, now=T0)
    assert draining.planned_starts() == {}
    place.cycle(T0 + HOUR / 2)
    assert set(draining.planned_starts().values()) == {T0 + 2 * HOUR}


def test_nothing_starts_that_may_stay_protected_into_a_window():
    """However soon it is expected to end: its minimum runtime is longer."""
    place = make_institute(nodes=1)
    put(place.nodes, T0 + 2 * HOUR, now=T0)
    place.submit(place.petrel, expected_duration_s=1800, minimum_runtime_s=3 * 3600, gpus=4)
    fits = place.submit(place.petrel, expected_duration_s=1800, minimum_runtime_s=7200, gpus=4)
    place.cycle(T0)
    assert [run.job for run in Run.objects.all()] == [fits]


def test_a_service_leaves_two_drained_nodes_with_one_swap_cap():
    """Its cap is for both together: a plan that drained both at once would be impossible."""
    place = make_institute(nodes=4)
    place.serve(place.tern, profile=(12,) * 24, swap_cap=4)
    now = T0 + 1.5 * HOUR
    place.play(T0, now)
    there = list(Node.objects.filter(pk__in=Holding.objects.filter(ended_at=None).values("node")))
    assert len(there) == 2
    window = put(there, now + TIMESTEP, now=now)
    told = emptying.of_window(window, now=now)
    # 8 and 4 GPUs go in three timesteps, none of them in that of the cycle.
    first, last = sorted(one.free_from for one in told.nodes)
    assert (first, last) in [(now + TIMESTEP, now + 1.5 * HOUR), (now + HOUR, now + 1.5 * HOUR)]
    assert (told.free_from, told.because.how) == (last, How.SERVICE)
    place.play(now + TIMESTEP, told.free_from - TIMESTEP)
    assert held_on(there) > 0
    place.cycle(told.free_from)
    assert held_on(there) == 0


@pytest.fixture
def place():
    """Two nodes: on the first a run that is protected until 4:00, on the other one until 1:00."""
    made = make_institute(nodes=3)
    made.long = made.submit(
        made.petrel, name="long", expected_duration_s=6 * 3600, minimum_runtime_s=4 * 3600
    )
    made.short = made.submit(made.petrel, name="short", expected_duration_s=6 * 3600)
    made.cycle(T0)
    return made


def test_what_holds_a_node_is_told_with_until_when(place):
    both = [node_of(place.long), node_of(place.short)]
    told = emptying.of_window(put(both, NOW, NOW + 8 * HOUR, now=T0), now=T0)
    by_node = {one.node: one for one in told.nodes}
    (long,), (short,) = (by_node[node].stays for node in both)
    assert (long.how, long.gpus, long.leaves_by) == (How.PROTECTED, 8, T0 + 4 * HOUR)
    # Its protection is over before: it stays to the window's begin.
    assert (short.how, short.leaves_by, short.ends) == (How.PROTECTED, NOW, T0 + 6 * HOUR)
    assert [by_node[node].late_s for node in both] == [2 * 3600, 0]
    assert (told.free_from, told.late_s, told.because.job) == (T0 + 4 * HOUR, 7200, place.long)
    assert (told.free, told.has_begun, told.never_free) == (0, False, False)


def test_a_run_that_ends_by_itself_is_likely_gone_before_it_must_go(place):
    quick = place.submit(
        place.petrel, T0, name="quick", expected_duration_s=4500, minimum_runtime_s=2 * 3600
    )
    place.cycle(T0)
    told = emptying.of_window(put([node_of(quick)], T0 + HOUR, now=T0), now=T0)
    (one,) = told.nodes
    (stay,) = one.stays
    assert stay.ends_first
    assert window_effects.effect(told).interrupted == []
    assert (one.likely, one.free_from) == (T0 + timedelta(seconds=4500), T0 + 2 * HOUR)


def test_a_window_that_is_over_before_its_nodes_are_free_says_so(place):
    node = node_of(place.long)
    told = emptying.of_window(put([node], T0 + HOUR, T0 + 4 * HOUR, now=T0), now=T0)
    assert told.never_free


def test_a_preview_says_what_the_window_would_say(place):
    both = [node_of(place.long), node_of(place.short)]
    asked = {"nodes": both, "starts_at": NOW, "ends_at": None, "reason": "repair"}
    before = emptying.of_span(windows.proposed(**asked, now=T0), now=T0)
    assert not Drain.objects.exists()
    window = put(both, NOW, now=T0)
    after = emptying.of_window(window, now=T0)
    facts = [
        (one.node, one.free_from, one.likely, [(s.run, s.leaves_by) for s in one.stays])
        for one in after.nodes
    ]
    assert facts == [
        (one.node, one.free_from, one.likely, [(s.run, s.leaves_by) for s in one.stays])
        for one in before.nodes
    ]
    later = windows.changed(window=window, now=T0, starts_at=NOW + 4 * HOUR)
    moved = emptying.of_span(later, now=T0, instead_of=window)
    assert [one.free_from for one in moved.nodes] == [NOW + 4 * HOUR] * 2


def test_a_window_from_now_on_stops_what_is_interruptible_at_once(place):
    at = T0 + HOUR + 10 * MINUTE
    node = node_of(place.short)
    place.play(T0 + TIMESTEP, T0 + HOUR)
    window = put([node], None, now=at)
    (one,) = emptying.of_window(window, now=at).nodes
    assert [stay.how for stay in one.stays] == [How.INTERRUPTIBLE]
    assert (one.likely, one.free_from) == (at, T0 + 1.5 * HOUR)  # at the latest with the next tick
    place.cycle(at)
    (one,) = emptying.of_window(window, now=at).nodes
    assert one.is_free
    assert (one.empty_since, one.stays) == (at, [])
    early = put([place.nodes[2]], None, now=at)  # it held nothing before
    (one,) = emptying.of_window(early, now=at + HOUR).nodes
    assert (one.is_free, one.empty_since) == (True, at)


def test_a_node_that_is_down_is_told_of_too(place):
    node = node_of(place.long)
    NodeState.objects.create(node=node, at=T0 + MINUTE, state="down", reason="XID")
    one = emptying.of_nodes(now=T0 + 2 * MINUTE)[node.pk]
    assert (one.drain, [stay.job for stay in one.stays]) == (None, [place.long])
    told = emptying.of_window(put([node], NOW, now=T0 + 2 * MINUTE), now=T0 + 2 * MINUTE)
    assert [one.node for one in told.nodes] == [node]


def test_the_number_of_queries_does_not_grow(place, django_assert_max_num_queries):
    put(place.nodes[:1], NOW, now=T0)
    put(place.nodes[1:], NOW, now=T0)
    with django_assert_max_num_queries(14):
        emptying.of_nodes(now=T0)


# --- Played --------------------------------------------------------------------------------------


def test_a_day_in_which_a_window_empties_exactly_when_the_page_said():
    """Two nodes; on them a protected run, an interruptible one, and a service."""
    place = make_institute(nodes=4)
    service = place.serve(place.tern, profile=(4,) * 24, swap_cap=2)
    place.play(T0, T0 + HOUR)
    asked = {"expected_duration_s": 12 * 3600, "at": T0 + HOUR}
    long = place.submit(place.petrel, name="long", minimum_runtime_s=3 * 3600, **asked)
    place.submit(place.auk, name="short", minimum_runtime_s=1800, gpus=4, **asked)
    place.cycle(T0 + HOUR)
    both = [node_of(long), node_of(service)]
    window = put(both, T0 + 2 * HOUR, T0 + 6 * HOUR, now=T0 + 1.5 * HOUR)
    told = emptying.of_window(window, now=T0 + 1.5 * HOUR)
    free = {one.node: one.free_from for one in told.nodes}
    assert free == {both[0]: T0 + 4 * HOUR, both[1]: T0 + 2 * HOUR}
    at = T0 + 1.5 * HOUR
    while at <= T0 + 4.5 * HOUR:
        cycle.run(at=at, trigger="test")
        for node, instant in free.items():
            assert (held_on([node]) > 0) is (at < instant), (node.name, at)
        at += TIMESTEP
    assert emptying.of_window(window, now=at).free == 2
    assert long.runs.get(number=1).end_reason == Run.EndReason.PREEMPTED
    place.play(at, T0 + 6.5 * HOUR)
    ended = Holding.objects.filter(node__in=both, started_at__gte=T0 + 2 * HOUR)
    assert all(h.started_at >= T0 + 6 * HOUR for h in ended), "nothing was placed in the window"


@pytest.mark.once
@pytest.mark.slow
@pytest.mark.parametrize("seed", range(2))
def test_on_random_days_no_node_is_held_when_it_was_surely_free(seed):
    """Whatever the page has said once is kept; and the drains of plans begin where it says."""
    rng = Random(seed)
    place = make_institute(nodes=4)
    budgets = (place.petrel, place.auk, place.tern)
    place.serve(place.tern, profile=(rng.randint(3, 12),) * 24, swap_cap=rng.randint(1, 4))
    promised: dict[Node, object] = {}
    at = T0
    while at < T0 + 7 * HOUR:
        for n in range(rng.randint(0, 2)):
            hours = rng.randint(1, 6)
            place.submit(
                rng.choice(budgets),
                at,
                name=f"job{n}",
                gpus=rng.choice((1, 2, 4, 8, 16)),
                expected_duration_s=hours * 3600,
                lasts=rng.randint(600, hours * 7200),
                minimum_runtime_s=rng.randint(0, hours * 3600),
            )
        if at == T0 + 2 * HOUR:
            chosen = rng.sample(place.nodes, 2)
            window = put(chosen, at + rng.randint(0, 4) * TIMESTEP, now=at)
        cycle.run(at=at, trigger="test")
        if at >= T0 + 2 * HOUR:
            told = emptying.of_window(window, now=at)
            drains = {d.node: d.start for d in snapshot.take(at=at, version=0).problem.drains}
            for one in told.nodes:
                free = promised.setdefault(one.node, one.free_from)
                assert one.free_from <= free or one.is_free, one.node.name
                if not one.is_free and one.stays:
                    step = (one.free_from - at) // TIMESTEP
                    assert drains[one.node.name] in (step, step - 1)
                assert at < free or not held_on([one.node]), (one.node.name, at)
        at += TIMESTEP
    assert len(promised) == 2


def test_a_later_window_of_a_node_counts_its_services_once():
    place = make_institute(nodes=3)
    place.serve(place.tern, profile=(8,) * 24, swap_cap=2)
    place.play(T0, NOW)
    held = Node.objects.get(pk=Holding.objects.filter(ended_at=None).values("node")[:1])
    first = put([held], NOW + TIMESTEP, NOW + 3 * HOUR, now=NOW)
    again = put([held], NOW + 3 * HOUR, NOW + 6 * HOUR, now=NOW)
    for window, wanted in ((first, NOW + 2 * HOUR), (again, NOW + 3 * HOUR)):
        assert emptying.of_window(window, now=NOW).free_from == wanted
