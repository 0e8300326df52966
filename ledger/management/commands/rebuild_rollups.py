"""`manage.py rebuild_rollups`: write the sums of all entries anew, while the product runs."""

from argparse import RawDescriptionHelpFormatter
from typing import Any

from django.core.management.base import CommandParser

from clusters.counting import plural
from config.commands import OneLineCommand
from ledger import services

ABOUT = """Figures are read from sums that are written together with the entries. Should `reconcile`
name one that is wrong, this makes all of them anew: entries are the truth. It goes budget by
budget, each in a transaction under the lock that all writers take, so it may be stopped at any
time and repeated, and nothing else has to stop. Exit status: 0, or 2 for bad input."""


class Command(OneLineCommand):
    help = "Write the ledger's sums anew from its entries."

    def create_parser(self, prog_name: str, subcommand: str, **kwargs: Any) -> CommandParser:
        kwargs |= {"epilog": ABOUT, "formatter_class": RawDescriptionHelpFormatter}
        return super().create_parser(prog_name, subcommand, **kwargs)

    def handle(self, *args: Any, **options: Any) -> None:
        entries, sums = services.rebuild_rollups(on_progress=self._progress)
        self.stdout.write(f"Wrote {plural(sums, 'sum')} of {plural(entries, 'entry', 'entries')}.")

    def _progress(self, done: int, all_of_them: int) -> None:
        """Tell every tenth of the way."""
        if done * 10 // all_of_them > (done - 1) * 10 // all_of_them:
            self.stderr.write(f"{done:,} of {all_of_them:,} budgets and periods")
