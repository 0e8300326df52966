"""The simulator and the real cycle decide alike: a day through both, run by run."""

import random
from collections.abc import Iterable
from datetime import datetime, timedelta

import pytest

from allocator import maintenance
from allocator.core.events import NOTHING, Events, Failure, Window
from allocator.core.simulate import play
from allocator.core.simulation import world as world_of_simulation
from allocator.core.simulation.setup import Setup, equal_tree, nodes_of
from allocator.core.traces import DAY_S, Trace, TraceJob
from allocator.replay import playback, setup, world
from allocator.replay.playback import Course
from clusters.models import Drain, Node, SimulatedFault
from workloads.models import Job, JobEvent, Run
from workloads.preemptions import DECIDED

HOUR = 3600
A_NODE = 8  # GPUs
Ran = tuple[str, int, int, int, str]  # job, first GPU, since, until (-1: it goes on), how it ended
Held = tuple[str, int, int, int, bool]  # service, GPU, since, until, funded


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


def in_the_database(
    jobs: list[TraceJob], events: Events = NOTHING, nodes: int = 2
) -> tuple[list[Ran], list[Held]]:
    shares = setup.shares_of("", jobs)
    place = world.build(pools=setup.pools_of(f"{nodes}x{A_NODE}"), shares=shares, jobs=jobs)
    _befall(events)
    played = playback.play(place, jobs, Course(start_day=0, days=1, exact=True), lambda *_: None)
    assert played.illegal == 0
    runs = Run.objects.select_related("job").prefetch_related("holdings__node")
    batch = runs.exclude(job__kind=Job.Kind.REALTIME)
    return sorted(_ran(run) for run in batch), _held(runs.filter(job__kind=Job.Kind.REALTIME))


def _befall(events: Events) -> None:
    """Windows are set before the day begins; the simulated cluster will have the failures.

    Those that overlap another of their node are drains as a script writes them.
    """
    nodes = {f"n{n:04}": node for n, node in enumerate(Node.objects.order_by("position"), 1)}
    for n, one in enumerate(events.windows):
        assert one.end_s is not None
        if any(_overlap(one, other) for other in events.windows[:n]):
            Drain.objects.create(
                node=nodes[one.node], starts_at=_at(one.start_s), ends_at=_at(one.end_s)
            )
            continue
        maintenance.set_window(
            nodes=[nodes[one.node]],
            starts_at=_at(one.start_s),
            ends_at=_at(one.end_s),
            reason="new switch",
            by=None,
            now=world.START,
        )
    for failure in events.failures:
        assert failure.up_s is not None
        SimulatedFault.objects.create(
            node=nodes[failure.node], starts_at=_at(failure.down_s), ends_at=_at(failure.up_s)
        )


def _overlap(one: Window, other: Window) -> bool:
    assert one.end_s is not None
    assert other.end_s is not None
    return one.node == other.node and one.start_s < other.end_s and other.start_s < one.end_s


def _at(second: int) -> datetime:
    return world.START + timedelta(seconds=second)


def _held(runs: Iterable[Run]) -> list[Held]:
    """What services held, GPU by GPU."""
    return sorted(
        (run.job.name, A_NODE * one.node.position + bit, _second(one.started_at),
         _second(one.ended_at), one.funded)
        for run in runs
        for one in run.holdings.all()
        for bit in range(A_NODE)
        if one.mask >> bit & 1 and one.started_at != one.ended_at
    )  # fmt: skip


def _ran(run: Run) -> Ran:
    gpus = [
        A_NODE * one.node.position + (one.mask & -one.mask).bit_length() - 1
        for one in run.holdings.all()
    ]
    ended = {"preempted": "preempted", "node_failure": "failed"}.get(run.end_reason, "")
    return run.job.name, min(gpus), _second(run.started_at), _second(run.ended_at), ended


def _second(at: datetime | None) -> int:
    return -1 if at is None else (at - world.START) // timedelta(seconds=1)


def in_the_simulator(
    jobs: list[TraceJob], events: Events = NOTHING, nodes: int = 2
) -> tuple[list[Ran], list[Held]]:
    """With every improving pass that the cycle makes, and every waiting job offered."""
    batch, services = (tuple(one for one in jobs if one.is_realtime == is_one) for is_one in (0, 1))
    trace = Trace(batch, services=services)
    given = Setup(
        nodes_of(f"{nodes}x{A_NODE}"), equal_tree(trace.groups), DAY_S, unlimited=True, spread=0.0,
        iterations=None, offered_first=len(jobs), events=events,
    )  # fmt: skip
    played = play(trace, given)
    found = [
        (batch[ran.job].job_id, ran.first, ran.since, ran.until, _ended(ran))
        for ran in played.world.ran
    ]
    for job in played.world.running.values():
        assert job.run is not None
        found.append((job.row.job_id, job.run.first, job.run.since, -1, ""))
    held = [
        (services[one.service - len(batch)].job_id, one.first + n, one.since, one.until, one.funded)
        for one in played.world.services.served()
        for n in range(one.gpus)
    ]
    return sorted(found), sorted(held)


def _ended(ran: world_of_simulation.Ran) -> str:
    return "preempted" if ran.preempted else "failed" if ran.failed else ""


def stretches(held: list[Held]) -> list[Held]:
    """The same with what follows on each other in one, and the day's end for none."""
    found: list[Held] = []
    for name, gpu, since, until, funded in sorted(held):
        if since == DAY_S:
            continue
        until = DAY_S if until == -1 else until
        last = found[-1] if found else None
        if last and last[:2] == (name, gpu) and last[3:] == (since, funded):
            found[-1] = (name, gpu, last[2], until, funded)
        else:
            found.append((name, gpu, since, until, funded))
    return found


EVENTS = Events(
    windows=(
        Window("n0002", 5 * HOUR + 600, 8 * HOUR + 60),
        Window("n0003", 15 * HOUR, 16 * HOUR),
    ),
    failures=(
        Failure("n0001", 10 * HOUR + 431, 11 * HOUR + 77),
        Failure("n0003", 12 * HOUR + 901, 14 * HOUR),
    ),
)


def services() -> list[TraceJob]:
    """One that follows the day, and may move 2 GPUs a timestep; one that stands still for a while.

    The second is more than its budget is entitled to beside the first.
    """
    by_hour = (2,) * 6 + (4, 8, 8, 4, 3, 3, 10, 10, 6, 6) + (1,) * 8
    return [
        TraceJob("chat", 1700, 10, 2 * DAY_S, "nlp", kind="realtime", demand=by_hour, swap_cap=2),
        TraceJob("scan", 7300, 6, 9 * HOUR + 17, "nlp", kind="realtime", swap_cap=6),
    ]


@pytest.mark.django_db
@pytest.mark.once  # on both databases cycles decide alike: see test_cycle_random
@pytest.mark.parametrize("seed", [1, 2])
def test_a_simulated_day_and_one_through_the_database_are_the_same(seed: int) -> None:
    jobs = a_day(seed)
    real, _ = in_the_database(jobs)
    assert in_the_simulator(jobs) == (real, [])
    assert len(real) >= len(jobs) - 5
    assert any(ended == "preempted" for *_, ended in real)
    causes = set(JobEvent.objects.filter(kind=DECIDED).values_list("data__cause", flat=True))
    assert "debug" in causes
    assert len(causes) > 1


@pytest.mark.django_db
@pytest.mark.once
@pytest.mark.parametrize("seed", [3, 4])
def test_so_are_days_with_services_a_drain_and_failures(seed: int) -> None:
    jobs = sorted([*a_day(seed), *services()], key=lambda row: row.submit_time_s)
    real, held = in_the_database(jobs, EVENTS, nodes=3)
    simulated, served = in_the_simulator(jobs, EVENTS, nodes=3)
    assert simulated == real
    assert stretches(served) == stretches(held)
    assert any(ended == "failed" for *_, ended in real)
    assert any(ended == "preempted" for *_, ended in real)
    assert {name for name, *_ in held} == {"chat", "scan"}
    assert {funded for *_, funded in held} == {True, False}


def random_events(seed: int) -> Events:
    """Windows and failures at odd seconds, some of which overlap on a node, or take all nodes."""
    draw = random.Random(seed)
    names = ("n0001", "n0002", "n0003")
    windows, failures, free = [], [], dict.fromkeys(names, 0)
    for _ in range(draw.randrange(2, 6)):
        name, start = draw.choice(names), draw.randrange(HOUR, 20 * HOUR)
        windows.append(Window(name, start, start + draw.randrange(60, 4 * HOUR)))
    windows.append(Window(name, start + 30, start + 3 * HOUR))  # over the last one
    for _ in range(draw.randrange(2, 6)):
        # One after another on a node: two at once are one, which the simulated cluster can't tell.
        name = draw.choice(names)
        down = free[name] + draw.randrange(60, 8 * HOUR)
        free[name] = down + draw.randrange(60, 3 * HOUR)
        failures.append(Failure(name, down, free[name]))
    if draw.random() < 0.5:
        begin = max(free.values()) + HOUR
        failures += [Failure(name, begin, begin + 1234) for name in names]
    return Events(tuple(windows), tuple(failures))


@pytest.mark.django_db
@pytest.mark.once
@pytest.mark.parametrize("seed", [5])  # a minute each
def test_so_are_days_of_random_events(seed: int) -> None:
    jobs = sorted([*a_day(seed, 12), *services()], key=lambda row: row.submit_time_s)
    events = random_events(seed)
    real, held = in_the_database(jobs, events, nodes=3)
    simulated, served = in_the_simulator(jobs, events, nodes=3)
    assert simulated == real
    assert stretches(served) == stretches(held)
