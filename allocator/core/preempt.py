"""Who may be stopped for whom.

A funded job may take the block of a run that has not had its turn, is over its protection and is
less deserving: unfunded runs first, then funded runs of leaves that the job's leaf outranks. A run
inside its entitlement is never stopped for a job outside its own, and no run for a budget that
stopped the same job lately (`Running.shielded`), nor a funded one for a job with which it has
changed places (`Running.barred`). Unfunded work stops nobody, nor does what is left
of a stopped run. Per timestep at most 5 % of a pool's GPUs are stopped, but always one block.
"""

from collections.abc import Iterable, Sequence
from functools import cached_property

import numpy as np

from .bits import span
from .compiled import stopping
from .compiled.stopping import Runs
from .compiled.tables import Flags, Items
from .grid import Grid
from .items import Run
from .plan import Cause, Preemption
from .settings import Settings
from .turns import Turns


class Preemptor:
    """Finds victims, keeps the count of what was stopped, and records every decision."""

    def __init__(self, grid: Grid, turns: Turns, settings: Settings) -> None:
        self.grid = grid
        self.turns = turns
        self.record: list[Preemption] = []
        self._percent = settings.preempted_percent
        self._ranks = turns.ranks() if grid.runs else []  # as they are before anything is given

    def block_for(self, table: Items, i: int, before: int) -> tuple[int, int] | None:
        """(timestep < before, first GPU) of the earliest start that stops runs.

        Row i of the table is funded, and no rest.
        """
        spared = self.barred(self._name(i)) if self._barred else []
        spared = [r for r in spared if not self.runs.turned[r]]
        self.runs.turned[spared] = True  # as if they had had their turn
        found = self._search(table, i, int(table.allowed[i]) & span(0, before))
        self.runs.turned[spared] = False
        return found

    def in_the_way(self, table: Items, i: int, t: int, first: int) -> list[Run]:
        """The runs that wish for the block that row i of the table would have from t on."""
        gpus, length = int(table.gpus[i]), int(table.length[i])
        return self.grid.wishing(first, gpus, span(t, t + length))

    def _search(self, table: Items, i: int, allowed: int) -> tuple[int, int] | None:
        layout, runs = self.grid.layout, self.runs
        seconds = int(table.gpus[i]) * self.grid.problem.timestep_seconds
        if not stopping.find_victims(self.turns.tree, runs, int(table.leaf[i]), seconds):
            return None
        taken, starts = self.grid.taken.grid, np.uint64(allowed)
        t, first = stopping.block_for(layout.fleet, table, runs, taken, layout.domain, i, starts)
        return (t, first) if t >= 0 else None

    def spares(self, rows: int) -> Flags:
        """Per row of the table: whether there are runs that its job may not stop."""
        found = np.zeros(rows, np.bool_)
        if self._barred:
            names = self.grid.problem.waiting.names
            found[[i for i, name in enumerate(names) if name in self._barred]] = True
        return found

    def _name(self, i: int) -> str:
        return self.grid.problem.waiting.names[i]

    def barred(self, name: str) -> list[int]:
        """Indices of the runs that a job may not stop."""
        return self._barred.get(name, [])

    @cached_property
    def _barred(self) -> dict[str, list[int]]:
        """Runs that a job may not stop, by its name. Unfunded ones give way all the same."""
        found: dict[str, list[int]] = {}
        for index, names in self.grid.runs.named(self.grid.problem.columns.barred):
            for name in names if self.grid.held.funded[index] else ():
                found.setdefault(name, []).append(index)
        return found

    def stop(
        self,
        victims: Iterable[Run],
        t: int,
        preemptor: str,
        leaf: int,
        gpus: int,
        cause: Cause = Cause.OUTRANKED,
    ) -> None:
        """Stop the victims at t, for the record and on the grid."""
        victims = [run for run in victims if run.until > max(t, run.protected)]
        seconds = self.grid.problem.timestep_seconds
        by_name = {run.job.name: run for run in victims}
        for stop in self.record:  # stopped sooner than it was decided before
            if (run := by_name.get(stop.victim)) is not None and stop.preemptor is not None:
                self.runs.stopped[self.runs.domain[run.index], stop.timestep] -= run.job.gpus
        self.record = [stop for stop in self.record if stop.victim not in by_name]
        for run in victims:
            mine = theirs = None
            why = cause
            if cause == Cause.OUTRANKED and not run.job.funded:
                why = Cause.UNFUNDED
            elif cause == Cause.OUTRANKED:
                keeps = int(self.runs.keeps[run.index])
                mine, theirs = self.turns.compared(leaf, gpus * seconds, run.leaf, keeps)
            self.record.append(Preemption(run.job.name, preemptor, t, why, theirs, mine))
            self.runs.stopped[self.runs.domain[run.index], t] += run.job.gpus
        if victims:
            self.grid.yield_to(victims, t, preemptor)

    def victims_for_service(self, leaf: int, pools: tuple[str, ...]) -> list[Run]:
        """Runs whose GPUs a funded service of the leaf may grow onto, least deserving first."""
        seconds, of = self.grid.problem.timestep_seconds, self.grid.layout.pool_of
        stopping.find_victims(self.turns.tree, self.runs, leaf, seconds)
        order = self.runs.order[self.runs.place[self.runs.order] >= 0]
        found = (self.grid.runs[r] for r in order.tolist())
        return [run for run in found if not pools or of[run.first] in pools]

    def in_waves(self, victims: Iterable[Run]) -> list[tuple[Run, int]]:
        """Each with the first timestep at which the limit lets it be stopped after those before."""
        found: list[tuple[Run, int]] = []
        wave: dict[int, tuple[int, int]] = {}  # per pool: the timestep at hand, GPUs stopped in it
        for run in victims:
            domain, gpus = int(self.runs.domain[run.index]), run.job.gpus
            t, lost = wave.get(domain, (0, 0))
            while t < self.grid.layout.horizon and not self._may_stop(domain, t, [lost, gpus]):
                t, lost = t + 1, 0
            wave[domain] = t, lost + gpus
            found.append((run, t))
        return found

    def all_within_limit(self, stops: Iterable[tuple[Run, int]]) -> bool:
        """Whether all the runs may be stopped, each at its timestep."""
        lost: dict[tuple[int, int], list[int]] = {}
        for run, t in stops:
            lost.setdefault((int(self.runs.domain[run.index]), t), []).append(run.job.gpus)
        return all(self._may_stop(domain, t, gpus) for (domain, t), gpus in lost.items())

    def block_within_limit(self, victims: Sequence[Run]) -> bool:
        """Whether the runs on one block may all be stopped now; always, where none was yet."""
        lost = sum(run.job.gpus for run in victims)
        domains = {int(self.runs.domain[run.index]) for run in victims}
        stopped, within = self.runs.stopped, stopping.within_limit
        return all(not stopped[at, 0] or within(self.runs, at, 0, lost) for at in domains)

    def _may_stop(self, domain: int, t: int, gpus: list[int]) -> bool:
        """Whether runs of so many GPUs may be stopped at t; one always, where none was yet."""
        if self.runs.stopped[domain, t] == 0 and sum(map(bool, gpus)) == 1:
            return True
        return bool(stopping.within_limit(self.runs, domain, t, sum(gpus)))

    @cached_property
    def runs(self) -> Runs:
        """The runs as arrays; wishes and turns are the grid's own."""
        grid, layout, held = self.grid, self.grid.layout, self.grid.held
        seconds, ranks = grid.problem.timestep_seconds, np.array(self._ranks, np.int64)
        rank = ranks[held.leaf] if len(held.leaf) else held.leaf
        return Runs(
            order=np.lexsort((held.order, held.value, -rank, held.funded)),
            first=held.first,
            gpus=held.gpus,
            leaf=held.leaf,
            funded=held.funded,
            keeps=np.where(held.protected > 0, 0, held.gpus * seconds),
            domain=layout.domain[held.first],
            wish=grid.wish,
            turned=grid.turned,
            shielded=self._shielded(),
            owner=grid.owner,
            stopped=np.zeros((len(layout.pool_gpus), layout.horizon), np.int64),
            limit=np.array(list(layout.pool_gpus.values()), np.int64) * self._percent,
            place=np.full(len(held.first), -1, np.int64),
            hit=np.full(len(held.first), -1, np.int64),
            looked=np.zeros(len(self.turns.tree.parent), np.int64),
            least=np.zeros(len(self.turns.tree.parent), np.int64),
            searches=np.zeros(1, np.int64),
        )

    def _shielded(self) -> Flags:
        leaf_of = self.turns.leaf_of
        named = dict(self.grid.runs.named(self.grid.problem.columns.shielded))
        leaves = len(self.turns.tree.parent) if named else 0
        shielded = np.zeros((len(self.grid.runs), leaves), np.bool_)
        for index, paths in named.items():
            shielded[index, [leaf_of[path] for path in paths if path in leaf_of]] = True
        return shielded
