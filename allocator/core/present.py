"""What runs as arrays: a row for each run of a batch-like job, in the file's order."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from .bits import spans
from .compiled.tables import Flags, Floats, Rows, Words
from .problem import BatchJob

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
    """A problem's runs."""

    jobs: tuple[BatchJob, ...]
    held: Held


def look(problem: "Problem") -> Present:
    """Read the runs of a problem."""
    leaf_of, horizon = problem.planted.leaf_of, problem.horizon
    rows = [
        (place, job, job.running)
        for place, job in enumerate(problem.jobs)
        if isinstance(job, BatchJob) and job.running is not None
    ]
    jobs = tuple(job for _, job, _ in rows)
    protected = np.minimum(_rows(run.protected for _, _, run in rows), horizon)
    remaining = _rows(run.remaining for _, _, run in rows)
    held = Held(
        first=_rows(run.first_gpu for _, _, run in rows),
        gpus=_rows(job.gpus for job in jobs),
        remaining=remaining,
        protected=protected,
        until=np.minimum(remaining, horizon),
        leaf=_rows(leaf_of[job.budget] for job in jobs),
        order=_rows(place for place, _, _ in rows),
        funded=np.array([job.funded for job in jobs], np.bool_),
        value=np.array([job.priority for job in jobs], np.float64),
    )
    if problem.drains:
        drained = _first_drained(held, problem.layout.drained)
        held = held._replace(until=np.maximum(protected, np.minimum(held.until, drained)))
    return Present(jobs, held)


def _rows(values: Iterable[int]) -> Rows:
    return np.array(list(values), np.int64)


def _first_drained(held: Held, drained: Words) -> Rows:
    """Per run: the first timestep at which one of its GPUs is drained, 64: none is."""
    found = [np.bitwise_or.reduce(drained[f : f + n]) for f, n in zip(*held[:2], strict=True)]
    words = np.array(found, np.uint64)
    lowest = words & (~words + np.uint64(1))
    return np.where(words == 0, 64, np.log2(np.maximum(lowest, 1))).astype(np.int64)


def pins(problem: "Problem") -> Words:
    """Per GPU: the timesteps that are drained or taken by protected runs."""
    held = problem.present.held
    gpu, run = held.each_gpu()
    pinned = problem.layout.drained.copy()
    pinned[gpu] |= spans(np.zeros_like(held.protected), held.protected)[run]
    return pinned


def protected_use(held: Held) -> list[tuple[int, int, int]]:
    """(leaf, cells, those of timestep 0) that funded runs take while they are protected."""
    mine = held.funded & (held.protected > 0)
    leaves, which = np.unique(held.leaf[mine], return_inverse=True)
    cells, now = np.zeros((2, len(leaves)), np.int64)
    np.add.at(cells, which, (held.gpus * held.protected)[mine])
    np.add.at(now, which, held.gpus[mine])
    return list(zip(leaves.tolist(), cells.tolist(), now.tolist(), strict=True))
