"""`python -m benchmarks.bench`: what fast mode gives, beside first in, first out, in one table.

Scenarios come from ../shared/scenarios where that is at hand (reconstructions of the published
families), else from this package's own seeded generator. Value gain and utilization are against
FIFO with peak reservation; the bound is known for the shared scenarios only.
"""

import argparse
import json
import statistics
import time
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from allocator.core.check import check, check_guard, objective, utilization
from allocator.core.problem import Problem
from allocator.core.scenario import parse_problem
from allocator.core.solve import solve

from .baselines import fifo
from .scenarios import FAMILIES, family_problem, fleet_problem

SHARED = Path(__file__).parents[2] / "shared" / "scenarios"
FLEETS = ((8, 30, 6), (32, 500, 60), (56, 500, 100), (128, 3000, 200))  # nodes, jobs, runs


@dataclass(frozen=True, slots=True)
class Row:
    """One scenario's figures."""

    legal: bool
    fifo_utilization: float
    utilization: float
    gain: float  # value over FIFO's
    of_bound: float | None
    plain_gain: float | None  # of a plain priority-first planner, where it is known
    build_ms: float
    solve_ms: float


def measure(
    problem: Problem, known: dict[str, Any] | None, repeats: int, passes: int | None
) -> Row:
    """Plan a scenario `repeats` times; times are medians."""
    builds: list[float] = []
    solves: list[float] = []
    for _ in range(repeats):
        for times, iterations in ((builds, 0), (solves, passes)):
            started = time.perf_counter()
            result = solve(problem, iterations=iterations)
            times.append(1000 * (time.perf_counter() - started))
    baseline = fifo(problem)
    value, plain = objective(problem, baseline), (known or {}).get("plain")
    broken = check(problem, result.plan) + check_guard(problem, result.plan, result.construction)
    return Row(
        legal=not broken,
        fifo_utilization=utilization(problem, baseline),
        utilization=utilization(problem, result.plan),
        gain=result.objective / value - 1 if value > 0 else float("nan"),
        of_bound=None if known is None else result.objective / known["bound"],
        plain_gain=None if plain is None else plain["value"] / value - 1,
        build_ms=statistics.median(builds),
        solve_ms=statistics.median(solves),
    )


def families(seeds: int) -> Iterable[tuple[str, Problem, dict[str, Any] | None]]:
    """(family, problem, what is known of it)."""
    expected = SHARED / "expected.json"
    if not expected.exists():
        for name in FAMILIES:
            for seed in range(seeds):
                yield name, family_problem(name, seed), None
        return
    known = json.loads(expected.read_text())
    for file in sorted(SHARED.glob("*-*.json")):
        if file.stem in known:
            problem = parse_problem(file.read_bytes())
            yield problem.family, problem, known[file.stem]


def table(rows: dict[str, list[Row]]) -> str:
    """One line per family, medians."""
    head = (
        "family", "legal", "FIFO util", "util", "gain", "plain gain", "of bound", "least",
        "construction ms", "solve ms",
    )  # fmt: skip
    lines = [head]
    for family, found in rows.items():
        bounds = [row.of_bound for row in found if row.of_bound is not None]
        lines.append(
            (
                family,
                f"{sum(row.legal for row in found)}/{len(found)}",
                _percent([row.fifo_utilization for row in found]),
                _percent([row.utilization for row in found]),
                _percent([row.gain for row in found]),
                _percent([row.plain_gain for row in found if row.plain_gain is not None]),
                _percent(bounds),
                _percent([min(bounds)] if bounds else []),
                f"{statistics.median(row.build_ms for row in found):.2f}",
                f"{statistics.median(row.solve_ms for row in found):.2f}",
            )
        )
    widths = [max(len(line[i]) for line in lines) for i in range(len(head))]
    return "\n".join(
        "  ".join(
            cell.ljust(width) if i == 0 else cell.rjust(width)
            for i, (cell, width) in enumerate(zip(line, widths, strict=True))
        )
        for line in lines
    )


def fleets(repeats: int) -> str:
    """Time of the construction alone on growing fleets with budgets and runs under way."""
    lines = ["fleet                      construction ms  utilization  legal"]
    for nodes, jobs, runs in FLEETS:
        problem = fleet_problem(nodes=nodes, jobs=jobs, runs=runs)
        times = []
        for _ in range(repeats):
            started = time.perf_counter()
            result = solve(problem, iterations=0)
            times.append(1000 * (time.perf_counter() - started))
        legal = "yes" if not check(problem, result.plan) else "NO"
        name = f"{8 * nodes} GPUs x {jobs} jobs"
        used = _percent([utilization(problem, result.plan)])
        lines.append(f"{name:<25}{statistics.median(times):>17.1f}{used:>13}{legal:>7}")
    return "\n".join(lines)


def _percent(values: list[float]) -> str:
    return f"{100 * statistics.median(values):.1f} %" if values else "-"


def main() -> int:
    parser = argparse.ArgumentParser(prog="bench", description=__doc__)
    parser.add_argument("--repeats", type=int, default=5, help="runs per scenario (default 5)")
    parser.add_argument("--passes", type=int, help="improving passes (default: by size)")
    parser.add_argument("--seeds", type=int, default=6, help="own scenarios per family")
    options = parser.parse_args()
    rows: dict[str, list[Row]] = defaultdict(list)
    for family, problem, known in families(options.seeds):
        rows[family].append(measure(problem, known, options.repeats, options.passes))
    print(table(rows))
    print()
    print(fleets(options.repeats))
    return 0 if all(row.legal for found in rows.values() for row in found) else 1


if __name__ == "__main__":
    raise SystemExit(main())
