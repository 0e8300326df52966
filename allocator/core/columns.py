"""Batch-like jobs as arrays, a row for each in the file's order: what is checked and planned.

Whoever plans again and again (the simulator) keeps such arrays from plan to plan and hands them
over as `Written` jobs: a `BatchJob` is then made of a row only where somebody asks for it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple, overload

import numpy as np

from .problem import BatchJob, Job, Kind, Problem, Running

if TYPE_CHECKING:  # compiled code is only loaded where something is planned
    from .compiled.tables import Flags, Floats, Rows

KINDS = tuple(Kind)


class Columns(NamedTuple):
    """B batch-like jobs. Of one that waits, all that is said of runs is 0."""

    names: Sequence[str]
    order: Rows  # place in the file, rising
    kind: Rows  # place in KINDS
    gpus: Rows
    duration: Rows
    arrival: Rows
    minimum: Rows  # 0: none
    pools: Rows  # place in `sets`
    budget: Rows  # place in `budgets`
    funded: Flags
    debug: Flags
    running: Flags
    first: Rows
    remaining: Rows
    protected: Rows
    ahead: Flags
    value: Floats
    sets: Sequence[tuple[str, ...]]
    budgets: Sequence[str | None]
    shielded: Mapping[int, tuple[str, ...]]  # by row, of those that have some
    barred: Mapping[int, tuple[str, ...]]

    def leaves(self, problem: Problem) -> Rows:
        """Per row: its budget's number."""
        leaf_of = problem.planted.leaf_of
        return _whole([leaf_of[path] for path in self.budgets])[self.budget]

    def pool_sets(self, problem: Problem) -> Rows:
        """Per row: which of the layout's sets of pools."""
        index = problem.layout.pools_index
        return _whole([index[pools] for pools in self.sets])[self.pools]


def columns_of(jobs: Iterable[Job]) -> Columns:
    """Read the batch-like jobs among all."""
    if isinstance(jobs, Written):
        return jobs.columns
    batch = [(order, job) for order, job in enumerate(jobs) if isinstance(job, BatchJob)]
    sets: dict[tuple[str, ...], int] = {}
    budgets: dict[str | None, int] = {}
    rows = [
        (
            *(order, KINDS.index(job.kind), job.gpus, job.duration, job.arrival, job.minimum or 0),
            *(sets.setdefault(job.pools, len(sets)), budgets.setdefault(job.budget, len(budgets))),
            *(job.funded, job.debug, *_of_run(job.running)),
        )
        for order, job in batch
    ]
    table = np.array(rows, np.int64).reshape(-1, 15).T.copy()
    order, kind, gpus, duration, arrival, minimum, pools, budget = table[:8]
    funded, debug, running, ahead = table[[8, 9, 10, 14]].astype(np.bool_)
    runs = [(row, job.running) for row, (_, job) in enumerate(batch) if job.running is not None]
    return Columns(
        names=[job.name for _, job in batch],
        order=order,
        kind=kind,
        gpus=gpus,
        duration=duration,
        arrival=arrival,
        minimum=minimum,
        pools=pools,
        budget=budget,
        funded=funded,
        debug=debug,
        running=running,
        first=table[11],
        remaining=table[12],
        protected=table[13],
        ahead=ahead,
        value=np.array([job.priority for _, job in batch], np.float64),
        sets=tuple(sets),
        budgets=tuple(budgets),
        shielded={row: run.shielded for row, run in runs if run.shielded},
        barred={row: run.barred for row, run in runs if run.barred},
    )


def _of_run(run: Running | None) -> tuple[int, int, int, int, int]:
    if run is None:
        return 0, 0, 0, 0, 0
    return 1, run.first_gpu, run.remaining, run.protected, run.ahead


def _whole(values: Sequence[int]) -> Rows:
    return np.array(values, np.int64)


class Written(Sequence[BatchJob]):
    """Jobs that are known by their columns, all of them batch-like.

    Raises `ProblemError` where what was written is nonsense, as a `BatchJob` does.
    """

    def __init__(self, columns: Columns) -> None:
        self.columns = columns
        self._made: dict[int, BatchJob] = {}
        gpus, duration = columns.gpus, columns.duration
        nonsense = (gpus < 1) | (gpus & (gpus - 1) != 0) | (duration < 1)
        nonsense |= (columns.minimum > duration) | (columns.protected > columns.remaining)
        nonsense |= columns.running & (columns.remaining < 1)
        for row in np.flatnonzero(nonsense).tolist():
            self._job(row)  # says what is wrong with it

    def __len__(self) -> int:
        return len(self.columns.names)

    @overload
    def __getitem__(self, at: int) -> BatchJob: ...
    @overload
    def __getitem__(self, at: slice) -> Sequence[BatchJob]: ...
    def __getitem__(self, at: int | slice) -> BatchJob | Sequence[BatchJob]:
        rows = range(len(self))[at]
        return self._job(rows) if isinstance(rows, int) else [self._job(row) for row in rows]

    def _job(self, row: int) -> BatchJob:
        if row not in self._made:
            self._made[row] = _job(self.columns, row)
        return self._made[row]


def _job(columns: Columns, row: int) -> BatchJob:
    running = None
    if columns.running[row]:
        running = Running(
            first_gpu=int(columns.first[row]),
            remaining=int(columns.remaining[row]),
            protected=int(columns.protected[row]),
            shielded=columns.shielded.get(row, ()),
            barred=columns.barred.get(row, ()),
            ahead=bool(columns.ahead[row]),
        )
    return BatchJob(
        name=columns.names[row],
        kind=KINDS[columns.kind[row]],
        priority=float(columns.value[row]),
        gpus=int(columns.gpus[row]),
        duration=int(columns.duration[row]),
        arrival=int(columns.arrival[row]),
        pools=columns.sets[columns.pools[row]],
        budget=columns.budgets[columns.budget[row]],
        funded=bool(columns.funded[row]),
        running=running,
        minimum=int(columns.minimum[row]) or None,
        debug=bool(columns.debug[row]),
    )
