"""Three models of one problem, for comparison: counts and identities, all identities, intervals.

Full mode is the first. The second puts every block, start and service GPU into one model. The third
packs jobs as optional rectangles that don't overlap, with services counted; its answer is a bound,
not a plan.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass

from ortools.sat.python import cp_model

from allocator.core.exact_counts import CountsModel, by_pool, start_words
from allocator.core.exact_frame import Frame, frame_of
from allocator.core.exact_identity import IdentityModel
from allocator.core.exact_solver import SOLVED, Clock
from allocator.core.heuristic import Construction
from allocator.core.problem import Problem
from allocator.core.solve import solve


@dataclass(frozen=True, slots=True)
class Solved:
    """What a model came to."""

    literals: int
    proven: bool
    value: float | None
    bound: float | None
    seconds: float


def counts_first(problem: Problem, limit: float, workers: int) -> Solved:
    """Full mode."""
    started = time.perf_counter()
    result = solve(problem, mode="full", time_limit=limit, workers=workers)
    seconds = time.perf_counter() - started
    frame = _frame(problem)
    counts = CountsModel(frame, by_pool(frame), start_words(frame, by_pool(frame)))
    size, proven = _literals(counts.model), result.status == "optimal"
    return Solved(size, proven, result.objective, result.bound, seconds)


def all_identities(problem: Problem, limit: float, workers: int) -> Solved:
    """One Boolean per job, block and start, and per service, GPU and timestep."""
    started = time.perf_counter()
    frame, fast = _frame(problem), solve(problem).plan
    places = {
        work.name: [
            (first, t)
            for first, starts in frame.options(work)
            for t in range(problem.horizon)
            if starts >> t & 1
        ]
        for work in frame.works
    }
    model = IdentityModel(frame, places, must=False)
    model.guard()
    model.maximise_value()
    model.hint(fast)
    return _solve(frame, model, limit, workers, started, plan=True)


def intervals(problem: Problem, limit: float, workers: int) -> Solved:
    """Optional rectangles of jobs that don't overlap; services are counted."""
    started = time.perf_counter()
    frame = _frame(problem)
    model = Intervals(frame)
    return _solve(frame, model, limit, workers, started, plan=False)


class Intervals(CountsModel):
    """The counts by pool, and a rectangle for every job."""

    def __init__(self, frame: Frame) -> None:
        areas = by_pool(frame)
        super().__init__(frame, areas, start_words(frame, areas))
        self.across: list[cp_model.IntervalVar] = []
        self.along: list[cp_model.IntervalVar] = []
        for work in frame.works:
            if self.by_work[work.name]:
                self._rectangle(work.name)
        for gpu in frame.rows:
            self._taken(gpu)
        self.model.add_no_overlap_2d(self.along, self.across)

    def _rectangle(self, name: str) -> None:
        starts, model = self.by_work[name], self.model
        work, horizon = starts[0].work, self.frame.problem.horizon
        present = model.new_bool_var("")
        model.add(sum(s.chosen for s in starts) == present)
        start = model.new_int_var(0, horizon, "")
        end = model.new_int_var(0, horizon, "")
        model.add(start == sum(s.start * s.chosen for s in starts)).only_enforce_if(present)
        model.add(end == sum(s.end * s.chosen for s in starts)).only_enforce_if(present)
        length = model.new_int_var(0, horizon, "")
        firsts = sorted(first for first, _ in self.frame.options(work))
        first = model.new_int_var_from_domain(cp_model.Domain.from_values(firsts), "")
        self.along.append(model.new_optional_interval_var(start, length, end, present, ""))
        self.across.append(
            model.new_optional_fixed_size_interval_var(first, work.gpus, present, "")
        )

    def _taken(self, gpu: int) -> None:
        word = self.frame.taken[gpu]
        for t in range(self.frame.problem.horizon):
            if word >> t & 1:
                self.along.append(self.model.new_fixed_size_interval_var(t, 1, ""))
                self.across.append(self.model.new_fixed_size_interval_var(gpu, 1, ""))


def _frame(problem: Problem) -> Frame:
    construction = Construction(problem)
    construction.build()
    return frame_of(construction)


def _literals(model: cp_model.CpModel) -> int:
    return len(model.proto.variables)


def _solve(
    frame: Frame,
    model: CountsModel | IdentityModel,
    limit: float,
    workers: int,
    started: float,
    *,
    plan: bool,
) -> Solved:
    clock = Clock(limit, lambda: time.perf_counter() - started, 0, workers)
    solver, status = clock.solve(model.model, 1e9)
    value = bound = None
    if status in SOLVED:
        bound = frame.constant + model.units.value(solver.best_objective_bound)
        if plan:
            value = frame.constant + model.units.value(solver.objective_value)
    seconds = time.perf_counter() - started
    return Solved(_literals(model.model), status == cp_model.OPTIMAL, value, bound, seconds)


MODELS: dict[str, Callable[[Problem, float, int], Solved]] = {
    "counts, then identities": counts_first,
    "all identities": all_identities,
    "rectangles, services counted": intervals,
}
