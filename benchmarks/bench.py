"""The allocator's bench: seven families, fleets, fair share, a week, simulated months, a picture.

Without a command it does all but the last. Scenarios come from ../shared/scenarios where that is at
hand (reconstructions of the published families), else from this package's own seeded generator.
"""

import argparse
import json
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from allocator.core.problem import ProblemError

from . import (
    demand,
    fairshare,
    families,
    families_report,
    forecasts,
    gaming,
    months,
    rolling,
    scale,
    speeds,
)
from .chart import draw
from .judging import judge_at_hand
from .measuring import machine
from .planners import all_planners, warm_up
from .scenarios import FAMILIES
from .tables import Floor, Table, floors_table, put_into, show

PICTURE = Path(__file__).parents[1] / "docs" / "images" / "bench-families.svg"
Part = tuple[list[Table], list[Floor], Any]  # what is printed, what was asked for, the JSON


def bench_families(options: argparse.Namespace) -> Part:
    found = families.scenarios(_directory(options), options.seeds, options.family or ())
    bounds, best = _with_full(options)
    problems = families.with_files(found, bounds, best)
    if not problems:
        raise ProblemError(f"{options.scenarios} holds no scenario of a published family.")
    missing = [problem.name for problem, _ in problems if problem.name not in options.full]
    if options.full and missing:
        raise ProblemError(f"the file of --full has no row of {missing[0]}.")
    planners = all_planners(options.full_seconds, options.workers)
    rows = []
    for i, (problem, known) in enumerate(problems, 1):
        _progress(f"families: {i} of {len(problems)}, {problem.name}")
        row = families.measure(problem, known, planners, options.repeats)
        full = options.full.get(problem.name)
        rows.append(families.with_full(row, full) if full else row)
    floors = families_report.floors(rows)
    return families_report.tables(rows), floors, families.to_json(rows)


def _with_full(options: argparse.Namespace) -> tuple[dict[str, float], dict[str, float]]:
    """Bounds and best values, those of --full among them."""
    bounds, best = dict(options.bounds), dict(options.best)
    for name, row in options.full.items():
        bounds[name] = min(bounds.get(name, row["bound"]), row["bound"])
        if row["legal"]:
            best[name] = max(best.get(name, row["value"]), row["value"])
    return bounds, best


def bench_scale(options: argparse.Namespace) -> Part:
    _progress("scale")
    rows = scale.measure_all(repeats=options.repeats)
    return scale.tables(rows), scale.floors(rows), scale.to_json(rows)


def bench_fairshare(options: argparse.Namespace) -> Part:
    _progress("fairshare")
    rows = fairshare.measure_all(repeats=options.repeats)
    return fairshare.tables(rows), fairshare.floors(rows), fairshare.to_json(rows)


def bench_rolling(options: argparse.Namespace) -> Part:
    # With everything at once an hourly full plan would take days of the families' seconds.
    seconds = options.full_seconds if options.command == "rolling" else 0
    chosen = rolling.cases(seconds, options.workers)
    found: dict[str, list[rolling.Outcome]] = {}
    for case in chosen:
        _progress(f"rolling: {case.name}")
        found |= rolling.measure_all([case], weeks=options.weeks, days=options.days)
    return rolling.tables(found), rolling.floors(found), rolling.to_json(found)


def bench_months(options: argparse.Namespace) -> Part:
    rows: list[months.Played] = []
    for case in months.cases(options.month_days):
        _progress(f"months: {case.name}")
        rows += months.measure_all([case], options.month_days)
    return months.tables(rows), months.floors(rows), months.to_json(rows)


def bench_gaming(options: argparse.Namespace) -> Part:
    rows: list[gaming.Week] = []
    for trick in gaming.TRICKS:
        _progress(f"gaming: {trick}")
        rows += gaming.measure_all(options.seeds, [trick])
    return gaming.tables(rows), gaming.floors(rows), gaming.to_json(rows)


def bench_forecasts(options: argparse.Namespace) -> Part:
    _progress("forecasts")
    result = forecasts.measure_all()
    return forecasts.tables(result), forecasts.floors(result), forecasts.to_json(result)


def bench_speeds(options: argparse.Namespace) -> Part:
    _progress("speeds")
    result = speeds.measure_all()
    return speeds.tables(result), speeds.floors(result), speeds.to_json(result)


def bench_demand(options: argparse.Namespace) -> Part:
    _progress("demand")
    result = demand.measure_all()
    return demand.tables(result), demand.floors(result), demand.to_json(result)


COMMANDS = {
    "all": "all that follow but plot and pages, one after another (the default)",
    "families": "the seven families: every planner on every scenario",
    "scale": "plan time and memory on fleets of 64 to 4,096 GPUs",
    "fairshare": "fair share of trees of up to 10,000 budgets",
    "rolling": "a week, re-planned every half hour",
    "months": "four weeks of 448 GPUs on the simulator's clock, beside a priority queue",
    "gaming": "twin teams, of which one parks, inflates, splits, floods",
    "forecasts": "durations of training jobs, against published speeds",
    "speeds": "batches of inference, against published throughputs",
    "demand": "demand of services, against public traffic",
    "plot": "the families' picture, from a file that --json wrote",
    "pages": "server time and queries of every page, after a year of jobs (options of its own)",
}
PARTS: dict[str, Callable[[argparse.Namespace], Part]] = {
    "families": bench_families,
    "scale": bench_scale,
    "fairshare": bench_fairshare,
    "rolling": bench_rolling,
    "months": bench_months,
    "gaming": bench_gaming,
    "forecasts": bench_forecasts,
    "speeds": bench_speeds,
    "demand": bench_demand,
}


def main(arguments: Sequence[str] | None = None) -> int:
    given = list(sys.argv[1:] if arguments is None else arguments)
    if not given or (given[0] not in (*COMMANDS, "-h", "--help")):
        given.insert(0, "all")
    if given[0] == "pages":
        from . import pages  # it needs Django, and a database

        return pages.main(given[1:])
    options = _parser().parse_args(given)
    try:
        return _plot(options) if options.command == "plot" else _bench(options)
    except ProblemError as error:
        print(f"bench: {error}", file=sys.stderr)
        return 2


def _bench(options: argparse.Namespace) -> int:
    """Measure, tell; 1 if a plan is illegal, or if a figure is missed that must not be."""
    document: dict[str, Any] = {"machine": machine()}
    warm_up()
    tables = {"machine": [_machine(document["machine"])]}
    floors: list[Floor] = []
    for name in PARTS if options.command == "all" else [options.command]:
        tables[name], asked, document[name] = PARTS[name](options)
        floors += asked
    _progress("")
    document["floors"] = [asdict(floor) for floor in floors]
    tables["floors"] = [floors_table(floors)]
    _tell(document, tables, options)
    legal = all(floor.met for floor in floors if "legal" in floor.what)
    return 0 if legal and (not options.strict or all(floor.met for floor in floors)) else 1


def _tell(
    document: dict[str, Any], tables: dict[str, list[Table]], options: argparse.Namespace
) -> None:
    for found in tables.values():
        print(show(found, markdown=options.markdown), end="\n\n")
    if options.json:
        options.json.write_text(json.dumps(document, indent=1) + "\n")
    for page in options.page:
        text = page.read_text()
        for name, found in tables.items():
            text = put_into(text, name, found)
            for n, table in enumerate(found, 1):
                text = put_into(text, f"{name} {n}", [table])
        page.write_text(text)


def _plot(options: argparse.Namespace) -> int:
    options.out.write_text(draw(options.rows))
    print(options.out)
    return 0


def _machine(found: dict[str, Any]) -> Table:
    judged = "core check, judge" if judge_at_hand() else "core check"
    head = ("processor", "cores", "load before", "Python", "numpy", "legal by")
    values = [found[name] for name in ("processor", "cores", "load", "python", "numpy")]
    return Table("Measured on", head, [(*map(str, values), judged)])


def _directory(options: argparse.Namespace) -> Path | None:
    if options.own:
        return None
    if options.scenarios:
        return Path(options.scenarios)
    return families.SCENARIOS if families.SCENARIOS.exists() else None


def _progress(text: str) -> None:
    if sys.stderr.isatty():
        print(f"\r\033[K{text}", end="", file=sys.stderr, flush=True)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="./run bench", description=__doc__)
    commands = parser.add_subparsers(metavar="COMMAND", dest="command", required=True)
    for name, text in COMMANDS.items():
        command = commands.add_parser(name, help=text, description=f"{text}.")
        if name == "pages":
            continue  # before this parser is asked: it has one of its own
        if name == "plot":
            command.add_argument("rows", type=_bench_file, metavar="FILE")
            command.add_argument("--out", type=_to_write, default=PICTURE)
        else:
            _measuring(command)
    return parser


def _measuring(command: argparse.ArgumentParser) -> None:
    add = command.add_argument
    add("--json", type=_to_write, metavar="FILE", help="write every figure there")
    add(
        "--page",
        type=_to_change,
        metavar="FILE",
        action="append",
        default=[],
        help="put tables between this page's bench marks; may be repeated",
    )
    add("--markdown", action="store_true", help="print tables for a page")
    add("--repeats", type=_count, default=5, help="times are medians of these")
    add("--strict", action="store_true", help="fail if a figure asked for is missed")
    add("--scenarios", type=_directory_of, metavar="DIR", help="files to plan")
    add("--own", action="store_true", help="the bench's own scenarios")
    add("--seeds", type=_count, default=6, help="own scenarios per family; gaming: weeks")
    add("--family", action="append", choices=tuple(FAMILIES), help="only this one")
    add("--bounds", type=_numbers, default={}, metavar="FILE", help="JSON {scenario: bound}")
    add("--best", type=_numbers, default={}, metavar="FILE", help="JSON {scenario: best value}")
    add("--full", type=_full_file, default={}, metavar="FILE", help="benchmarks.full's --json")
    add("--full-seconds", type=_seconds, default=0, help="full mode too, so long each")
    add("--workers", type=_count, default=2, help="full mode's")
    add("--weeks", type=_count, default=3, help="rolling: mean of so many weeks")
    add("--days", type=_count, default=7, help="rolling: days in a week")
    add("--month-days", type=_count, default=28, help="months: days in a month")


def _count(value: str) -> int:
    if not value.isdigit() or int(value) < 1:
        raise argparse.ArgumentTypeError(f"{value!r} must be a whole number of 1 or more")
    return int(value)


def _seconds(value: str) -> float:
    try:
        seconds = float(value)
    except ValueError:
        seconds = -1
    if not 0 <= seconds < 1e6:
        raise argparse.ArgumentTypeError(f"{value!r} must be a number of seconds, 0 or more")
    return seconds


def _numbers(value: str) -> dict[str, float]:
    """A JSON object of scenario names and values."""
    try:
        return {name: float(number) for name, number in json.loads(Path(value).read_text()).items()}
    except (OSError, ValueError, TypeError, AttributeError):
        told = f"{value} is no JSON object of scenario names and numbers"
        raise argparse.ArgumentTypeError(told) from None


def _full_file(value: str) -> dict[str, dict[str, Any]]:
    """Full mode's rows by scenario."""
    try:
        rows = json.loads(Path(value).read_text())
        needed = ("value", "bound", "seconds", "status", "legal")
        return {row["name"]: {field: row[field] for field in needed} for row in rows}
    except (OSError, ValueError, TypeError, KeyError):
        told = f"{value} holds no rows; make it with: python -m benchmarks.full --json FILE"
        raise argparse.ArgumentTypeError(told) from None


def _bench_file(value: str) -> Any:
    try:
        return json.loads(Path(value).read_text())["families"]
    except (OSError, ValueError, TypeError, KeyError):
        told = f"{value} holds no families; make it with: ./run bench families --json FILE"
        raise argparse.ArgumentTypeError(told) from None


def _to_write(value: str) -> Path:
    """Known before an hour of measuring rather than after."""
    if not Path(value).parent.is_dir() or Path(value).is_dir():
        raise argparse.ArgumentTypeError(f"{value} can't be written: name a file in a directory")
    return Path(value)


def _to_change(value: str) -> Path:
    if not Path(value).is_file():
        raise argparse.ArgumentTypeError(f"there is no page {value}")
    return Path(value)


def _directory_of(value: str) -> Path:
    if not Path(value).is_dir():
        raise argparse.ArgumentTypeError(f"{value} is no directory")
    return Path(value)


if __name__ == "__main__":
    raise SystemExit(main())
