"""`manage.py recalibrate [JOB]`: make services' profiles anew from their traffic, as by night."""

from argparse import RawDescriptionHelpFormatter
from typing import Any

from django.core.management.base import CommandError, CommandParser

from clusters.refusals import Refused
from config.clock import now
from config.commands import OneLineCommand
from forecasting import calibrating
from forecasting import service_profiles as profiles
from workloads.models import Service

ABOUT = """Without a number: all services that follow their traffic. A profile that would have done
worse on the last days than the one in force is kept with its reason, and not put in force. Exit
status: 0 done or shown, 2 refused (of a service that was named)."""
LINE = "{job}: {what}; covers {time:.1%} of timesteps and {demand:.1%} of demand, {over:.1%} over"


class Command(OneLineCommand):
    help = "Make the profiles of real-time services anew from their traffic."

    def create_parser(self, prog_name: str, subcommand: str, **kwargs: Any) -> CommandParser:
        kwargs |= {"epilog": ABOUT, "formatter_class": RawDescriptionHelpFormatter}
        return super().create_parser(prog_name, subcommand, **kwargs)

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("job", type=int, nargs="?", metavar="JOB")
        parser.add_argument("--dry-run", action="store_true", help="show it, write nothing")

    def handle(self, *args: Any, **options: Any) -> None:
        named = options["job"]
        services = profiles.live()
        chosen = services.filter(job_id=named) if named else services.filter(calibrated=True)
        if named and not chosen.exists():
            raise CommandError(
                f"No service of job {named} runs or waits, and has traffic.", returncode=2
            )
        for service in chosen:
            try:
                self.stdout.write(self._one(service, dry=options["dry_run"]))
            except Refused as refused:
                if named:
                    raise CommandError(refused.sentence, returncode=2) from None
                self.stdout.write(f"{service.job}: {refused.sentence}")

    def _one(self, service: Service, *, dry: bool) -> str:
        if dry:
            made = calibrating.make(service, now())
            what, tried = made.reason or "would be put in force", made.tried.to_dict()
        else:
            version = calibrating.recalibrate(service=service, now=now())
            what, tried = version.reason or f"version {version.version} in force", version.tried
        return LINE.format(
            job=service.job,
            what=what.rstrip("."),
            time=tried["time_covered"],
            demand=tried["demand_covered"],
            over=tried["over"],
        )
