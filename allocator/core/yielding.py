"""Runs that give way once everything had its turn: which may, for whom, and on which block.

A debug job takes the place of its own budget's runs (debug_jobs.py). A job for which free GPUs lie
scattered has runs moved (filling.py): of its own budget, unfunded ones, and others', unless they
are inside their entitlement and its own is not, and none that its budget stopped lately. Only a run
over its protection that can resume gives way, and such stops count towards the limit of a timestep.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from .bits import Busy, span
from .compiled import yielding as compiled
from .compiled.yielding import Holders
from .items import Item, Run

if TYPE_CHECKING:
    from .heuristic import Construction

NOW = 1  # the word of timestep 0


def may_yield(run: Run, item: Item) -> bool:
    """Whether a run may give way to a debug job of its own budget."""
    return run.leaf == item.leaf and _may_stop(run) and not _is_barred(run, item.name)


def _may_stop(run: Run) -> bool:
    job = run.job
    return not (run.protected or not run.until or job.minimum is None or job.debug)


def _is_barred(run: Run, name: str) -> bool:
    running = run.job.running
    return running is not None and name in running.barred and run.job.funded


@dataclass(frozen=True)
class Holder:
    """What holds GPUs now and may give them up: a run, or a job that would start."""

    name: str
    first: int
    gpus: int
    until: int
    cost: int  # of giving way: the block for which least is lost is chosen
    run: Run | None = None


def block_among(
    construction: Construction, holders: Sequence[Holder], item: Item, busy: Busy, length: int
) -> tuple[int, list[Holder]] | None:
    """(first GPU, who gives way) of the block for which least is lost.

    It must be free for ``length`` timesteps but for the holders. None: there is no such block, or
    the limit of a timestep forbids it.
    """
    if not holders:
        return None
    many = len(holders)
    owner = np.full(construction.layout.gpus, many, np.int64)
    for n, one in enumerate(holders):
        owner[one.first : one.first + one.gpus] = n
    arrays = Holders(
        owner=owner,
        words=np.array([span(0, one.until) for one in holders], np.uint64),
        cost=np.array([one.cost for one in holders], np.int64),
        may=np.ones(many, np.bool_),
        hit=np.empty(many, np.int64),
    )
    first = _block(construction, arrays, item, (busy, length), (busy, length))
    if first < 0:
        return None
    found = [holders[n] for n in _who(arrays, first, item.gpus)]
    stops = [(one.run, 0) for one in found if one.run is not None]
    return (first, found) if construction.preemptor.all_within_limit(stops) else None


class Movable:
    """The runs of a construction that may be moved so that a job finds room, as they are now."""

    def __init__(self, construction: Construction) -> None:
        self.construction = construction
        runs = construction.runs
        self.free_to = np.array([_may_stop(run) for run in runs], np.bool_)
        self.holders = Holders(
            owner=construction.grid.owner,
            words=np.array([span(0, run.until) for run in runs], np.uint64),
            cost=np.array([run.job.gpus for run in runs], np.int64),
            may=np.empty(len(runs), np.bool_),
            hit=np.empty(len(runs), np.int64),
        )

    def block(
        self, item: Item, brief: tuple[Busy, int], whole: tuple[Busy, int]
    ) -> tuple[int, list[Run]] | None:
        """(first GPU, whom to move) of the block for which least is moved.

        Each need is a grid, and for how many timesteps the block must be free in it but for them.
        None: there is no such block, or the limit of a timestep forbids it.
        """
        construction, holders = self.construction, self.holders
        seconds = item.gpus * construction.problem.timestep_seconds
        tree, runs = construction.turns.tree, construction.preemptor.runs
        if not compiled.find_movable(tree, runs, self.free_to, item.leaf, seconds, holders.may):
            return None
        holders.may[construction.preemptor.barred(item.name)] = False
        first = _block(construction, holders, item, brief, whole)
        if first < 0:
            return None
        found = [construction.runs[r] for r in _who(holders, first, item.gpus)]
        stops = [(run, 0) for run in found]
        return (first, found) if construction.preemptor.all_within_limit(stops) else None


def _block(
    construction: Construction,
    holders: Holders,
    item: Item,
    brief: tuple[Busy, int],
    whole: tuple[Busy, int],
) -> int:
    layout = construction.layout
    k, pools = layout.size_index[item.gpus], layout.pools_index[item.pools]
    one, other = (brief[0].grid, brief[1]), (whole[0].grid, whole[1])
    return int(compiled.block(layout.fleet, holders, k, pools, *one, *other))


def _who(holders: Holders, first: int, gpus: int) -> list[int]:
    """Those that give way for a block."""
    found = set(holders.owner[first : first + gpus].tolist()) - {len(holders.may)}
    return sorted(n for n in found if holders.may[n])
