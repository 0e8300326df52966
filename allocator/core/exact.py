"""Full mode: the planning problem as an exact model (CP-SAT), warm-started by the fast plan.

Time-indexed: one Boolean per job, block and start; one per service, GPU and timestep, so that swap
caps hold on GPU identity and a solution is a plan without further assignment. What fairness decided
is not reopened: runs and the jobs that stopped one stay as the construction placed them, and with
budgets every leaf keeps its guarded prefixes. The bound is proven under those rules.

Failure of any kind is a status with the fast plan kept, never an exception and never an illegal
plan.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

from ortools.sat.python import cp_model

from .bits import span
from .check import check, check_guard, objective
from .crosscheck import drained_words, legal_block
from .explain import explain
from .heuristic import Construction
from .items import Item, Settings, allowed_starts
from .plan import Assignment, Plan, Result, Status
from .problem import REST, Problem, RealtimeJob

MOST_LITERALS = 40_000
SCALE = 10**6  # the objective's integer units per unit of value
Literal = cp_model.IntVar


@dataclass(frozen=True, slots=True)
class Start:
    """A way to place an item, and the literal that chooses it."""

    item: Item
    first: int
    start: int
    end: int
    chosen: Literal


def solve_exact(
    problem: Problem,
    fast: Result,
    limit: float,
    seed: int,
    workers: int,
    elapsed: Callable[[], float],
    settings: Settings | None = None,
) -> Result:
    """The better of the fast plan and the model's, with the proven bound."""

    def keep(status: Status, bound: float | None = None) -> Result:
        return replace(fast, status=status, bound=bound, mode="full", seconds=elapsed())

    construction = Construction(problem, settings)
    construction.build()
    if count_literals(construction) > MOST_LITERALS:
        return keep(Status.TOO_LARGE)
    try:
        model = Model(construction)
        model.hint(fast.plan)
        if elapsed() >= limit:
            return keep(Status.NO_SOLUTION)
        solver = _solver(limit - elapsed(), seed, workers)
        status = solver.solve(model.model)
    except Exception:  # whatever a native solver raises, the cycle goes on with the fast plan
        return keep(Status.SOLVER_FAILED)
    if status == cp_model.UNKNOWN:
        return keep(Status.NO_SOLUTION)  # the solver's bound means nothing yet
    if status not in (cp_model.OPTIMAL, cp_model.FEASIBLE):
        return keep(Status.SOLVER_FAILED)
    bound = model.bound(solver)
    plan = model.plan(solver)
    if check(problem, plan) or check_guard(problem, plan, fast.construction):
        return keep(Status.REJECTED, bound)
    done = Status.OPTIMAL if status == cp_model.OPTIMAL else Status.FEASIBLE
    value = objective(problem, plan)
    if value <= fast.objective:
        return keep(done, max(bound, fast.objective))
    return replace(
        keep(done, max(bound, value)),
        plan=plan,
        objective=value,
        reasons=explain(construction, plan.assignments),
    )


def count_literals(construction: Construction) -> int:
    """Booleans the model would have: what decides whether it is attempted."""
    problem = construction.problem
    cells = problem.gpus * problem.horizon
    count = cells * len(problem.realtime)
    for item in construction.items:
        count += problem.gpus * allowed_starts(problem, item).bit_count()
    return count


class Model:
    """The constraints, one method each."""

    def __init__(self, construction: Construction) -> None:
        self.construction = construction
        self.problem = construction.problem
        self.model = cp_model.CpModel()
        placed = construction.placed.assignments
        self.fixed = [a for a in placed if a.job in construction.fixed]
        self.items = [item for item in construction.items if item.name not in construction.fixed]
        self.taken = self._taken()
        self.starts = [start for item in self.items for start in self._starts(item)]
        self.serves = {service.name: self._serves(service) for service in self.problem.realtime}
        self.changes: list[tuple[Literal, Literal | int, Literal | int]] = []
        self._one_start_per_job()
        self._one_job_per_gpu()
        self._demand()
        self._swap_cap()
        self._guard()
        self._maximise_value()

    def _taken(self) -> list[int]:
        """Per GPU: the word of timesteps that drains and fixed blocks take."""
        words = drained_words(self.problem)
        for a in self.fixed:
            for gpu in range(a.first_gpu, a.first_gpu + a.gpus):
                words[gpu] |= span(a.start, a.end)
        return words

    def _starts(self, item: Item) -> list[Start]:
        found, horizon = [], self.problem.horizon
        allowed = allowed_starts(self.problem, item)
        for first in self._blocks(item):
            busy = 0
            for gpu in range(first, first + item.gpus):
                busy |= self.taken[gpu]
            for start in range(horizon):
                end = min(start + item.length, horizon)
                if allowed >> start & 1 and not busy & span(start, end):
                    literal = self.model.new_bool_var("")
                    found.append(Start(item, first, start, end, literal))
        return found

    def _blocks(self, item: Item) -> list[int]:
        pool_of = self.construction.layout.pool_of
        return [
            first
            for first in range(self.problem.gpus)
            if legal_block(self.problem, first, item.gpus)
            and (not item.pools or pool_of[first] in item.pools)
        ]

    def _serves(self, service: RealtimeJob) -> list[dict[int, Literal]]:
        """Per timestep: a literal for each GPU that may serve."""
        pool_of = self.construction.layout.pool_of
        rows = [g for g, pool in enumerate(pool_of) if not service.pools or pool in service.pools]
        return [
            {g: self.model.new_bool_var("") for g in rows if not self.taken[g] >> t & 1}
            for t in range(self.problem.horizon)
        ]

    def _one_start_per_job(self) -> None:
        """A job starts at most once."""
        by_item: dict[str, list[Literal]] = {}
        for start in self.starts:
            by_item.setdefault(start.item.name, []).append(start.chosen)
        for literals in by_item.values():
            self.model.add_at_most_one(literals)

    def _one_job_per_gpu(self) -> None:
        """A GPU serves at most one job per timestep."""
        cells: dict[tuple[int, int], list[Literal]] = {}
        for start in self.starts:
            for gpu in range(start.first, start.first + start.item.gpus):
                for t in range(start.start, start.end):
                    cells.setdefault((gpu, t), []).append(start.chosen)
        for steps in self.serves.values():
            for t, row in enumerate(steps):
                for gpu, literal in row.items():
                    cells.setdefault((gpu, t), []).append(literal)
        for literals in cells.values():
            self.model.add_at_most_one(literals)

    def _demand(self) -> None:
        """A service never holds more than its demand."""
        for service in self.problem.realtime:
            for wanted, row in zip(service.demand, self.serves[service.name], strict=True):
                self.model.add(sum(row.values()) <= wanted)

    def _swap_cap(self) -> None:
        """A service gains and loses at most its swap cap between timesteps, GPU by GPU."""
        for service in self.problem.realtime:
            before: dict[int, Literal] | dict[int, int] | None = None
            if service.held is not None:
                before = dict.fromkeys(service.held, 1)
            for now in self.serves[service.name]:
                if before is not None:
                    self._few_changes(before, now, service.swap_cap)
                    self._few_changes(now, before, service.swap_cap)
                before = now

    def _few_changes(
        self,
        old: dict[int, Literal] | dict[int, int],
        new: dict[int, Literal] | dict[int, int],
        cap: int,
    ) -> None:
        gained = []
        for gpu, literal in new.items():
            gain, was = self.model.new_bool_var(""), old.get(gpu, 0)
            self.model.add(gain >= literal - was)
            self.changes.append((gain, literal, was))
            gained.append(gain)
        self.model.add(sum(gained) <= cap)

    def _guard(self) -> None:
        """With budgets: each leaf keeps min(its entitlement, the construction) on every prefix."""
        turns, problem = self.construction.turns, self.problem
        for budget in {job.budget for job in problem.jobs if problem.budgets and job.funded}:
            owed = turns.owed_cells(turns.leaf_of[budget], self.construction.healthy)
            given = self._given(budget)
            mine: list[cp_model.LinearExprT] = []
            for t in range(problem.horizon):
                mine.extend(self._held_at(budget, t))
                least = min(owed[t], sum(given[: t + 1]))
                if least > 0:
                    self.model.add(sum(mine) >= least)

    def _given(self, budget: str | None) -> list[int]:
        """What the construction gave the leaf's funded work, per timestep."""
        cells = [0] * self.problem.horizon
        for a in self.construction.placed.assignments:
            job = self.problem.by_name[a.job.removesuffix(REST)]
            if job.funded and job.budget == budget:
                for t in range(a.start, a.end):
                    cells[t] += a.gpus
        for name, sets in self.construction.placed.realtime.items():
            job = self.problem.by_name[name]
            if job.funded and job.budget == budget:
                for t, rows in enumerate(sets):
                    cells[t] += len(rows)
        return cells

    def _held_at(self, budget: str | None, t: int) -> list[cp_model.LinearExprT]:
        """The leaf's funded GPUs at t, as terms."""
        jobs = self.problem.by_name

        def mine(name: str) -> bool:
            job = jobs[name.removesuffix(REST)]
            return job.funded and job.budget == budget

        terms: list[cp_model.LinearExprT] = [
            a.gpus for a in self.fixed if a.start <= t < a.end and mine(a.job)
        ]
        for start in self.starts:
            if start.start <= t < start.end and mine(start.item.name):
                terms.append(start.item.gpus * start.chosen)
        for name, steps in self.serves.items():
            if mine(name):
                terms.extend(steps[t].values())
        return terms

    def _maximise_value(self) -> None:
        """Σ priority·decay^t over batch cells − λ·Σ priority·shortfall, in integer units.

        Coefficients are rounded up, so the model's bound is never below the true one.
        """
        worth = [0.0]
        for t in range(self.problem.horizon):
            worth.append(worth[-1] + self.problem.time_decay**t)
        terms: list[cp_model.LinearExprT] = []
        for start in self.starts:
            each = start.item.priority * start.item.gpus
            terms.append(_units(each * (worth[start.end] - worth[start.start])) * start.chosen)
        self.constant = 0.0
        for a in self.fixed:
            job = self.problem.by_name[a.job.removesuffix(REST)]
            self.constant += job.priority * a.gpus * (worth[a.end] - worth[a.start])
        for service in self.problem.realtime:
            missed = self.problem.shortfall_penalty * service.priority
            self.constant -= missed * sum(service.demand)
            for row in self.serves[service.name]:
                terms.extend(_units(missed) * literal for literal in row.values())
        self.model.maximize(sum(terms))

    def hint(self, plan: Plan) -> None:
        """Start the search from a plan."""
        placed = {a.job: a for a in plan.assignments}
        value: dict[int, bool] = {}
        for start in self.starts:
            a = placed.get(start.item.name)
            here = a is not None and (a.first_gpu, a.start) == (start.first, start.start)
            value[start.chosen.index] = here
        for name, steps in self.serves.items():
            for t, row in enumerate(steps):
                for gpu, literal in row.items():
                    value[literal.index] = gpu in plan.realtime[name][t]
        for gain, now, was in self.changes:
            held, before = (bool(x) if isinstance(x, int) else value[x.index] for x in (now, was))
            value[gain.index] = held and not before
        for index, here in value.items():
            self.model.add_hint(self.model.get_bool_var_from_proto_index(index), here)

    def bound(self, solver: cp_model.CpSolver) -> float:
        """No plan under the model's rules is worth more."""
        return self.constant + solver.best_objective_bound / SCALE

    def plan(self, solver: cp_model.CpSolver) -> Plan:
        """The solver's solution as a plan."""
        chosen = [
            Assignment(s.item.name, s.first, s.item.gpus, s.start, s.end)
            for s in self.starts
            if solver.boolean_value(s.chosen)
        ]
        realtime = {
            name: tuple(
                tuple(gpu for gpu, literal in row.items() if solver.boolean_value(literal))
                for row in steps
            )
            for name, steps in self.serves.items()
        }
        assignments = (*self.fixed, *sorted(chosen, key=lambda a: (a.start, a.job)))
        return Plan(self.problem.gpus, self.problem.horizon, assignments, realtime)


def _units(value: float) -> int:
    """Rounded up past any error of the floating-point sum."""
    return math.ceil(value * SCALE + 1e-3)


def _solver(seconds: float, seed: int, workers: int) -> cp_model.CpSolver:
    solver = cp_model.CpSolver()
    solver.parameters.max_time_in_seconds = max(seconds, 0.01)
    solver.parameters.random_seed = seed
    solver.parameters.num_workers = workers
    return solver
