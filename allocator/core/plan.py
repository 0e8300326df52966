"""The answer: a plan, what it is worth, and why each job got what it got.

A plan is blocks for batch-like jobs and sets of GPUs for real time; its grid (job or None per GPU
and timestep) is the same thing in the file format, and either gives the other without loss.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cached_property
from typing import Any, NamedTuple, overload

from .problem import Problem, RealtimeJob

Grid = list[list[str | None]]


class Assignment(NamedTuple):
    """GPUs [first_gpu, first_gpu + gpus) for a job in timesteps [start, end) of the horizon."""

    job: str
    first_gpu: int
    gpus: int
    start: int
    end: int


@dataclass(frozen=True)
class Plan:
    """Who holds which GPU when: `realtime[name][t]` is a sorted tuple of GPUs."""

    gpus: int
    horizon: int
    assignments: tuple[Assignment, ...] = ()
    realtime: Mapping[str, tuple[tuple[int, ...], ...]] = field(default_factory=dict)

    def grid(self) -> Grid:
        """The file format's grid, [gpu][timestep]; where two jobs collide the later one shows."""
        grid: Grid = [[None] * self.horizon for _ in range(self.gpus)]
        for name, sets in self.realtime.items():
            for t, rows in enumerate(sets):
                for gpu in rows:
                    grid[gpu][t] = name
        for a in self.assignments:
            for gpu in range(a.first_gpu, a.first_gpu + a.gpus):
                grid[gpu][a.start : a.end] = [a.job] * (a.end - a.start)
        return grid

    @classmethod
    def from_grid(cls, problem: Problem, grid: Sequence[Sequence[str | None]]) -> "Plan":
        """Read any grid, legal or not: a job in several pieces becomes several assignments."""
        if len(grid) != problem.gpus or any(len(row) != problem.horizon for row in grid):
            raise ValueError(f"grid must be {problem.gpus} rows of {problem.horizon} timesteps.")
        realtime: dict[str, list[list[int]]] = {
            job.name: [[] for _ in range(problem.horizon)] for job in problem.realtime
        }
        pieces: list[Assignment] = []
        for gpu, row in enumerate(grid):
            for name, start, end in _spans(row):
                if name in realtime:
                    for t in range(start, end):
                        realtime[name][t].append(gpu)
                else:
                    pieces.append(Assignment(name, gpu, 1, start, end))
        sets = {name: tuple(tuple(rows) for rows in steps) for name, steps in realtime.items()}
        return cls(problem.gpus, problem.horizon, _joined(pieces), sets)

    def of(self, job: str) -> tuple[Assignment, ...]:
        """The job's assignments; a legal plan holds at most one."""
        return tuple(a for a in self.assignments if a.job == job)


class Status(StrEnum):
    """How the answer came about. There is no catch-all."""

    HEURISTIC = "heuristic"  # fast mode: legal and improved, nothing proven
    OPTIMAL = "optimal"  # full mode: proven best
    FEASIBLE = "feasible"  # full mode: stopped at its limit with a bound
    NO_SOLUTION = "no_solution"  # full mode found nothing in its time; fast's plan is kept
    SOLVER_FAILED = "solver_failed"  # the solver stopped with an error; fast's plan is kept
    REJECTED = "rejected"  # the solver's plan failed the check; fast's plan is kept


class Rule(StrEnum):
    """Which rule binds for a job that does not run yet."""

    STARTS_NOW = "starts_now"
    ARRIVAL = "arrival"
    BEHIND = "behind"
    UNFUNDED_BEHIND = "unfunded_behind"
    NO_BLOCK = "no_block"
    DRAINING = "draining"
    POOL = "pool"
    BEYOND_HORIZON = "beyond_horizon"


@dataclass(frozen=True, slots=True)
class Reason:
    """Why a job waits: `behind` names who holds the block it gets, `node` the drained node,
    `pools` those it could start in now if it asked; `start` is a timestep, None = not in sight."""

    job: str
    rule: Rule
    gpus: int
    start: int | None
    behind: tuple[str, ...] = ()
    node: str | None = None
    pools: tuple[str, ...] = ()


class Reasons(Sequence[Reason]):
    """The reasons of one plan, worked out from what the pass decided when they are first read."""

    def __init__(self, explain: Callable[[], Iterable[Reason]]) -> None:
        self._explain = explain

    @cached_property
    def _reasons(self) -> tuple[Reason, ...]:
        return tuple(self._explain())

    @overload
    def __getitem__(self, index: int) -> Reason: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Reason]: ...
    def __getitem__(self, index: int | slice) -> Reason | Sequence[Reason]:
        return self._reasons[index]

    def __len__(self) -> int:
        return len(self._reasons)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Reasons) and self._reasons == other._reasons

    def __hash__(self) -> int:
        return hash(self._reasons)


@dataclass(frozen=True, slots=True)
class LevelShare:
    """One side of a comparison: (shares / siblings_shares) / (usage / siblings_usage)."""

    path: str
    shares: int
    siblings_shares: int
    usage: int
    siblings_usage: int
    inside: bool  # inside its entitlement, at every level up to this one


class Cause(StrEnum):
    """Why a run gives way."""

    OUTRANKED = "outranked"  # its budget comes after the preemptor's
    UNFUNDED = "unfunded"  # anybody's funded work goes first
    DEBUG = "debug"  # a debug job of its own budget takes its place
    MOVED = "moved"  # scattered free GPUs become one block, and it can go on elsewhere at once
    DRAIN = "drain"


@dataclass(frozen=True, slots=True)
class Preemption:
    """A run stopped at `timestep` for `preemptor`; the shares are those compared at that moment,
    at the first level below the common ancestor. No preemptor: a drain. Shares: only of one that
    was outranked."""

    victim: str
    preemptor: str | None
    timestep: int
    cause: Cause
    victim_share: LevelShare | None = None
    preemptor_share: LevelShare | None = None


@dataclass(frozen=True)
class Result:
    """What `solve` answers. `bound`: no plan under the same rules is worth more; None = unproven.
    `construction` is the plan that the fairness guard measures `plan` against."""

    plan: Plan
    status: Status
    objective: float
    bound: float | None
    seconds: float
    reasons: Sequence[Reason]
    mode: str
    preemptions: tuple[Preemption, ...]
    construction: Plan
    iterations: int = 0
    failure: str = ""  # what a solver that failed said

    def to_dict(self, problem: Problem) -> dict[str, Any]:
        """The plan file format."""
        return {
            "scenario": problem.name,
            "mode": self.mode,
            "grid": self.plan.grid(),
            "status": str(self.status),
            "objective": self.objective,
            "bound": self.bound,
            "seconds": round(self.seconds, 6),
        }


def empty_realtime(job: RealtimeJob) -> tuple[tuple[int, ...], ...]:
    """A service that gets nothing."""
    return ((),) * len(job.demand)


def _spans(row: Sequence[str | None]) -> list[tuple[str, int, int]]:
    spans: list[tuple[str, int, int]] = []
    start = 0
    for t in range(1, len(row) + 1):
        if t == len(row) or row[t] != row[start]:
            name = row[start]
            if name is not None:
                spans.append((name, start, t))
            start = t
    return spans


def _joined(pieces: list[Assignment]) -> tuple[Assignment, ...]:
    """Neighbouring rows of one job over the same timesteps, as one rectangle."""
    whole: list[Assignment] = []
    last: dict[tuple[str, int, int], int] = {}
    for piece in pieces:
        key = (piece.job, piece.start, piece.end)
        at = last.get(key)
        if at is not None and whole[at].first_gpu + whole[at].gpus == piece.first_gpu:
            grown = whole[at]
            whole[at] = Assignment(
                grown.job, grown.first_gpu, grown.gpus + 1, grown.start, grown.end
            )
        else:
            last[key] = len(whole)
            whole.append(piece)
    return tuple(whole)
