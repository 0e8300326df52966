"""The seven families: every planner on every scenario, paired in one run."""

import json
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from allocator.core.check import objective, utilization
from allocator.core.problem import Problem, ProblemError
from allocator.core.scenario import parse_problem

from .judging import SHARED, broken
from .measuring import fresh, timed
from .planners import Answer, Planner
from .published import PUBLISHED
from .scenarios import FAMILIES, family_problem

SCENARIOS = SHARED / "scenarios"


@dataclass(frozen=True, slots=True)
class Known:
    """What is known of a scenario beforehand."""

    bound: float | None = None  # no plan is worth more
    tight: bool = False  # the bound was proven by solving a relaxation to its end
    best: float | None = None  # a legal plan is worth this


@dataclass(frozen=True, slots=True)
class Figures:
    """One planner on one scenario; values and times are medians of the repeats."""

    value: float
    utilization: float | None
    seconds: float
    limit: float | None
    gain: float | None  # over FIFO's value
    value_of_plain: float | None
    time_of_plain: float
    of_bound: float | None
    of_best: float | None
    broken: list[str] = field(default_factory=list)
    bound: float | None = None
    status: str = ""


@dataclass(frozen=True, slots=True)
class Measured:
    """One scenario: its planners' figures by name."""

    name: str
    family: str
    gpus: int
    jobs: int
    bound: float | None
    tight: bool
    best: float | None
    planners: dict[str, Figures]


def scenarios(
    directory: Path | None, seeds: int, only: Sequence[str] = ()
) -> Iterable[tuple[Problem, Known]]:
    """The files of a directory (with an expected.json) or, without one, our own scenarios."""
    if directory is None:
        for name in only or FAMILIES:
            for seed in range(seeds):
                yield family_problem(name, seed), Known()
        return
    expected = directory / "expected.json"
    known = json.loads(expected.read_text()) if expected.exists() else {}
    for file in sorted(directory.glob("*-*.json")):
        problem = _read(file)
        if problem.family in PUBLISHED and (not only or problem.family in only):
            row = known.get(file.stem, {})
            yield problem, Known(row.get("bound"), row.get("bound_proven_tight", False))


def _read(file: Path) -> Problem:
    try:
        return parse_problem(file.read_bytes())
    except ProblemError as error:
        raise ProblemError(f"{file}: {error}") from None


def with_files(
    found: Iterable[tuple[Problem, Known]], bounds: Mapping[str, float], best: Mapping[str, float]
) -> list[tuple[Problem, Known]]:
    """Add bounds and best values known from elsewhere; the lower bound counts."""
    rows = []
    for problem, known in found:
        given = [b for b in (known.bound, bounds.get(problem.name)) if b is not None]
        bound = min(given, default=None)
        rows.append((problem, Known(bound, known.tight, best.get(problem.name))))
    return rows


def measure(problem: Problem, known: Known, planners: Sequence[Planner], repeats: int) -> Measured:
    """All planners in turn, again and again, each time on a problem that nobody has seen."""
    answers: dict[str, list[Answer]] = {planner.name: [] for planner in planners}
    seconds: dict[str, list[float]] = {planner.name: [] for planner in planners}
    for repeat in range(repeats):
        for planner in planners:
            if planner.once and repeat:
                continue
            copy = fresh(problem)
            answer, taken = timed(planner.run, copy)
            answers[planner.name].append(answer)
            seconds[planner.name].append(taken)
    return _measured(problem, known, planners, answers, seconds)


def _measured(
    problem: Problem,
    known: Known,
    planners: Sequence[Planner],
    answers: Mapping[str, list[Answer]],
    seconds: Mapping[str, list[float]],
) -> Measured:
    values = {
        name: statistics.median(objective(problem, answer.plan) for answer in found)
        for name, found in answers.items()
    }
    wrong = {name: _broken(problem, found) for name, found in answers.items()}
    proven = [a.bound for found in answers.values() for a in found if a.bound is not None]
    bound = min([*proven, *([] if known.bound is None else [known.bound])], default=None)
    legal = [value for name, value in values.items() if not wrong[name]]
    best = None if known.best is None else max(known.best, *legal)
    taken = {name: statistics.median(found) for name, found in seconds.items()}
    rows = {}
    for planner in planners:
        name, last = planner.name, answers[planner.name][-1]
        rows[name] = Figures(
            value=values[name],
            utilization=statistics.median(utilization(problem, a.plan) for a in answers[name]),
            seconds=taken[name],
            limit=planner.limit(problem),
            gain=_share(values[name] - values["fifo"], values["fifo"]),
            value_of_plain=_share(values[name], values["plain"]),
            time_of_plain=taken[name] / taken["plain"],
            of_bound=None if bound is None else _share(values[name], bound),
            of_best=None if best is None else _share(values[name], best),
            broken=wrong[name],
            bound=last.bound,
            status=last.status,
        )
    return Measured(
        problem.name, problem.family, problem.gpus, len(problem.jobs), bound, known.tight, best,
        rows,
    )  # fmt: skip


def with_full(row: Measured, full: Mapping[str, Any]) -> Measured:
    """Add full mode as `python -m benchmarks.full --json` measured it, in a run of its own."""
    value, first, plain = full["value"], row.planners["fifo"], row.planners["plain"]
    figures = Figures(
        value=value,
        utilization=None,
        seconds=full["seconds"],
        limit=None,
        gain=_share(value - first.value, first.value),
        value_of_plain=_share(value, plain.value),
        time_of_plain=full["seconds"] / plain.seconds,
        of_bound=None if row.bound is None else _share(value, row.bound),
        of_best=None if row.best is None else _share(value, row.best),
        broken=[] if full["legal"] else ["illegal in the run that measured full mode"],
        bound=full["bound"],
        status=full["status"],
    )
    return replace(row, planners={**row.planners, "full": figures})


def _broken(problem: Problem, answers: Iterable[Answer]) -> list[str]:
    """Every repeat's plan is checked; equal plans once."""
    found: list[str] = []
    seen: list[object] = []
    for answer in answers:
        if answer.plan not in seen:
            seen.append(answer.plan)
            found += broken(problem, answer.plan, answer.construction)
    return found


def _share(part: float, whole: float) -> float | None:
    return part / whole if whole > 0 else None


def to_json(rows: Iterable[Measured]) -> list[dict[str, Any]]:
    return [asdict(row) for row in rows]
