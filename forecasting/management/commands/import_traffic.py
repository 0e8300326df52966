"""`manage.py import_traffic JOB FILE.csv`: keep a service's past traffic."""

from argparse import RawDescriptionHelpFormatter
from pathlib import Path
from typing import Any

from django.core.management.base import CommandError, CommandParser

from clusters.refusals import Refused
from config.clock import now
from config.commands import OneLineCommand
from forecasting import traffic
from workloads.models import Job

EXAMPLE = """example:
  python manage.py import_traffic 4012 traffic.csv --step-minutes 10

The file has a first line that names the columns at and rate: the instant at which a step begins,
such as 2026-10-01T00:00:00Z, and the mean rate a second in it. Steps that are left out are gaps.
The same file again writes nothing. Exit status: 0 done, 2 refused (nothing is written)."""


class Command(OneLineCommand):
    help = "Keep the past traffic of a real-time service, from a CSV file."

    def create_parser(self, prog_name: str, subcommand: str, **kwargs: Any) -> CommandParser:
        kwargs |= {"epilog": EXAMPLE, "formatter_class": RawDescriptionHelpFormatter}
        return super().create_parser(prog_name, subcommand, **kwargs)

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("job", type=int, metavar="JOB", help="number of the service")
        parser.add_argument("file", metavar="FILE.csv")
        parser.add_argument(
            "--step-minutes", type=int, metavar="N", help="of its first traffic (60)"
        )

    def handle(self, *args: Any, **options: Any) -> None:
        job = Job.objects.select_related("service").filter(pk=options["job"]).first()
        if job is None:
            raise CommandError(f"There is no job {options['job']}.", returncode=2)
        try:
            with Path(options["file"]).open("rb") as file:
                content = file.read(traffic.MOST_FILE_BYTES + 1)
            stored = traffic.store(
                job=job,
                rows=traffic.read_csv(content),
                step_minutes=options["step_minutes"],
                now=now(),
            )
        except OSError as error:
            text = f"{options['file']}: {error.strerror or error}."
            raise CommandError(text, returncode=2) from None
        except Refused as refused:
            raise CommandError(refused.sentence, returncode=2) from None
        self.stdout.write(told(stored))


def told(stored: traffic.Stored) -> str:
    """Return what became of a file, as one line."""
    return (
        f"{stored.new:,} new, {stored.changed:,} changed, {stored.same:,} known before, "
        f"{stored.too_old:,} too old to be kept."
    )
