"""Runs that give way once everything had its turn: which may, for whom, and on which block.

A debug job takes the place of its own budget's runs (debug_jobs.py). A job for which free GPUs lie
scattered has runs moved (filling.py): of its own budget, unfunded ones, and others', unless they
are inside their entitlement and its own is not, and none that its budget stopped lately. Only a run
over its protection that can resume gives way, and such stops count towards the limit of a timestep.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from .bits import Busy, below
from .compiled import yielding as compiled
from .compiled.tables import Flags, Rows
from .compiled.yielding import Holders
from .items import Item, Run, Stoppable
from .plan import Assignment

if TYPE_CHECKING:
    from .heuristic import Construction

NOW = 1  # the word of timestep 0
MORE = 64  # a run's GPU costs more than any number of starts


def may_yield(construction: Construction, item: Item) -> Rows:
    """Indices of the runs that may give way to a debug job of their own budget."""
    runs = construction.runs
    found = _may_stop(runs) & (runs.held.leaf == item.leaf)
    found[construction.preemptor.barred(item.name)] = False
    return np.flatnonzero(found)


def _may_stop(runs: Stoppable) -> Flags:
    """Per run: whether it is over its protection, and can resume."""
    columns, rows = runs.problem.columns, runs.rows
    resumable = (columns.minimum[rows] > 0) & ~columns.debug[rows]
    found: Flags = resumable & (runs.held.protected == 0) & (runs.until > 0)
    return found


def block_among(
    construction: Construction,
    runs: Rows,
    starts: Sequence[Assignment],
    item: Item,
    busy: Busy,
    length: int,
) -> tuple[int, list[Run], list[Assignment]] | None:
    """(first GPU, who gives way) of the block for which least is lost.

    It must be free for ``length`` timesteps but for some runs, by their indices, and for jobs that
    would start now, of which giving up any number loses less than one GPU of a run. None: there is
    no such block, or the limit of a timestep forbids it.
    """
    many, stoppable = len(runs) + len(starts), construction.runs
    if not many:
        return None
    place = np.full(len(stoppable) + 1, many, np.int64)
    place[runs] = np.arange(len(runs))
    owner = place[construction.grid.owner]
    for n, a in enumerate(starts, len(runs)):
        owner[a.first_gpu : a.first_gpu + a.gpus] = n
    arrays = Holders(
        owner=owner,
        words=below(np.concatenate([stoppable.until[runs], _whole([a.end for a in starts])])),
        cost=np.concatenate([stoppable.held.gpus[runs] * MORE, _whole([1] * len(starts))]),
        may=np.ones(many, np.bool_),
        hit=np.empty(many, np.int64),
    )
    first = _block(construction, arrays, item, (busy, length), (busy, length))
    if first < 0:
        return None
    found = _who(arrays, first, item.gpus)
    victims = [stoppable[int(runs[n])] for n in found if n < len(runs)]
    if not construction.preemptor.block_within_limit(victims):
        return None
    return first, victims, [starts[n - len(runs)] for n in found if n >= len(runs)]


def _whole(values: list[int]) -> Rows:
    return np.array(values, np.int64)


class Movable:
    """The runs of a construction that may be moved so that a job finds room, as they are now."""

    def __init__(self, construction: Construction) -> None:
        self.construction = construction
        runs = construction.runs
        self.free_to = _may_stop(runs)
        self.holders = Holders(
            owner=construction.grid.owner,
            words=below(runs.until),
            cost=runs.held.gpus,
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
        return (first, found) if construction.preemptor.block_within_limit(found) else None


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
