"""`manage.py plan SCENARIO.json`: plan a scenario file, with no database."""

import contextlib
import json
import os
from argparse import ArgumentTypeError, RawDescriptionHelpFormatter
from collections.abc import Callable
from typing import Any

from django.core.management.base import CommandError, CommandParser

from allocator.core.check import check, utilization
from allocator.core.plan import Result
from allocator.core.problem import Problem
from allocator.core.scenario import parse_problem
from allocator.core.solve import MODES, solve
from allocator.core.validate import shown
from clusters.counting import plural
from config.commands import OneLineCommand

from ._files import output, refusing, source
from ._warm import warm_up

SEEDS = 2**31 - 1
EXAMPLE = """example:
  python manage.py plan scenario.json --mode full --time-limit 20 --seed 1 --out plan.json

The plan goes to the file, or to the output where there is no --out; a summary goes to the error
output. Without --time-limit fast mode does a fixed number of passes and full mode takes 60 s."""


class Command(OneLineCommand):
    help = "Plan a scenario file and print what the plan is worth."
    requires_system_checks = ()

    def create_parser(self, prog_name: str, subcommand: str, **kwargs: Any) -> CommandParser:
        kwargs |= {"epilog": EXAMPLE, "formatter_class": RawDescriptionHelpFormatter}
        return super().create_parser(prog_name, subcommand, **kwargs)

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("scenario", metavar="SCENARIO.json", help="the scenario file")
        parser.add_argument("--mode", choices=MODES, default="fast")
        parser.add_argument("--time-limit", type=_seconds, metavar="S", help="seconds")
        parser.add_argument("--seed", type=_number(0, SEEDS), default=0, metavar="N")
        parser.add_argument(
            "--workers", type=_number(1, 64), default=_cores(), metavar="N",
            help="threads of full mode (default: one per core); with 1 a plan repeats itself",
        )  # fmt: skip
        parser.add_argument("--out", metavar="PLAN.json", help="where to write the plan")

    def handle(self, *args: Any, **options: Any) -> None:
        name, out = options["scenario"], options["out"]
        with refusing(name):
            problem = parse_problem(source(name))
        with contextlib.ExitStack() as stack:
            file = None
            if out:
                stack.enter_context(refusing(out))
                file = stack.enter_context(output(out, besides=name))
            result = self._solved(problem, options)
            content = json.dumps(result.to_dict(problem)) + "\n"
            if file is not None:
                file.write(content)
            else:
                stack.enter_context(refusing("output"))
                self.stdout.write(content, ending="")
                self.stdout.flush()
        (self.stdout if out else self.stderr).write(summary(problem, result))

    def _solved(self, problem: Problem, options: dict[str, Any]) -> Result:
        warm_up(self)  # so that the time limit is for planning alone
        result = solve(
            problem,
            mode=options["mode"],
            time_limit=options["time_limit"],
            seed=options["seed"],
            workers=options["workers"],
        )
        if broken := check(problem, result.plan):
            raise CommandError(f"the plan is illegal and was not written: {broken[0].text}")
        return result


def summary(problem: Problem, result: Result) -> str:
    """The few lines that say what the plan is worth."""
    placed = {a.job for a in result.plan.assignments} & {job.name for job in problem.batch}
    name = problem.name if problem.name.isprintable() else shown(problem.name)
    status = f"{result.status} ({result.mode}), legal"
    if result.failure:
        status += f"; fast's plan was kept: {shown(result.failure)}"
    size = f"{plural(problem.gpus, 'GPU')} x {plural(problem.horizon, 'timestep')}"
    bound = "none proven" if result.bound is None else f"{result.bound:.3f}"
    return "\n".join(
        (
            f"scenario     {name}: {size}",
            f"status       {status}",
            f"objective    {result.objective:.3f}",
            f"bound        {bound}",
            f"utilization  {100 * utilization(problem, result.plan):.1f} %",
            f"jobs placed  {len(placed)} of {len(problem.batch)}",
            f"seconds      {result.seconds:.4f}",
        )
    )


def _cores() -> int:
    return min(os.cpu_count() or 1, 8)


def _number(least: int, most: int) -> Callable[[str], int]:
    def number(text: str) -> int:
        if not text.strip().isdecimal() or not least <= int(text) <= most:
            raise ArgumentTypeError(f"must be a whole number from {least} to {most}, not {text!r}")
        return int(text)

    return number


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = -1.0
    if not 0 <= seconds <= 86_400:
        raise ArgumentTypeError(f"must be 0 to 86400 seconds, not {text!r}")
    return seconds
