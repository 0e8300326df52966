"""The command line of `./run`."""

import argparse
import os
import sys
from collections.abc import Sequence

from config.launcher import checks, environment, serve, testing
from config.launcher.console import Refused, complain
from config.launcher.environment import PYTHON
from config.launcher.processes import ROOT, Interrupted, Processes, interrupt_on_signals

DESCRIPTION = """\
  ./run                 prepare, load the demo institute, do its day, print it, then serve it
  ./run --no-serve      the same, but end after the report
  ./run setup           only prepare .venv
  ./run serve           prepare, then serve the database as it is (no demo is loaded)
  ./run test [ARGS]     the whole suite, on SQLite and on PostgreSQL; ARGS go to pytest
  ./run coverage        the suite on SQLite, and which lines of domain and core it covers
  ./run check           ruff, mypy, migrations, deployment settings, layers
  ./run bench [ARGS]    what plans are worth beside simpler planners', and their time
  ./run pictures        pictures of the main pages from the demo's day, into docs/images/pages
  ./run manage ARGS     a management command, such as: ./run manage reconcile
"""


def main(arguments: Sequence[str]) -> int:
    options, rest = _parse(arguments)
    # We start many processes: without byte code each would compile a thousand modules again.
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    interrupt_on_signals()
    processes = Processes()
    try:
        return _dispatch(processes, options, rest)
    except Refused as refused:
        complain(str(refused))
        return 1
    except Interrupted as interrupted:
        print(file=sys.stderr)
        return interrupted.exit_code
    finally:
        processes.close()


def _dispatch(processes: Processes, options: argparse.Namespace, rest: list[str]) -> int:
    match options.command:
        case "setup":
            environment.prepare(processes)
        case "manage":
            environment.prepare(processes)
            _become([str(ROOT / "manage.py"), *rest])
        case "bench":
            environment.prepare(processes, dev=True)
            return processes.run([str(PYTHON), "-m", "benchmarks.bench", *rest])
        case "test":
            environment.prepare(processes, dev=True)
            return testing.test(processes, rest)
        case "coverage":
            environment.prepare(processes, dev=True)
            return testing.coverage(processes)
        case "pictures":
            environment.prepare(processes, dev=True)
            return processes.run([str(PYTHON), "-m", "tests.pictures"])
        case "check":
            environment.prepare(processes, dev=True)
            return checks.check(processes)
        case _:
            return serve.run(processes, options)
    return 0


def _become(arguments: list[str]) -> None:
    # It takes our place, and so our terminal and our signals: nothing is left to outlive.
    os.execv(PYTHON, [str(PYTHON), *arguments])


def _parse(arguments: Sequence[str]) -> tuple[argparse.Namespace, list[str]]:
    parser = argparse.ArgumentParser(
        prog="./run",
        usage="./run [COMMAND] [--port N] [--no-serve]",
        description=DESCRIPTION,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    names = ("demo", "setup", "serve", "test", "coverage", "check", "bench", "pictures", "manage")
    parser.add_argument("command", nargs="?", default="demo", help=argparse.SUPPRESS)
    parser.add_argument("--port", type=_port, help="port of the web pages (default: 8000)")
    parser.add_argument("--no-serve", action="store_true", help="end after the demo's report")
    if arguments and arguments[0] in ("test", "bench", "manage"):
        return parser.parse_args(arguments[:1]), list(arguments[1:])
    options = parser.parse_args(arguments)
    if options.command not in names:
        parser.error(f"there is no command {options.command!r}: ./run --help lists them")
    return options, []


def _port(value: str) -> int:
    if not value.isdigit() or not 1 <= int(value) <= 65535:
        raise argparse.ArgumentTypeError(f"{value!r} is no port: give a number from 1 to 65535")
    return int(value)
