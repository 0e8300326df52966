"""`./run test`: the whole suite on SQLite, then on a real PostgreSQL."""

import os
import time
import xml.etree.ElementTree as ElementTree
from dataclasses import dataclass
from pathlib import Path

from config.launcher import environment, postgres
from config.launcher.console import complain, say
from config.launcher.environment import PYTHON
from config.launcher.processes import Processes

CHROMIUM = ("chromium", "chromium-browser", "google-chrome")
# What doesn't depend on the database need not run a second time.
ONCE = ["--ignore=tests/core", "-m", "not browser and not once"]
WHOLE_SUITE = ["-n", "2", "--dist", "worksteal"]


@dataclass(frozen=True)
class Outcome:
    """What one run of pytest came to; `code` is its exit code, 0 if all is well."""

    database: str
    code: int
    passed: int
    failed: int
    skipped: int
    seconds: float


def test(processes: Processes, arguments: list[str]) -> int:
    """Run pytest on both databases and return 0 if both runs passed, else 1."""
    folder = processes.temporary_folder()
    sqlite = f"sqlite:///{folder / 'tests.sqlite3'}"
    outcomes = [_suite(processes, folder, "SQLite", sqlite, arguments or WHOLE_SUITE)]
    server = os.environ.get("DATABASE_URL", "")
    if not server.startswith(("postgresql://", "postgres://")):
        server = postgres.start(processes)
    second = arguments or [*WHOLE_SUITE, *ONCE]
    outcomes.append(_suite(processes, folder, "PostgreSQL", server, second))
    _conclude(outcomes)
    return 1 if any(outcome.code for outcome in outcomes) else 0


def coverage(processes: Processes) -> int:
    """Run the suite on SQLite, and say what lines of domain and core it covers; 0 for enough.

    Apart from `test`, because counting lines takes half as long again.
    """
    folder = processes.temporary_folder()
    counting = [*WHOLE_SUITE, "--cov", "--cov-report=", "--cov-fail-under=0"]
    outcome = _suite(processes, folder, "SQLite", f"sqlite:///{folder / 'tests.sqlite3'}", counting)
    env = {**os.environ, "COVERAGE_FILE": str(folder / "coverage")}
    covered = processes.run([str(PYTHON), "-m", "coverage", "report"], env=env) == 0
    _conclude([outcome])
    return 0 if covered and not outcome.code else 1


def test_environment(folder: Path, database_url: str) -> dict[str, str]:
    """Return the environment of a test run: none of the user's settings, files in `folder`."""
    return {
        **environment.without_settings(),
        "DATA_DIR": str(folder),
        "DATABASE_URL": database_url,
        "CELERY_BROKER_URL": "memory://",
        "COVERAGE_FILE": str(folder / "coverage"),
    }


def find_chromium() -> str | None:
    """Return the path of a Chromium that browser tests can drive, or None."""
    folders = os.environ.get("PATH", os.defpath).split(os.pathsep)
    paths = (Path(folder) / name for name in CHROMIUM for folder in folders)
    return next((str(path) for path in paths if os.access(path, os.X_OK)), None)


def _suite(
    processes: Processes, folder: Path, name: str, url: str, arguments: list[str]
) -> Outcome:
    say(f"\n== {name} " + "=" * (60 - len(name)))
    report = folder / f"{name}.xml"
    began = time.monotonic()
    pytest = [str(PYTHON), "-m", "pytest", f"--junitxml={report}", *arguments]
    code = processes.run(pytest, env=test_environment(folder, url))
    seconds = time.monotonic() - began
    return Outcome(name, code, *_count(report), seconds)


def _count(report: Path) -> tuple[int, int, int]:
    """Return how many tests passed, failed and were skipped, from pytest's own report."""
    if not report.exists():
        return 0, 0, 0
    suites = ElementTree.parse(report).getroot().iter("testsuite")
    sums = {"tests": 0, "failures": 0, "errors": 0, "skipped": 0}
    for suite in suites:
        for key in sums:
            sums[key] += int(suite.get(key, 0))
    failed = sums["failures"] + sums["errors"]
    return sums["tests"] - failed - sums["skipped"], failed, sums["skipped"]


def _conclude(outcomes: list[Outcome]) -> None:
    say()
    if find_chromium() is None:
        say("Browser tests were skipped: no Chromium was found (`apt-get install chromium`).")
    for outcome in outcomes:
        if outcome.code and not outcome.failed:
            complain(f"pytest ended with exit code {outcome.code} on {outcome.database}.")
        say(f"{outcome.database} took {outcome.seconds:.0f} s")
        counts = f"{outcome.passed} passed, {outcome.failed} failed, {outcome.skipped} skipped"
        say(f"{outcome.database}: {counts}")
