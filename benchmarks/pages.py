"""The bench of pages: each one's server time with 500 budgets, 100,000 jobs, a million charges.

    ./run bench pages --write

Every page, every part that a page asks for again, every file and list of the API is asked for by
an administrator, a manager and a member, through the middleware, in a database of its own that is
removed: SQLite in a temporary folder, or on the PostgreSQL server that DATABASE_URL names. With
``--kept FILE`` the database of DATABASE_URL itself is filled once, and stays; the file says what
is in it. Exit status 1 if a route isn't listed, fails, or takes longer than it may.
"""

import argparse
import json
import os
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from datetime import datetime
from pathlib import Path
from random import Random
from time import perf_counter, process_time
from typing import Any
from unittest import mock

from . import pages_listed
from .ledger import _database
from .measuring import machine
from .pages_listed import API, FILE, PAGE, PART, Asked
from .tables import Table, median, milliseconds, put_into, show

REPEATS = 5
LIMIT = 0.3
PAGE_OF_DOCS = Path(__file__).parents[1] / "docs" / "ui.md"
PEOPLE = {"bench": "administrator", "manager": "manager", "member": "member"}
WORDS = {PAGE: "Pages", PART: "Parts asked for while a page is open", FILE: "Files", API: "API"}


@dataclass(frozen=True, slots=True)
class Answer:
    """Seconds of one person's requests, without the first, and how many queries each took."""

    seconds: tuple[float, ...]
    queries: int


@dataclass(frozen=True, slots=True)
class Figure:
    """What one address took of each person who may see it."""

    kind: str
    address: str
    answers: dict[str, Answer]
    failed: str = ""

    @property
    def most(self) -> float:
        """The greatest median."""
        return max((median(one.seconds) or 0.0 for one in self.answers.values()), default=0.0)

    @property
    def met(self) -> bool:
        return not self.failed and (self.kind == FILE or self.most <= LIMIT)


def measure(
    numbers: dict[str, Any], only: str = "", clock: Callable[[], float] = perf_counter
) -> list[Figure]:
    """Ask for everything that the tables name, whatever contains ``only``."""
    clients = {name: _client(name) for name in PEOPLE}
    chosen = [one for one in pages_listed.EVERYTHING if only in one.address]
    return [_figure(one, clients, numbers, clock) for one in chosen]


def _client(name: str) -> Any:
    from django.contrib.auth.models import User
    from django.test import Client

    client = Client(raise_request_exception=False, SERVER_NAME="localhost")  # an allowed host
    client.force_login(User.objects.get(username=name))
    return client


def _figure(
    asked: Asked, clients: dict[str, Any], numbers: dict[str, Any], clock: Callable[[], float]
) -> Figure:
    address = "/" + pages_listed.numbered(asked.address, numbers)
    body = asked.body and {k: pages_listed.numbered(v, numbers) for k, v in asked.body.items()}
    headers = {"HX-Request": "true"} if asked.kind == PART else {}
    answers, failed = {}, ""
    for name, client in clients.items():

        def call(client: Any = client) -> Any:
            answer = getattr(client, asked.method)(address, body or None, headers=headers)
            return answer, sum(map(len, answer)) if answer.streaming else len(answer.content)

        status = call()[0].status_code
        if status >= 500 or (name == "bench" and status in (400, 403, 404)):
            failed = f"{status} for {PEOPLE[name]}"
        if status < 400 or status == 422:
            answers[name] = _asked(call, clock)
    _progress(f"{asked.kind} {asked.address}: {_most(answers)} {failed}")
    return Figure(asked.kind, asked.address, answers, failed)


def _asked(call: Callable[[], Any], clock: Callable[[], float]) -> Answer:
    from django.db import connection
    from django.test.utils import CaptureQueriesContext

    with CaptureQueriesContext(connection) as caught:
        call()
    queries = len(caught)  # now: the requests that follow empty the list
    seconds = []
    for _ in range(REPEATS):
        begun = clock()
        call()
        seconds.append(clock() - begun)
    return Answer(tuple(seconds), queries)


def _most(answers: dict[str, Answer]) -> str:
    return " / ".join(
        f"{milliseconds(median(one.seconds))} ms, {one.queries} queries" for one in answers.values()
    )


# --- The world ------------------------------------------------------------------------------------


def fill(options: argparse.Namespace) -> dict[str, Any]:
    """Fill an empty, migrated database; return what addresses are about, and the instant."""
    from django.db import connection

    from . import ledger_year

    begun = perf_counter()
    if connection.vendor == "sqlite":
        with connection.cursor() as cursor:
            cursor.execute("PRAGMA synchronous = OFF")  # nothing is lost that can't be made anew
    # Short jobs are charged once each, and are among the charges.
    long = max(1000, (options.charges - options.jobs) * 48 // 47)
    world = ledger_year.build(
        charges=long, budgets=options.budgets, seed=options.seed, progress=_progress
    )
    numbers = add_pages(world, jobs=options.jobs, seed=options.seed)
    with connection.cursor() as cursor:
        cursor.execute("ANALYZE")
    _progress(f"filled in {perf_counter() - begun:.0f} s")
    return numbers


def add_pages(world: Any, *, jobs: int, seed: int) -> dict[str, Any]:
    """Add to a year of charges what pages show besides; return what addresses are about."""
    from allocator import cycle
    from workloads.models import Job

    from . import pages_people, pages_services, pages_work

    random = Random(seed)
    people = pages_people.add_people(world)
    Job.objects.filter(submitted_by=world.user).update(submitted_by=people[0])
    maker = pages_work.Maker(world, people, random, _progress)
    with standing_at(world.now):
        service = pages_services.add(maker)
        pages_work.fill(maker, jobs=jobs)
        numbers = pages_people.decide(world, people, random)
        _progress("decided")
        made = cycle.run(at=world.now, trigger="request")
        assert made is not None
    numbers |= {"cycle": made.pk, "service": service.pk, "now": world.now.isoformat()}
    for name, states in (("waiting", "queued"), ("running", "running"), ("ended", "completed")):
        found = Job.objects.exclude(kind=Job.Kind.REALTIME).filter(state=states)
        own = found.filter(budget=world.leaves[0])
        numbers[name] = (own.last() or found.latest("pk")).pk
    return numbers


@contextmanager
def standing_at(instant: datetime) -> Iterator[None]:
    """Let every clock stand there."""
    with mock.patch("django.utils.timezone.now", return_value=instant):
        yield


def _run(options: argparse.Namespace) -> tuple[dict[str, Any], list[Figure]]:
    from django.db import connection

    kept: Path | None = options.kept
    if kept is not None and kept.exists():
        numbers = json.loads(kept.read_text())
    else:
        numbers = fill(options)
        if kept is not None:
            kept.write_text(json.dumps(numbers))
    with standing_at(datetime.fromisoformat(numbers["now"])):
        clock = process_time if options.processor else perf_counter
        found = measure(numbers, options.only, clock)
    figures = [asdict(one) | {"most": one.most, "met": one.met} for one in found]
    return {"vendor": connection.vendor, "machine": machine(), "figures": figures}, found


def _kept_database() -> Callable[[], None]:
    """Set up Django with the database that DATABASE_URL names, which stays."""
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "config.settings")
    import django

    django.setup()
    from django.core.management import call_command
    from django.db import connection

    call_command("migrate", verbosity=0)
    return connection.close


# --- What is told ---------------------------------------------------------------------------------


def tables(found: Sequence[Figure]) -> list[Table]:
    return [
        _table([one for one in found if one.kind == kind], title) for kind, title in WORDS.items()
    ]


def _table(found: Sequence[Figure], title: str) -> Table:
    head = ("address", *PEOPLE.values(), "most", "queries", "")
    rows = []
    for one in found:
        each = [one.answers.get(name) for name in PEOPLE]
        medians = [milliseconds(median(it.seconds) if it else None) for it in each]
        most = max((second for it in one.answers.values() for second in it.seconds), default=None)
        queries = max((it.queries for it in one.answers.values()), default=0)
        verdict = one.failed or ("" if one.kind == FILE else "met" if one.met else "MISSED")
        rows.append((f"/{one.address}", *medians, milliseconds(most), str(queries), verdict))
    return Table(f"{title}, ms", head, rows)


def main(arguments: Sequence[str] | None = None) -> int:
    options = _parser().parse_args(arguments)
    os.environ.setdefault("TIMESTEP_MINUTES", "30")
    os.environ.setdefault("REPLAN_AT_ONCE", "false")
    os.environ.setdefault("API_REQUESTS_PER_MINUTE", "1000000")
    with tempfile.TemporaryDirectory(prefix="allotment-bench-") as folder:
        remove = _kept_database() if options.kept else _database(Path(folder))
        try:
            if unlisted := pages_listed.missing():
                print(f"pages: list what no table names: {', '.join(unlisted)}", file=sys.stderr)
                return 1
            answer, found = _run(options)
        finally:
            remove()
    if options.json:
        options.json.write_text(json.dumps(answer, indent=1) + "\n")
    print(show(tables(found), markdown=options.markdown))
    if options.write:
        page = PAGE_OF_DOCS.read_text()
        PAGE_OF_DOCS.write_text(put_into(page, f"pages-{answer['vendor']}", tables(found)))
    return 0 if all(one.met for one in found) else 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="./run bench pages", description=__doc__)
    add = parser.add_argument
    add("--charges", type=int, default=1_000_000, help="default: a million")
    add("--jobs", type=int, default=100_000, help="default: 100,000")
    add("--budgets", type=int, default=500, help="default: 500")
    add("--seed", type=int, default=0, help="of the year made up; default: 0")
    add("--only", default="", metavar="TEXT", help="addresses that contain this")
    add(
        "--processor",
        action="store_true",
        help="tell this process's own seconds: on SQLite, while the machine does other things too",
    )
    add("--kept", type=Path, metavar="FILE", help="keep the database; the file says what is in it")
    add("--json", type=Path, metavar="FILE", help="write the figures to a file")
    add("--markdown", action="store_true", help="print tables for a page")
    add("--write", action="store_true", help="put the tables into docs/ui.md")
    return parser


def _progress(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
