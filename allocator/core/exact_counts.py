"""Full mode's first half: when does each job start, where the GPUs of an area are only counted.

An area is a pool, or a node. One Boolean per job, area and start, one integer per service, area and
timestep. Which GPU serves whom is left to exact_identity.py, so this is a relaxation: what it
proves holds for every plan of the frame, and it is small enough to be solved to optimality where
the whole model is not.
"""

import math
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from ortools.sat.python import cp_model

from .exact_frame import Frame, Service, Work
from .exact_solver import Expr, Literal, total
from .plan import Assignment, Plan

Area = int
Needs = tuple[tuple[Area, int], ...]
Words = Mapping[str, Mapping[tuple[str, Needs], int]]
MOST_UNITS = 1 << 40  # the objective's integer range
MOST_CELLS = 1 << 24  # GPUs x timesteps of the largest fleet
FINEST = 10**5  # units per unit of value, where the values are small enough,
FEWEST_UNITS = 1e8  # and more where they are so small that this would be coarse


@dataclass(frozen=True)
class Areas:
    """A grouping of the frame's GPUs: the area of each, and their free GPUs per timestep."""

    of: Mapping[int, Area]
    free: dict[Area, list[int]]

    def needs(self, first: int, gpus: int) -> Needs:
        """How many GPUs of which areas a block takes."""
        return tuple(sorted(Counter(self.of[gpu] for gpu in range(first, first + gpus)).items()))


def areas_of(frame: Frame, area: Sequence[Area]) -> Areas:
    """The frame's GPUs by `area`, which is given for every GPU of the fleet."""
    free: dict[Area, list[int]] = {}
    for gpu in frame.rows:
        counts = free.setdefault(area[gpu], [0] * frame.problem.horizon)
        for t in range(frame.problem.horizon):
            counts[t] += not frame.taken[gpu] >> t & 1
    return Areas({gpu: area[gpu] for gpu in frame.rows}, free)


def by_pool(frame: Frame) -> Areas:
    """Few areas, many blocks alike: the smaller model."""
    number = {pool: index for index, pool in enumerate(frame.pools)}
    return areas_of(frame, [number.get(pool, -1) for pool in frame.pool_of])


def by_node(frame: Frame) -> Areas:
    """Blocks of whole nodes have their nodes to themselves: the tighter model."""
    return areas_of(frame, frame.problem.node_of)


@dataclass(frozen=True, slots=True)
class Start:
    """A way to start a work, and the literal that chooses it."""

    work: Work
    needs: Needs
    pool: str
    start: int
    end: int
    chosen: Literal


@dataclass(frozen=True, slots=True)
class Schedule:
    """Starts of the works that run, and what services are given, in units of value."""

    starts: Mapping[str, tuple[str, int]]  # pool and timestep
    served: int


class Units:
    """Values as integers, rounded up, so that a bound in units is never below the true one."""

    def __init__(self, frame: Frame) -> None:
        works = sum(w.priority * w.gpus * frame.worth[-1] for w in frame.works)
        services = sum(frame.missed(s) * sum(s.job.demand) for s in frame.services)
        self.at_stake = works or services  # what rounding is measured against
        gross = works + services or 1.0
        self.scale = min(max(FINEST, FEWEST_UNITS / gross), MOST_UNITS / gross)

    def up(self, value: float) -> int:
        exact = value * self.scale
        near = round(exact)
        return near if abs(near - exact) <= 1e-9 * max(1.0, near) else math.ceil(exact)

    def value(self, units: float) -> float:
        return units / self.scale


def start_words(frame: Frame, areas: Areas, schedule: Schedule | None = None) -> Words:
    """Per work, and per pool and needs: the starts at which such a block is free of what is kept.

    With a schedule: its starts only.
    """
    found: dict[str, dict[tuple[str, Needs], int]] = {}
    for work in frame.works:
        words = found[work.name] = {}
        due = None if schedule is None else schedule.starts.get(work.name, ("", 0))
        for first, starts in frame.options(work):
            pool = frame.pool_of[first]
            allowed = starts
            if due is not None:
                allowed &= 1 << due[1] if pool == due[0] else 0
            if allowed:
                key = pool, areas.needs(first, work.gpus)
                words[key] = words.get(key, 0) | allowed
    return found


def count_starts(words: Words) -> int:
    """Literals of the model."""
    return sum(word.bit_count() for by_area in words.values() for word in by_area.values())


class CountsModel:
    """The constraints, one method each."""

    def __init__(self, frame: Frame, areas: Areas, words: Words) -> None:
        self.frame = frame
        self.areas = areas
        self.units = Units(frame)
        self.model = cp_model.CpModel()
        self.least: list[
            tuple[Literal, Literal, Literal | int]
        ] = []  # first = the least of the others
        self.stays: dict[tuple[str, int], dict[Area, Literal]] = {}
        self.starts = [s for work in frame.works for s in self._starts(work, words[work.name])]
        self.by_work: dict[str, list[Start]] = {work.name: [] for work in frame.works}
        for start in self.starts:
            self.by_work[start.work.name].append(start)
        self.served = [self._served(service) for service in frame.services]
        self._one_start_per_job()
        self._free_gpus()
        for service, counts in zip(frame.services, self.served, strict=True):
            self._demand(service, counts)
            self._swap_cap(service, counts)
        self._guard()
        self._older_first()
        self._maximise_value()

    def _starts(self, work: Work, words: Mapping[tuple[str, Needs], int]) -> list[Start]:
        return [
            Start(work, needs, pool, t, self.frame.end(work, t), self.model.new_bool_var(""))
            for (pool, needs), word in words.items()
            for t in range(self.frame.problem.horizon)
            if word >> t & 1
        ]

    def _served(self, service: Service) -> list[dict[Area, Literal]]:
        """Per timestep and area: how many GPUs of the frame the service holds."""
        open_ = {self.areas.of[gpu] for gpu in self.frame.rows_of(service)}
        steps = []
        for t, most in enumerate(service.most):
            row = {}
            for area in sorted(open_):
                top = max(0, min(most - service.outside[t], self.areas.free[area][t]))
                row[area] = self.model.new_int_var(0, top, "")
            steps.append(row)
        return steps

    def _one_start_per_job(self) -> None:
        """A job starts at most once."""
        for starts in self.by_work.values():
            self.model.add_at_most_one(start.chosen for start in starts)

    def _free_gpus(self) -> None:
        """Jobs and services hold at most an area's free GPUs at each timestep."""
        held: dict[tuple[Area, int], list[Expr]] = {}
        for start in self.starts:
            for area, gpus in start.needs:
                for t in range(start.start, start.end):
                    held.setdefault((area, t), []).append(gpus * start.chosen)
        for counts in self.served:
            for t, row in enumerate(counts):
                for area, count in row.items():
                    held.setdefault((area, t), []).append(count)
        for (area, t), terms in held.items():
            self.model.add(total(terms) <= self.areas.free[area][t])

    def _demand(self, service: Service, counts: Sequence[Mapping[Area, Literal]]) -> None:
        """A service never holds more than its demand, nor more than it can leave in time."""
        for t, row in enumerate(counts):
            if len(row) > 1:
                self.model.add(total(row.values()) <= max(0, service.most[t] - service.outside[t]))

    def _swap_cap(self, service: Service, counts: Sequence[Mapping[Area, Literal]]) -> None:
        """Between timesteps at most the swap cap is gained and at most the swap cap lost."""
        held = service.held
        for t, now in enumerate(counts):
            if t == 0 and held is None:
                continue
            cap = service.job.cap_into(t)
            before: Mapping[Area, Literal | int] = counts[t - 1] if t else self._held(service)
            stays = {area: self._stay(now[area], before.get(area, 0), area, t) for area in now}
            self.stays[service.job.name, t] = stays
            outside = service.outside[t - 1] if t else len((held or set()) - self.areas.of.keys())
            kept = total(stays.values()) + service.stays[t]
            self.model.add(total(now.values()) + service.outside[t] - kept <= cap)
            self.model.add(total(before.values()) + outside - kept <= cap)

    def _held(self, service: Service) -> dict[Area, int]:
        """How many of the GPUs that the service holds now lie in each area."""
        held = service.held or frozenset()
        return dict(Counter(self.areas.of[gpu] for gpu in held.intersection(self.areas.of)))

    def _stay(self, now: Literal, before: Literal | int, area: Area, t: int) -> Literal:
        """How many GPUs of the area are held in both timesteps: no more than in either."""
        stays = self.model.new_int_var(0, self.areas.free[area][t], "")
        self.model.add(stays <= now)
        self.model.add(stays <= before)
        self.least.append((stays, now, before))
        return stays

    def _guard(self) -> None:
        """Each budget is given its floor on every prefix."""
        for floor in self.frame.floors:
            mine = [start for start in self.starts if start.work.budget == floor.budget]
            pairs = zip(self.frame.services, self.served, strict=True)
            serves = [
                counts
                for service, counts in pairs
                if service.job.funded and service.job.budget == floor.budget
            ]
            given: Literal | int = 0
            for t, least in enumerate(floor.least):
                step: list[Expr] = [s.work.gpus * s.chosen for s in mine if s.start <= t < s.end]
                step.extend(count for counts in serves for count in counts[t].values())
                prefix = self.model.new_int_var(max(0, least), MOST_CELLS, "")
                self.model.add(prefix == total(step) + given)
                given = prefix

    def _older_first(self) -> None:
        """Of two works that only age tells apart, the older starts first, or the younger never."""
        never = self.frame.problem.horizon
        for older, younger in alike(self.frame.works):
            first, second = self.by_work[older.name], self.by_work[younger.name]
            if second:
                self.model.add(self._when(first, never) <= self._when(second, never))

    def _when(self, starts: Sequence[Start], never: int) -> Expr:
        return never + total((start.start - never) * start.chosen for start in starts)

    def _maximise_value(self) -> None:
        """Σ priority·decay^t over batch cells − λ·Σ priority·shortfall, in integer units."""
        up = self.units.up
        self.served_value = total(
            up(self.frame.missed(service)) * count
            for service, counts in zip(self.frame.services, self.served, strict=True)
            for row in counts
            for count in row.values()
        )
        gained = [up(self.frame.value(s.work, s.start)) * s.chosen for s in self.starts]
        self.value = total(gained) + self.served_value
        self.model.maximize(self.value)

    def better_than(self, plan: Plan) -> None:
        """Only schedules that are worth more than a plan."""
        at = {a.job: a.start for a in self._inside(plan)}
        worth = [
            self.units.up(self.frame.value(work, at[work.name]))
            for work in self.frame.works
            if work.name in at
        ]
        for service in self.frame.services:
            held = sum(
                gpu in self.areas.of for rows in plan.realtime[service.job.name] for gpu in rows
            )
            worth.append(self.units.up(self.frame.missed(service)) * held)
        self.model.add(self.value > sum(worth))

    def at_most(self, bound: float) -> None:
        """What is proven already."""
        if bound < math.inf:
            top = math.ceil((bound - self.frame.constant) * self.units.scale) + self._roundings()
            self.model.add(self.value <= top)

    def _roundings(self) -> int:
        """By how many units rounding up may have raised a plan's value."""
        return len(self.frame.works) + sum(sum(service.most) for service in self.frame.services)

    def hint(self, plan: Plan) -> None:
        """Start the search from a plan."""
        at = {a.job: (self.areas.needs(a.first_gpu, a.gpus), a.start) for a in self._inside(plan)}
        value: dict[int, int] = {}
        for s in self.starts:
            value[s.chosen.index] = at.get(s.work.name) == (s.needs, s.start)
        for service, counts in zip(self.frame.services, self.served, strict=True):
            for rows, row in zip(plan.realtime[service.job.name], counts, strict=True):
                held = Counter(self.areas.of.get(gpu) for gpu in rows)
                for area, count in row.items():
                    value[count.index] = held[area]
        for stays, now, before in self.least:
            was = before if isinstance(before, int) else value[before.index]
            value[stays.index] = min(value[now.index], was)
        self.model.clear_hints()  # type: ignore[no-untyped-call]
        for index, number in value.items():
            self.model.add_hint(self.model.get_int_var_from_proto_index(index), number)

    def _inside(self, plan: Plan) -> list[Assignment]:
        return [a for a in plan.assignments if a.job in self.by_work]

    def must_run(self) -> None:
        """Every work that has a start takes one."""
        for starts in self.by_work.values():
            if starts:
                self.model.add_exactly_one(start.chosen for start in starts)

    def serve_at_least(self, units: int) -> None:
        """Services are given so much in value."""
        self.model.add(self.served_value >= units)

    def forbid(self, names: Collection[str], schedule: Schedule) -> None:
        """Whatever else runs, these works at these starts leave services less than they were given.

        The caller has proven it; it holds for every plan of the frame.
        """
        together = [
            start.chosen
            for name in sorted(names)
            for start in self.by_work[name]
            if (start.pool, start.start) == schedule.starts[name]
        ]
        less = self.model.new_bool_var("")
        self.model.add(total(together) <= len(together) - 1 + less)
        self.model.add(self.served_value < schedule.served).only_enforce_if(less)

    def bound(self, solver: cp_model.CpSolver) -> float:
        """No plan of the frame is worth more."""
        return self.frame.constant + self.units.value(solver.best_objective_bound)

    def schedule(self, solver: cp_model.CpSolver) -> Schedule:
        """The solver's starts, and the services' value in units."""
        chosen = {
            s.work.name: (s.pool, s.start) for s in self.starts if solver.boolean_value(s.chosen)
        }
        return Schedule(chosen, solver.value(self.served_value))


def alike(works: Sequence[Work]) -> list[tuple[Work, Work]]:
    """Neighbours, older first, among works that only their age tells apart."""
    groups: dict[tuple[object, ...], list[Work]] = {}
    for work in sorted(works, key=lambda work: work.order):
        groups.setdefault((work.likeness, work.starts), []).append(work)
    return [pair for group in groups.values() for pair in pairwise(group)]
