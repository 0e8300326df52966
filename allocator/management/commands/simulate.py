"""`manage.py simulate TRACE.csv`: play a trace, or the own history, under one policy or several."""

import contextlib
import json
import time
from argparse import RawDescriptionHelpFormatter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from django.core.management.base import CommandError, CommandParser

from allocator.core.events import NOTHING, Events, read_events
from allocator.core.fairshare import read_tree
from allocator.core.made_traces import Lab, made_trace, with_debug_jobs
from allocator.core.problem import Node
from allocator.core.scenario import parse_json
from allocator.core.simulate import POLICIES, simulate
from allocator.core.simulation.measures import Outcome
from allocator.core.simulation.setup import Setup, equal_tree, nodes_of, tree_of
from allocator.core.simulation.tables import comparison
from allocator.core.traces import DAY_S, Trace, read_csv, read_swf, write_csv
from allocator.core.validate import ProblemError
from allocator.simulating import telling
from allocator.simulating.setups import setup_of
from clusters.counting import plural
from config.commands import OneLineCommand

from ._files import output, refusing, source
from ._history import OwnHistory
from ._warm import warm_up

MADE = "made"  # as a trace's name: the one that comes with the project
HISTORY = "history"
# What isn't said of a history.
OF_TRACES = ("trace", "days", "start_day", "debug_jobs", "skip_bad_rows")
READ, WRITTEN = ("trace", "tree", "events"), ("json", "write_trace")  # options that name files
SHOWN = 20  # bad rows of a file that are named
EXAMPLE = """example:
  python manage.py simulate jobs.csv --nodes 56x8 --days 3 --policy fairshare --policy fifo
  python manage.py simulate made --nodes 56x8 --days 7 --debug-jobs 60 --json out.json
  python manage.py simulate jobs.csv --nodes 56x8 --events events.csv
  python manage.py simulate --history 2026-11-01 2026-11-15 --policy fairshare --policy priority

The trace is a CSV file with job_id, submit_time_s, gpus, duration_s and group, and if it has them
kind, min_runtime_s, resumable, urgency, time_limit_s and parked, and of real-time services demand,
demand_step_s and swap_cap; a file in the Standard Workload Format (NAME.swf); or the word made, for
a trace made from --seed. The tree file is that of the fairshare command: its leaves are the trace's
groups. The events file has event (window or failure), node, from_s, to_s, and known_s. With
--history the jobs and services are those that waited or ran in [FROM, TO) as the database has them,
with what befell their nodes, on the fleet and under the shares of today unless --nodes and --tree
say otherwise. Figures are explained in docs/simulator.md.

exit status: 0 done, 2 bad input (nothing is simulated or written)"""


class Command(OneLineCommand):
    help = (
        "Simulate a trace of jobs, or the own history, under scheduling policies, side by side. "
        "Only --history needs the database."
    )
    requires_system_checks = ()

    def create_parser(self, prog_name: str, subcommand: str, **kwargs: Any) -> CommandParser:
        kwargs |= {"epilog": EXAMPLE, "formatter_class": RawDescriptionHelpFormatter}
        return super().create_parser(prog_name, subcommand, **kwargs)

    def add_arguments(self, parser: CommandParser) -> None:
        add = parser.add_argument
        add("trace", nargs="?", metavar="TRACE.csv", help="the jobs, or the word made")
        add(
            "--history",
            nargs=2,
            metavar=("FROM", "TO"),
            help="the own jobs of [FROM, TO) instead: days, or instants with Z",
        )
        add("--nodes", help="NODESxGPUS, as in 56x8 (of a history: its fleet)")
        add("--tree", metavar="TREE.json", help="the budgets' shares (default: equal by group)")
        add("--events", metavar="EVENTS.csv", help="windows of maintenance and failures of nodes")
        add("--policy", action="append", choices=POLICIES, help="may be repeated (fairshare)")
        add("--days", type=int, metavar="N", help="how many to simulate (default: to the last job)")
        add("--start-day", type=int, default=0, metavar="D", help="first day of the trace (0)")
        add("--unlimited", action="store_true", help="every budget can pay for all it asks")
        add("--exact", action="store_true", help="durations are declared without an error")
        add("--seed", type=int, default=0, metavar="N", help="of errors and made jobs (0)")
        add("--groups", type=int, default=Lab.groups, metavar="N", help="of made jobs (4)")
        add("--debug-jobs", type=int, default=0, metavar="N", help="so many a day mixed in (0)")
        add("--skip-bad-rows", action="store_true", help="leave out rows that can't be read")
        add("--json", metavar="OUT", help="write all figures to this file")
        add("--write-trace", metavar="OUT", help="write the jobs as a trace to this file")

    def handle(self, *args: Any, **options: Any) -> None:
        name, out = options["trace"] or HISTORY, options["json"]
        check_choice(options)
        with refusing(name):
            check_numbers(options)
            self.past = OwnHistory.of(options) if options["history"] else None
            read = self.past.trace if self.past else self._read(options)
            nodes = self.past.nodes if self.past else nodes_of(options["nodes"])
        events = self._events(options, nodes)
        self._check_rows((read.problems, events.problems), options["skip_bad_rows"])
        with refusing(name):
            trace = read if self.past else self._part(read, options)
            setup = self._setup(options, trace, nodes, events)
        self._say(trace, events, setup)
        self._write_trace(options["write_trace"], trace, besides=name)
        with contextlib.ExitStack() as stack:
            file = None
            if out:
                stack.enter_context(refusing(out))
                file = stack.enter_context(output(out, besides=name))
            warm_up(self)
            outcomes = self._outcomes(trace, setup, options["policy"] or ["fairshare"], name)
            if file is not None:
                file.write(json.dumps(to_json(name, setup, outcomes), indent=1) + "\n")
        for line in comparison(outcomes):
            self.stdout.write(line)

    def _say(self, trace: Trace, events: Events, setup: Setup) -> None:
        """What people must know before they trust the figures."""
        past = self.past.past if self.past else None
        noted = telling.notes(trace, setup.events, setup.gpus, given=events, past=past)
        for sentence in telling.in_english(noted):
            self.stderr.write(sentence)

    def _write_trace(self, to: str | None, trace: Trace, *, besides: str) -> None:
        if to:
            with refusing(to), output(to, besides=besides) as file:
                file.writelines(write_csv(trace))

    def _part(self, whole: Trace, options: dict[str, Any]) -> Trace:
        """The days that are to be played, with debug jobs mixed in."""
        if options["debug_jobs"]:
            whole = with_debug_jobs(whole, options["debug_jobs"], options["seed"])
        first, days = options["start_day"], options["days"]
        last = whole.days - 1
        inside = whole.between(first * DAY_S, (last + 1 if days is None else first + days) * DAY_S)
        if not inside.rows:
            raise ProblemError(
                f"no job is submitted from day {first} on in that time: the trace has days 0 to "
                f"{last}."
            )
        return inside

    def _read(self, options: dict[str, Any]) -> Trace:
        name = options["trace"]
        if name == MADE:
            gpus = sum(node.gpus for node in nodes_of(options["nodes"]))
            days = options["start_day"] + (options["days"] or Lab.days)
            return made_trace(
                Lab(gpus=gpus, days=days, groups=options["groups"], seed=options["seed"])
            )
        try:
            with Path(name).open(newline="", encoding="utf-8-sig") as file:
                read = read_swf if name.lower().endswith(".swf") else read_csv
                trace = read(file, Path(name).name)
        except UnicodeDecodeError:
            raise ProblemError("it is no text in UTF-8: name a CSV or SWF file.") from None
        if not trace.rows and not trace.problems:
            raise ProblemError("it has no jobs: give a line for each.")
        return trace

    def _check_rows(self, files: Iterable[Sequence[str]], skipped: bool) -> None:
        """Name the rows of all files that can't be read, before anything is refused."""
        count = 0
        for problems in files:
            for sentence in problems[:SHOWN]:
                self.stderr.write(sentence)
            if (more := len(problems) - SHOWN) > 0:
                self.stderr.write(f"and {plural(more, 'row')} more.")
            count += len(problems)
        if count and not skipped:
            them = "it" if count == 1 else "them"
            raise CommandError(
                f"{plural(count, 'row')} can't be read: mend {them}, or give --skip-bad-rows.",
                returncode=2,
            )

    def _setup(
        self, options: dict[str, Any], trace: Trace, nodes: tuple[Node, ...], events: Events
    ) -> Setup:
        past, first = self.past, options["start_day"] * DAY_S
        seconds = past.seconds if past else (options["days"] or trace.days) * DAY_S
        tree = past.tree if past else equal_tree(trace.groups)
        if options["tree"]:
            with refusing(options["tree"]):
                tree = tree_of(read_tree(parse_json(source(options["tree"]))), trace.groups)
        befell = past.events if past else NOTHING
        return setup_of(
            nodes=nodes,
            tree=tree,
            seconds=seconds,
            unlimited=options["unlimited"],
            exact=options["exact"],
            seed=options["seed"],
            events=events.between(first, first + seconds) if events else befell,
        )

    def _events(self, options: dict[str, Any], nodes: Iterable[Node]) -> Events:
        if not (name := options["events"]):
            return NOTHING
        with refusing(name):
            try:
                with Path(name).open(newline="", encoding="utf-8-sig") as file:
                    found = read_events(file, Path(name).name, [node.name for node in nodes])
            except UnicodeDecodeError:
                raise ProblemError("it is no text in UTF-8: name a CSV file.") from None
            if not found and not found.problems:
                raise ProblemError("it has no events: give a line for each.")
            return found

    def _outcomes(
        self, trace: Trace, setup: Setup, policies: Iterable[str], name: str
    ) -> list[Outcome]:
        found = []
        for policy in dict.fromkeys(policies):
            progress = Progress(policy, setup.seconds, self.stderr._out)
            with refusing(name):
                found.append(simulate(trace, setup, policy, progress=progress.show))
            progress.done()
        return found


def to_json(name: str, setup: Setup, outcomes: Iterable[Outcome]) -> dict[str, Any]:
    """The file: what was simulated, and every figure of each policy."""
    return {
        "trace": name,
        "gpus": setup.gpus,
        "seconds": setup.seconds,
        "unlimited": setup.unlimited,
        "seed": setup.seed,
        "spread": setup.spread,
        **_befell(setup.events),
        "policies": [outcome.to_dict() for outcome in outcomes],
    }


def _befell(events: Events) -> dict[str, Any]:
    """How many windows and failures there were, where there were any."""
    if not events:
        return {}
    return {"windows": len(events.windows), "failures": len(events.failures)}


class Progress:
    """How far a simulation is and how long it may still take, on the error output."""

    def __init__(self, policy: str, seconds: int, stream: Any) -> None:
        self.policy, self.seconds, self.stream = policy, seconds, stream
        self.whole = f"{seconds / DAY_S:.3g} {'day' if seconds == DAY_S else 'days'}"
        self.moves = stream.isatty()
        self.began = self.shown = time.monotonic()

    def show(self, at: int) -> None:
        now = time.monotonic()
        if now - self.shown < (0.5 if self.moves else 10):
            return
        self.shown = now
        left = (now - self.began) * (self.seconds - at) / max(at, 1)
        line = f"{self.policy}: {at / DAY_S:.1f} of {self.whole}, about {left:.0f} s left"
        self.stream.write(f"\r{line:<72}" if self.moves else f"{line}\n")
        self.stream.flush()

    def done(self) -> None:
        spent = time.monotonic() - self.began
        line = f"{self.policy}: {self.whole} in {spent:.1f} s"
        self.stream.write(f"\r{line:<72}\n" if self.moves else f"{line}\n")
        self.stream.flush()


def check_choice(options: dict[str, Any]) -> None:
    """Refuse a command that names no jobs, jobs twice, a trace without a fleet, or a file twice."""
    check_files(options)
    if not options["history"]:
        if not options["trace"]:
            raise CommandError("Name a trace, or give --history FROM TO.", returncode=2)
        if not options["nodes"]:
            raise CommandError("Give --nodes, as in --nodes 56x8.", returncode=2)
        return
    for name in OF_TRACES:
        if options[name] and not (name == "skip_bad_rows" and options["events"]):
            flag = "the trace" if name == "trace" else f"--{name.replace('_', '-')}"
            raise CommandError(f"--history says which jobs: leave {flag} out.", returncode=2)


def check_files(options: dict[str, Any]) -> None:
    """Refuse to write over a file that is read, or twice to one."""
    seen = {Path(options[name]).resolve() for name in READ if options[name]}
    for name in WRITTEN:
        path = Path(options[name]).resolve() if options[name] else None
        if path in seen and (path.is_file() or not path.exists()):
            raise CommandError(
                f"{options[name]}: is read or written already; name another file.", returncode=2
            )
        if path is not None:
            seen.add(path)


def check_numbers(options: dict[str, Any]) -> None:
    """Refuse what is out of range."""
    for name, least, most in (
        ("days", 1, 366),
        ("start_day", 0, 36_500),
        ("seed", 0, 2**31),
        ("debug_jobs", 0, 10_000),
        ("groups", 1, 100),
    ):
        value = options[name]
        if value is not None and not least <= value <= most:
            flag = name.replace("_", "-")
            raise CommandError(f"--{flag} is {value}, but must be {least} to {most}.", returncode=2)
