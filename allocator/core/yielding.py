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
from .items import Item, Run

if TYPE_CHECKING:
    from .heuristic import Construction

NOW = 1  # the word of timestep 0


def may_yield(run: Run, item: Item) -> bool:
    """Whether a run may give way to a debug job of its own budget."""
    return run.leaf == item.leaf and _may_stop(run, item)


def may_be_moved(construction: Construction, run: Run, item: Item) -> bool:
    """Whether a run may be moved so that a job finds room."""
    running = run.job.running
    assert running is not None
    if not _may_stop(run, item) or construction.turns.path(item.leaf) in running.shielded:
        return False
    if run.leaf == item.leaf or not run.job.funded:
        return True
    seconds = item.gpus * construction.problem.timestep_seconds
    return construction.turns.may_move(item.leaf, seconds, run.leaf)


def _may_stop(run: Run, item: Item) -> bool:
    job = run.job
    assert job.running is not None
    if run.protected or not run.until or job.minimum is None or job.debug:
        return False
    return not (item.name in job.running.barred and job.funded)


@dataclass(frozen=True)
class Holder:
    """What holds GPUs now and may give them up: a run, or a job that would start."""

    name: str
    first: int
    gpus: int
    until: int
    cost: int  # of giving way: the block for which least is lost is chosen
    run: Run | None = None


def holder(run: Run) -> Holder:
    """A run that may give way, at the cost of its GPUs."""
    return Holder(run.job.name, run.first, run.job.gpus, run.until, run.job.gpus, run)


def block_among(
    construction: Construction,
    holders: Sequence[Holder],
    item: Item,
    needs: Sequence[tuple[Busy, int]],
) -> tuple[int, list[Holder]] | None:
    """(first GPU, who gives way) of the block for which least is lost.

    Each of ``needs`` is a grid, and for how many timesteps the block must be free in it but for
    the holders. None: there is no such block, or the limit of a timestep forbids it.
    """
    if not holders:
        return None
    layout = construction.layout
    owner = np.full(layout.gpus, -1, np.int64)
    for n, one in enumerate(holders):
        owner[one.first : one.first + one.gpus] = n
    free = np.full(layout.gpus, NOW, np.uint64)
    for busy, length in needs:
        rows = busy.rows.copy()
        for one in holders:
            rows[one.first : one.first + one.gpus] &= ~np.uint64(span(0, one.until))
        free &= Busy(layout, rows).free_starts(item.gpus, length, NOW, item.pools)
    k, cost = layout.size_index[item.gpus], np.array([one.cost for one in holders], np.int64)
    hit = np.zeros(len(holders), np.int64)
    first = int(compiled.block(layout.fleet, free, k, owner, cost, hit))
    if first < 0:
        return None
    named = sorted(set(owner[first : first + item.gpus].tolist()) - {-1})
    found = [holders[n] for n in named]
    stops = [(one.run, 0) for one in found if one.run is not None]
    if not construction.preemptor.all_within_limit(stops):
        return None
    return first, found
