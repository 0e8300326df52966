"""Large-neighbourhood search: windows of the fleet are planned anew, one after another.

A window is some nodes over the whole horizon, or on a small fleet some of the jobs: what is placed
wholly inside it is free again, together with the most valuable jobs that found no place; all else
stays. Each window is a frame and solved as one (exact_search.py), so a gain is always a legal plan.
What a window proves holds for the window only: the bound stays the whole frame's.
"""

import math
from collections.abc import Collection
from random import Random

from .exact_frame import Frame, Work
from .exact_search import Effort, Search
from .plan import Assignment

SMALL = 64  # GPUs of a fleet that is one window, in which only some jobs are free
WIDTHS = (16, 32, 64)  # GPUs of a window of a larger fleet; a node at least
MOST_WAITING = 24  # jobs without a place that a window may take in
EFFORT = Effort(counts=2.0, rounds=2, places=15_000)


class Windows:
    """Improves a search's best plan until the time is up, it is proven, or nothing is found."""

    def __init__(self, search: Search, seed: int) -> None:
        self.search = search
        self.frame: Frame = search.frame
        self.random = Random(seed)
        self.work_of = {work.name: work for work in self.frame.works}
        self.tried = 0
        self.luck = {width: [1, 2] for width in WIDTHS}  # gains and tries, both with a head start
        self.slowest = 0.0  # seconds to build a window's model: no solver's limit covers them

    def run(self, patience: int) -> None:
        """One window after another, until so many in a row gain nothing."""
        idle, clock = 0, self.search.clock
        while idle < patience and not self.search.proven:
            if clock.over or clock.left < 1.5 * self.slowest:
                return
            width = self._width()
            gained = self._try(width)
            self.luck[width][0] += gained
            self.luck[width][1] += 1
            idle = 0 if gained else idle + 1
            self.tried += 1

    def _width(self) -> int:
        """What gained most often is tried most often."""
        chances = [gains / tries for gains, tries in self.luck.values()]
        return self.random.choices(WIDTHS, chances)[0]

    def _try(self, width: int) -> bool:
        """Plan one window; whether that gained anything."""
        rows = self._rows(width)
        names = self._names(rows)
        if not names and not self.frame.services:
            return False
        best = self.search.best
        frame = self.frame.narrow(best, rows, names)
        window = Search(
            frame,
            self.search.construction,
            best,
            math.inf,
            self.search.clock,
            EFFORT,
            improving=True,
        )
        window.by_nodes(share=0.5)
        self.slowest = max(self.slowest, window.built)
        self.search.found = self.search.found or window.found
        return self.search.keep(window.best)

    def _rows(self, width: int) -> Collection[int]:
        """The whole frame where it is small, else one or two stretches of nodes."""
        if len(self.frame.rows) <= SMALL:
            return self.frame.rows
        parts = self.random.choice((1, 1, 2))
        rows: set[int] = set()
        for _ in range(parts):
            rows.update(self._stretch(width // parts))
        return rows

    def _stretch(self, width: int) -> range:
        """Consecutive whole nodes of about so many GPUs."""
        problem = self.frame.problem
        node = self.random.randrange(len(problem.nodes))
        first = last = problem.first_gpu_of[node]
        while node < len(problem.nodes) and (
            last == first or last + problem.nodes[node].gpus - first <= width
        ):
            last += problem.nodes[node].gpus
            node += 1
        return range(first, last)

    def _names(self, rows: Collection[int]) -> set[str]:
        """Placed jobs that are free in the window, and waiting ones that may come in."""
        within = set(rows)
        placed = [a for a in self.search.best.assignments if a.job in self.work_of]
        inside = [a for a in placed if within.issuperset(range(a.first_gpu, a.first_gpu + a.gpus))]
        if len(self.frame.rows) <= SMALL:
            inside = self._some(inside)
        waiting = self.work_of.keys() - {a.job for a in placed}
        return {a.job for a in inside} | {work.name for work in self._waiting(waiting)}

    def _some(self, placed: list[Assignment]) -> list[Assignment]:
        """Some of a small fleet's jobs: those of a stretch of time, or any."""
        horizon = self.frame.problem.horizon
        if self.random.random() < 0.5:
            length = self.random.randint(horizon // 4, horizon // 2 + 1)
            start = self.random.randint(-length // 2, horizon - length // 2)
            return [a for a in placed if a.start < start + length and start < a.end]
        part = self.random.uniform(0.2, 0.7)
        return [a for a in placed if self.random.random() < part]

    def _waiting(self, names: Collection[str]) -> list[Work]:
        """The waiting jobs worth most per GPU-timestep, with some luck."""
        works = [self.work_of[name] for name in sorted(names)]
        rank = {work.name: work.priority * self.random.uniform(0.3, 1.0) for work in works}
        works.sort(key=lambda work: (-rank[work.name], work.order))
        return works[:MOST_WAITING]
