"""Between counts and identities: every node finds blocks and service GPUs for itself.

The counts say which node each job runs on and how many GPUs of it serve (exact_counts.by_node). A
node is small, so whether it can be given GPUs is known at once; where it can't, its jobs are spread
differently.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from ortools.sat.python import cp_model

from .bits import span
from .exact_counts import CountsModel, Schedule, Start, by_node, start_words
from .exact_frame import Frame, Service
from .exact_identity import IdentityModel, Places
from .exact_solver import SOLVED, Clock, Literal, total
from .plan import Assignment, Plan
from .realtime import Sets

Counts = dict[str, list[int]]  # per service: GPUs per timestep
TRIES, SPREAD_WORK, NODE_WORK = 8, 1.0, 0.5


class NodeModel(IdentityModel):
    """One node's blocks and service GPUs, where counts and what stays are given."""

    def __init__(self, frame: Frame, places: Places, counts: Counts, keeps: Counts) -> None:
        self.counts, self.keeps = counts, keeps
        super().__init__(frame, places, must=True)

    def _demand(self, service: Service, steps: Sequence[Mapping[int, Literal]]) -> None:
        for row, count in zip(steps, self.counts[service.job.name], strict=True):
            self.model.add(total(row.values()) == count)

    def _swap_cap(self, service: Service, steps: Sequence[Mapping[int, Literal]]) -> None:
        keeps, held = self.keeps[service.job.name], service.held or frozenset()
        for t, now in enumerate(steps):
            if not keeps[t]:
                continue
            if t:
                stays = total(self._stays(steps[t - 1], now))
            else:
                stays = total(now[gpu] for gpu in held if gpu in now)
            self.model.add(stays >= keeps[t])


def spread_model(frame: Frame, schedule: Schedule) -> CountsModel:
    """Which node each job of a schedule runs on. A plan that keeps the schedule gives an answer."""
    areas = by_node(frame)
    model = CountsModel(frame, areas, start_words(frame, areas, schedule))
    model.must_run()
    model.serve_at_least(schedule.served)
    model.model.maximize(0)  # any answer will do
    return model


def spread(
    frame: Frame, schedule: Schedule, base: Plan, clock: Clock
) -> tuple[Plan | None, cp_model.CpSolverStatus]:
    """The schedule as a plan, by way of nodes; or whether that is proven to be impossible."""
    model = spread_model(frame, schedule)
    status, sure = cp_model.UNKNOWN, True
    for attempt in range(TRIES):
        solver, status = clock.settle(model.model, SPREAD_WORK * (1 + attempt), 0.25, attempt)
        if status == cp_model.UNKNOWN:
            continue  # another seed is luckier than more time
        if status not in SOLVED:
            break
        nodes = Nodes(frame, model, solver, clock)
        if nodes.solve():
            return nodes.plan(base), cp_model.FEASIBLE
        nodes.forbid()
        sure = False
    return None, status if sure else cp_model.UNKNOWN


class Nodes:
    """A solution by nodes, and the GPUs that each node finds for it."""

    def __init__(
        self, frame: Frame, model: CountsModel, solver: cp_model.CpSolver, clock: Clock
    ) -> None:
        self.frame, self.model, self.solver, self.clock = frame, model, solver, clock
        self.chosen = [s for s in model.starts if solver.boolean_value(s.chosen)]
        self.assignments: list[Assignment] = []
        self.held: dict[str, list[list[int]]] = {
            service.job.name: [[] for _ in service.most] for service in frame.services
        }
        self.failed: list[tuple[int, list[Start]]] = []

    def solve(self) -> bool:
        """Whether every node can be given GPUs."""
        taken = list(self.frame.taken)
        for start in self.chosen:
            if len(start.needs) > 1:
                first = self.frame.problem.first_gpu_of[start.needs[0][0]]
                self._assign(start, first)
                for gpu in range(first, first + start.work.gpus):
                    taken[gpu] |= span(start.start, start.end)
        rest = replace(self.frame, taken=tuple(taken))
        for node in self.model.areas.free:
            self._node(node, rest)
        return not self.failed

    def _assign(self, start: Start, first: int) -> None:
        name, gpus = start.work.name, start.work.gpus
        self.assignments.append(Assignment(name, first, gpus, start.start, start.end))

    def _node(self, node: int, rest: Frame) -> None:
        mine = {s.work.name: s for s in self.chosen if [area for area, _ in s.needs] == [node]}
        services, counts, keeps = self._given(node)
        works = tuple(start.work for start in mine.values())
        rows = tuple(gpu for gpu, area in self.model.areas.of.items() if area == node)
        frame = replace(rest, rows=rows, works=works, services=tuple(services))
        places = {
            work.name: [
                (first, mine[work.name].start)
                for first, starts in frame.options(work)
                if starts >> mine[work.name].start & 1
            ]
            for work in works
        }
        model = NodeModel(frame, places, counts, keeps)
        solver, status = self.clock.settle(model.model, NODE_WORK, 0.1)
        if status not in SOLVED or not all(places.values()):
            self.failed.append((node, list(mine.values())))
            return
        for place in model.places:
            if solver.boolean_value(place.chosen):
                self._assign(mine[place.work.name], place.first)
        for service, steps in model.serves:
            for held, row in zip(self.held[service.job.name], steps, strict=True):
                held.extend(gpu for gpu, literal in row.items() if solver.boolean_value(literal))

    def _given(self, node: int) -> tuple[list[Service], Counts, Counts]:
        """The services on the node, their counts, and how many of those stay."""
        services, counts, keeps = [], {}, {}
        for service, served in zip(self.frame.services, self.model.served, strict=True):
            name = service.job.name
            mine = [self.solver.value(row[node]) if node in row else 0 for row in served]
            if any(mine):
                nothing = (0,) * len(mine)
                services.append(replace(service, most=tuple(mine), outside=nothing))
                counts[name] = mine
                stays = [self.model.stays.get((name, t), {}).get(node) for t in range(len(mine))]
                keeps[name] = [0 if stay is None else self.solver.value(stay) for stay in stays]
        return services, counts, keeps

    def forbid(self) -> None:
        """Jobs that don't fit on a node together are kept apart, there and on nodes like it.

        Whether they fit depends on how many GPUs serve there, so that is no proof.
        """
        at = {(s.work.name, s.start, s.needs[0][0]): s.chosen for s in self.model.starts}
        for node, starts in self.failed:
            for other in self._twins(node):
                together = [at.get((s.work.name, s.start, other)) for s in starts]
                literals = [literal for literal in together if literal is not None]
                if literals and len(literals) == len(together):
                    self.model.model.add(total(literals) < len(literals))

    def _twins(self, node: int) -> list[int]:
        words: dict[int, list[int]] = {}
        for gpu, area in self.model.areas.of.items():
            words.setdefault(area, []).append(self.frame.taken[gpu])
        return [other for other, taken in words.items() if taken == words[node]]

    def plan(self, base: Plan) -> Plan:
        """The whole plan; what lies outside the frame is as in `base`."""
        within = set(self.frame.rows)
        realtime: dict[str, Sets] = dict(base.realtime)
        for name, steps in self.held.items():
            realtime[name] = tuple(
                tuple(sorted([*(gpu for gpu in before if gpu not in within), *held]))
                for before, held in zip(base.realtime[name], steps, strict=True)
            )
        placed = sorted(self.assignments, key=lambda a: (a.start, a.job))
        return Plan(base.gpus, base.horizon, (*self.frame.kept, *placed), realtime)
