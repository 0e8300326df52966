"""Who may be stopped for whom.

A funded job may take the block of a run that has not had its turn, is over its protection and is
less deserving: unfunded runs first, then funded runs of leaves that the job's leaf outranks. A run
inside its entitlement is never stopped for a job outside its own, and no run for a budget that
stopped the same job lately (`Running.shielded`). Unfunded work stops nobody, nor does what is left
of a stopped run. Per timestep at most 5 % of a pool's GPUs are stopped, but always one block.
"""

from collections.abc import Iterable, Sequence

from .bits import Busy, lowest, span, starts_at, union
from .grid import Grid
from .items import Item, Run, allowed_starts
from .plan import Preemption
from .settings import Settings
from .turns import Turns

TRIES = 4  # timesteps looked at per job
BLOCKS = 128  # blocks looked at per timestep


class Preemptor:
    """Finds victims, keeps the count of what was stopped, and records every decision."""

    def __init__(self, grid: Grid, turns: Turns, settings: Settings) -> None:
        self.grid = grid
        self.turns = turns
        self.settings = settings
        self.record: list[Preemption] = []
        self._stopped: dict[tuple[str, int], int] = {}  # (pool, timestep) -> GPUs
        ranks = turns.ranks() if grid.runs else []
        self._by_desert = sorted(
            grid.runs,
            key=lambda run: (run.job.funded, -ranks[run.leaf], run.job.priority, run.order),
        )

    def block_for(self, item: Item, before: int) -> tuple[int, int, list[Run]] | None:
        """(timestep < before, first GPU, victims) of the earliest start that stops runs."""
        if not (item.funded and self.grid.waiting) or item.is_rest:
            return None
        victims = self._victims(item.leaf, item.gpus)
        if not victims:
            return None
        allowed = allowed_starts(self.grid.problem, item) & span(0, before)
        busy = Busy(self.grid.layout, self.grid.without(victims))
        free = busy.free_starts(item.gpus, item.length, allowed, item.pools)
        found = union(free)
        for _ in range(TRIES):
            if not found:
                return None
            t = lowest(found)
            blocks = starts_at(free, t)[:BLOCKS].tolist()
            best = self._best(item, t, blocks, victims)
            if best is not None:
                return t, *best
            found &= found - 1
        return None

    def _victims(self, leaf: int, gpus: int) -> list[Run]:
        """Runs that a funded job of the leaf may stop, least deserving first."""
        seconds = self.grid.problem.timestep_seconds
        path = self.turns.path(leaf)
        may: dict[tuple[int, int], bool] = {}
        found = []
        self._by_desert = [run for run in self._by_desert if not run.had_turn]
        for run in self._by_desert:
            if run.job.running is not None and path in run.job.running.shielded:
                continue
            if run.job.funded:
                keeps = self._keeps(run)
                key = run.leaf, keeps
                if key not in may:
                    may[key] = self.turns.may_preempt(leaf, gpus * seconds, run.leaf, keeps)
                if not may[key]:
                    continue
            found.append(run)
        return found

    def _keeps(self, run: Run) -> int:
        """GPU-seconds the run would add to its leaf's first timestep, if they don't count yet."""
        return 0 if run.protected else run.job.gpus * self.grid.problem.timestep_seconds

    def _best(
        self, item: Item, t: int, blocks: Sequence[int], victims: Sequence[Run]
    ) -> tuple[int, list[Run]] | None:
        """The block whose victims deserve least, then lose least."""
        word = span(t, t + item.length)
        place = {run.index: i for i, run in enumerate(victims)}
        best: tuple[tuple[bool, int, int, int], list[Run]] | None = None
        for first in blocks:
            hit = self.grid.wishing(first, item.gpus, word)
            if not self._within_limit(hit, t):
                continue
            lost = sum(run.job.gpus for run in hit)
            worst = max((place[run.index] for run in hit), default=-1)
            key = any(run.job.funded for run in hit), worst, lost, first
            if best is None or key < best[0]:
                best = key, hit
        return None if best is None else (best[0][-1], best[1])

    def _within_limit(self, hit: Iterable[Run], t: int) -> bool:
        """At most the set percent of each pool's GPUs is stopped at t, but always one block."""
        lost: dict[str, int] = {}
        for run in hit:
            pool = self.grid.layout.pool_of[run.first]
            lost[pool] = lost.get(pool, 0) + run.job.gpus
        for pool, gpus in lost.items():
            before = self._stopped.get((pool, t), 0)
            limit = self.grid.layout.pool_gpus[pool] * self.settings.preempted_percent
            if before and (before + gpus) * 100 > limit:
                return False
        return True

    def stop(self, victims: Iterable[Run], t: int, preemptor: str, leaf: int, gpus: int) -> None:
        """Stop the victims at t, for the record and on the grid."""
        victims = [run for run in victims if run.until > max(t, run.protected)]
        seconds = self.grid.problem.timestep_seconds
        names = {run.job.name for run in victims}  # stopped sooner than it was decided before
        self.record = [stop for stop in self.record if stop.victim not in names]
        for run in victims:
            mine = theirs = None
            if run.job.funded:
                mine, theirs = self.turns.compared(leaf, gpus * seconds, run.leaf, self._keeps(run))
            self.record.append(Preemption(run.job.name, preemptor, t, theirs, mine))
            key = self.grid.layout.pool_of[run.first], t
            self._stopped[key] = self._stopped.get(key, 0) + run.job.gpus
        if victims:
            self.grid.yield_to(victims, t, preemptor)

    def victims_for_service(self, leaf: int, pools: tuple[str, ...]) -> list[Run]:
        """Runs whose GPUs a funded service of the leaf may grow onto, least deserving first."""
        of = self.grid.layout.pool_of
        return [run for run in self._victims(leaf, 1) if not pools or of[run.first] in pools]

    def all_within_limit(self, stops: Iterable[tuple[Run, int]]) -> bool:
        """Whether all the runs may be stopped, each at its timestep."""
        by_time: dict[int, list[Run]] = {}
        for run, t in stops:
            by_time.setdefault(t, []).append(run)
        return all(self._within_limit(runs, t) for t, runs in by_time.items())
