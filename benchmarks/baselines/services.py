"""Real time for the baselines: along its curve, as close to the top of the grid as it goes.

Where the top of the grid is clear, all services together hold exactly the topmost GPUs at every
timestep: what other work can use is the most there is. Else each service, one after another, holds
what it holds now and grows onto GPUs that are free to the end.
"""

from collections.abc import Iterable, Sequence

import numpy as np

from allocator.core.problem import Problem, RealtimeJob
from allocator.core.realtime import highest_counts

from .grid import Grid

Sets = dict[str, tuple[tuple[int, ...], ...]]


def serve_elastic(problem: Problem, grid: Grid) -> Sets:
    """Place every service along its curve; the cells it holds are taken on the grid."""
    sets = _band(problem, grid)
    if sets is None:
        sets = {}
        for service in problem.realtime:
            sets[service.name] = _alone(problem, grid, service, sets)
            _take(grid, sets[service.name])
        return sets
    for rows in sets.values():
        _take(grid, rows)
    return sets


def serve_reserved(problem: Problem, grid: Grid) -> Sets:
    """Reserve each service's peak for the whole horizon from the top of the grid down.

    What it holds now is part of that. A service gets fewer GPUs where the fleet has no more that
    are free to the end. It climbs and falls inside its reservation.
    """
    sets: Sets = {}
    for service in problem.realtime:
        rows = _reach(problem, grid, service, sets)[: max(service.demand)]
        sets[service.name] = _climb(problem, grid, service, rows)
        _take(grid, sets[service.name])
        for gpu in rows:
            grid.hold(range(gpu, gpu + 1), (1 << problem.horizon) - 1)
    return sets


def _take(grid: Grid, sets: Sequence[Sequence[int]]) -> None:
    for t, rows in enumerate(sets):
        grid.words[list(rows)] |= np.uint64(1 << t)


def _reach(problem: Problem, grid: Grid, service: RealtimeJob, placed: Iterable[str]) -> list[int]:
    """GPUs it may grow onto, best first: held ones, then free ones from the top of the grid."""
    done = {service.name, *placed}
    others = {g for s in problem.realtime if s.name not in done for g in s.held or ()}
    held = sorted(service.held or (), reverse=True)
    taken = set(held) | others
    free = [g for g in range(problem.gpus - 1, -1, -1) if g not in taken and not grid.words[g]]
    return [*held, *(g for g in free if _in_pools(problem, service, g))]


def _in_pools(problem: Problem, service: RealtimeJob, gpu: int) -> bool:
    return not service.pools or problem.nodes[problem.node_of[gpu]].pool in service.pools


def _alone(
    problem: Problem, grid: Grid, service: RealtimeJob, placed: Iterable[str]
) -> tuple[tuple[int, ...], ...]:
    return _climb(problem, grid, service, _reach(problem, grid, service, placed))


def _climb(
    problem: Problem, grid: Grid, service: RealtimeJob, rows: Sequence[int]
) -> tuple[tuple[int, ...], ...]:
    """The most it can hold among `rows`, which are free to the end but for drains of held ones.

    It leaves what is drained as soon as it can, so that it is gone in time, and never holds more
    than it can shed by the time demand falls.
    """
    left = (1 << problem.horizon) - 1
    leaving = {gpu: int(grid.words[gpu]) & left for gpu in service.held or ()}
    now, steps = list(service.held or ()), []
    for t, count in enumerate(highest_counts(service)):
        cap = service.cap_into(t)
        gains = cap if t or service.held is not None else problem.gpus
        # The first to be drained goes first; of the others, the last in the order of rows.
        order = sorted(now, key=lambda g: _goes_first(leaving.get(g, 0), rows, g))
        drained = sum(bool(leaving.get(gpu)) for gpu in now)
        now = order[max(min(drained, cap), len(now) - count) :]
        new = [gpu for gpu in rows if gpu not in now and not leaving.get(gpu)]
        now += new[: max(min(gains, count - len(now)), 0)]
        steps.append(tuple(sorted(now)))
    return tuple(steps)


def _goes_first(drained: int, rows: Sequence[int], gpu: int) -> tuple[int, int]:
    place = rows.index(gpu) if gpu in rows else len(rows)
    return ((drained & -drained).bit_length() or 65, -place)


def _band(problem: Problem, grid: Grid) -> Sets | None:
    """All services on exactly the topmost GPUs; None where something else is there."""
    services = problem.realtime
    counts = {service.name: highest_counts(service) for service in services}
    total = [sum(column) for column in zip(*counts.values(), strict=True)]
    most = max(total, default=0)
    clear = most <= problem.gpus and not grid.words[problem.gpus - most :].any()
    if not clear or any(service.held is not None or service.pools for service in services):
        return None
    held: dict[str, list[int]] = {service.name: [] for service in services}
    steps: dict[str, list[tuple[int, ...]]] = {service.name: [] for service in services}
    for t, size in enumerate(total):
        _shift(held, counts, t, size)
        for service in services:
            rows = tuple(sorted(problem.gpus - 1 - depth for depth in held[service.name]))
            if t and _swaps(rows, steps[service.name][-1]) > service.swap_cap:
                return None
            steps[service.name].append(rows)
    return {name: tuple(rows) for name, rows in steps.items()}


def _shift(held: dict[str, list[int]], counts: dict[str, list[int]], t: int, size: int) -> None:
    """Move every service into the topmost `size` GPUs (depth 0 is the top) for timestep t.

    Each keeps what it can. What is open goes, deepest first, to whoever is to fall last, so that
    those who fall first hold the edge that falls with them.
    """
    for name, depths in held.items():
        held[name] = [depth for depth in sorted(depths) if depth < size][: counts[name][t]]
    taken = {depth for depths in held.values() for depth in depths}
    vacant = [depth for depth in range(size) if depth not in taken]
    wants = [
        (_falls_at(counts[name], t, count), name)
        for name, depths in held.items()
        for count in range(len(depths), counts[name][t])
    ]
    for (_, name), depth in zip(sorted(wants, key=lambda w: -w[0]), vacant, strict=True):
        held[name].append(depth)


def _falls_at(counts: Sequence[int], t: int, position: int) -> int:
    """The first timestep from t on at which the count is down to the position."""
    return next((u for u in range(t, len(counts)) if counts[u] <= position), len(counts))


def _swaps(now: Sequence[int], before: Sequence[int]) -> int:
    return max(len(set(now) - set(before)), len(set(before) - set(now)))
