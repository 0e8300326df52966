"""The grid while a plan is built: what is certainly taken, and what runs would like to keep."""

from collections.abc import Iterable

import numpy as np

from .bits import Busy, lowest, span, union
from .items import Item, Run, allowed_starts
from .layout import Layout, Words
from .problem import Problem


class Grid:
    """`taken` holds what is decided. `wanted` adds the wishes of runs that have not had their turn;
    while there are none, both are the same object."""

    def __init__(self, problem: Problem, layout: Layout, rows: Words, runs: Iterable[Run]) -> None:
        self.problem = problem
        self.layout = layout
        self.taken = Busy(layout, rows)
        self.runs = list(runs)  # those whose turn has not come
        self.wanted = Busy(layout, self._with_wishes(self.runs)) if self.runs else self.taken

    def _with_wishes(self, runs: Iterable[Run]) -> Words:
        rows = self.taken.rows.copy()
        for run in runs:
            rows[run.rows] |= np.uint64(run.wish)
        return rows

    def earliest(self, item: Item) -> tuple[int, int] | None:
        """(timestep, first GPU) of the item's earliest start without stopping anything."""
        allowed = allowed_starts(self.problem, item)
        return self.wanted.earliest(item.gpus, item.length, allowed, item.pools)

    def hold(self, first: int, gpus: int, start: int, end: int) -> None:
        """Decide: the block is taken in [start, end)."""
        self._hold(first, gpus, span(start, end))

    def hold_word(self, gpu: int, word: int) -> None:
        """Decide: one GPU is taken in the timesteps of the word."""
        self._hold(gpu, 1, word)

    def _hold(self, first: int, gpus: int, word: int) -> None:
        self.taken.hold(first, gpus, word)
        if self.wanted is not self.taken:
            self.wanted.hold(first, gpus, word)

    def settle(self, run: Run) -> int:
        """The run's turn: it goes on until something decided before needs its block.

        Returns the timestep at which it ends; its block is taken until then.
        """
        busy = union(self.taken.rows[run.rows]) & span(run.protected, run.until)
        end = lowest(busy) if busy else run.until
        self.runs.remove(run)
        self.hold(run.first, run.job.gpus, run.protected, end)
        if end < run.until and self.runs:
            self.wanted.replace(self._with_wishes(self.runs))
        if not self.runs:
            self.wanted = self.taken
        return end

    def yield_to(self, victims: Iterable[Run], t: int, preemptor: str) -> None:
        """The victims no longer wish for anything from t on."""
        for run in victims:
            run.until = max(run.protected, min(run.until, t))
            run.stopped_for = preemptor
        self.wanted.replace(self._with_wishes(self.runs))

    def against(self, keep: Iterable[Run]) -> Busy:
        """What is busy if only the runs in `keep` are respected."""
        return Busy(self.layout, self._with_wishes(keep))
