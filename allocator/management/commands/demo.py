"""`manage.py demo`: load the demo institute, play one day of it, and print what came of it."""

from argparse import RawDescriptionHelpFormatter
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

from django.core.management.base import CommandError, CommandParser

from allocator import timesteps
from allocator.demo import day, institute, telling
from allocator.demo.institute import Institute
from allocator.models import Cycle
from allocator.telling.frame import plural
from config.clock import now
from config.commands import OneLineCommand

from ._warm import warm_up

EXAMPLE = """example:
  python manage.py demo
  python manage.py demo --now 2026-11-26T17:00:00Z --quiet

The day that is played ends with the last full timestep before now. Where the institute is there
already, only what was missed since is caught up, and the report is printed again; --now can't give
it another day any more."""


class Command(OneLineCommand):
    help = "Load the demo institute, play one day of it with the real cycle, and print the report."

    def create_parser(self, prog_name: str, subcommand: str, **kwargs: Any) -> CommandParser:
        kwargs |= {"epilog": EXAMPLE, "formatter_class": RawDescriptionHelpFormatter}
        return super().create_parser(prog_name, subcommand, **kwargs)

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument(
            "--now", metavar="ISO", help="the instant to play up to, the first time (now)"
        )
        parser.add_argument("--quiet", action="store_true", help="show no progress, only the end")

    def handle(self, *args: Any, **options: Any) -> None:
        at = instant(options["now"]) if options["now"] else now()
        self.quiet = options["quiet"]
        try:
            place = institute.find()
        except institute.OtherData as other:
            raise CommandError(str(other), returncode=2) from None
        if place is not None and options["now"]:
            refuse_another_day(place, at)
        warm_up(self)
        if place is None:
            self.say("Loading Orlo Institute: 4 programs, 11 projects, a cluster of 64 GPUs ...")
            place = institute.build(now=at)
        last = self.watch(place, day.play(place, now=at))
        for line in telling.report(place, at=max(last, place.end)):
            self.stdout.write(line)

    def watch(self, place: Institute, cycles: Iterator[Cycle]) -> datetime:
        """Let the cycles run, and show how far they are; returns the instant of the last."""
        progress = Progress(place, self.stderr._out, quiet=self.quiet)
        reached = place.cluster.observed_until or place.start
        for made in cycles:
            reached = made.at
            progress.show(made)
        progress.done()
        return reached

    def say(self, line: str) -> None:
        if not self.quiet:
            self.stderr.write(line)


class Progress:
    """How far the day is: one line that moves on at a terminal, else one every four hours."""

    def __init__(self, place: Institute, stream: Any, *, quiet: bool) -> None:
        self.place, self.stream, self.quiet = place, stream, quiet
        self.moves = stream.isatty()
        self.made = self.starts = self.preemptions = 0
        self.next_hour = 0

    def show(self, made: Cycle) -> None:
        self.made += 1
        self.starts += made.starts
        self.preemptions += made.preemptions
        hour = int((made.at - self.place.start).total_seconds()) // 3600
        if self.quiet or (not self.moves and hour < self.next_hour):
            return
        self.next_hour = hour + 4
        local = made.at.astimezone(institute.ZONE).strftime("%a %H:%M")
        line = (
            f"Playing one day: {local}, {plural(self.made, 'cycle')}, "
            f"{plural(self.starts, 'start')}, {plural(self.preemptions, 'preemption')}, "
            f"{made.waiting} waiting"
        )
        self.stream.write(f"\r{line:<96}" if self.moves else f"{line}\n")
        self.stream.flush()

    def done(self) -> None:
        if self.moves and self.made and not self.quiet:
            self.stream.write("\r" + " " * 96 + "\r")
            self.stream.flush()


def refuse_another_day(place: Institute, at: datetime) -> None:
    """A day that was played stays: a cycle at an instant that isn't now would upset the clock."""
    if timesteps.floor(at) != place.end:
        raise CommandError(
            f"The demo is loaded already, with the day that ended {place.end:%Y-%m-%dT%H:%M:%SZ}, "
            "and keeps it: leave --now out to catch up what was missed since, or give the demo an "
            "empty database with DATA_DIR or DATABASE_URL.",
            returncode=2,
        )


def instant(text: str) -> datetime:
    """Read an ISO instant with a zone; anything else ends the command with one line."""
    try:
        at = datetime.fromisoformat(text)
    except ValueError:
        at = None
    if at is None or at.tzinfo is None or not 2000 <= at.year <= 2100:
        raise CommandError(
            f"--now is {text!r}: give an instant with its zone, as in 2026-11-26T17:00:00Z.",
            returncode=2,
        )
    return at.astimezone(UTC).replace(microsecond=0)
