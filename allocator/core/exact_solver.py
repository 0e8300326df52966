"""How full mode runs CP-SAT: always under the one time limit, always under a limit of work.

Limits of work are deterministic, so with one worker a seed gives one answer as long as the time
limit does not cut it short.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from ortools.sat.python import cp_model

Expr = cp_model.LinearExpr
Literal = cp_model.IntVar
SOLVED = (cp_model.OPTIMAL, cp_model.FEASIBLE)
MANY = 8  # workers: fewer prove later than one does, for the solver mixes its strategies anew
LEAST = 0.05  # seconds: less is not worth starting a solver for
SPARED = 0.02  # of the time limit, for what comes after the last solve


@dataclass(frozen=True)
class Clock:
    """The time limit of one call, and the solvers that run under it."""

    limit: float
    elapsed: Callable[[], float]
    seed: int
    workers: int

    @property
    def left(self) -> float:
        """Seconds that may still be spent."""
        return self.limit * (1 - SPARED) - self.elapsed()

    @property
    def over(self) -> bool:
        return self.left < LEAST

    def solve(
        self, model: cp_model.CpModel, work: float, share: float = 1.0, attempt: int = 0
    ) -> tuple[cp_model.CpSolver, cp_model.CpSolverStatus]:
        """The best within `work` deterministic units and a share of the time that is left.

        Every further attempt at the same model has another seed and another way: all of the linear
        relaxation; the solver's own mixture; without cuts and symmetries. Which of them is quick
        differs by ten times from problem to problem, and can't be told beforehand.
        """
        solver = self._solver(work, share, attempt)
        if attempt % 3 == 1:
            solver.parameters.cp_model_probing_level = 2
            return solver, solver.solve(model)
        solver.parameters.linearization_level = 2
        if attempt % 3 == 2:
            solver.parameters.symmetry_level = 0
            solver.parameters.cut_level = 0
        return solver, solver.solve(model)

    def settle(
        self, model: cp_model.CpModel, work: float, share: float = 1.0, attempt: int = 0
    ) -> tuple[cp_model.CpSolver, cp_model.CpSolverStatus]:
        """Any answer, or that there is none: breaking symmetries costs more than it gives here."""
        solver = self._solver(work, share, attempt)
        solver.parameters.symmetry_level = 0
        return solver, solver.solve(model)

    def _solver(self, work: float, share: float, attempt: int) -> cp_model.CpSolver:
        solver = cp_model.CpSolver()
        solver.parameters.max_time_in_seconds = max(self.left * share, 0.01)
        solver.parameters.max_deterministic_time = work
        solver.parameters.random_seed = (self.seed + attempt) % 2**31
        solver.parameters.num_workers = self.workers if self.workers >= MANY else 1
        solver.parameters.cp_model_probing_level = 0  # takes longer than it saves
        return solver


def total(terms: Iterable[Expr | int]) -> Expr:
    """Their sum; of none it is 0."""
    return cp_model.LinearExpr.sum(list(terms))
