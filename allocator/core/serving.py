"""Step 2 of the construction: GPUs for real-time services, before any waiting job.

Funded services come first of all. What an unfunded service holds now can only be shed at its swap
cap, so that much is promised to it; the rest of its demand is served after all funded work.
"""

from collections.abc import Sequence

import numpy as np

from . import gathering
from .compiled.tables import Words
from .grid import Grid
from .items import Run
from .preempt import Preemptor
from .problem import Problem, RealtimeJob
from .realtime import Sets, missing, place_service, sets_of, shed_path, words_of
from .turns import Turns


class Services:
    """Places a problem's services on a grid and counts what their leaves are given."""

    def __init__(self, problem: Problem, grid: Grid, turns: Turns, preemptor: Preemptor) -> None:
        self.problem = problem
        self.grid = grid
        self.turns = turns
        self.preemptor = preemptor
        self.words: dict[str, Words] = {}  # per service: a word per GPU
        self._promised: dict[str, dict[int, int]] = {}

    def promise(self) -> None:
        """Take what unfunded services hold and can't shed at once."""
        for service in self.problem.rosters[False].services:
            words = words_of(shed_path(service, self.grid.layout.drained.tolist()))
            self._promised[service.name] = words
            for gpu, word in words.items():
                self.grid.hold_word(gpu, word)

    def serve(self, *, funded: bool) -> None:
        """All services in one corner where that is free, else one after another."""
        roster = self.problem.rosters[funded]
        if not roster.services:
            return
        for service in roster.services:
            self.grid.release(self._promised.pop(service.name, {}))
        serving = gathering.place(roster, self.grid.layout, self.grid.wanted.rows)
        if serving is None:
            self._one_by_one(roster.services)
            return
        for service, words in zip(roster.services, serving, strict=True):
            self._settle(service, words)

    def _one_by_one(self, services: Sequence[RealtimeJob]) -> None:
        reserved = {gpu: s.name for s in services for gpu in s.held or ()}
        for service in services:
            others = [gpu for gpu, name in reserved.items() if name != service.name]
            sets = self._place(service, self._rows(service), others)
            for gpu in service.held or ():
                reserved.pop(gpu)
            words = np.zeros(self.grid.layout.gpus, np.uint64)
            for gpu, word in words_of(sets).items():
                words[gpu] = word
            self._settle(service, words)

    def sets(self) -> dict[str, Sets]:
        """Per service and timestep: its GPUs."""
        horizon = self.problem.horizon
        return {name: sets_of(words, horizon) for name, words in self.words.items()}

    def _settle(self, service: RealtimeJob, words: Words) -> None:
        self.words[service.name] = words
        cells, first_cells = self.grid.hold_words(words)
        seconds = self.problem.timestep_seconds
        self.turns.give(self._leaf(service), cells * seconds, first_cells * seconds)

    def _leaf(self, service: RealtimeJob) -> int:
        return self.turns.leaf_of[service.budget]

    def _rows(self, service: RealtimeJob) -> list[int]:
        """The GPUs it may use, from the top of the grid."""
        layout = self.grid.layout
        rows = range(layout.gpus - 1, -1, -1)
        if not service.pools:
            return list(rows)
        return [gpu for gpu in rows if layout.pool_of[gpu] in service.pools]

    def _place(self, service: RealtimeJob, rows: list[int], others: list[int]) -> Sets:
        """On free GPUs if they are enough, else where less deserving runs may be stopped."""
        sets = place_service(
            self.problem, service, rows, self._busy(self.grid.wanted.rows.tolist(), others)
        )
        if not self.grid.waiting or not service.funded or not missing(service, sets):
            return sets
        return self._stop_for(service, rows, others, sets)

    def _busy(self, words: list[int], others: list[int]) -> list[int]:
        """GPUs that other services hold stay theirs until they are placed."""
        for gpu in others:
            words[gpu] = self.grid.layout.within
        return words

    def _stop_for(
        self, service: RealtimeJob, rows: list[int], others: list[int], sets: Sets
    ) -> Sets:
        """Let the service grow onto ever more runs, least deserving first, until it has enough.

        Each timestep it may stop as many as the limit allows, so it grows in waves.
        """
        leaf = self._leaf(service)
        victims = self.preemptor.in_waves(self.preemptor.victims_for_service(leaf, service.pools))
        used: list[tuple[Run, int]] = []
        count = 1
        while missing(service, sets) and count < 2 * len(victims):
            chosen = victims[:count]
            count *= 2
            busy = self._busy(self.grid.without(chosen).tolist(), others)
            wider = place_service(self.problem, service, rows, busy)
            hit = _first_uses(wider, [run for run, _ in chosen])
            if not self.preemptor.all_within_limit(hit):
                break
            if missing(service, wider) < missing(service, sets):
                sets, used = wider, hit
        for run, t in used:
            self.preemptor.stop([run], t, service.name, leaf, 1)
        return sets


def _first_uses(sets: Sets, runs: Sequence[Run]) -> list[tuple[Run, int]]:
    """The runs whose wishes the sets take, with the first timestep at which they do."""
    words = words_of(sets)
    found = []
    for run in runs:
        taken = 0
        for gpu in range(run.first, run.first + run.job.gpus):
            taken |= words.get(gpu, 0)
        taken &= run.wish
        if taken:
            found.append((run, (taken & -taken).bit_length() - 1))
    return found
