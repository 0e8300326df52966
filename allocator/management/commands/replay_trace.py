"""`manage.py replay_trace TRACE.csv`: play a recorded trace through the real cycle."""

import tempfile
from argparse import RawDescriptionHelpFormatter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from django.core.management.base import CommandError, CommandParser

from allocator.models import Cycle
from allocator.replay import database, dumping, playback, setup, telling, trace, world
from allocator.replay.playback import Course, Played
from allocator.replay.trace import BadInput
from clusters.counting import plural
from config.commands import OneLineCommand

from ._warm import warm_up

EXAMPLE = """example:
  python manage.py replay_trace jobs.csv --nodes 56x8 --shares nlp=60,vision=40 --days 3

The trace is a CSV file with job_id, submit_time_s, gpus, duration_s and group; where it has user,
kind, min_runtime_s, resumable, urgency, time_limit_s and parked (seconds at the end of a job in
which it held its GPUs idle), they count too. Each group becomes a project of one organisation. It
is played in a fresh SQLite file that is deleted afterwards, never in the installation's database,
unless --keep or --database says so.

exit status: 0 all is right, 1 the books or a plan are wrong, 2 bad input (nothing is written)"""


class Command(OneLineCommand):
    help = "Play a recorded trace of jobs through the real cycle on a virtual clock."
    requires_system_checks = ()

    def create_parser(self, prog_name: str, subcommand: str, **kwargs: Any) -> CommandParser:
        kwargs |= {"epilog": EXAMPLE, "formatter_class": RawDescriptionHelpFormatter}
        return super().create_parser(prog_name, subcommand, **kwargs)

    def add_arguments(self, parser: CommandParser) -> None:
        add = parser.add_argument
        add("trace", metavar="TRACE.csv", help="the recorded jobs")
        add("--nodes", required=True, help="56x8, or pools as in h100=40x8,b200=16x8")
        add("--shares", default="", metavar="GROUP=PERCENT,...", help="default: equal for all")
        add("--days", type=int, required=True, metavar="N", help="how many days to play")
        add("--start-day", type=int, default=0, metavar="D", help="first day of the trace (0)")
        add("--seed", type=int, default=0, help="of the errors in declared durations (0)")
        add("--exact", action="store_true", help="durations are declared without an error")
        add("--rate", default="", metavar="PERMILLE", help="1200 for all pools, or b200=1500")
        add("--dump-cycles", metavar="DIR", help="write cycles as SCENARIO-k.json and PLAN-k.json")
        add("--dump-count", type=int, default=20, metavar="N", help="how many (20)")
        add("--time-limit", type=float, metavar="S", help="stop playing after so many seconds")
        add("--keep", metavar="FILE", help="play in this new SQLite file and keep it")
        add("--database", action="store_true", help="play in the installation's empty database")

    def handle(self, *args: Any, **options: Any) -> None:
        try:
            self.prepare(options)
            warm_up(self)
            with self.where(options):
                self.replay(options)
        except BadInput as bad:
            raise CommandError(str(bad), returncode=2) from None

    def prepare(self, options: dict[str, Any]) -> None:
        """Read and check everything before anything is written."""
        check_numbers(options)
        check_paths(options)
        jobs = trace.read(Path(options["trace"]))
        self.jobs = trace.window(jobs, start_day=options["start_day"], days=options["days"])
        self.pools = setup.pools_of(options["nodes"], options["rate"])
        self.shares = setup.shares_of(options["shares"], self.jobs)

    @contextmanager
    def where(self, options: dict[str, Any]) -> Iterator[None]:
        if options["database"]:
            yield
            return
        with database.own(Path(options["keep"]).absolute() if options["keep"] else None):
            yield

    def replay(self, options: dict[str, Any]) -> None:
        place = world.build(pools=self.pools, shares=self.shares, jobs=self.jobs)
        course = Course(
            start_day=options["start_day"],
            days=options["days"],
            seed=options["seed"],
            exact=options["exact"],
            time_limit_s=options["time_limit"],
        )
        progress = Progress(course, self.stderr._out)
        played = playback.play(place, self.jobs, course, progress.show)
        progress.done()
        for line in telling.report(place, played):
            self.stdout.write(line)
        if options["dump_cycles"]:
            folder = Path(options["dump_cycles"])
            pairs = dumping.dump(folder=folder, count=options["dump_count"])
            self.stdout.write(f"\n  {plural(pairs, 'cycle is', 'cycles are')} in {folder}.")
        if not telling.verdict(place, played).clean:
            raise CommandError("The books or a plan are wrong: see above.", returncode=1)


class Progress:
    """How far the replay is and how long it may still take, on the error output."""

    def __init__(self, course: Course, stream: Any) -> None:
        self.course, self.stream = course, stream
        self.moves = stream.isatty()
        self.shown = -10.0

    def show(self, played: Played, made: Cycle) -> None:
        if played.seconds - self.shown < (0.5 if self.moves else 10):
            return
        self.shown = played.seconds
        days = (made.at - world.START).total_seconds() / trace.DAY_S
        left = ""
        if days > 0:
            seconds = played.seconds * (self.course.days - days) / days
            left = f", about {int(seconds) // 60} min {int(seconds) % 60:02} s left"
        line = (
            f"Day {days:.2f} of {self.course.days}: {plural(played.cycles, 'cycle')}, "
            f"{made.waiting} waiting{left}"
        )
        self.stream.write(f"\r{line:<96}" if self.moves else f"{line}\n")
        self.stream.flush()

    def done(self) -> None:
        if self.moves:
            self.stream.write("\r" + " " * 96 + "\r")
            self.stream.flush()


def check_numbers(options: dict[str, Any]) -> None:
    for name, least, most in (
        ("days", 1, 90),
        ("start_day", 0, 36_500),
        ("seed", 0, 2**31),
        ("dump_count", 1, 100_000),
    ):
        if not least <= options[name] <= most:
            flag = name.replace("_", "-")
            raise BadInput(f"--{flag} is {options[name]}, but must be {least} to {most}.")
    limit = options["time_limit"]
    if limit is not None and not 0 < limit <= 7 * trace.DAY_S:
        raise BadInput(
            f"--time-limit is {limit}, but must be above 0 and at most a week, in seconds."
        )


def check_paths(options: dict[str, Any]) -> None:
    keep, folder = options["keep"], options["dump_cycles"]
    if keep and options["database"]:
        raise BadInput("--keep and --database exclude each other: give one of them.")
    if keep and Path(keep).exists():
        raise BadInput(f"--keep {keep}: there is such a file already: name a new one.")
    if keep and not Path(keep).absolute().parent.is_dir():
        raise BadInput(f"--keep {keep}: there is no such folder: make it first.")
    if folder and Path(folder).exists() and not Path(folder).is_dir():
        raise BadInput(f"--dump-cycles {folder}: is a file: name a folder.")
    if folder and not Path(folder).absolute().parent.is_dir():
        raise BadInput(f"--dump-cycles {folder}: there is no folder above it: make it first.")
    for flag, place in (("keep", keep), ("dump-cycles", folder)):
        if place and not _writable(Path(place).absolute()):
            raise BadInput(f"--{flag} {place}: nothing can be written there: choose another place.")


def _writable(place: Path) -> bool:
    """Say whether something may be written into a folder, or made in the one above it.

    Tried, since a file system may refuse even whom its permissions allow; nothing stays behind.
    """
    try:
        with tempfile.TemporaryFile(dir=place if place.is_dir() else place.parent):
            return True
    except OSError:
        return False
