"""`python -m benchmarks.full`: what full mode proves, scenario by scenario, and by which model.

Scenarios come from ../shared/scenarios where that is at hand, else from the bench's own generator.
Every plan is judged by the core's check, guard included, and by the independent judge where that is
at hand. `--formulations` solves the same problems by other models too, for comparison.
"""

import argparse
import json
import time
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from allocator.core.problem import Problem
from allocator.core.scenario import parse_problem
from allocator.core.solve import solve

from .formulations import MODELS, Solved
from .judging import SHARED, broken, judge_at_hand
from .scenarios import FAMILIES, family_problem
from .tables import NOTHING, Table, median, percent, show

SCENARIOS = SHARED / "scenarios"


@dataclass(frozen=True, slots=True)
class Row:
    """One scenario in full mode."""

    name: str
    family: str
    legal: bool
    status: str
    value: float
    bound: float
    seconds: float
    fast: float  # what fast mode's plan is worth
    known: float | None  # the bound in expected.json

    @property
    def gap(self) -> float:
        """What the bound leaves open, of the bound."""
        return (self.bound - self.value) / max(abs(self.bound), 1e-9)

    @property
    def of_known(self) -> float | None:
        return None if self.known is None else self.value / self.known


def measure(problem: Problem, known: float | None, limit: float, workers: int) -> Row:
    """Full mode once, judged."""
    fast = solve(problem)
    started = time.perf_counter()
    result = solve(problem, mode="full", time_limit=limit, workers=workers)
    seconds = time.perf_counter() - started
    assert result.bound is not None
    legal = not broken(problem, result.plan, result.construction)
    return Row(
        problem.name, problem.family or "other", legal, str(result.status), result.objective,
        result.bound, seconds, fast.objective, known,
    )  # fmt: skip


def scenarios(only: str, seeds: int) -> Iterable[tuple[Problem, float | None]]:
    """Problems whose name holds `only`, and the bound that is known of each."""
    expected = SCENARIOS / "expected.json"
    if not expected.exists():
        for family in FAMILIES:
            for seed in range(seeds):
                problem = family_problem(family, seed)
                if only in problem.name:
                    yield problem, None
        return
    known = json.loads(expected.read_text())
    for file in sorted(SCENARIOS.glob("*-*.json")):
        if only in file.stem:
            yield parse_problem(file.read_bytes()), known.get(file.stem, {}).get("bound")


def line(row: Row) -> tuple[str, ...]:
    """A scenario's cells."""
    return (
        row.name, "yes" if row.legal else "NO", row.status, f"{row.value:.3f}", f"{row.bound:.3f}",
        f"{100 * row.gap:.2f} %", percent(row.of_known), percent(row.fast / row.value),
        f"{row.seconds:.1f}",
    )  # fmt: skip


HEAD = ("scenario", "legal", "status", "value", "bound", "gap", "of file bound", "fast", "s")


def medians(rows: Sequence[Row]) -> Table:
    """One line per family."""
    families: dict[str, list[Row]] = defaultdict(list)
    for row in rows:
        families[row.family].append(row)
    head = (
        "family",
        "legal",
        "proven",
        "gap",
        "largest gap",
        "of file bound",
        "fast",
        "s",
        "most s",
    )
    lines = []
    for family, found in families.items():
        seconds = [row.seconds for row in found]
        lines.append(
            (
                family,
                f"{sum(row.legal for row in found)}/{len(found)}",
                f"{sum(row.status == 'optimal' for row in found)}/{len(found)}",
                f"{100 * (median(row.gap for row in found) or 0):.2f} %",
                f"{100 * max(row.gap for row in found):.2f} %",
                percent(median(row.of_known for row in found)),
                percent(median(row.fast / row.value for row in found)),
                f"{median(seconds) or 0:.1f}",
                f"{max(seconds):.1f}",
            )
        )
    return Table("Full mode by family, medians", head, lines)


def compare(problems: Iterable[Problem], limit: float, workers: int) -> Table:
    """The same problems by every model."""
    lines = []
    for problem in problems:
        for name, model in MODELS.items():
            lines.append(_compared(problem.name, name, model(problem, limit, workers)))
            print("  ".join(lines[-1]), flush=True)
    head = ("scenario", "model", "literals", "proven", "value", "bound", "s")
    return Table("The same problems by three models", head, lines, left=2)


def _compared(scenario: str, model: str, found: Solved) -> tuple[str, ...]:
    value = NOTHING if found.value is None else f"{found.value:.2f}"
    bound = NOTHING if found.bound is None else f"{found.bound:.2f}"
    return (
        scenario, model, f"{found.literals}", "yes" if found.proven else "no", value, bound,
        f"{found.seconds:.1f}",
    )  # fmt: skip


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="full", description=__doc__)
    add = parser.add_argument
    add("--limit", type=float, default=15.0, metavar="S", help="seconds for each (15)")
    add("--workers", type=int, default=1, metavar="N", help="1 is repeatable")
    add("--only", default="", metavar="TEXT", help="scenarios whose name holds it")
    add("--seeds", type=int, default=6, help="own scenarios per family")
    add("--json", type=Path, metavar="FILE", help="write every figure there")
    add("--bounds", type=Path, metavar="FILE", help="write {scenario: bound} there")
    add("--formulations", action="store_true", help="compare models on these problems instead")
    options = parser.parse_args(arguments)
    chosen = scenarios(options.only, options.seeds)
    if options.formulations:
        print(
            show([compare((p for p, _ in chosen), options.limit, options.workers)], markdown=True)
        )
        return 0
    rows: list[Row] = []
    print("  ".join(HEAD))
    for problem, known in chosen:
        rows.append(measure(problem, known, options.limit, options.workers))
        print("  ".join(line(rows[-1])), flush=True)
    print()
    print(show([medians(rows)], markdown=True))
    print(f"\njudged by the check{' and the judge' if judge_at_hand() else ' alone'}")
    if options.json:
        options.json.write_text(json.dumps([asdict(row) for row in rows], indent=1) + "\n")
    if options.bounds:
        bounds = {row.name: row.bound for row in rows}
        options.bounds.write_text(json.dumps(bounds, indent=1) + "\n")
    return 0 if all(row.legal for row in rows) else 1


if __name__ == "__main__":
    raise SystemExit(main())
