"""Whatever befalls a simulated fleet, nothing runs on what is down or twice on one GPU."""

import itertools
import random

import pytest

from allocator.core.events import Events, Failure, Window
from allocator.core.simulate import POLICIES, play
from allocator.core.simulation.measures import measure
from allocator.core.simulation.setup import Setup, equal_tree, nodes_of
from allocator.core.traces import DAY_S, Trace, TraceJob

HOUR = 3600
A_NODE, NODES = 4, 3
NAMES = [f"n{n:04}" for n in range(1, NODES + 1)]


def jobs(draw: random.Random) -> tuple[TraceJob, ...]:
    rows = [
        TraceJob(
            f"j{n}", draw.randrange(20 * HOUR), draw.choice((1, 2, 4, 8)),
            draw.randrange(1, 6 * HOUR), draw.choice("ab"), resumable=draw.random() < 0.7,
            min_runtime_s=draw.choice((None, 0, HOUR)), time_limit_s=draw.choice((None, 900)),
        )
        for n in range(draw.randrange(15))
    ]  # fmt: skip
    return tuple(sorted(rows, key=lambda row: row.submit_time_s))


def services(draw: random.Random) -> tuple[TraceJob, ...]:
    """Some want more than the fleet has."""
    return tuple(
        TraceJob(
            f"s{n}", draw.randrange(20 * HOUR), 1, draw.randrange(1, DAY_S), draw.choice("ab"),
            kind="realtime", demand=tuple(draw.randrange(1, 20) for _ in range(5)),
            demand_step_s=1800, swap_cap=draw.choice((1, 3, 20)),
        )
        for n in range(draw.randrange(3))
    )  # fmt: skip


def events(draw: random.Random) -> Events:
    """They overlap, go on for ever, take all nodes at once, or lie after the end."""

    def span() -> tuple[int, int | None]:
        start = draw.choice((0, draw.randrange(DAY_S), 3 * DAY_S))
        return start, draw.choice((None, start + 1, start + draw.randrange(1, 9 * HOUR)))

    windows, failures = [], []
    for _ in range(draw.randrange(5)):
        start, end = span()
        windows.append(Window(draw.choice(NAMES), start, end, draw.choice((0, start // 2))))
    for _ in range(draw.randrange(5)):
        failures.append(Failure(draw.choice(NAMES), *span()))
    if draw.random() < 0.3:
        start, end = span()
        failures += [Failure(name, start, end) for name in NAMES]
    return Events(tuple(windows), tuple(failures))


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("seed", range(8))
def test_whatever_befalls_it_gpus_are_held_once_and_only_where_they_are_up(
    policy: str, seed: int
) -> None:
    draw = random.Random(seed)
    befalls = events(draw)
    trace = Trace(jobs(draw), services=services(draw))
    tree = equal_tree(trace.groups or ("a",))
    given = Setup(
        nodes_of(f"{NODES}x{A_NODE}"), tree, DAY_S, unlimited=draw.random() < 0.5, events=befalls,
        spread=draw.choice((0.0, 0.5)),
    )  # fmt: skip
    played = play(trace, given, policy)
    held = [(one.first, one.first + _gpus(trace, one.job), one.since, one.until)
            for one in played.world.runs()]  # fmt: skip
    held += [(one.first, one.first + one.gpus, one.since, one.until)
             for one in played.world.services.served()]  # fmt: skip
    _check_once(held)
    for failure in befalls.failures:
        first = NAMES.index(failure.node) * A_NODE
        down = DAY_S if failure.up_s is None else failure.up_s
        for a, b, since, until in held:
            on_it = a < first + A_NODE and b > first
            assert not (on_it and since < down and until > failure.down_s), failure
    found = measure(played.world, played.jobs, policy, played.decisions)
    assert found == measure(*_again(trace, given, policy))
    assert 0 <= found.occupancy <= 1
    gpu_seconds = sum((b - a) * (until - since) for a, b, since, until in held)
    assert gpu_seconds == found.funded_gpu_seconds + found.unfunded_gpu_seconds
    assert gpu_seconds <= A_NODE * NODES * DAY_S - found.down_gpu_seconds


def _again(trace: Trace, given: Setup, policy: str):
    played = play(trace, given, policy)
    return played.world, played.jobs, policy, played.decisions


def _gpus(trace: Trace, number: int) -> int:
    return trace.jobs[number].block


def _check_once(held: list[tuple[int, int, int, int]]) -> None:
    by_gpu: dict[int, list[tuple[int, int]]] = {}
    for first, end, since, until in held:
        assert 0 <= since <= until <= DAY_S
        for gpu in range(first, end):
            by_gpu.setdefault(gpu, []).append((since, until))
    for spans in by_gpu.values():
        spans.sort()
        assert all(a[1] <= b[0] for a, b in itertools.pairwise(spans))


@pytest.mark.parametrize("seed", range(6))
def test_what_starts_once_a_window_is_known_is_over_before_it_or_begins_after(seed: int) -> None:
    """Of what can be stopped; a protected run that started before the window was known may stay."""
    draw = random.Random(seed)
    start = draw.randrange(2 * HOUR, 12 * HOUR)
    window = Window(draw.choice(NAMES), start, start + draw.randrange(60, 5 * HOUR), HOUR)
    trace = Trace(jobs(draw))
    given = Setup(
        nodes_of(f"{NODES}x{A_NODE}"), equal_tree(trace.groups or ("a",)), DAY_S, spread=0.0,
        unlimited=True, events=Events(windows=(window,)),
    )  # fmt: skip
    first = NAMES.index(window.node) * A_NODE
    assert window.end_s is not None
    begins, ends = start - start % 1800, -(-window.end_s // 1800) * 1800
    for ran in play(trace, given).world.runs():
        gpus = trace.jobs[ran.job].block
        if ran.first < first + A_NODE and ran.first + gpus > first and ran.since >= HOUR:
            assert ran.until <= begins or ran.since >= ends, ran
