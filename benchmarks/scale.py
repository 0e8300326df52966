"""Plan time and memory on growing fleets: the construction alone, the problem already in memory."""

import argparse
import json
import re
import statistics
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from allocator.core.check import check, objective, utilization
from allocator.core.plan import Plan, Result
from allocator.core.problem import Problem
from allocator.core.solve import solve

from .baselines import priority_first
from .fleets import fleet_problem
from .measuring import fresh, timed
from .scenarios import family_problem
from .tables import Floor, Table, milliseconds, percent, times

ROOT = Path(__file__).parents[1]
MEGABYTE = 1 << 20
SHORT, MORE_REPEATS = 0.02, 25  # what takes no longer (in seconds) is measured more often
MOST_GROWTH = 1.1  # "near-linear" in GPUs x jobs


@dataclass(frozen=True, slots=True)
class Size:
    """A fleet of 8-GPU nodes; `runs` are under way where there are budgets; at most `limit` s."""

    nodes: int
    jobs: int
    runs: int
    limit: float

    def problem(self, *, budgets: bool) -> Problem:
        runs = self.runs if budgets else 0
        return fleet_problem(nodes=self.nodes, jobs=self.jobs, runs=runs, budgets=budgets)


SIZES = (
    Size(8, 30, 6, 0.0003),
    Size(32, 500, 60, 0.003),
    Size(128, 3000, 200, 0.025),
    Size(512, 10_000, 800, 0.250),
)
SMALL = (("mixed-control", 0.00015), ("uniform-priority", 0.00015))  # 8 and 14 GPUs


@dataclass(frozen=True, slots=True)
class Measured:
    """One fleet. Seconds are medians: `seconds` on a problem that is new each time, `again` on
    one that was planned before. Memory in bytes: at the solve's peak, and above what was there."""

    name: str
    gpus: int
    jobs: int
    budgets: bool
    limit: float
    seconds: float
    again: float
    plain_seconds: float
    value_of_plain: float | None
    utilization: float
    plain_utilization: float
    broken: list[str]
    peak_memory: int | None
    solve_memory: int | None


def measure_all(
    sizes: Sequence[Size] = SIZES, *, repeats: int = 5, memory: bool = True
) -> list[Measured]:
    found = []
    for family, limit in SMALL:
        problem = family_problem(family, 0)
        name = f"{problem.gpus} GPUs x {len(problem.jobs)} jobs"
        found.append(_measure(problem, name, limit, repeats, None))
    for budgets in (False, True):
        for size in sizes:
            problem = size.problem(budgets=budgets)
            name = f"{problem.gpus} GPUs x {size.jobs} jobs"
            used = _memory_of(size, budgets) if memory else None
            found.append(_measure(problem, name, size.limit, repeats, used))
    return found


def growth(rows: Sequence[Measured], seconds: Callable[[Measured], float]) -> float:
    """The exponent b of seconds = a · (GPUs × jobs)^b, by least squares on logarithms."""
    work = np.log([row.gpus * row.jobs for row in rows])
    return float(np.polyfit(work, np.log([seconds(row) for row in rows]), 1)[0])


def _measure(
    problem: Problem, name: str, limit: float, repeats: int, memory: tuple[int, int] | None
) -> Measured:
    _, first = timed(_construct, fresh(problem))  # the warm-up
    new, again, plain = [], [], []
    for _ in range(max(repeats, MORE_REPEATS) if first < SHORT else repeats):
        copy = fresh(problem)
        new.append(timed(_construct, copy)[1])
        again.append(timed(_construct, copy)[1])
    result = _construct(problem)
    baseline: Plan | None = None
    for _ in range(min(repeats, 3)):
        copy = fresh(problem)
        baseline, taken = timed(priority_first, copy)
        plain.append(taken)
    assert baseline is not None
    worth = objective(problem, baseline)
    return Measured(
        name=name,
        gpus=problem.gpus,
        jobs=len(problem.jobs),
        budgets=bool(problem.budgets),
        limit=limit,
        seconds=statistics.median(new),
        again=statistics.median(again),
        plain_seconds=statistics.median(plain),
        value_of_plain=result.objective / worth if worth > 0 else None,
        utilization=utilization(problem, result.plan),
        plain_utilization=utilization(problem, baseline),
        broken=[v.text for v in (*check(problem, result.plan), *check(problem, baseline))],
        peak_memory=memory[0] if memory else None,
        solve_memory=memory[1] if memory else None,
    )


def _construct(problem: Problem) -> Result:
    return solve(problem, iterations=0)


# Memory: in a process of its own, so that nothing else counts


def _memory_of(size: Size, budgets: bool) -> tuple[int, int] | None:
    command = [sys.executable, "-m", "benchmarks.scale", *map(str, asdict(size).values())]
    done = subprocess.run(
        [*command, str(int(budgets))], cwd=ROOT, capture_output=True, text=True, check=True
    )
    found = json.loads(done.stdout)
    return tuple(found) if found else None


def memory_of_one_solve(size: Size, *, budgets: bool) -> tuple[int, int] | None:
    """(bytes at the peak, of them taken by the solve), in this process; None where Linux's
    /proc is not there. A small fleet is planned first, so that what is loaded once is not
    counted."""
    problem = size.problem(budgets=budgets)
    _construct(Size(8, 30, 6, 0).problem(budgets=budgets))
    before = _status("VmRSS")
    _reset_peak()
    _construct(problem)
    peak = _status("VmHWM")
    return None if before is None or peak is None else (peak, peak - before)


def _status(field: str) -> int | None:
    """A figure of /proc/self/status in bytes (unlike ru_maxrss, it is not a parent's)."""
    file = Path("/proc/self/status")
    found = re.search(rf"^{field}:\s+(\d+) kB", file.read_text(), re.M) if file.exists() else None
    return int(found[1]) * 1024 if found else None


def _reset_peak() -> None:
    Path("/proc/self/clear_refs").write_text("5")


# The report


def tables(rows: Sequence[Measured]) -> list[Table]:
    head = (
        "fleet", "budgets, runs", "legal", "at most ms", "new ms", "again ms", "plain ms",
        "time ÷ plain", "value ÷ plain", "util", "plain util", "peak MB", "of it solve MB",
    )  # fmt: skip
    lines = [
        (
            row.name,
            "yes" if row.budgets else "no",
            "NO" if row.broken else "yes",
            f"{1000 * row.limit:g}",
            milliseconds(row.seconds),
            milliseconds(row.again),
            milliseconds(row.plain_seconds),
            times(row.seconds / row.plain_seconds),
            times(row.value_of_plain),
            percent(row.utilization),
            percent(row.plain_utilization),
            _megabytes(row.peak_memory),
            _megabytes(row.solve_memory),
        )
        for row in rows
    ]
    return [Table("Construction alone, problem in memory", head, lines, left=2), _growth(rows)]


def floors(rows: Sequence[Measured]) -> list[Floor]:
    found = []
    for row in rows:
        where = f"{row.name}{', budgets' if row.budgets else ''}"
        for what, seconds in (("new problem", row.seconds), ("same problem", row.again)):
            limit, met = f"≤ {1000 * row.limit:g}", seconds <= row.limit
            name = f"construction: ms, {what}"
            found.append(Floor(name, where, limit, milliseconds(seconds), met))
        if row.broken:
            found.append(Floor("plans legal", where, "0 broken", str(len(row.broken)), False))
    for budgets, part in _parts(rows):
        grown, where = growth(part, _seconds), "fleets, budgets" if budgets else "fleets"
        met = grown <= MOST_GROWTH
        asked = f"≤ {MOST_GROWTH}"
        found.append(Floor("construction: growth", where, asked, f"{grown:.2f}", met))
    return found


def to_json(rows: Sequence[Measured]) -> dict[str, Any]:
    return {
        "rows": [asdict(row) for row in rows],
        "growth": {
            ("budgets" if budgets else "no budgets"): growth(part, _seconds)
            for budgets, part in _parts(rows)
        },
    }


def _seconds(row: Measured) -> float:
    return row.seconds


def _parts(rows: Sequence[Measured]) -> list[tuple[bool, list[Measured]]]:
    """The growing fleets without and with budgets; the small families are no part of that."""
    fleets = [row for row in rows if row.gpus >= 64]
    parts = [(b, [row for row in fleets if row.budgets == b]) for b in (False, True)]
    return [(budgets, part) for budgets, part in parts if len(part) > 1]


def _growth(rows: Sequence[Measured]) -> Table:
    lines = [
        (
            "yes" if budgets else "no",
            f"{growth(part, _seconds):.2f}",
            f"{growth(part, lambda row: row.again):.2f}",
            f"{growth(part, lambda row: row.plain_seconds):.2f}",
        )
        for budgets, part in _parts(rows)
    ]
    head = ("budgets, runs", "new", "again", "plain")
    return Table("Fitted growth: exponent of GPUs × jobs (1 = linear)", head, lines)


def _megabytes(size: int | None) -> str:
    return "–" if size is None else f"{size / MEGABYTE:.0f}"


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.scale", description="One solve.")
    for name, kind in (("nodes", int), ("jobs", int), ("runs", int), ("limit", float)):
        parser.add_argument(name, type=kind)
    parser.add_argument("budgets", type=int)
    options = parser.parse_args()
    size = Size(options.nodes, options.jobs, options.runs, options.limit)
    print(json.dumps(memory_of_one_solve(size, budgets=bool(options.budgets))))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
