"""The simulator: its books, the contract it must keep, and figures worked out by hand."""

from collections import defaultdict
from dataclasses import replace
from itertools import pairwise
from random import Random
from typing import Any

import pytest

from allocator.core.check import check, check_guard
from allocator.core.made_traces import Lab, made_trace, with_debug_jobs
from allocator.core.plan import Result
from allocator.core.problem import BudgetNode, Problem, ProblemError
from allocator.core.simulate import POLICIES, Played, play, simulate
from allocator.core.simulation.setup import Setup, equal_tree, nodes_of
from allocator.core.simulation.world import State
from allocator.core.traces import DAY_S, Trace, TraceJob

HOUR = 3600


def row(name: str, at: int, gpus: int, lasts: int, group: str = "a", **fields: Any) -> TraceJob:
    return TraceJob(name, at, gpus, lasts, group, **fields)


def trace(*rows: TraceJob) -> Trace:
    return Trace(tuple(sorted(rows, key=lambda one: one.submit_time_s)))


def setup(made: Trace, nodes: str = "1x8", seconds: int = DAY_S, **fields: Any) -> Setup:
    given: dict[str, Any] = {
        "unlimited": True,
        "spread": 0.0,
        "tree": equal_tree(made.groups),
    } | fields
    return Setup(nodes=nodes_of(nodes), seconds=seconds, **given)


def lab(seed: int, days: int = 1) -> Trace:
    """Two nodes' worth of labs, asked for three times over, with debug jobs."""
    made = made_trace(Lab(gpus=16, days=days, groups=3, demand=9.0, seed=seed))
    rng = Random(seed)
    rows = [
        replace(
            one,
            duration_s=min(one.duration_s, 5 * HOUR),
            resumable=rng.random() < 0.8,
            urgency=rng.choice(("low", "normal", "high")),
        )
        for one in made.jobs
    ]
    return with_debug_jobs(Trace(tuple(rows)), per_day=20, seed=seed)


def started(played: Played) -> dict[str, int | None]:
    return {job.row.job_id: job.first_start for job in played.jobs}


def runs_by_job(played: Played) -> dict[int, list[tuple[int, int, int]]]:
    """Per job: (first GPU, since, until) of each of its runs, those under way to the end."""
    found = defaultdict(list)
    for ran in played.world.ran:
        found[ran.job].append((ran.first, ran.since, ran.until))
    for job in played.world.running.values():
        assert job.run is not None
        found[job.number].append((job.run.first, job.run.since, played.world.now))
    return found


# --- Figures worked out by hand -----------------------------------------------------------------


def test_fifo_by_hand() -> None:
    """8 GPUs. a: 4 GPUs 0-100, b: 8 waits for a: 100-150, c: 2 behind b, though it would fit."""
    made = trace(row("a", 0, 4, 100), row("b", 10, 8, 50), row("c", 20, 2, 30))
    played = play(made, setup(made, seconds=1000), "fifo")
    assert started(played) == {"a": 0, "b": 100, "c": 150}
    outcome = simulate(made, setup(made, seconds=1000), "fifo")
    assert outcome.occupancy == (400 + 400 + 60) / 8000
    assert (outcome.completed, outcome.preemptions, outcome.starved) == (3, 0, 0)
    # Demand is at least 8 GPUs from 10 (4 held + 8 asked) until b ends: 140 s, of which 90 at 4.
    assert outcome.crowded_seconds == 140
    assert outcome.crowded_occupancy == (90 * 4 + 50 * 8) / (140 * 8)


def test_backfill_starts_what_ends_before_the_reservation_and_no_more() -> None:
    made = trace(
        row("a", 0, 4, 100), row("b", 10, 8, 50), row("short", 20, 2, 80), row("long", 20, 2, 81)
    )
    played = play(made, setup(made, seconds=1000), "backfill")
    assert started(played) == {"a": 0, "b": 100, "short": 20, "long": 150}


def test_priority_goes_by_urgency_and_then_by_age() -> None:
    made = trace(
        row("a", 0, 8, 100),
        row("low", 1, 8, 10, urgency="low"),
        row("normal", 2, 8, 10),
        row("high", 3, 8, 10, urgency="high"),
    )
    played = play(made, setup(made, seconds=1000), "priority")
    assert started(played) == {"a": 0, "high": 100, "normal": 110, "low": 120}


def test_shortest_first_goes_by_length_and_holds_up_nobody() -> None:
    made = trace(
        row("a", 0, 4, 100),
        row("b", 0, 2, 100),
        row("whole", 1, 8, 5),
        row("short", 2, 2, 10),
        row("long", 2, 2, 90),
    )
    played = play(made, setup(made, seconds=1000), "shortest-first")
    assert started(played) == {"a": 0, "b": 0, "whole": 102, "short": 2, "long": 12}


def test_peak_reserve_keeps_groups_on_nodes_of_their_own() -> None:
    made = trace(
        row("a1", 0, 8, 100, "a"), row("a2", 0, 8, 100, "a"), row("b1", 0, 8, 10, "b"),
        row("b2", 200, 8, 10, "b"),
    )  # fmt: skip
    played = play(made, setup(made, nodes="3x8", seconds=1000), "peak-reserve")
    assert started(played) == {"a1": 0, "a2": 0, "b1": 0, "b2": 200}
    one_each = play(made, setup(made, nodes="2x8", seconds=1000), "peak-reserve")
    assert started(one_each) == {"a1": 0, "a2": 100, "b1": 0, "b2": 200}


def test_fairshare_lets_the_under_served_budget_in_when_protection_is_over() -> None:
    """a holds the node from 0 on; b comes at 1 h and gets it when a's 2 h are over, at a tick."""
    made = trace(row("a", 0, 8, 10 * HOUR, "a"), row("b", HOUR, 8, HOUR, "b"))
    played = play(made, setup(made), "fairshare")
    a, b = played.jobs
    assert started(played) == {"a": 0, "b": 2 * HOUR}
    assert runs_by_job(played)[a.number] == [(0, 0, 2 * HOUR), (0, 3 * HOUR, 11 * HOUR)]
    assert (a.preempted, a.state, a.ended) == (1, State.COMPLETED, 11 * HOUR)
    assert b.ended == 3 * HOUR


def test_a_budget_does_not_stop_the_same_job_again_within_two_hours() -> None:
    """b stops a at 1,000 s; its next job waits from 3,000 s to the first tick after 8,200 s."""
    made = trace(
        row("a", 0, 8, 20 * HOUR, "a", min_runtime_s=600),
        row("b1", 1000, 8, 600, "b", min_runtime_s=600),
        row("b2", 3000, 8, 600, "b", min_runtime_s=600),
    )
    played = play(made, setup(made), "fairshare")
    assert started(played) == {"a": 0, "b1": 1000, "b2": 9000}
    assert played.jobs[0].stopped_by == [(1000, "b"), (9000, "b")]


def test_what_cannot_resume_is_lost_and_not_useful() -> None:
    made = trace(
        row("a", 0, 8, 10 * HOUR, "a", resumable=False), row("b", HOUR, 8, HOUR, "b", parked_s=600)
    )
    outcome = simulate(made, setup(made), "fairshare")
    assert (outcome.lost, outcome.completed) == (1, 1)
    held = 8 * (2 + 1) * HOUR
    assert outcome.funded_gpu_seconds == held
    assert outcome.useful_gpu_seconds == held - 8 * 2 * HOUR - 8 * 600


def test_owed_and_delivered_by_hand() -> None:
    """Each of two budgets is entitled to 4 of 8 GPUs; b asks for 8 and gets none for an hour."""
    made = trace(
        row("a", 0, 8, HOUR, "a", min_runtime_s=HOUR), row("b", 0, 8, HOUR, "b"),
    )  # fmt: skip
    outcome = simulate(made, setup(made, seconds=2 * HOUR), "fifo")
    found = {one.path: one for one in outcome.budgets}
    step = 1800 * 4
    # a is owed two timesteps' halves and gets them; b is owed four and gets the last two.
    assert (found["a"].owed_gpu_seconds, found["a"].delivered_gpu_seconds) == (2 * step, 2 * step)
    assert (found["b"].owed_gpu_seconds, found["b"].delivered_gpu_seconds) == (4 * step, 2 * step)
    assert outcome.delivered == 4 / 6
    # In the window that all this lies in, b was owed 4 and held 4: two halves of a node, twice.
    assert outcome.delivered_by_window == 1.0
    assert (outcome.worst_budget, outcome.worst_delivered) == ("b", 0.5)


def test_without_credits_a_job_runs_unfunded_and_yields_at_once() -> None:
    """Each budget's grant of 2 h is 8 GPU-hours: a's first job takes it, its second is free."""
    made = trace(
        row("paid", 0, 8, HOUR, "a", min_runtime_s=HOUR),
        row("free", 10, 8, HOUR, "a", min_runtime_s=HOUR),
        row("b", HOUR + 60, 4, 60, "b"),
    )
    played = play(made, setup(made, seconds=2 * HOUR, unlimited=False), "fairshare")
    assert started(played) == {"paid": 0, "free": HOUR, "b": HOUR + 60}
    free = played.jobs[1]
    assert free.preempted == 1
    levels = played.world.meters.levels[free.leaf]
    assert (levels.funded_s, levels.unfunded_s > 0) == (8 * HOUR, True)
    assert played.world.funds.committed[free.leaf] == 8 * HOUR


def test_finish_time_fairness_is_one_where_everything_is_as_if_alone() -> None:
    made = trace(row("a", 0, 4, 100, "a"), row("b", 0, 4, 100, "b"))
    outcome = simulate(made, setup(made, seconds=1000), "fifo")
    assert (outcome.rho_p50, outcome.rho_p90) == (1.0, 1.0)


# --- What always holds --------------------------------------------------------------------------


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("seed", [1, 2])
def test_nothing_is_lost_and_no_gpu_serves_two(policy: str, seed: int) -> None:
    made = lab(seed)
    played = play(made, setup(made, nodes="2x8", unlimited=False, spread=0.5), policy)
    world = played.world
    runs = runs_by_job(played)
    held = 0
    rows: dict[int, list[tuple[int, int]]] = defaultdict(list)
    for job in played.jobs:
        for first, since, until in runs.get(job.number, ()):
            held += job.gpus * (until - since)
            for gpu in range(first, first + job.gpus):
                rows[gpu].append((since, until))
    levels = world.meters.levels.values()
    assert held == world.meters.held_s
    assert held == sum(level.funded_s + level.unfunded_s for level in levels)
    for spans in rows.values():
        spans.sort()
        assert all(a[1] <= b[0] for a, b in pairwise(spans))
    states = [job.state for job in played.jobs]
    assert len(states) == len(made.jobs)
    assert states.count(State.WAITING) == len(world.waiting)
    assert states.count(State.RUNNING) == len(world.running)
    for job in played.jobs:
        ran = sum(until - since for _, since, until in runs.get(job.number, ()))
        if job.state in (State.COMPLETED, State.TIMED_OUT):
            assert ran == job.work_s  # what resumes has done its work once, in parts
        under_way = 0 if job.run is None else world.now - job.run.since
        assert ran == job.progress_s + job.lost_s + under_way


@pytest.mark.parametrize("seed", [3])
def test_funds_are_what_was_used_and_what_is_set_aside(seed: int) -> None:
    made = lab(seed)
    world = play(made, setup(made, nodes="2x8", unlimited=False), "fairshare").world
    for leaf, committed in world.funds.committed.items():
        ahead = sum(job.held for job in world.waiting.values() if job.leaf == leaf)
        ahead += sum(
            job.gpus * (job.run.paid_until - world.now)
            for job in world.running.values()
            if job.run is not None and job.run.funded and job.leaf == leaf
        )
        assert committed == world.meters.levels[leaf].funded_s + ahead
        assert committed <= (world.funds.granted[leaf] or 0)


class Watched:
    """Checks every plan, and remembers what each one stops and starts."""

    def __init__(self) -> None:
        self.plans = 0
        self.stops = 0

    def __call__(self, problem: Problem, result: Result) -> None:
        self.plans += 1
        assert check(problem, result.plan) == ()
        assert check_guard(problem, result.plan, result.construction) == ()
        now = {a.job for a in result.plan.assignments if a.start == 0}
        stopped = {p.victim for p in result.preemptions if p.timestep == 0}
        self.stops += len(stopped)
        for stop in result.preemptions:
            if stop.timestep == 0:
                assert stop.victim not in now
                assert stop.preemptor in now or stop.preemptor is None


@pytest.mark.parametrize("unlimited", [True, False])
def test_every_plan_is_legal_and_no_victim_comes_back_in_the_same_decision(
    unlimited: bool,
) -> None:
    made, watched = lab(5), Watched()
    simulate(made, setup(made, nodes="2x8", unlimited=unlimited), "fairshare", watch=watched)
    assert watched.plans > 50
    assert watched.stops > 0


@pytest.mark.parametrize("seed", [6, 7])
def test_the_minimum_runtime_is_protected(seed: int) -> None:
    made = lab(seed)
    played = play(made, setup(made, nodes="2x8"), "fairshare")
    stopped = 0
    for job in played.jobs:
        runs = runs_by_job(played).get(job.number, [])
        for n, (_, since, until) in enumerate(runs):
            ended = n == len(runs) - 1 and job.state != State.WAITING
            if not ended or job.state == State.LOST:
                stopped += 1
                assert until - since >= job.minimum_s
    assert stopped > 0


def test_no_victim_restarts_at_the_instant_it_is_stopped_and_no_pair_loops() -> None:
    for seed in (9, 10):
        made = lab(seed)
        played = play(made, setup(made, nodes="2x8"), "fairshare")
        budgets = {job.number: job.budget for job in played.jobs}
        for job in played.jobs:
            ends = runs_by_job(played).get(job.number, [])
            assert all(a[2] < b[1] for a, b in pairwise(ends))
            by = sorted(job.stopped_by)
            for (at, budget), (later, same) in pairwise(by):
                assert budget != same or later - at >= 2 * HOUR
            assert budgets[job.number] == job.budget


@pytest.mark.parametrize("policy", ["fairshare", "backfill"])
def test_the_same_seed_gives_the_same_outcome(policy: str) -> None:
    made = lab(14)
    assert made == lab(14) != lab(15)
    first, again = (
        simulate(made, setup(made, nodes="2x8", spread=0.5, seed=1), policy) for _ in range(2)
    )
    other = simulate(made, setup(made, nodes="2x8", spread=0.5, seed=2), policy)
    assert first == again != other


def test_offering_fewer_jobs_changes_no_measure_much() -> None:
    """Against asking about every waiting job in each plan."""
    made = lab(16)
    few = simulate(made, setup(made, nodes="2x8"), "fairshare")
    given = {"offered_first": 10_000, "offered_short": 10_000}
    everything = simulate(made, setup(made, nodes="2x8", **given), "fairshare")
    assert few.delivered is not None
    assert everything.delivered is not None
    assert few.delivered >= everything.delivered - 0.01
    assert abs(few.occupancy - everything.occupancy) < 0.02


# --- What is refused ----------------------------------------------------------------------------


def test_a_job_that_fits_nowhere_and_an_unknown_policy_are_named() -> None:
    made = trace(row("big", 0, 64, 10))
    with pytest.raises(ProblemError, match="'big' needs 64 GPUs in one block"):
        simulate(made, setup(made), "fifo")
    made = trace(row("a", 0, 1, 10))
    with pytest.raises(ProblemError, match="no policy 'lottery': choose from fairshare"):
        simulate(made, setup(made), "lottery")
    with pytest.raises(ProblemError, match="group 'a' is no leaf"):
        simulate(made, setup(made, tree=(BudgetNode("b", None, 100_000, 0),)), "fifo")
