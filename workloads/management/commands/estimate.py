"""`manage.py estimate JOB.json`: what a job would take, cost and wait; nothing is written."""

import json
import sys
from argparse import RawDescriptionHelpFormatter
from datetime import datetime
from pathlib import Path
from typing import Any

from django.core.management.base import CommandError, CommandParser
from rest_framework.exceptions import ValidationError

from allocator.admission import AdmissionError
from allocator.pages import submit_words
from allocator.pages.submit import Option, Quote
from budgets.models import Budget
from clusters.counting import plural
from config.clock import now
from config.commands import OneLineCommand
from config.parsers import LARGEST_BODY
from workloads import durations
from workloads.api.estimates import EstimateIn, EstimateOut, estimated

EXAMPLE = """examples:
  python manage.py estimate job.json
  echo '{"budget": "orlo/science/petrel", "kind": "training", "gpus": 8,
         "work": {"parameters": "7B", "tokens": "1B"}}' | python manage.py estimate - --json

The file is what POST /api/v1/estimates/ takes. Exit status 2 and one line for what can't be."""
CREDIT = 3_600_000


class Command(OneLineCommand):
    help = "Say what a job would take, cost and wait, and on which numbers of GPUs it fits."

    def create_parser(self, prog_name: str, subcommand: str, **kwargs: Any) -> CommandParser:
        kwargs |= {"epilog": EXAMPLE, "formatter_class": RawDescriptionHelpFormatter}
        return super().create_parser(prog_name, subcommand, **kwargs)

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("job", metavar="JOB.json", help="a file, or - for standard input")
        parser.add_argument("--json", action="store_true", help="all that the API would answer")

    def handle(self, *args: Any, **options: Any) -> None:
        quote = _quoted(_read(options["job"]), now())
        if options["json"]:
            self.stdout.write(json.dumps(EstimateOut(quote).data, indent=2))
            return
        for line in _told(quote):
            self.stdout.write(line)


def _read(name: str) -> dict[str, Any]:
    try:
        found = json.loads(_bytes(name).decode("utf-8-sig"))
    except OSError as error:
        raise _refuse(f"{name} can't be read: {error.strerror or error}.") from None
    except RecursionError:
        raise _refuse(f"{name} is nested too deep: keep it under 100 levels.") from None
    except ValueError as error:
        raise _refuse(f"{name} can't be read as JSON: {error}.") from None
    if not isinstance(found, dict):
        raise _refuse(f"{name} holds no JSON object.")
    return found


def _bytes(name: str) -> bytes:
    """What is there, no more than the API would take; what never ends is left off, too."""
    with sys.stdin.buffer if name == "-" else Path(name).open("rb") as file:
        found = file.read(LARGEST_BODY + 1)
    if len(found) > LARGEST_BODY:
        raise _refuse(f"{name} has more than {LARGEST_BODY:,} bytes: a job takes a few hundred.")
    return found


def _quoted(body: dict[str, Any], at: datetime) -> Quote:
    asked = EstimateIn(data=body)
    try:
        asked.is_valid(raise_exception=True)
        given = dict(asked.validated_data)
        path = given.pop("budget")
        budget = Budget.objects.filter(path=path).first()
        if budget is None:
            raise _refuse(f"There is no budget {path!r}.")
        return estimated(budget, given, now=at)
    except AdmissionError as error:
        raise _refuse(
            " ".join(f"{name}: {text}" for name, text in error.problems.items())
        ) from None
    except ValidationError:
        texts = (f"{name}: {' '.join(map(str, said))}" for name, said in asked.errors.items())
        raise _refuse(" ".join(texts)) from None


def _refuse(sentence: str) -> CommandError:
    return CommandError(sentence, returncode=2)


def _told(quote: Quote) -> list[str]:
    spans = [durations.words(one) for one in (quote.low_s, quote.likely_s, quote.high_s)]
    rows = [
        ("GPUs", f"{quote.gpus:,}"),
        ("takes", f"{spans[0]} to {spans[2]}, likely {spans[1]}"),
        (
            "GPU-hours",
            f"{_hours(quote.likely_gpu_seconds)}, at most {_hours(quote.high_gpu_seconds)}",
        ),
        ("credits", f"{_credits(quote.likely_mgpus)}, at most {_credits(quote.high_mgpus)}"),
        ("by", f"{quote.estimate.method} ({quote.estimate.version})"),
        ("in memory", {None: "not known", True: "fits", False: "doesn't fit"}[quote.estimate.fits]),
        ("hold", f"{_credits(quote.hold_mgpus)} credits: {quote.verdict}"),
        ("bound by", quote.binding_path or "nothing"),
        ("starts", submit_words.start(quote)),
    ]
    lines = [f"{name:<10} {text}" for name, text in rows if text]
    lines += ["", *quote.estimate.reasons]
    if quote.options:
        lines += ["", f"{'GPUs':>6} {'likely':>10} {'9 in 10':>10} {'credits':>12}"]
        lines += [_option(one) for one in quote.options]
    return lines + ([] if quote.deadline is None else ["", _in_time(quote)])


def _in_time(quote: Quote) -> str:
    if not quote.options:
        return "Say what it computes (work) to learn which numbers of GPUs are in time."
    least = quote.least_in_time
    return f"In time from {plural(least, 'GPU')} on." if least else "No number of GPUs is in time."


def _option(one: Option) -> str:
    marks = " asked" * one.is_asked + " cheapest" * one.is_cheapest
    spans = f"{durations.words(one.likely_s):>10} {durations.words(one.high_s):>10}"
    return f"{one.gpus:>6,} {spans} {_credits(one.likely_mgpus):>12}{marks}"


def _hours(gpu_seconds: int) -> str:
    return _tenths(gpu_seconds, 3600)


def _credits(mgpus: int) -> str:
    return _tenths(mgpus, CREDIT)


def _tenths(amount: int, unit: int) -> str:
    """An amount in units with one decimal, rounded half up."""
    whole, tenth = divmod((20 * amount + unit) // (2 * unit), 10)
    return f"{whole:,}.{tenth}"
