"""When a block that is in no plan yet would be free: gaps of the newest committed plan."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import accumulate
from typing import Any

import numpy as np
import numpy.typing as npt

from allocator.core.layout import starts_of
from allocator.cycle import unpack
from allocator.reading import newest

Cells = npt.NDArray[np.bool_]
Steps = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Gap:
    """The range in which a block may start, by the plan of `planned_at`.

    `low` is the first gap for its least duration, `likely` and `high` for longer ones; None: there
    is none before the plan's end, `until`.
    """

    planned_at: datetime
    until: datetime
    low: datetime | None
    likely: datetime | None
    high: datetime | None


def first_gap(
    *, gpus: int, durations_s: tuple[int, int, int], pools: Collection[str], now: datetime
) -> Gap | None:
    """Look for a legal block of GPUs that stays free for each of three rising durations.

    What the plan gives to others is taken; beyond its end all is free. None where nothing is
    planned, or the newest plan is over. One query.
    """
    cycle = newest()
    if cycle is None:
        return None
    problem = unpack(bytes(cycle.snapshot))
    step = timedelta(minutes=problem["timestep_minutes"])
    passed = max(0, (now - cycle.timestep) // step)
    if passed >= problem["horizon"]:
        return None
    busy = _busy(problem, unpack(bytes(cycle.plan))["grid"])
    free = _free_steps(busy, _starts(problem["nodes"], gpus, pools), gpus)[:, passed:]
    found = []
    for seconds in durations_s:
        steps = -(-seconds // int(step.total_seconds()))
        enough = np.flatnonzero((free >= steps).any(axis=0))
        at = cycle.timestep + step * (passed + int(enough[0])) if len(enough) else None
        found.append(None if at is None else max(at, now))
    return Gap(cycle.at, cycle.timestep + step * problem["horizon"], *found)


def _busy(problem: Mapping[str, Any], grid: Sequence[Sequence[str | None]]) -> Cells:
    """Rows × timesteps that are planned, or drained."""
    busy = np.array([[cell is not None for cell in row] for row in grid], dtype=np.bool_)
    busy = busy.reshape(len(grid), problem["horizon"])
    first = dict(_firsts(problem["nodes"]))
    sizes = {node["name"]: node["gpus"] for node in problem["nodes"]}
    for drain in problem.get("drains", ()):
        at = first[drain["node"]]
        busy[at : at + sizes[drain["node"]], drain["from"] : drain["to"]] = True
    return busy


def _firsts(nodes: Sequence[Mapping[str, Any]]) -> Iterator[tuple[str, int]]:
    sums = accumulate((node["gpus"] for node in nodes), initial=0)
    yield from ((node["name"], at) for node, at in zip(nodes, sums, strict=False))


def _starts(nodes: Sequence[Mapping[str, Any]], gpus: int, pools: Collection[str]) -> Steps:
    """First rows of the blocks that a plan could give."""
    fleet = [(node["gpus"], node.get("pool", "default")) for node in nodes]
    return starts_of(fleet, gpus, tuple(pools))


def _free_steps(busy: Cells, starts: Steps, gpus: int) -> Steps:
    """Blocks × timesteps: how long each is free from there on; beyond the end it is for ever."""
    rows, horizon = busy.shape
    sums = np.zeros((rows + 1, horizon), dtype=np.int64)
    np.cumsum(busy, axis=0, out=sums[1:])
    taken = sums[starts + gpus] > sums[starts]
    free = np.zeros((len(starts), horizon), dtype=np.int64)
    ahead = np.full(len(starts), 10**9, dtype=np.int64)
    for t in range(horizon - 1, -1, -1):
        ahead = np.where(taken[:, t], 0, ahead + 1)
        free[:, t] = ahead
    return free
