"""`manage.py retrain`: learn now what beat learns by night."""

from argparse import RawDescriptionHelpFormatter
from typing import Any

from django.core.management.base import CommandParser

from clusters.counting import plural
from config.clock import now
from config.commands import OneLineCommand
from forecasting.core.kinds import KINDS
from forecasting.retraining import Retrained, retrain

EXAMPLE = """examples:
  python manage.py retrain --dry-run
  python manage.py retrain --kind training"""


class Command(OneLineCommand):
    help = (
        "Learn how jobs came out against physics, from those that completed and told what they "
        "compute, and switch to it unless it is worse on jobs that were held out."
    )

    def create_parser(self, prog_name: str, subcommand: str, **kwargs: Any) -> CommandParser:
        kwargs |= {"epilog": EXAMPLE, "formatter_class": RawDescriptionHelpFormatter}
        return super().create_parser(prog_name, subcommand, **kwargs)

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--kind", choices=tuple(KINDS), help="default: each")
        parser.add_argument("--dry-run", action="store_true", help="say what it would do")

    def handle(self, *args: Any, **options: Any) -> None:
        for kind in [options["kind"]] if options["kind"] else KINDS:
            for line in _told(retrain(kind=kind, now=now(), dry_run=options["dry_run"])):
                self.stdout.write(line)


def _told(found: Retrained) -> list[str]:
    if found.estimator is None:
        return [f"{found.kind}: {found.why}"]
    done = "switched" if found.switched else "not switched"
    rows = plural(found.rows, "job")
    lines = [f"{found.kind}: {rows}, {found.estimator.seconds:.1f} s, {done}. {found.why}"]
    for way, one in (found.held_out or {}).items():
        rows = plural(round(one["rows"]), "job")
        lines.append(
            f"  held out by {way}: {rows}, physics {one['physics']:.1%} off, "
            f"corrected {one['corrected']:.1%}"
        )
    return lines
