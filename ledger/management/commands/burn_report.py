"""`manage.py burn_report BUDGET`: what a budget's children were granted and have spent."""

import os
from argparse import RawDescriptionHelpFormatter
from collections.abc import Iterable
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

from django.conf import settings
from django.core.management.base import CommandParser

from allocator.pages import report
from budgets.models import Budget
from budgets.periods import covering
from config import clock
from config.commands import OneLineCommand
from ledger.exports.focus_columns import DEFAULT
from ledger.full_report import Asked
from ledger.instants import LedgerError, iso
from ledger.management.commands._arguments import instant, refuse, zone_named, zone_of

EXAMPLE = """examples:
  python manage.py burn_report orlo --from 2026-10-01 --to 2026-11-01
  python manage.py burn_report orlo/science --by leaf --format xlsx --out science.xlsx
  python manage.py burn_report orlo --format focus --out october.csv

Dates are half-open (--to 2026-11-01 ends with 31 October) and begin at midnight of --zone, or of
the period's time zone. The table shows credits (GPU-hours at rate 1) and GPU-hours; other formats
integers, in milli-GPU-seconds (_mgpus) and GPU-seconds. Exit status: 0, or 2 for bad input."""


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
        parser.add_argument("--zone", metavar="ZONE", help="time zone of dates and days")
        parser.add_argument("--by", default="child", help="child (default) or leaf")
        kinds = "table (default), csv, json, xlsx or focus"
        parser.add_argument("--format", default="table", help=kinds)
        parser.add_argument("--focus-version", default=DEFAULT, help="1.2 (default) or 1.4")
        parser.add_argument("--out", metavar="FILE", help="where to; default: standard output")

    def handle(self, *args: Any, **options: Any) -> None:
        if options["format"] == "xlsx" and not options["out"]:
            raise refuse("A workbook is no text: give --out FILE.")
        try:
            file = report.file_of(
                _asked(options), kind=options["format"], focus_version=options["focus_version"]
            )
            if options["out"]:
                _save(file.chunks, Path(options["out"]))
            else:
                for chunk in file.chunks:
                    self.stdout.write(chunk.decode(), ending="")
        except LedgerError as error:
            raise refuse(str(error)) from None


def _save(chunks: Iterable[bytes], path: Path) -> None:
    """Write the file whole or not at all: what was there stays until it is."""
    part = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with part.open("wb") as stream:
            stream.writelines(chunks)
        part.replace(path)
    except OSError as error:
        raise refuse(f"{path} can't be written ({error.strerror}): choose another.") from None
    finally:
        part.unlink(missing_ok=True)


def _asked(options: dict[str, Any]) -> Asked:
    budget = Budget.objects.filter(path=options["budget"]).first()
    if budget is None:
        raise refuse(f"There is no budget {options['budget']!r}: give a path of slugs.")
    zone = zone_named(options["zone"]) if options["zone"] else None
    start, end, now = _interval(options, zone)
    return Asked(budget, start, end, now, options["by"], zone)


def _interval(
    options: dict[str, Any], zone: ZoneInfo | None
) -> tuple[datetime, datetime, datetime]:
    default = ZoneInfo(settings.ORGANISATION_TIME_ZONE)

    def read(text: str, name: str) -> datetime:
        return instant(text, name, zone or zone_of(text, default))

    now = read(options["now"], "--now") if options["now"] else clock.now()
    given = {name: read(options[name], f"--{name}") for name in ("from", "to") if options[name]}
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
