"""The simulator and the real cycle decide alike: a day through both, run by run."""

import random
from datetime import datetime, timedelta

import pytest

from allocator.core.simulate import play
from allocator.core.simulation.setup import Setup, equal_tree, nodes_of
from allocator.core.traces import DAY_S, Trace, TraceJob
from allocator.replay import playback, setup, world
from allocator.replay.playback import Course
from workloads.models import JobEvent, Run
from workloads.preemptions import DECIDED

HOUR = 3600
A_NODE = 8  # GPUs
Ran = tuple[str, int, int, int, bool]  # job, first GPU, since, until (-1: it goes on), preempted


def a_day(seed: int, number: int = 40) -> list[TraceJob]:
    """Jobs of two groups that ask for more than two nodes have, at odd seconds; some are debug."""
    draw = random.Random(seed)
    debug = [
        TraceJob(
            job_id=f"debug{n}",
            submit_time_s=draw.randrange(2 * HOUR, 14 * HOUR),
            gpus=draw.choice((1, 2, 4, 8)),
            duration_s=draw.randrange(30, 900),
            group=draw.choice(("nlp", "vision")),
            time_limit_s=900,
        )
        for n in range(8)
    ]
    rows = [
        TraceJob(
            job_id=f"job{n}-{draw.randrange(10**6)}",
            submit_time_s=draw.randrange(14 * HOUR),
            gpus=draw.choice((1, 2, 4, 8, 16)),
            duration_s=draw.randrange(901, 5 * HOUR),
            group=draw.choice(("nlp", "vision")),
            min_runtime_s=draw.choice((0, 1800, HOUR, 2 * HOUR)),
            resumable=draw.random() < 0.8,
            urgency=draw.choice(("low", "normal", "high")),
        )
        for n in range(number)
    ]
    return sorted([*rows, *debug], key=lambda row: row.submit_time_s)


def in_the_database(jobs: list[TraceJob]) -> list[Ran]:
    shares = setup.shares_of("", jobs)
    place = world.build(pools=setup.pools_of(f"2x{A_NODE}"), shares=shares, jobs=jobs)
    played = playback.play(place, jobs, Course(start_day=0, days=1, exact=True), lambda *_: None)
    assert played.illegal == 0
    runs = Run.objects.select_related("job").prefetch_related("holdings__node")
    return sorted(_ran(run) for run in runs)


def _ran(run: Run) -> Ran:
    gpus = [
        A_NODE * one.node.position + (one.mask & -one.mask).bit_length() - 1
        for one in run.holdings.all()
    ]
    preempted = run.end_reason == Run.EndReason.PREEMPTED
    return run.job.name, min(gpus), _second(run.started_at), _second(run.ended_at), preempted


def _second(at: datetime | None) -> int:
    return -1 if at is None else (at - world.START) // timedelta(seconds=1)


def in_the_simulator(jobs: list[TraceJob]) -> list[Ran]:
    """With every improving pass that the cycle makes, and every waiting job offered."""
    trace = Trace(tuple(jobs))
    given = Setup(
        nodes_of(f"2x{A_NODE}"), equal_tree(trace.groups), DAY_S, unlimited=True, spread=0.0,
        iterations=None, offered_first=len(jobs),
    )  # fmt: skip
    played = play(trace, given)
    found = [
        (jobs[ran.job].job_id, ran.first, ran.since, ran.until, ran.preempted)
        for ran in played.world.ran
    ]
    for job in played.world.running.values():
        assert job.run is not None
        found.append((job.row.job_id, job.run.first, job.run.since, -1, False))
    return sorted(found)


@pytest.mark.django_db
@pytest.mark.once  # on both databases cycles decide alike: see test_cycle_random
@pytest.mark.parametrize("seed", [1, 2])
def test_a_simulated_day_and_one_through_the_database_are_the_same(seed: int) -> None:
    jobs = a_day(seed)
    real = in_the_database(jobs)
    assert in_the_simulator(jobs) == real
    assert len(real) >= len(jobs) - 5
    assert any(preempted for *_, preempted in real)
    causes = set(JobEvent.objects.filter(kind=DECIDED).values_list("data__cause", flat=True))
    assert "debug" in causes
    assert len(causes) > 1
