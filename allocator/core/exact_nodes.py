"""Between counts and identities: which node each job runs on, and how many GPUs of it serve.

A schedule is first spread over nodes, where GPUs of a node are only counted; then every node finds
blocks and service GPUs for itself, which is small. A node that can't is reported back, and its
jobs are spread differently. Quick where it succeeds; it proves nothing where it does not.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from ortools.sat.python import cp_model

from .bits import span
from .exact_counts import Schedule, Units
from .exact_frame import Frame, Service, Work
from .exact_identity import IdentityModel, Places
from .exact_solver import SOLVED, Clock
from .plan import Assignment, Plan
from .realtime import Sets

Literal = cp_model.IntVar
Expr = cp_model.LinearExprT
Counts = dict[str, list[int]]  # per service: GPUs per timestep
TRIES, SPREAD_WORK, NODE_WORK = 8, 1.0, 0.5


@dataclass(frozen=True, slots=True)
class Spot:
    """A node, or whole nodes, for a work that starts when the schedule says."""

    work: Work
    nodes: tuple[int, ...]
    start: int
    end: int
    chosen: Literal


class SpreadModel:
    """Which node each job of a schedule runs on; the constraints, one method each."""

    def __init__(self, frame: Frame, schedule: Schedule) -> None:
        self.frame = frame
        self.model = cp_model.CpModel()
        self.free = self._free()
        self.spots = [s for work in frame.works for s in self._spots(work, schedule)]
        self.served = [self._served(service) for service in frame.services]
        self.stays: list[list[dict[int, Literal]]] = []
        self._one_spot_per_job(schedule)
        self._free_gpus()
        for service, counts in zip(frame.services, self.served, strict=True):
            self._demand(service, counts)
            self._swap_cap(service, counts)
        self._served_as_scheduled(schedule)

    def _free(self) -> dict[int, list[int]]:
        """Per node of the frame and timestep: GPUs that nothing kept takes."""
        horizon, node_of = self.frame.problem.horizon, self.frame.problem.node_of
        free: dict[int, list[int]] = {}
        for gpu in self.frame.rows:
            counts = free.setdefault(node_of[gpu], [0] * horizon)
            for t in range(horizon):
                counts[t] += not self.frame.taken[gpu] >> t & 1
        return free

    def _spots(self, work: Work, schedule: Schedule) -> Iterator[Spot]:
        if work.name not in schedule.starts:
            return
        pool, start = schedule.starts[work.name]
        node_of, found = self.frame.problem.node_of, set()
        for first, starts in self.frame.options(work):
            if starts >> start & 1 and self.frame.pool_of[first] == pool:
                found.add(tuple(range(node_of[first], node_of[first + work.gpus - 1] + 1)))
        for nodes in sorted(found):
            end = self.frame.end(work, start)
            yield Spot(work, nodes, start, end, self.model.new_bool_var(""))

    def _served(self, service: Service) -> list[dict[int, Literal]]:
        asked, nodes = service.job.pools, self.frame.problem.nodes
        open_ = [n for n in self.free if not asked or nodes[n].pool in asked]
        return [
            {n: self.model.new_int_var(0, min(most, self.free[n][t]), "") for n in open_}
            for t, most in enumerate(service.most)
        ]

    def _one_spot_per_job(self, schedule: Schedule) -> None:
        """Every job of the schedule runs."""
        by_work: dict[str, list[Literal]] = {name: [] for name in schedule.starts}
        for spot in self.spots:
            by_work[spot.work.name].append(spot.chosen)
        for literals in by_work.values():
            self.model.add_exactly_one(literals)

    def _free_gpus(self) -> None:
        """Jobs and services hold at most a node's free GPUs at each timestep."""
        nodes = self.frame.problem.nodes
        held: dict[int, list[list[Expr]]] = {n: [[] for _ in free] for n, free in self.free.items()}
        for spot in self.spots:
            for n in spot.nodes:
                gpus = spot.work.gpus if len(spot.nodes) == 1 else nodes[n].gpus
                for t in range(spot.start, spot.end):
                    held[n][t].append(gpus * spot.chosen)
        for counts in self.served:
            for t, row in enumerate(counts):
                for n, count in row.items():
                    held[n][t].append(count)
        for n, steps in held.items():
            for terms, room in zip(steps, self.free[n], strict=True):
                if terms:
                    self.model.add(sum(terms) <= room)

    def _demand(self, service: Service, counts: Sequence[Mapping[int, Literal]]) -> None:
        """A service never holds more than its demand, nor more than it can leave in time."""
        for t, row in enumerate(counts):
            self.model.add(sum(row.values()) <= max(0, service.most[t] - service.outside[t]))

    def _swap_cap(self, service: Service, counts: Sequence[Mapping[int, Literal]]) -> None:
        """Between timesteps at most the swap cap is gained and at most the swap cap lost."""
        cap, held = service.job.swap_cap, service.held
        steps: list[dict[int, Literal]] = []
        self.stays.append(steps)
        for t, now in enumerate(counts):
            row = {n: self.model.new_int_var(0, self.free[n][t], "") for n in now}
            steps.append(row)
            before: Mapping[int, Expr] = counts[t - 1] if t else held_on_nodes(self.frame, service)
            for n, stays in row.items():
                self.model.add(stays <= now[n])
                self.model.add(stays <= before.get(n, 0))
            if t == 0 and held is None:
                continue
            kept = sum(row.values()) + service.stays[t]
            outside = service.outside[t - 1] if t else len((held or set()) - set(self.frame.rows))
            self.model.add(sum(now.values()) + service.outside[t] - kept <= cap)
            self.model.add(sum(before.values()) + outside - kept <= cap)

    def _served_as_scheduled(self, schedule: Schedule) -> None:
        """Services are given the value that the schedule gives them."""
        units = Units(self.frame)
        total: Expr = sum(
            units.up(self.frame.missed(service)) * count
            for service, counts in zip(self.frame.services, self.served, strict=True)
            for row in counts
            for count in row.values()
        )
        self.model.add(total >= schedule.served)

    def forbid(self, node: int, names: set[str]) -> None:
        """These works don't fit on the node together, nor on one like it."""
        for other in self.free:
            if self._twins(node, other):
                together = [
                    s.chosen for s in self.spots if s.work.name in names and s.nodes == (other,)
                ]
                if len(together) == len(names):
                    self.model.add(sum(together) <= len(together) - 1)

    def _twins(self, node: int, other: int) -> bool:
        words = [
            tuple(self.frame.taken[gpu] for gpu in node_rows(self.frame, n)) for n in (node, other)
        ]
        return words[0] == words[1]


class NodeModel(IdentityModel):
    """One node's blocks and service GPUs, where counts and what stays are given."""

    def __init__(self, frame: Frame, places: Places, counts: Counts, keeps: Counts) -> None:
        self.counts, self.keeps = counts, keeps
        super().__init__(frame, places, must=True)

    def _demand(self, service: Service, steps: Sequence[Mapping[int, Literal]]) -> None:
        for row, count in zip(steps, self.counts[service.job.name], strict=True):
            self.model.add(sum(row.values()) == count)

    def _swap_cap(self, service: Service, steps: Sequence[Mapping[int, Literal]]) -> None:
        keeps, held = self.keeps[service.job.name], service.held or frozenset()
        for t, now in enumerate(steps):
            if not keeps[t]:
                continue
            if t:
                stays: Expr = sum(self._stays(steps[t - 1], now))
            else:
                stays = sum(now[gpu] for gpu in held if gpu in now)
            self.model.add(stays >= keeps[t])


def spread(frame: Frame, schedule: Schedule, base: Plan, clock: Clock) -> Plan | None:
    """The schedule as a plan, by way of nodes; None where that does not come out."""
    model = SpreadModel(frame, schedule)
    for attempt in range(TRIES):
        solver, status = clock.solve(model.model, SPREAD_WORK, 0.25, attempt)
        if status == cp_model.UNKNOWN:
            continue  # another seed is luckier than more time
        if status not in SOLVED:
            return None
        found = _Spread(frame, model, solver, clock)
        if found.solve():
            return found.plan(base)
        for node, names in found.failed:
            model.forbid(node, names)
    return None


class _Spread:
    """One answer of the spread model, node by node."""

    def __init__(
        self, frame: Frame, model: SpreadModel, solver: cp_model.CpSolver, clock: Clock
    ) -> None:
        self.frame, self.model, self.solver, self.clock = frame, model, solver, clock
        self.chosen = [s for s in model.spots if solver.boolean_value(s.chosen)]
        self.assignments: list[Assignment] = []
        self.held = [[[] for _ in steps] for steps in model.served]
        self.failed: list[tuple[int, set[str]]] = []

    def solve(self) -> bool:
        wide = list(self.frame.taken)
        for spot in self.chosen:
            if len(spot.nodes) > 1:
                first = self.frame.problem.first_gpu_of[spot.nodes[0]]
                self._assign(spot, first)
                for gpu in range(first, first + spot.work.gpus):
                    wide[gpu] |= span(spot.start, spot.end)
        for node in self.model.free:
            self._node(node, replace(self.frame, taken=tuple(wide)))
        return not self.failed

    def _assign(self, spot: Spot, first: int) -> None:
        self.assignments.append(
            Assignment(spot.work.name, first, spot.work.gpus, spot.start, spot.end)
        )

    def _node(self, node: int, wide: Frame) -> None:
        mine = {s.work.name: s for s in self.chosen if s.nodes == (node,)}
        services, counts, keeps = self._given(node)
        works = tuple(spot.work for spot in mine.values())
        rows = node_rows(wide, node)
        frame = replace(wide, rows=rows, works=works, services=tuple(services))
        places = {
            work.name: [
                (first, mine[work.name].start)
                for first, starts in frame.options(work)
                if starts >> mine[work.name].start & 1
            ]
            for work in works
        }
        model = NodeModel(frame, places, counts, keeps)
        solver, status = self.clock.solve(model.model, NODE_WORK, 0.1)
        if status not in SOLVED:
            self.failed.append((node, set(mine)))
            return
        for place in model.places:
            if solver.boolean_value(place.chosen):
                self._assign(mine[place.work.name], place.first)
        at = {service.job.name: i for i, service in enumerate(self.frame.services)}
        for service, steps in model.serves:
            for t, row in enumerate(steps):
                held = self.held[at[service.job.name]][t]
                held.extend(gpu for gpu, literal in row.items() if solver.boolean_value(literal))

    def _given(self, node: int) -> tuple[list[Service], Counts, Counts]:
        """The services on the node, their counts, and how many of those stay."""
        services, counts, keeps = [], {}, {}
        triples = zip(self.frame.services, self.model.served, self.model.stays, strict=True)
        for service, served, stays in triples:
            mine = [self.solver.value(row[node]) if node in row else 0 for row in served]
            if any(mine):
                services.append(replace(service, most=tuple(mine), outside=(0,) * len(mine)))
                counts[service.job.name] = mine
                keeps[service.job.name] = [
                    self.solver.value(row[node]) if node in row else 0 for row in stays
                ]
        return services, counts, keeps

    def plan(self, base: Plan) -> Plan:
        within = set(self.frame.rows)
        realtime: dict[str, Sets] = dict(base.realtime)
        for service, steps in zip(self.frame.services, self.held, strict=True):
            name = service.job.name
            realtime[name] = tuple(
                tuple(sorted([*(gpu for gpu in before if gpu not in within), *held]))
                for before, held in zip(base.realtime[name], steps, strict=True)
            )
        placed = sorted(self.assignments, key=lambda a: (a.start, a.job))
        return Plan(base.gpus, base.horizon, (*self.frame.kept, *placed), realtime)


def node_rows(frame: Frame, node: int) -> tuple[int, ...]:
    """The GPUs of a node."""
    first = frame.problem.first_gpu_of[node]
    return tuple(range(first, first + frame.problem.nodes[node].gpus))


def held_on_nodes(frame: Frame, service: Service) -> dict[int, int]:
    """How many of the GPUs that the service holds now lie on each node of the frame."""
    counts: dict[int, int] = {}
    for gpu in (service.held or frozenset()).intersection(frame.rows):
        node = frame.problem.node_of[gpu]
        counts[node] = counts.get(node, 0) + 1
    return counts
