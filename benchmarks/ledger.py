"""The ledger's bench: figures, reports, pages and a tick over a year of a million charges.

It makes a database of its own and removes it: SQLite in a temporary folder, or on the PostgreSQL
server that DATABASE_URL names, a test database.
"""

import argparse
import json
import os
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from datetime import timedelta
from pathlib import Path
from time import perf_counter
from typing import Any

import django

from .measuring import machine, timed
from .tables import Table, median, milliseconds, put_into, show

REPEATS = 7
PAGE = Path(__file__).parents[1] / "docs" / "ledger.md"


@dataclass(frozen=True, slots=True)
class Figure:
    """One measured figure: medians in seconds; ``limit`` None: none is asked for."""

    name: str
    seconds: float
    queries: int
    limit: float | None

    @property
    def met(self) -> bool:
        return self.limit is None or self.seconds <= self.limit


def measure(world: Any) -> list[Figure]:
    """Return the medians of every figure; the first call of each isn't counted."""
    return [_measured(name, limit, call) for name, limit, call in _figures(world)]


def _figures(world: Any) -> list[tuple[str, float | None, Callable[[], Any]]]:
    from allocator import delivery, entitlements
    from allocator.pages import budget, budget_chart, tree
    from allocator.pages import report as report_page
    from budgets import shares
    from ledger import figures, reports

    now, period, leaf = world.now, world.period, world.leaves[0]
    week = {"start": now - timedelta(days=7), "end": now, "now": now}
    nodes = shares.tree(at=now)

    def report(of: Any) -> Any:
        return reports.burn_report(budget=of, start=period.starts_at, end=now, now=now)

    def full(of: Any) -> Any:
        return report_page.page(world.user, budget=of, given={}, now=now)

    def page(of: Any) -> Any:
        return budget.page(world.user, path=of.path, now=now)

    return [
        ("accounts", None, lambda: figures.accounts(period=period, at=now)),
        ("figures of all budgets", None, lambda: reports.figures(period=period, now=now)),
        ("usage in a window of 7 days", None, lambda: reports.usage_window(**week)),
        (
            "fair-share input",
            None,
            lambda: entitlements.budget_nodes(
                tree=nodes, at=now, until=now + timedelta(minutes=20)
            ),
        ),
        ("burn report, root", 0.2, lambda: report(world.root)),
        ("burn report, leaf", 0.2, lambda: report(leaf)),
        ("report page, root", 0.2, lambda: full(world.root)),
        ("report page, leaf", 0.2, lambda: full(leaf)),
        (
            "delivered of owed, the year",
            None,
            lambda: delivery.summary(start=period.starts_at, end=now),
        ),
        ("burn by day, root", 0.2, lambda: _days(world, world.root)),
        ("burn-down, root", 0.2, lambda: budget_chart.burndown(world.user, path="orlo", now=now)),
        ("burn page, root", 0.2, lambda: page(world.root)),
        ("burn page, leaf", 0.2, lambda: page(leaf)),
        ("tree page", 0.3, lambda: tree.page(world.user, now=now)),
        ("tick: 2,000 runs, 4,096 GPUs", 1.0, lambda: _tick(world)),
    ]


def _days(world: Any, of: Any) -> Any:
    from zoneinfo import ZoneInfo

    from ledger import reports

    zone = ZoneInfo(world.period.time_zone)
    return reports.burn_by_day(budget=of, start=world.period.starts_at, end=world.now, zone=zone)


def _tick(world: Any) -> None:
    """Charge the next timestep and top up for the one after; then take all of it back.

    What PostgreSQL looks at when a transaction is committed, the foreign keys, it looks at here.
    """
    from django.db import connection, transaction

    from .ledger_year import LIVE, LIVE_STEPS, STEP, close

    with transaction.atomic():
        close(world, LIVE + LIVE_STEPS * STEP)
        if connection.vendor == "postgresql":
            connection.check_constraints()
        transaction.set_rollback(True)


def _measured(name: str, limit: float | None, call: Callable[[], Any]) -> Figure:
    from django.db import connection
    from django.test.utils import CaptureQueriesContext

    _progress(name)
    call()
    seconds = median(timed(call)[1] for _ in range(REPEATS))
    with CaptureQueriesContext(connection) as asked:
        call()
    return Figure(name, seconds or 0.0, len(asked), limit)


def table(found: Sequence[Figure], title: str) -> Table:
    rows = [
        (
            one.name,
            milliseconds(one.seconds),
            milliseconds(one.limit),
            str(one.queries),
            "" if one.limit is None else "met" if one.met else "MISSED",
        )
        for one in found
    ]
    return Table(title, ("figure", "median, ms", "at most, ms", "queries", ""), rows)


def main(arguments: Sequence[str] | None = None) -> int:
    options = _parser().parse_args(arguments)
    with tempfile.TemporaryDirectory(prefix="allotment-bench-") as folder:
        remove = _database(Path(folder))
        try:
            answer, found = _run(options)
        finally:
            remove()
    if options.json:
        options.json.write_text(json.dumps(answer, indent=2) + "\n")
    title = (
        f"{options.charges:,} charges over a year in {options.budgets} budgets, {answer['vendor']}"
    )
    print(show([table(found, title)], markdown=options.markdown))
    if options.write:
        name = f"ledger-{answer['vendor']}"
        PAGE.write_text(put_into(PAGE.read_text(), name, [table(found, title)]))
    return 0 if all(one.met for one in found) else 1


def _run(options: argparse.Namespace) -> tuple[dict[str, Any], list[Figure]]:
    from django.db import connection

    from .ledger_year import build

    before = perf_counter()
    world = build(
        charges=options.charges, budgets=options.budgets, seed=options.seed, progress=_progress
    )
    filled = perf_counter() - before
    _progress(f"filled in {filled:.0f} s")
    with connection.cursor() as cursor:
        cursor.execute("ANALYZE")
    found = measure(world)
    return {
        "vendor": connection.vendor,
        "charges": options.charges,
        "budgets": options.budgets,
        "filled_in_s": round(filled, 1),
        "machine": machine(),
        "figures": [asdict(one) | {"met": one.met} for one in found],
    }, found


def _database(folder: Path) -> Callable[[], None]:
    """Set up Django with an empty database of its own; return what removes it."""
    on_server = os.environ.get("DATABASE_URL", "").startswith("postgres")
    if not on_server:
        os.environ["DATABASE_URL"] = f"sqlite:///{folder / 'ledger.sqlite3'}"
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "config.settings")
    os.environ.setdefault("TIMESTEP_MINUTES", "30")
    django.setup()
    from django.core.management import call_command
    from django.db import connection

    if on_server:
        name = connection.settings_dict["NAME"]
        connection.creation.create_test_db(verbosity=0, autoclobber=True)
        return lambda: connection.creation.destroy_test_db(name, verbosity=0)
    call_command("migrate", verbosity=0)
    return connection.close


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.ledger", description=__doc__)
    parser.add_argument("--charges", type=int, default=1_000_000, help="default: a million")
    parser.add_argument("--budgets", type=int, default=500, help="default: 500")
    parser.add_argument("--seed", type=int, default=0, help="of the year made up; default: 0")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures to a file")
    parser.add_argument("--markdown", action="store_true", help="print the table for a page")
    parser.add_argument("--write", action="store_true", help="put the table into docs/ledger.md")
    return parser


def _progress(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
