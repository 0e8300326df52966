"""What runs as arrays: a row for each run of a batch-like job, in the file's order."""

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from .bits import below
from .compiled.tables import Flags, Floats, Rows, Words

if TYPE_CHECKING:
    from .problem import Problem


class Held(NamedTuple):
    """R runs. Each keeps [0, protected) and would like to go on to `until`, both in the horizon."""

    first: Rows
    gpus: Rows
    remaining: Rows
    protected: Rows
    until: Rows  # where nothing drains its node sooner, its end
    leaf: Rows
    order: Rows  # place in the file
    funded: Flags
    value: Floats

    def of(self, rows: Flags) -> "Held":
        """Some of them."""
        return Held._make(column[rows] for column in self)

    def each_gpu(self) -> tuple[Rows, Rows]:
        """(the GPUs held, which run holds each)."""
        run = np.repeat(np.arange(len(self.gpus)), self.gpus)
        begin = np.cumsum(self.gpus) - self.gpus
        return self.first[run] + np.arange(len(run)) - begin[run], run


@dataclass(frozen=True)
class Present:
    """A problem's runs, and their rows among the batch-like jobs."""

    rows: Rows
    held: Held

    @cached_property
    def each_gpu(self) -> tuple[Rows, Rows, Words]:
        """(the GPUs held, which run holds each, the timesteps for which it is protected there)."""
        gpu, run = self.held.each_gpu()
        return gpu, run, below(self.held.protected)[run]


def look(problem: "Problem") -> Present:
    """Read the runs of a problem."""
    columns, horizon = problem.columns, problem.horizon
    rows = np.flatnonzero(columns.running)
    remaining = columns.remaining[rows]
    protected = np.minimum(columns.protected[rows], horizon)
    held = Held(
        first=columns.first[rows],
        gpus=columns.gpus[rows],
        remaining=remaining,
        protected=protected,
        until=np.minimum(remaining, horizon),
        leaf=columns.leaves(problem)[rows],
        order=columns.order[rows],
        funded=columns.funded[rows],
        value=columns.value[rows],
    )
    if problem.drains:
        drained = _first_drained(held, problem.layout.drained)
        held = held._replace(until=np.maximum(protected, np.minimum(held.until, drained)))
    return Present(rows, held)


def _first_drained(held: Held, drained: Words) -> Rows:
    """Per run: the first timestep at which one of its GPUs is drained, 64: none is."""
    found = [np.bitwise_or.reduce(drained[f : f + n]) for f, n in zip(*held[:2], strict=True)]
    words = np.array(found, np.uint64)
    lowest = words & (~words + np.uint64(1))
    return np.where(words == 0, 64, np.log2(np.maximum(lowest, 1))).astype(np.int64)


def pins(problem: "Problem") -> Words:
    """Per GPU: the timesteps that are drained or taken by protected runs."""
    gpu, _, kept = problem.present.each_gpu
    pinned = problem.layout.drained.copy()
    pinned[gpu] |= kept
    return pinned


def protected_use(held: Held) -> list[tuple[int, int, int]]:
    """(leaf, cells, those of timestep 0) that funded runs take while they are protected."""
    mine = held.funded & (held.protected > 0)
    leaves, which = np.unique(held.leaf[mine], return_inverse=True)
    cells, now = np.zeros((2, len(leaves)), np.int64)
    np.add.at(cells, which, (held.gpus * held.protected)[mine])
    np.add.at(now, which, held.gpus[mine])
    return list(zip(leaves.tolist(), cells.tolist(), now.tolist(), strict=True))
