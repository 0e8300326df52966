"""`python3 -m client`: the API on the command line."""

import argparse
import getpass
import json
import os
import shlex
import sys
from collections.abc import Callable
from functools import partial
from itertools import islice
from typing import Any

from client import services, tables
from client.api import Client, Problem, token_for
from client.values import amount, instant, integers, json_object, more, seconds

EXAMPLES = """\
examples, in the demo; numbers are those that submit, jobs and requests print:
  export ALLOTMENT_URL=http://127.0.0.1:8000
  export ALLOTMENT_TOKEN=$(python3 -m client token yuki)
 as a member of a project, such as yuki:
  python3 -m client submit orlo/science/petrel train --gpus 8 --hours 2 -- python train.py
  python3 -m client estimate orlo/science/petrel --work '{"parameters": "7B", "tokens": "1B"}'
  python3 -m client jobs --mine --state queued
  python3 -m client show 17
  python3 -m client urgency 17 high
  python3 -m client submit orlo/science/petrel notebook --session --limit-hours 2 --gpus 1
  python3 -m client extend 18 30m
  python3 -m client burn orlo/science/petrel --format json
  python3 -m client ask orlo/science/petrel 250 --until +14d --why "one more sweep"
 for a real-time service, as anybody who may submit to its budget:
  python3 -m client traffic 19 traffic.csv --step-minutes 10
  python3 -m client calibrate 19 --on --rate 12.5
 as a manager of the program above, such as ines:
  python3 -m client decide 3 --from orlo/science/auk --why "auk is ahead"
 as an administrator, such as bo:
  python3 -m client drain 'h100-n[01-06]' --until +4h --reason firmware --preview
An instant is written 2026-12-01T12:00:00Z, or counted from now: +30m, +4h, +14d.
"""
CREDIT = tables.MGPUS_PER_CREDIT
Command = Callable[[Client, argparse.Namespace], Any]


def main(argv: list[str] | None = None) -> int:
    """Run one command: 0, or 1 with one line on stderr if the server refused, 2 if misused."""
    given = sys.argv[1:] if argv is None else argv
    # What follows -- is to be run, whatever it looks like.
    cut = given.index("--") if "--" in given else len(given)
    asked = _parser().parse_args(given[:cut])
    asked.run = given[cut + 1 :]
    try:
        print(_answer(asked), flush=True)
    except Problem as problem:
        print(f"allotment: {problem}", file=sys.stderr)
        return 1
    except BrokenPipeError:  # such as by head
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    return 0


def _answer(asked: argparse.Namespace) -> str:
    """Return what a command prints."""
    if asked.command == "token":
        password = os.environ.get("ALLOTMENT_PASSWORD") or getpass.getpass()
        return token_for(asked.url, username=asked.username, password=password)
    found = COMMANDS[asked.command](Client(asked.url, token=asked.token), asked)
    if asked.format == "json":
        return json.dumps(found, indent=2)
    return tables.SHOWN[asked.command](found)


def _submit(client: Client, asked: argparse.Namespace) -> Any:
    job = {
        "budget": asked.budget,
        "name": asked.name,
        "kind": asked.kind,
        "gpus": asked.gpus,
        "pools": asked.pool,
        "expected_duration_s": asked.hours,
        "minimum_runtime_s": asked.minimum_hours,
        "time_limit_s": asked.limit_hours,
        "resumable": asked.resumable or None,
        "session": asked.session or None,
        "urgency": asked.urgency,
        "when_unfunded": asked.when_unfunded,
        "dependencies": asked.after,
        "profile": asked.profile,
        "swap_cap": asked.swap_cap,
        "work": asked.work,
        "command": shlex.join(asked.run),
    }
    given = {name: value for name, value in job.items() if value not in (None, [], "")}
    return client.submit(idempotency_key=asked.key, **given)


def _estimate(client: Client, asked: argparse.Namespace) -> Any:
    job = {
        "budget": asked.budget,
        "kind": asked.kind,
        "gpus": asked.gpus,
        "pools": asked.pool,
        "expected_duration_s": asked.hours,
        "work": asked.work,
        "deadline": asked.deadline,
    }
    return client.estimate(**{k: value for k, value in job.items() if value not in (None, [])})


def _jobs(client: Client, asked: argparse.Namespace) -> Any:
    found = client.jobs(budget=asked.budget, states=asked.state, mine=asked.mine)
    return list(islice(found, asked.limit))


def _ask(client: Client, asked: argparse.Namespace) -> Any:
    unit, scale = ("thousandths", 1000) if asked.percent else ("amount_mgpus", CREDIT)
    amount = {unit: int(asked.amount * scale)}
    return client.ask(asked.budget, reason=asked.why, until=asked.until, **amount)


def _decide(client: Client, asked: argparse.Namespace) -> Any:
    if asked.withdraw:
        return client.withdraw(asked.request)
    if asked.decline:
        return client.decline(asked.request, reason=asked.why)
    if not asked.source:
        return client.request(asked.request)
    given = None
    if asked.given is not None:
        in_percent = client.request(asked.request)["unit"] == "percent"
        given = int(asked.given * (1000 if in_percent else CREDIT))
    return client.grant(asked.request, source=asked.source, reason=asked.why, given=given)


def _drain(client: Client, asked: argparse.Namespace) -> Any:
    return client.drain(
        asked.nodes,
        reason=asked.reason,
        start=asked.start,
        end=asked.end,
        preview=asked.preview,
    )


def _drains(client: Client, asked: argparse.Namespace) -> Any:
    states = () if asked.all else ("open", "planned")
    return list(islice(client.windows(states=states), asked.limit))


COMMANDS: dict[str, Command] = {
    "submit": _submit,
    "estimate": _estimate,
    "jobs": _jobs,
    "show": lambda client, asked: client.show(asked.job),
    "cancel": lambda client, asked: client.cancel(asked.job),
    "extend": lambda client, asked: client.extend(
        asked.job, more_s=asked.more, idempotency_key=asked.key
    ),
    "urgency": lambda client, asked: client.set_urgency(asked.job, asked.urgency),
    "traffic": services.send_or_show,
    "calibrate": services.calibrate,
    "tree": lambda client, asked: client.tree(),
    "burn": lambda client, asked: client.burn(
        asked.budget, start=asked.start, end=asked.end, by=asked.by
    ),
    "requests": lambda client, asked: list(
        client.requests(budget=asked.budget, status="" if asked.all else "open")
    ),
    "ask": _ask,
    "decide": _decide,
    "notices": lambda client, asked: list(islice(client.notices(unread=asked.unread), 50)),
    "plan": lambda client, asked: client.plan(),
    "nodes": lambda client, asked: client.nodes(),
    "drain": _drain,
    "drains": _drains,
    "undrain": lambda client, asked: client.undrain(asked.window),
}


def _parser() -> argparse.ArgumentParser:
    shared = argparse.ArgumentParser(add_help=False)
    shared.add_argument("--url", default=os.environ.get("ALLOTMENT_URL", "http://127.0.0.1:8000"))
    shared.add_argument(
        "--token", default=os.environ.get("ALLOTMENT_TOKEN", ""), help="or ALLOTMENT_TOKEN"
    )
    shared.add_argument("--format", choices=("table", "json"), default="table")
    parser = argparse.ArgumentParser(
        prog="python3 -m client",
        description="Submit and follow jobs, and see where budgets stand.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")

    def command(name: str, text: str) -> argparse.ArgumentParser:
        return commands.add_parser(name, help=text, description=text, parents=[shared])

    token = command("token", "Print a token for a password: asked for, or ALLOTMENT_PASSWORD.")
    token.add_argument("username")
    _add_submit(command("submit", "Submit a job; what to run stands after --."))
    _add_estimate(command("estimate", "Say what a job would take, cost and wait."))
    _add_jobs(command("jobs", "List jobs, the newest first."))
    command("show", "Show one job: runs, charges, why it waits.").add_argument("job", type=int)
    command("cancel", "Cancel a job.").add_argument("job", type=int)
    _add_extend(command("extend", "Extend a session, if it may be: at once, or with the reason."))
    urgency = command("urgency", "Sort a job otherwise among those of its budget.")
    urgency.add_argument("job", type=int)
    urgency.add_argument("urgency", help="low, normal or high, inside its own budget")
    services.add_traffic(
        command("traffic", "Send a service's traffic from a CSV file, or show it.")
    )
    services.add_calibrate(
        command("calibrate", "Show how a service follows its traffic; have it do so, or not.")
    )
    command("tree", "Show the budgets with shares and what is left.")
    _add_burn(command("burn", "Show what a budget burnt, by what is below it."))
    _add_requests(command("requests", "List open requests for more."))
    _add_ask(command("ask", "Ask for more for a budget: credits, or percent of its parent."))
    _add_decide(command("decide", "Show a request and its choices; grant, decline or withdraw it."))
    notices = command("notices", "List what you were told, the newest first.")
    notices.add_argument("--unread", action="store_true")
    command("plan", "Show the current plan, job by job.")
    command("nodes", "Show the nodes, their states, and when they will be free.")
    _add_drain(command("drain", "Set a window of maintenance; say when its nodes are free."))
    _add_drains(command("drains", "List windows of maintenance that are open or to come."))
    undrain = command("undrain", "End a window of maintenance, or call it off.")
    undrain.add_argument("window", type=int)
    return parser


def _add_submit(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("budget", help="path of a project, such as orlo/science/petrel")
    parser.add_argument("name")
    parser.add_argument("--kind", default="training", help="default: training")
    parser.add_argument("--gpus", type=int, help="a power of two")
    parser.add_argument("--pool", action="append", help="may be repeated; any if left out")
    parser.add_argument("--hours", type=seconds, help="how long it will take")
    parser.add_argument("--minimum-hours", type=seconds, help="charged and protected; 0: unfunded")
    parser.add_argument("--limit-hours", type=seconds, help="stopped then")
    parser.add_argument("--resumable", action="store_true", help="may be preempted and resumed")
    parser.add_argument(
        "--session", action="store_true", help="you work in it: protected to its limit, extensible"
    )
    parser.add_argument("--urgency", help="low, normal or high, inside its own budget")
    parser.add_argument("--when-unfunded", help="wait or run")
    parser.add_argument("--after", type=int, action="append", help="id of a job to wait for")
    parser.add_argument("--profile", type=integers, help="real time: GPUs per hour, 24 or 168")
    parser.add_argument("--swap-cap", type=int, help="real time: most GPUs to gain or lose a step")
    parser.add_argument(
        "--work", type=json_object, help="what it computes, as JSON, or @FILE with it"
    )
    parser.add_argument("--key", help="idempotency key: sent again, it answers the same job")


def _add_estimate(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("budget", help="path of a project, such as orlo/science/petrel")
    parser.add_argument("--kind", default="training", help="default: training")
    parser.add_argument("--gpus", type=int, help="a power of two; else the least that fits")
    parser.add_argument("--pool", action="append", help="may be repeated; any if left out")
    parser.add_argument("--hours", type=seconds, help="how long you think it will take")
    parser.add_argument(
        "--work", type=json_object, help="what it computes, as JSON, or @FILE with it"
    )
    parser.add_argument("--deadline", type=instant, help="such as +8h or 2026-12-01T00:00:00Z")


def _add_extend(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("job", type=int)
    parser.add_argument("more", type=more, help="such as 30m, 1h or 1h30m")
    parser.add_argument("--key", help="idempotency key: sent again, it extends once")


def _add_jobs(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--budget", default="", help="with all below it")
    parser.add_argument("--state", action="append", default=[], help="may be repeated")
    parser.add_argument("--mine", action="store_true")
    parser.add_argument("--limit", type=int, default=50, help="default: 50")


def _add_burn(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("budget")
    parser.add_argument("--from", dest="start", default="", help="such as 2026-10-01T00:00:00Z")
    parser.add_argument("--to", dest="end", default="")
    parser.add_argument("--by", choices=("child", "leaf"), default="child")


def _add_requests(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--budget", default="", help="for this very budget")
    parser.add_argument("--all", action="store_true", help="those that are decided too")


def _add_ask(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("budget")
    parser.add_argument("amount", type=amount)
    parser.add_argument("--percent", action="store_true", help="of its parent; else credits")
    parser.add_argument("--until", type=instant, help="such as +14d; else for good")
    parser.add_argument("--why", required=True)


def _add_decide(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("request", type=int)
    how = parser.add_mutually_exclusive_group()
    how.add_argument("--from", dest="source", help="grant it out of this budget")
    how.add_argument("--decline", action="store_true")
    how.add_argument("--withdraw", action="store_true")
    parser.add_argument("--given", type=amount, help="less than was asked for, in its unit")
    parser.add_argument("--why", default="")


def _add_drain(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("nodes", nargs="+", metavar="NODE", help="a name, or h100-n[01-08]")
    add_time = partial(parser.add_argument, type=instant)
    add_time("--from", dest="start", help="such as +2h or 2026-12-01T08:00:00Z; else now")
    add_time("--until", dest="end", help="else until it is ended")
    parser.add_argument("--reason", required=True)
    parser.add_argument("--preview", action="store_true", help="only say what it would do")


def _add_drains(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--all", action="store_true", help="those that are over, too")
    parser.add_argument("--limit", type=int, default=50, help="default: 50")


if __name__ == "__main__":
    sys.exit(main())
