"""`manage.py focus_check FILE`: does a cost-and-usage file keep the rules of FOCUS?"""

import sys
from argparse import RawDescriptionHelpFormatter
from pathlib import Path
from typing import Any

from django.core.management.base import CommandParser

from clusters.counting import plural
from config.commands import OneLineCommand
from ledger.exports.focus_check import check_file
from ledger.instants import LedgerError
from ledger.management.commands._arguments import refuse

EXAMPLE = """examples:
  python manage.py burn_report orlo --format focus --out october.csv
  python manage.py focus_check october.csv

Rules of FOCUS 1.2, or of 1.4 where the columns are its own; docs/reports.md lists them. One line
per broken rule and column, with its first row (1 is the header). Exit status: 0 all kept, 1 rules
are broken, 2 the file can't be read."""


class Command(OneLineCommand):
    help = "Check a FOCUS cost-and-usage file, rule by rule."

    def create_parser(self, prog_name: str, subcommand: str, **kwargs: Any) -> CommandParser:
        kwargs |= {"epilog": EXAMPLE, "formatter_class": RawDescriptionHelpFormatter}
        return super().create_parser(prog_name, subcommand, **kwargs)

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("file", metavar="FILE", help="a CSV file in UTF-8")
        parser.add_argument("--focus-version", default="", help="1.2 or 1.4; default: by columns")

    def handle(self, *args: Any, **options: Any) -> None:
        try:
            checked = check_file(Path(options["file"]), version=options["focus_version"])
        except LedgerError as error:
            raise refuse(str(error)) from None
        for broken in checked.broken:
            self.stdout.write(str(broken))
        kept = "no rule" if not checked.broken else plural(len(checked.broken), "rule")
        rows, amount = plural(checked.rows, "row"), checked.amount_mgpus
        sums = "" if amount is None else f", {amount:,} mGPU-s"
        self.stdout.write(f"FOCUS {checked.version}, {rows}{sums}: {kept} broken")
        if checked.broken:
            sys.exit(1)
