"""Improvement: the construction's jobs again, in other orders, keeping the best plan.

Runs and jobs that stopped a run stay as the construction decided; everything else is placed anew in
each pass, and real time moves aside within its swap caps where that frees a better block. A pass
costs one greedy placement (compiled/search.py). A better plan is kept only if it keeps the fairness
guard, so more passes are never worse and budgets never lose what they are owed.
"""

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any

import numpy as np

from .bits import Busy, span
from .compiled import building
from .compiled import search as compiled
from .compiled.tables import Desk, Flags, Fleet, Grid, Items, Room, Rows, Search, Services, State
from .gathering import corner_of
from .heuristic import Construction
from .plan import Assignment
from .problem import REST, Problem, RealtimeJob
from .realtime import Sets, sets_of

Hint = Mapping[str, tuple[int, int]]  # job -> (start, first GPU) in an earlier plan
NOWHERE = (-1, -1)
SEED = 0x9E3779B97F4A7C15  # no seed may leave the generator at 0


class Improver:
    """Searches orders; what `assignments` and `realtime` answer is never below the start."""

    def __init__(self, construction: Construction, seed: int, hint: Hint | None = None) -> None:
        self.problem: Problem = construction.problem
        self.construction = construction
        self.fleet: Fleet = construction.layout.fleet
        self.fixed = [a for a in construction.placed.assignments if a.job in construction.fixed]
        self.iterations = 0
        self.prepared = False
        self.seed, self.hint = seed, hint or {}

    @cached_property
    def rows(self) -> Rows:
        """Rows of the construction's table that passes may place anew: funded in front, by turn."""
        construction = self.construction
        rows = construction.turned
        if construction.fixed:
            moves = [construction.name(i) not in construction.fixed for i in rows.tolist()]
            rows = rows[np.array(moves, np.bool_)]
        return rows[np.argsort(~construction.table.funded[rows], kind="stable")]

    def prepare(self) -> None:
        """Set the search up, which costs as much as dozens of passes."""
        if self.prepared:
            return
        self.prepared = True
        construction = self.construction
        self.worth = np.array(prefix_worth(self.problem))
        self.table = Items._make(column[self.rows] for column in construction.table)
        if construction.filled:  # what starts now was measured against what was due: it stays
            self.table = self.table._replace(allowed=self.table.allowed & ~np.uint64(1))
        self.movable = self._movable()
        self.services = _services(construction, self.movable)
        self.still, self.without = self._grids()
        self.search = self._search()
        self.state = self._state(self.seed)
        self.known = self._known_orders()
        self.room_grid = Grid._make(np.empty_like(words) for words in self.still.grid)
        self.desk, self.room = self._desk(), _room(construction.layout.gpus)

    def run(self, passes: int) -> None:
        """So many passes more: known orders first, then moves on the order at hand."""
        if passes <= 0 or not len(self.rows):
            return
        self.prepare()
        compiled.run(
            self.fleet, self.table, self.services, self.search,
            self.still.grid, self.without.grid, self.room_grid, self.desk, self.room,
            self.state, self.known, self.iterations, passes,
        )  # fmt: skip
        self.iterations += passes

    @property
    def improved(self) -> bool:
        """Whether anything better than the construction was found."""
        return self.iterations > 0 and bool(self.state.start[0] != UNTOUCHED)

    def assignments(self) -> list[Assignment]:
        """The best plan's blocks."""
        if not self.improved:
            return self.construction.placed.assignments
        found, horizon = list(self.fixed), self.problem.horizon
        columns = (
            *(self.rows, self.table.gpus, self.table.length),
            *(self.state.start, self.state.first),
        )
        for i, gpus, length, t, first in zip(*(c.tolist() for c in columns), strict=True):
            if t >= 0:
                name, end = self.construction.name(i), min(t + length, horizon)
                found.append(Assignment(name, first, gpus, t, end))
        return found

    def realtime(self) -> dict[str, Sets]:
        """The best plan's services."""
        sets = dict(self.construction.placed.realtime)
        if self.improved and self.state.aside[0]:
            for service, words in zip(self.movable, self.state.serving, strict=True):
                sets[service.name] = sets_of(words, self.problem.horizon)
        return sets

    def _movable(self) -> list[RealtimeJob]:
        """Services whose GPUs lie in one pool, in the order in which they were served."""
        single = len(self.construction.layout.pool_gpus) == 1
        names = self.construction.placed.realtime
        return [
            service
            for name in names
            if isinstance(service := self.problem.by_name[name], RealtimeJob)
            and (single or len(service.pools) == 1)
        ]

    def _grids(self) -> tuple[Busy, Busy]:
        """What is taken before any item is placed, with all services and without the movable."""
        without = Busy(self.construction.layout, self.construction.layout.drained)
        for a in self.fixed:
            without.hold(a.first_gpu, a.gpus, span(a.start, a.end))
        for service in self.movable:
            for gpu in service.held or () if service.steady else ():
                without.hold(gpu, 1, span(0, 1))
        movable = {service.name for service in self.movable}
        words = self.construction.services.words
        for name in words.keys() - movable:
            building.hold_words(self.fleet, without.grid, without.grid, False, words[name])
        still = without.copy()
        for name in movable:
            building.hold_words(self.fleet, still.grid, still.grid, False, words[name])
        return still, without

    def _search(self) -> Search:
        kind, members, begins = _kinds(self.table)
        guard = Guard(self.construction)
        return Search(
            kind=kind,
            members=members,
            begins=begins,
            funded=int(self.table.funded.sum()),
            worth=self.worth,
            floor=guard.floor(self.fixed),
            group=guard.groups(self.table),
            slack=self._slack(),
            domain=self.construction.layout.domain,
            moves=bool(self.movable),
            **self._hinted(),
        )

    def _hinted(self) -> dict[str, Any]:
        """Where the hint puts each item, and items in its order: funded first, unknown last."""
        layout = self.construction.layout
        if not self.hint:
            nowhere = np.full(len(self.rows), -1, np.int64)
            hint = np.arange(len(self.rows))
            return {"hinted": 0, "hint": hint, "hint_start": nowhere, "hint_first": nowhere}
        wanted = [self.hint.get(self.construction.name(i), NOWHERE) for i in self.rows.tolist()]
        start, first = np.array(wanted, np.int64).reshape(-1, 2).T.copy()
        wrong = (start < 0) | (start >= layout.horizon) | (first < 0)
        wrong |= first + self.table.gpus > layout.gpus
        start[wrong] = -1
        when = np.where(start < 0, layout.horizon, start)
        order = np.lexsort((self.table.order, when, ~self.table.funded))
        passes = 2 if (start >= 0).any() else 0
        return {"hinted": passes, "hint": order, "hint_start": start, "hint_first": first}

    def _slack(self) -> Rows:
        """Per pool and timestep: cells that are free for jobs beside the movable services."""
        layout, horizon = self.construction.layout, self.problem.horizon
        pools = {pool: d for d, pool in enumerate(layout.pool_gpus)}
        shifts = np.arange(horizon, dtype=np.uint64)
        free = 1 - ((self.without.rows[:, None] >> shifts) & np.uint64(1)).astype(np.int64)
        slack = np.zeros((len(pools), horizon), np.int64)
        np.add.at(slack, layout.domain, free)
        for s, service in enumerate(self.movable):
            counts = self.services.counts[s].copy()
            if service.steady:
                counts[0] = 0  # those GPUs are taken already
            slack[pools[(service.pools or tuple(pools))[0]]] -= counts
        return slack

    def _state(self, seed: int) -> State:
        course, horizon = self.construction.course, self.problem.horizon
        n, services = len(self.rows), len(self.movable)
        start = course.start[self.rows]
        end = np.minimum(start + self.table.length, horizon)
        worth = np.where(start >= 0, self.worth[end] - self.worth[np.maximum(start, 0)], 0.0)
        value = float((self.table.value * self.table.gpus * worth).sum())
        return State(
            random=np.array([(seed * 0xD1342543DE82EF95 + SEED) % 2**64 or SEED], np.uint64),
            order=self.search.kind.copy(),
            choice=np.zeros(n, np.int64),
            value=np.array([value, value], np.float64),
            start=np.full(n, UNTOUCHED, np.int64),
            first=np.zeros(n, np.int64),
            serving=np.zeros((services, self.construction.layout.gpus), np.uint64),
            aside=np.zeros(1, np.bool_),
        )

    def _desk(self) -> Desk:
        n, search = len(self.rows), self.search
        return Desk(
            order=np.zeros(n, np.int64),
            choice=np.zeros(n, np.int64),
            start=np.zeros(n, np.int64),
            first=np.zeros(n, np.int64),
            used=np.zeros_like(search.begins),
            tight=np.zeros(len(search.slack), np.uint64),
            slack=np.zeros_like(search.slack),
            given=np.zeros_like(search.floor),
            serving=np.zeros_like(self.state.serving),
        )

    def _known_orders(self) -> Rows:
        """By value, by density, by total value, by size and by age; where there are no budgets."""
        table, horizon = self.table, self.problem.horizon
        if self.problem.budgets:  # the construction's order is fair: once as it is, once aside
            return np.stack([self.search.kind, self.search.kind])
        begin = np.minimum(table.earliest, horizon)
        end = np.minimum(begin + table.length, horizon)
        density = table.value * (self.worth[end] - self.worth[begin])
        age, behind = table.order, ~table.funded
        keys = (
            (age, table.length, -table.value, behind),
            (age, -density, behind),
            (age, -density * table.gpus, behind),
            (age, -table.value, -table.gpus, behind),
            (age, behind),
        )
        return np.stack([self.search.kind[np.lexsort(key)] for key in keys])


UNTOUCHED = -2  # no better plan than the construction's yet


def _kinds(table: Items) -> tuple[Rows, Rows, Rows]:
    """Items that only their age tells apart: (class of each, items by class, where each begins)."""
    columns = (
        *(table.leaf, table.funded, table.rest, table.value),
        *(table.size, table.length, table.earliest, table.pools),
    )
    known: dict[tuple[object, ...], int] = {}
    likeness = zip(*(column.tolist() for column in columns), strict=True)
    kind = np.array([known.setdefault(row, len(known)) for row in likeness], np.int64)
    sizes = np.bincount(kind, minlength=len(known))
    begins = np.cumsum(sizes) - sizes
    return kind, np.lexsort((table.order, kind)), begins


def _room(gpus: int) -> Room:
    return Room(
        busy=np.zeros(gpus, np.uint64),
        deadline=np.zeros(gpus, np.int64),
        have=np.zeros(gpus, np.bool_),
        due=np.zeros(65, np.int64),
    )


def _services(construction: Construction, movable: Sequence[RealtimeJob]) -> Services:
    layout = construction.layout
    held = np.zeros((len(movable), layout.gpus), np.uint64)
    for s, service in enumerate(movable):
        held[s, list(service.held or ())] = ~np.uint64(0)
    counts = [
        [len(rows) for rows in construction.placed.realtime[service.name]] for service in movable
    ]
    return Services(
        counts=np.array(counts, np.int64).reshape(len(movable), layout.horizon),
        cap=np.array([service.swap_cap for service in movable], np.int64),
        pools=np.array([layout.pools_index[service.pools] for service in movable], np.int64),
        starts=np.array([service.held is not None for service in movable], np.bool_),
        steady=np.array([service.steady for service in movable], np.bool_),
        held=held,
        corner=_corner(construction),
    )


def _corner(construction: Construction) -> Flags:
    """Where services gather, if any holds GPUs elsewhere."""
    layout, corner = construction.layout, np.zeros(construction.layout.gpus, np.bool_)
    for roster in construction.problem.rosters.values():
        found = corner_of(roster, layout)
        if found is not None:
            corner |= found
    return corner


class Guard:
    """Each leaf's funded GPU-timesteps up to t stay ≥ min(its entitlement, the construction's)."""

    def __init__(self, construction: Construction) -> None:
        self.construction, self.problem = construction, construction.problem
        self.leaf_of = {
            job.name: job.budget or ""
            for job in self.problem.batch
            if job.funded and self.problem.budgets
        }
        self.paths = sorted(set(self.leaf_of.values()))
        self.row_of = {path: row for row, path in enumerate(self.paths)}

    def groups(self, table: Items) -> Rows:
        """Per item the row of the floor that it counts for, -1: none."""
        leaf_of = self.problem.planted.leaf_of
        row_of_leaf = np.full(len(self.problem.planted.paths), -1, np.int64)
        for path, row in self.row_of.items():
            row_of_leaf[leaf_of[path]] = row
        return np.where(table.funded, row_of_leaf[table.leaf], -1)

    def floor(self, fixed: Sequence[Assignment]) -> Rows:
        """Per leaf and prefix: what items must give it at least, in GPU-timesteps."""
        turns, placed = self.construction.turns, self.construction.placed
        if not self.paths:
            return np.zeros((0, self.problem.horizon), np.int64)
        least = self._given(placed.assignments)
        for path, row in self.row_of.items():
            owed = turns.owed_cells(turns.leaf_of[path], self.construction.healthy)
            least[row] = np.minimum(least[row], owed - self._served(path))
        return least - self._given(fixed)

    def _given(self, assignments: Sequence[Assignment]) -> Rows:
        """Per leaf and prefix: batch GPU-timesteps."""
        steps = np.zeros((len(self.paths), self.problem.horizon + 1), np.int64)
        for a in assignments:
            row = self.row_of.get(self.leaf_of.get(a.job.removesuffix(REST), ""), -1)
            if row >= 0:
                steps[row, a.start] += a.gpus
                steps[row, a.end] -= a.gpus
        return np.cumsum(np.cumsum(steps, axis=1), axis=1)[:, :-1].copy()

    def _served(self, path: str) -> Rows:
        """Per prefix: what real time gives the leaf in every pass."""
        served = np.zeros(self.problem.horizon, np.int64)
        for service in self.problem.realtime:
            if service.funded and service.budget == path:
                served += [len(rows) for rows in self.construction.placed.realtime[service.name]]
        return np.cumsum(served)


def prefix_worth(problem: Problem) -> list[float]:
    """Σ decay^u over u < t, for t in 0..horizon."""
    total, prefix = 0.0, [0.0]
    for t in range(problem.horizon):
        total += problem.time_decay**t
        prefix.append(total)
    return prefix
