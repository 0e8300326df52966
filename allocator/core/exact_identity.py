"""Full mode's second half: which block each job gets, and which GPUs serve whom.

One Boolean per job and place on offer (block and start), one per service, GPU and timestep, one
more where a GPU may stay with its service: swap caps hold on GPU identity, so a solution is a plan.
With one start per job, as exact_counts.py chose it, the model is small; with all starts it is the
whole problem.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ortools.sat.python import cp_model

from .exact_counts import Units
from .exact_frame import Frame, Service, Work
from .exact_solver import Expr, Literal, total
from .plan import Assignment, Plan
from .realtime import Sets

Places = Mapping[str, Sequence[tuple[int, int]]]  # per work: (first GPU, start)


@dataclass(frozen=True, slots=True)
class Place:
    """A place for a work, and the literal that chooses it."""

    work: Work
    first: int
    start: int
    end: int
    chosen: Literal


class IdentityModel:
    """The constraints, one method each. `must`: every work that has places gets one of them."""

    def __init__(self, frame: Frame, places: Places, *, must: bool, serve: bool = True) -> None:
        self.frame = frame
        self.units = Units(frame)
        self.model = cp_model.CpModel()
        self.places = [p for work in frame.works for p in self._places(work, places)]
        services = frame.services if serve else ()
        self.serves = [(service, self._serves(service)) for service in services]
        self.stays: list[tuple[Literal, Literal, Literal]] = []
        self._one_place_per_job(places, must)
        self._one_job_per_gpu()
        for service, steps in self.serves:
            self._demand(service, steps)
            self._swap_cap(service, steps)
        self.served_value = total(
            self.units.up(self.frame.missed(service)) * literal
            for service, steps in self.serves
            for row in steps
            for literal in row.values()
        )

    def _places(self, work: Work, places: Places) -> list[Place]:
        return [
            Place(work, first, start, self.frame.end(work, start), self.model.new_bool_var(""))
            for first, start in places.get(work.name, ())
        ]

    def _serves(self, service: Service) -> list[dict[int, Literal]]:
        """Per timestep: a literal for each GPU of the frame that may serve."""
        rows, taken = self.frame.rows_of(service), self.frame.taken
        return [
            {gpu: self.model.new_bool_var("") for gpu in rows if not taken[gpu] >> t & 1}
            if most > service.outside[t]
            else {}
            for t, most in enumerate(service.most)
        ]

    def _one_place_per_job(self, places: Places, must: bool) -> None:
        """A job gets one place at most, or exactly one."""
        by_work: dict[str, list[Literal]] = {}
        for place in self.places:
            by_work.setdefault(place.work.name, []).append(place.chosen)
        for name in places if must else ():
            if not places[name]:
                by_work.setdefault(name, [])  # no place: nothing can be done
        for literals in by_work.values():
            if must:
                self.model.add_exactly_one(literals)
            else:
                self.model.add_at_most_one(literals)

    def _one_job_per_gpu(self) -> None:
        """A GPU serves at most one job per timestep."""
        cells: dict[tuple[int, int], list[Literal]] = {}
        for place in self.places:
            for gpu in range(place.first, place.first + place.work.gpus):
                for t in range(place.start, place.end):
                    cells.setdefault((gpu, t), []).append(place.chosen)
        for _, steps in self.serves:
            for t, row in enumerate(steps):
                for gpu, literal in row.items():
                    cells.setdefault((gpu, t), []).append(literal)
        for literals in cells.values():
            if len(literals) > 1:
                self.model.add_at_most_one(literals)

    def _demand(self, service: Service, steps: Sequence[Mapping[int, Literal]]) -> None:
        """A service never holds more than its demand, nor more than it can leave in time."""
        for t, row in enumerate(steps):
            if row:
                self.model.add(total(row.values()) <= service.most[t] - service.outside[t])

    def _swap_cap(self, service: Service, steps: Sequence[Mapping[int, Literal]]) -> None:
        """A service gains and loses at most its swap cap between timesteps, GPU by GPU."""
        held = service.held
        for t, now in enumerate(steps):
            cap = service.job.cap_into(t)
            if t:
                before: Expr | int = total(steps[t - 1].values()) + service.outside[t - 1]
                stays = total(self._stays(steps[t - 1], now)) + service.stays[t]
            elif held is not None:
                before = len(held)
                stays = total(now[gpu] for gpu in held if gpu in now) + service.stays[t]
            else:
                continue
            self.model.add(total(now.values()) + service.outside[t] - stays <= cap)
            self.model.add(before - stays <= cap)

    def _stays(self, before: Mapping[int, Literal], now: Mapping[int, Literal]) -> list[Literal]:
        found = []
        for gpu, literal in now.items():
            if gpu in before:
                stays = self.model.new_bool_var("")
                self.model.add_implication(stays, literal)
                self.model.add_implication(stays, before[gpu])
                self.stays.append((stays, before[gpu], literal))
                found.append(stays)
        return found

    def guard(self) -> None:
        """Each budget is given its floor on every prefix."""
        for floor in self.frame.floors:
            given: list[Expr] = []
            for t, least in enumerate(floor.least):
                for place in self.places:
                    if place.work.budget == floor.budget and place.start <= t < place.end:
                        given.append(place.work.gpus * place.chosen)
                for service, steps in self.serves:
                    if service.job.funded and service.job.budget == floor.budget:
                        given.extend(steps[t].values())
                if least > 0:
                    self.model.add(total(given) >= least)

    def maximise_value(self, at_least: int | None = None) -> None:
        """Σ priority·decay^t over batch cells − λ·Σ priority·shortfall, in integer units."""
        up = self.units.up
        value = self.served_value + total(
            up(self.frame.value(p.work, p.start)) * p.chosen for p in self.places
        )
        if at_least is not None:
            self.model.add(value >= at_least)
        self.model.maximize(value)

    def serve_at_least(self, units: int) -> None:
        """Services are given so much in value: the question is only whether they can be."""
        self.model.add(self.served_value >= units)

    def hint(self, plan: Plan) -> None:
        """Start the search from a plan."""
        at = {a.job: (a.first_gpu, a.start) for a in plan.assignments}
        value: dict[int, bool] = {}
        for place in self.places:
            value[place.chosen.index] = at.get(place.work.name) == (place.first, place.start)
        for service, steps in self.serves:
            for rows, row in zip(plan.realtime[service.job.name], steps, strict=True):
                held = set(rows)
                for gpu, literal in row.items():
                    value[literal.index] = gpu in held
        for stays, before, now in self.stays:
            value[stays.index] = value[before.index] and value[now.index]
        for index, here in value.items():
            self.model.add_hint(self.model.get_bool_var_from_proto_index(index), here)

    def plan(self, solver: cp_model.CpSolver, base: Plan) -> Plan:
        """The solver's solution; what lies outside the frame is as in `base`."""
        within = set(self.frame.rows)
        chosen = [
            Assignment(p.work.name, p.first, p.work.gpus, p.start, p.end)
            for p in self.places
            if solver.boolean_value(p.chosen)
        ]
        realtime: dict[str, Sets] = dict(base.realtime)
        for service, steps in self.serves:
            name = service.job.name
            realtime[name] = tuple(
                tuple(
                    sorted(
                        [gpu for gpu in before if gpu not in within]
                        + [gpu for gpu, literal in row.items() if solver.boolean_value(literal)]
                    )
                )
                for before, row in zip(base.realtime[name], steps, strict=True)
            )
        assignments = (*self.frame.kept, *sorted(chosen, key=lambda a: (a.start, a.job)))
        return Plan(base.gpus, base.horizon, assignments, realtime)
