"""Improvement: the construction's jobs again, in other orders, keeping the best plan.

Runs, jobs that stopped a run, and real time stay as the construction decided; everything else is
placed anew in each pass. A pass costs one greedy placement. A better plan is kept only if it keeps
the fairness guard, so more passes are never worse and budgets never lose what they are owed.
"""

import random
from collections import defaultdict
from collections.abc import Callable, Sequence
from itertools import accumulate

import numpy as np

from .bits import Busy, span
from .heuristic import Construction
from .items import Item, allowed_starts
from .plan import Assignment
from .problem import REST, Problem
from .realtime import words_of


class Improver:
    """Searches orders; `assignments` and `objective` are the best so far, never below the start."""

    def __init__(self, construction: Construction, seed: int) -> None:
        self.problem: Problem = construction.problem
        self.random = random.Random(seed)
        self.worth = _prefix_worth(self.problem)
        self.fixed = [a for a in construction.placed.assignments if a.job in construction.fixed]
        self.base = self._base(construction)
        self.items = [item for item in construction.items if item.name not in construction.fixed]
        self.guard = Guard(construction)
        self.order = list(self.items)
        self.assignments = list(construction.placed.assignments)
        self.unplaced = list(construction.placed.unplaced)
        self.objective = self._value(self.assignments)
        self.iterations = 0

    def _base(self, construction: Construction) -> Busy:
        # Where gaps were filled, what starts now was measured against what was due: it stays.
        now = np.uint64(1 if construction.filled else 0)
        busy = Busy(construction.layout, construction.layout.drained | now)
        for sets in construction.placed.realtime.values():
            for gpu, word in words_of(sets).items():
                busy.hold(gpu, 1, word)
        for a in self.fixed:
            busy.hold(a.first_gpu, a.gpus, span(a.start, a.end))
        return busy

    def run(self, iterations: int, out_of_time: Callable[[], bool]) -> None:
        """At most `iterations` passes: known orders first, then moves on the best order."""
        if len(self.items) < 2:
            return
        known = iter(self._known_orders())
        for _ in range(iterations):
            if out_of_time():
                return
            order = next(known, None)
            self._try(order if order is not None else self._moved(self.order))

    def _known_orders(self) -> list[list[Item]]:
        worth, horizon = self.worth, self.problem.horizon

        def density(item: Item) -> float:
            start = min(item.earliest, horizon)
            return item.priority * (worth[min(start + item.length, horizon)] - worth[start])

        keys: list[Callable[[Item], tuple[float, ...]]] = [
            lambda i: (-i.priority, i.length, i.order),
            lambda i: (-density(i), i.order),
            lambda i: (-density(i) * i.gpus, i.order),
            lambda i: (-i.gpus, -i.priority, i.order),
            lambda i: (i.order,),
        ]
        if self.problem.budgets:
            return []  # the construction's order is the fair one; moves start from it
        return [sorted(self.items, key=key) for key in keys]

    def _moved(self, order: list[Item]) -> list[Item]:
        """One to three items taken out and put in elsewhere, or two exchanged."""
        order, count = list(order), len(order)
        for _ in range(self.random.randint(1, 3)):
            source, target = self.random.randrange(count), self.random.randrange(count)
            if self.random.random() < 0.5:
                order[source], order[target] = order[target], order[source]
            else:
                order.insert(target, order.pop(source))
        return order

    def _try(self, order: list[Item]) -> None:
        self.iterations += 1
        order = oldest_first(sorted(order, key=lambda item: not item.funded))  # funded in front
        assignments, unplaced = self._place(order)
        value = self._value(assignments)
        slack = 1e-9 * max(1.0, abs(self.objective))  # past any error of summation
        if value < self.objective - slack or not self.guard.holds(assignments):
            return
        self.order = order  # an equal plan moves the search on, only a better one is kept
        if value > self.objective + slack:
            self.objective, self.assignments, self.unplaced = value, assignments, unplaced

    def _place(self, order: Sequence[Item]) -> tuple[list[Assignment], list[Item]]:
        """Each item at its earliest start, on the block that leaves the pool most usable."""
        busy, horizon = self.base.copy(), self.problem.horizon
        assignments, unplaced = list(self.fixed), []
        for item in order:
            allowed = allowed_starts(self.problem, item)
            spot = busy.earliest(item.gpus, item.length, allowed, item.pools)
            if spot is None:
                unplaced.append(item)
                continue
            t, first = spot
            end = min(t + item.length, horizon)
            busy.hold(first, item.gpus, span(t, end))
            assignments.append(Assignment(item.name, first, item.gpus, t, end))
        return assignments, unplaced

    def _value(self, assignments: Sequence[Assignment]) -> float:
        """The batch part of the objective; real time is the same in every pass."""
        jobs, worth = self.problem.by_name, self.worth
        return sum(
            jobs[a.job.removesuffix(REST)].priority * a.gpus * (worth[a.end] - worth[a.start])
            for a in assignments
        )


def oldest_first(order: Sequence[Item]) -> list[Item]:
    """The same order, in which items alike but for their age take each other's places by age.

    Whatever the search tries, of two equal jobs of a leaf the older one starts first.
    """
    places: dict[tuple[object, ...], list[int]] = defaultdict(list)
    for place, item in enumerate(order):
        places[item.likeness].append(place)
    found = list(order)
    for taken in places.values():
        alike = sorted((order[place] for place in taken), key=lambda item: item.order)
        for place, item in zip(taken, alike, strict=True):
            found[place] = item
    return found


class Guard:
    """Each leaf's funded GPU-timesteps up to t stay ≥ min(its entitlement, the construction's)."""

    def __init__(self, construction: Construction) -> None:
        problem = construction.problem
        self.problem = problem
        self.leaf_of = {
            job.name: job.budget or "" for job in problem.batch if job.funded and problem.budgets
        }
        given = self._given(construction.placed.assignments)
        self.owed = {path: self._least(construction, path, cells) for path, cells in given.items()}

    def _given(self, assignments: Sequence[Assignment]) -> dict[str, list[int]]:
        """Per leaf: batch GPU-timesteps in each prefix."""
        steps = {path: [0] * (self.problem.horizon + 1) for path in set(self.leaf_of.values())}
        for a in assignments:
            path = self.leaf_of.get(a.job.removesuffix(REST))
            if path is not None:
                steps[path][a.start] += a.gpus
                steps[path][a.end] -= a.gpus
        for cells in steps.values():
            held = total = 0
            for t, change in enumerate(cells):
                held += change
                total += held
                cells[t] = total
        return steps

    def _least(self, construction: Construction, path: str, cells: list[int]) -> list[int]:
        """min(entitlement, construction) per prefix, less what real time gives in every pass."""
        turns = construction.turns
        owed = turns.owed_cells(turns.leaf_of[path], construction.healthy)
        served = [0] * self.problem.horizon
        for service in self.problem.realtime:
            if service.funded and service.budget == path:
                for t, rows in enumerate(construction.placed.realtime[service.name]):
                    served[t] += len(rows)
        prefixes = zip(owed, accumulate(served), cells, strict=False)
        return [min(entitled - real, batch) for entitled, real, batch in prefixes]

    def holds(self, assignments: Sequence[Assignment]) -> bool:
        """Whether the plan keeps every leaf's prefixes."""
        if not self.owed:
            return True
        given = self._given(assignments)
        return all(
            mine >= least
            for path, floor in self.owed.items()
            for mine, least in zip(given[path], floor, strict=False)
        )


def _prefix_worth(problem: Problem) -> list[float]:
    """Σ decay^u over u < t, for t in 0..horizon."""
    total, prefix = 0.0, [0.0]
    for t in range(problem.horizon):
        total += problem.time_decay**t
        prefix.append(total)
    return prefix
