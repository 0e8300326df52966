"""`manage.py reconcile`: prove that every GPU-second is accounted for, or name what differs."""

import sys
from argparse import RawDescriptionHelpFormatter
from collections import defaultdict
from collections.abc import Iterable
from datetime import date, datetime
from typing import Any
from zoneinfo import ZoneInfo

from django.conf import settings
from django.core.management.base import CommandParser

from config.commands import OneLineCommand
from ledger import reports
from ledger.exports.text import table
from ledger.instants import LedgerError, iso
from ledger.management.commands._arguments import instant, refuse, zone_at, zone_of
from ledger.models import ClosedTimestep

EXAMPLE = """examples:
  python manage.py reconcile
  python manage.py reconcile --from 2026-10-01 --to 2026-10-08 --days

Dates are half-open: --to 2026-10-08 ends with the 7th. Exit status: 0 clean, 1 differences,
2 bad input."""
COLUMNS = ("charged", "unfunded", "free", "down", "unaccounted", "inventory", "difference")
# The pool, and the day where rows are per day.
Group = tuple[str, date | None]


class Command(OneLineCommand):
    help = (
        "Prove, per pool and timestep, that charged + unfunded + free + down = inventory, and that "
        "entries keep their rules. Names every difference."
    )

    def create_parser(self, prog_name: str, subcommand: str, **kwargs: Any) -> CommandParser:
        kwargs |= {"epilog": EXAMPLE, "formatter_class": RawDescriptionHelpFormatter}
        return super().create_parser(prog_name, subcommand, **kwargs)

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--from", metavar="DATE", help="date or instant; default: the first")
        parser.add_argument("--to", metavar="DATE", help="date or instant; default: the last")
        parser.add_argument("--days", action="store_true", help="a row per pool and day")

    def handle(self, *args: Any, **options: Any) -> None:
        default = ZoneInfo(settings.ORGANISATION_TIME_ZONE)
        start, end = self._interval(options, default)
        try:
            rows = reports.conservation(start=start, end=end)
            found = [*map(str, reports.differences(start=start, end=end))]
            found += map(str, reports.entry_problems(start=start, end=end))
        except LedgerError as error:
            raise refuse(str(error)) from None
        timesteps = len({row.timestep for row in rows})
        self.stdout.write(f"GPU-seconds, {iso(start)} to {iso(end)}, {timesteps} closed timesteps")
        self.stdout.write(_table(rows, zone_at(start, default) if options["days"] else None))
        for line in found:
            self.stdout.write(line)
        if found:
            self.stdout.write(f"{len(found)} differences")
            sys.exit(1)
        self.stdout.write("clean")

    def _interval(self, options: dict[str, Any], default: ZoneInfo) -> tuple[datetime, datetime]:
        first = ClosedTimestep.objects.order_by("start").first()
        last = ClosedTimestep.objects.order_by("start").last()
        if first is None or last is None:
            raise refuse("No timestep is closed yet: there is nothing to reconcile.")
        start, end = first.start, last.end
        if options["from"]:
            start = instant(options["from"], "--from", zone_of(options["from"], default))
        if options["to"]:
            end = instant(options["to"], "--to", zone_of(options["to"], default))
        if start >= end:
            raise refuse(f"--from ({iso(start)}) must come before --to ({iso(end)}).")
        return start, end


def _table(rows: Iterable[reports.ConservationRow], zone: ZoneInfo | None) -> str:
    """Return totals per pool, or per pool and local day."""
    totals: dict[Group, dict[str, int]] = defaultdict(lambda: dict.fromkeys(COLUMNS, 0))
    for row in rows:
        group = row.pool, row.timestep.astimezone(zone).date() if zone else None
        for column in COLUMNS:
            totals[group][column] += getattr(row, column)
    return table(
        ("pool", *COLUMNS),
        [
            (f"{pool} {day or ''}".strip(), *(f"{sums[column]:,}" for column in COLUMNS))
            for (pool, day), sums in totals.items()
        ],
    )
