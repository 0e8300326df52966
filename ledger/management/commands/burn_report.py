"""`manage.py burn_report BUDGET`: what a budget's children were granted and have spent."""

import json
from argparse import RawDescriptionHelpFormatter
from dataclasses import asdict
from datetime import datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

from django.conf import settings
from django.core.management.base import CommandParser

from budgets.models import Budget
from budgets.periods import covering
from config import clock
from config.commands import OneLineCommand
from ledger import reports, sheets
from ledger.instants import LedgerError, iso
from ledger.management.commands._arguments import instant, refuse, table, zone_of

EXAMPLE = """examples:
  python manage.py burn_report orlo --from 2026-10-01 --to 2026-11-01
  python manage.py burn_report orlo/science --by leaf --format csv

Dates are half-open (--to 2026-11-01 ends with 31 October) and begin at midnight of the period's
time zone. The table shows credits (GPU-hours at rate 1) and GPU-hours; csv and json integers, in
milli-GPU-seconds (_mgpus) and GPU-seconds. Exit status: 0, or 2 for bad input."""


SECOND = timedelta(seconds=1)


class Command(OneLineCommand):
    help = "Report what a budget's children were granted, have spent and still have."

    def create_parser(self, prog_name: str, subcommand: str, **kwargs: Any) -> CommandParser:
        kwargs |= {"epilog": EXAMPLE, "formatter_class": RawDescriptionHelpFormatter}
        return super().create_parser(prog_name, subcommand, **kwargs)

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("budget", metavar="BUDGET", help="path of slugs, such as orlo/science")
        parser.add_argument("--from", metavar="DATE", help="default: the start of the period")
        parser.add_argument("--to", metavar="DATE", help="default: now, or the end of the period")
        parser.add_argument("--now", metavar="INSTANT", help="report as of then; default: now")
        parser.add_argument("--by", default="child", help="child (default) or leaf")
        parser.add_argument("--format", default="table", help="table (default), csv or json")

    def handle(self, *args: Any, **options: Any) -> None:
        render = {"table": _table, "csv": _csv, "json": _json}.get(options["format"])
        if render is None:
            raise refuse(f"There is no format {options['format']!r}: choose table, csv or json.")
        budget = Budget.objects.filter(path=options["budget"]).first()
        if budget is None:
            raise refuse(f"There is no budget {options['budget']!r}: give a path of slugs.")
        try:
            start, end, now = _interval(options)
            report = reports.burn_report(
                budget=budget, start=start, end=end, now=now, by=options["by"]
            )
        except LedgerError as error:
            raise refuse(str(error)) from None
        self.stdout.write(render(report))


def _interval(options: dict[str, Any]) -> tuple[datetime, datetime, datetime]:
    default = ZoneInfo(settings.ORGANISATION_TIME_ZONE)
    now = clock.now()
    if options["now"]:
        now = instant(options["now"], "--now", zone_of(options["now"], default))
    given = {
        name: instant(options[name], f"--{name}", zone_of(options[name], default))
        for name in ("from", "to")
        if options[name]
    }
    if len(given) < 2:
        anchor = given["to"] - SECOND if "to" in given else given.get("from", now)
        period = covering(anchor)
        if period is None:
            raise refuse(f"No started period covers {iso(anchor)}: give --from and --to.")
        until = period.ends_at if now >= period.ends_at else max(now, period.starts_at + SECOND)
        given = {"from": period.starts_at, "to": until} | given
    if given["from"] >= given["to"]:
        raise refuse(f"--from ({iso(given['from'])}) must come before --to ({iso(given['to'])}).")
    return given["from"], given["to"], now


def _table(report: reports.BurnReport) -> str:
    zone = ZoneInfo(report.time_zone)
    header = (
        *("budget", "granted", "settled", "in flight", "held", "spendable", "pace", "runway"),
        *("burned", "busy h", "parked h", "real time h", "unfunded h"),
    )
    rows = [_cells(row, _label(row, report)) for row in (*report.rows, report.total)]
    return "\n".join(
        (
            f"{report.budget}, {report.period}: burned from "
            f"{report.start.astimezone(zone):%Y-%m-%d %H:%M} to "
            f"{report.end.astimezone(zone):%Y-%m-%d %H:%M} {report.time_zone}, "
            f"as of {report.now.astimezone(zone):%Y-%m-%d %H:%M}",
            table(header, rows, rules=[len(rows) - 1]),
            "Amounts in credits, times in GPU-hours; pace 1.00 is on time.",
        )
    )


def _label(row: reports.BurnRow, report: reports.BurnReport) -> str:
    if row is report.total:
        return "total"
    if row.is_reserve:
        return "(reserve)"
    return row.path.removeprefix(f"{report.budget}/")


def _cells(row: reports.BurnRow, label: str) -> tuple[str, ...]:
    amounts = (row.granted_mgpus, row.settled_mgpus, row.in_flight_mgpus, row.held_mgpus)
    hours = (
        *(row.busy_gpu_seconds, row.parked_gpu_seconds),
        *(row.realtime_gpu_seconds, row.unfunded_gpu_seconds),
    )
    return (
        label,
        *map(reports.credits, (*amounts, row.spendable_mgpus)),
        "-" if row.pace_per_mille is None else f"{row.pace_per_mille / 1000:.2f}",
        "-" if row.runway_hours is None else f"{row.runway_hours / 24:.1f} d",
        reports.credits(row.burned_mgpus),
        *(f"{seconds / 3600:,.2f}" for seconds in hours),
    )


def _csv(report: reports.BurnReport) -> str:
    return sheets.burn_csv(report).rstrip("\r\n")


def _json(report: reports.BurnReport) -> str:
    answer = asdict(report)
    answer |= {name: iso(getattr(report, name)) for name in ("start", "end", "now")}
    return json.dumps(answer, indent=2)
