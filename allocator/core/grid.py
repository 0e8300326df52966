"""The grid while a plan is built: what is certainly taken, and what runs would like to keep."""

from collections.abc import Iterable, Mapping

import numpy as np

from .bits import Busy, lowest, span, spans, union
from .compiled import building
from .compiled.tables import Words
from .items import Run, Stoppable
from .layout import NONE, Layout
from .problem import Problem


class Grid:
    """`taken` holds what is decided. `wanted` adds the wishes of runs that have not had their turn;
    while there are none, both are the same object."""

    def __init__(self, problem: Problem, layout: Layout, rows: Words, runs: Stoppable) -> None:
        self.problem = problem
        self.layout = layout
        self.taken = Busy(layout, rows)
        self.runs = runs
        self.held = held = runs.held  # the same as they are at first
        self.waiting = len(self.runs)  # how many have not had their turn
        self.owner = np.full(layout.gpus, len(self.runs), dtype=np.int64)  # index of a GPU's run
        self.wishes = np.zeros(layout.gpus, dtype=np.uint64)
        self.wish = spans(held.protected, held.until)  # per run
        self.turned = np.zeros(len(self.runs), dtype=np.bool_)
        gpu, run = held.each_gpu()
        self.owner[gpu] = run
        self.wishes[gpu] = self.wish[run]
        self.wanted = Busy(layout, rows | self.wishes) if self.runs else self.taken

    @property
    def both(self) -> bool:
        """Whether some runs' wishes are still to be respected."""
        return self.wanted is not self.taken

    def hold_words(self, words: Words) -> tuple[int, int]:
        """Decide: GPUs are taken, a word for each; how many cells, and how many of timestep 0."""
        fleet, wanted, taken = self.layout.fleet, self.wanted.grid, self.taken.grid
        return building.hold_words(fleet, wanted, taken, self.both, words)

    def hold(self, first: int, gpus: int, start: int, end: int) -> None:
        """Decide: the block is taken in [start, end)."""
        self._hold(first, gpus, span(start, end))

    def hold_word(self, gpu: int, word: int) -> None:
        """Decide: one GPU is taken in the timesteps of the word."""
        self._hold(gpu, 1, word)

    def release(self, words: Mapping[int, int]) -> None:
        """Undo `hold_word` for each GPU and word."""
        if not words:
            return
        rows = self.taken.rows.copy()
        for gpu, word in words.items():
            rows[gpu] &= ~np.uint64(word)
        self.taken.replace(rows)
        if self.wanted is not self.taken:
            self.wanted.replace(rows | self.wishes)

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
        self.turned[run.index] = True
        self.wish[run.index] = 0
        self.waiting -= 1
        self.wishes[run.rows] = NONE
        self.hold(run.first, run.job.gpus, run.protected, end)
        if not self.waiting:
            self.wanted = self.taken
        elif end < run.until:
            self.wanted.replace(self.taken.rows | self.wishes)
        return end

    def count_turns(self) -> None:
        """Runs had their turns in compiled code."""
        self.waiting = len(self.runs) - int(np.count_nonzero(self.turned))
        if not self.waiting:
            self.wanted = self.taken

    def yield_to(self, victims: Iterable[Run], t: int, preemptor: str) -> None:
        """The victims no longer wish for anything from t on."""
        for run in victims:
            run.until = max(run.protected, min(run.until, t))
            run.stopped_for = preemptor
            self.wish[run.index] = self.wishes[run.rows] = np.uint64(run.wish)
        self.wanted.replace(self.taken.rows | self.wishes)

    def without(self, stops: Iterable[tuple[Run, int]]) -> Words:
        """Per GPU: what is busy if runs' wishes are not respected from some timestep on."""
        kept = np.full(len(self.runs) + 1, ~NONE)
        for run, t in stops:
            kept[run.index] = span(0, t)
        return self.taken.rows | (self.wishes & kept[self.owner])

    def wishing(self, first: int, gpus: int, word: int) -> list[Run]:
        """The runs that wish for one of the GPUs in the word's timesteps."""
        indices = set(self.owner[first : first + gpus].tolist())
        indices.discard(len(self.runs))
        return [
            run for i in sorted(indices) if not self.turned[i] and (run := self.runs[i]).wish & word
        ]
