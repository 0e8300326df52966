"""A scripted day that is killed (SIGKILL) between two statements and goes on in another process.

Run as a program by tests/test_crash.py, because it forks before it opens any connection:

    python -m tests.crashing DATABASE TRIALS SEED

DATABASE is an empty migrated database (an SQLite file, or a name on the PostgreSQL server that the
settings point to). Prints a JSON object: how many points a day has at which it may be killed, how
many trials were made, and what went wrong in which.
"""

import contextlib
import gc
import json
import os
import random
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import django

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "config.settings")
django.setup()

import psycopg  # noqa: E402
from django.db import connection  # noqa: E402

from allocator import admission, cycle  # noqa: E402
from allocator.core.warm import warm  # noqa: E402
from allocator.models import Alarm  # noqa: E402
from budgets.models import Budget, Period  # noqa: E402
from clusters.connectors import KINDS  # noqa: E402
from clusters.connectors.simulated import SimulatedConnector  # noqa: E402
from clusters.models import Cluster, Node, Pool, SimulatedFault  # noqa: E402
from ledger.models import Entry  # noqa: E402
from tests.factories import HOUR, T0, someone  # noqa: E402
from tests.helpers import (  # noqa: E402
    Institute,
    assert_invariants,
    assert_reconciled,
    make_institute,
)
from workloads.models import Holding, Job, Run  # noqa: E402

MINUTE = timedelta(minutes=1)
FOLDER = Path(tempfile.mkdtemp(prefix="crashing-"))


# --- The day -------------------------------------------------------------------------------------


def scene() -> None:
    place = make_institute(
        nodes=3,
        credits={
            "orlo/science/petrel": 1000,
            "orlo/science/auk": 7,
            "orlo/vision/tern": 1000,
        },
    )
    fault = T0 + 97 * MINUTE
    SimulatedFault.objects.create(node=place.nodes[0], starts_at=fault, ends_at=fault + HOUR)


def submit(place: Institute, path: str, name: str, at: datetime, **asked: Any) -> None:
    place.submit(place.tree[path], at=at, name=name, idempotency_key=name, **asked)


def arrive(place: Institute, at: datetime) -> None:
    """What users do at an instant; repeated it does nothing more."""
    petrel, auk, tern = "orlo/science/petrel", "orlo/science/auk", "orlo/vision/tern"
    minutes = int((at - T0).total_seconds()) // 60
    if minutes == 0:
        submit(place, petrel, "first", at, lasts=5 * 3600, expected_duration_s=6 * 3600)
        submit(place, petrel, "second", at, lasts=5 * 3600, expected_duration_s=6 * 3600)
        submit(place, auk, "poor", at, gpus=4, lasts=3 * 3600, expected_duration_s=3 * 3600)
        profile = (2, 4, 1, 3, 0, 2) * 4
        place.serve(place.tree[tern], at=at, profile=profile, swap_cap=3, idempotency_key="chat")
    if minutes == 10:
        submit(place, tern, "late", at, lasts=5000, expected_duration_s=5400)
        submit(place, auk, "dear", at, gpus=8)
    if minutes == 80:
        for name in ("second", "dear"):
            admission.cancel(job=Job.objects.get(name=name), by=place.user, now=at)
    if minutes == 110:
        submit(place, petrel, "free", at, gpus=2, minimum_runtime_s=0, lasts=1200)


# Minutes since the start; from 130 to 240 three ticks are missed.
INSTANTS = [T0 + m * MINUTE for m in (0, 10, 30, 60, 80, 97, 110, 130, 240, 270, 300, 600)]


def live_through(progress: Path, first: int, before: Callable[[], None] = lambda: None) -> None:
    """Play the day from an instant on, noting each one before it is begun."""
    place = Institute(
        cluster=Cluster.objects.get(),
        pool=Pool.objects.get(),
        nodes=list(Node.objects.order_by("position")),
        tree={budget.path: budget for budget in Budget.objects.all()},
        period=Period.objects.get(),
        user=someone(),
    )
    for n in range(first, len(INSTANTS)):
        before()
        progress.write_text(str(n))
        arrive(place, INSTANTS[n])
        _cycle(INSTANTS[n])


def _cycle(at: datetime) -> None:
    """Run a cycle, once the server has noticed that the lock's last holder is dead."""
    for _ in range(200):
        if cycle.run(at=at, trigger="test") is not None:
            return
        time.sleep(0.05)
    raise AssertionError("The lock of a dead process was not freed in 10 s.")


def outcome() -> list[Any]:
    """All that a crash may not change, without ids: they may be skipped."""
    jobs = [list(row) for row in Job.objects.order_by("name").values_list(
        "name", "state", "ended_at", "attempt", "progress_s", "funded")]  # fmt: skip
    runs = Run.objects.order_by("job__name", "number").values_list(
        "job__name", "number", "started_at", "ended_at", "end_reason", "protected_until"
    )
    held = Holding.objects.values_list(
        "run__job__name", "node__name", "mask", "funded", "started_at", "ended_at"
    )
    money = Entry.objects.values_list(
        "kind", "budget__path", "job__name", "attempt", "at", "until", "timestep", "amount_mgpus",
        "gpu_seconds", "parked_gpu_seconds", "funded",
    )  # fmt: skip
    rows = [jobs, list(runs), *(sorted(table, key=str) for table in (held, money))]
    found: list[Any] = json.loads(json.dumps(rows, default=str))
    return found


# --- Killing -------------------------------------------------------------------------------------


class Guillotine:
    """Counts the points between statements, and kills this process at one of them."""

    def __init__(self, deadly: int) -> None:
        self.deadly = deadly
        self.count = 0
        self.calls: list[int] = []  # points just before and after a connector's call
        self.visible: list[int] = []  # points at which something new stands in the database

    def point(self) -> None:
        self.count += 1
        if self.count == self.deadly:
            os.kill(os.getpid(), signal.SIGKILL)

    def statement(self, execute: Any, sql: str, *args: Any) -> Any:
        self.point()
        answer = execute(sql, *args)
        if not connection.in_atomic_block and not sql.startswith("SELECT"):
            self.visible.append(self.count + 1)
        return answer

    @contextlib.contextmanager
    def over_everything(self) -> Iterator[None]:
        """Points before each statement, around each commit and each call of the connector."""
        guillotine = self
        wire: Any = connection  # the commit itself is no public method
        commit = wire._commit

        def around_commit() -> Any:
            guillotine.point()
            commit()
            guillotine.point()
            guillotine.visible.append(guillotine.count)

        class Watched(SimulatedConnector):
            def __getattribute__(self, name: str) -> Any:
                value = super().__getattribute__(name)
                return guillotine.around(value) if name in ("start", "stop", "resize") else value

        wire._commit = around_commit
        KINDS["simulated"] = Watched
        with connection.execute_wrapper(self.statement):
            yield

    def around(self, call: Callable[..., Any]) -> Callable[..., Any]:
        def watched(*args: Any, **kwargs: Any) -> Any:
            self.point()
            self.calls.append(self.count)
            answer = call(*args, **kwargs)
            self.point()
            self.calls.append(self.count)
            return answer

        return watched


# --- Processes and databases ---------------------------------------------------------------------


def forked(database: str, work: Callable[[], Any]) -> tuple[bool, Any]:
    """Do the work in a child; whether it was killed, and what it returned or why it failed."""
    answer = FOLDER / "answer"
    answer.unlink(missing_ok=True)
    child = os.fork()
    if child == 0:
        try:
            connection.settings_dict["NAME"] = database
            result = {"ok": work()}
            connection.close()  # SQLite: all of it in one file again
        except BaseException:
            result = {"error": traceback.format_exc()}
        answer.write_text(json.dumps(result))
        os._exit(0)
    _, status = os.waitpid(child, 0)
    if os.WIFSIGNALED(status):
        return True, None
    said = json.loads(answer.read_text())
    if "error" in said:
        raise AssertionError(said["error"])
    return False, said["ok"]


def copy(source: str, target: str) -> str:
    """Copy a database; the target is a name on the server, or a file in the folder."""
    if connection.vendor == "sqlite":
        path = FOLDER / target
        for suffix in ("-wal", "-shm"):
            Path(f"{path}{suffix}").unlink(missing_ok=True)
        shutil.copy(source, path)
        return str(path)
    with server() as cursor:
        _drop(cursor, target)
        cursor.execute(f'CREATE DATABASE "{target}" TEMPLATE "{source}"')
    return target


def drop(name: str) -> None:
    if connection.vendor == "postgresql":
        with server() as cursor:
            _drop(cursor, name)


def _drop(cursor: Any, name: str) -> None:
    cursor.execute(f'DROP DATABASE IF EXISTS "{name}" WITH (FORCE)')


@contextlib.contextmanager
def server() -> Iterator[Any]:
    """A cursor on the server's maintenance database."""
    given = connection.settings_dict
    address = {"user": given["USER"], "host": given["HOST"], "port": given["PORT"]}
    known = {key: value for key, value in address.items() if value}
    with psycopg.connect(
        dbname="postgres", password=given["PASSWORD"] or None, autocommit=True, **known
    ) as session:
        yield session.cursor()


def whole_day(database: str, name: str) -> list[Any]:
    """Live through the day, and keep the database as it stands before each instant."""
    guillotine = Guillotine(0)
    began: list[int] = []  # how many points lie before each instant

    def keep() -> None:
        connection.close()  # SQLite: all of it in one file; PostgreSQL copies what nobody is in
        copy(database, f"{name}_{len(began)}")
        began.append(guillotine.count)

    with guillotine.over_everything():
        live_through(FOLDER / "progress", 0, keep)
    return [guillotine.count, guillotine.calls, guillotine.visible, began, outcome()]


def until_killed(deadly: int) -> None:
    with Guillotine(deadly).over_everything():
        live_through(FOLDER / "progress", int((FOLDER / "progress").read_text()))


def rest_of_day(deadly: int = 0) -> list[Any]:
    """Go on from the instant at which the process before was killed."""
    with Guillotine(deadly).over_everything():
        live_through(FOLDER / "progress", int((FOLDER / "progress").read_text()))
    found = outcome()
    assert_invariants(at=INSTANTS[-1])
    assert_reconciled()
    assert not Alarm.objects.filter(cleared_at=None).exists(), list(Alarm.objects.values())
    return found


@dataclass
class Day:
    """The day that nobody killed; databases kept before each instant are named for it."""

    name: str
    began: list[int] = field(default_factory=list)
    outcome: list[Any] = field(default_factory=list)

    def kept(self, n: int) -> str:
        kept = f"{self.name}_{n}"
        return str(FOLDER / kept) if connection.vendor == "sqlite" else kept


def trial(name: str, day: Day, deadly: int, again: int) -> str | None:
    """Kill the day at one point, and its rest once more where ``again`` says so; what is wrong.

    What comes before the instant of the point is as it was in the day that nobody killed.
    """
    first = max((n for n, began in enumerate(day.began) if began < deadly), default=0)
    database = copy(day.kept(first), name)
    (FOLDER / "progress").write_text(str(first))
    deadly -= day.began[first] - day.began[0]  # to begin with, all read who is there
    wanted = day.outcome
    try:
        killed, _ = forked(database, lambda: until_killed(deadly))
        if not killed:
            return "it was not killed"
        killed, found = forked(database, lambda: rest_of_day(again))
        if killed:
            _, found = forked(database, rest_of_day)
    except AssertionError as error:
        return str(error)
    finally:
        drop(database)
    return None if found == wanted else difference(wanted, found)


def difference(wanted: list[Any], found: list[Any]) -> str:
    lines = []
    for one, other in zip(wanted, found, strict=True):
        lines += [f"missing {row}" for row in one if row not in other]
        lines += [f"surplus {row}" for row in other if row not in one]
    return "\n".join(lines[:12]) or "rows are doubled"


def points(
    count: int, calls: list[int], visible: list[int], trials: int, dice: random.Random
) -> list[int]:
    """Where to kill: at connector calls, after commits, and anywhere, a third each.

    No trials: at every call and after every commit. Anywhere else comes to the same as after the
    commit before, if transactions are what they should be.
    """
    if not trials:
        return sorted({*calls, *visible})
    third = trials // 3
    chosen = dice.sample(calls, min(third, len(calls)))
    chosen += dice.sample(visible, min(third, len(visible)))
    return sorted({*chosen, *dice.sample(range(1, count + 1), trials - 2 * third)})


def main(source: str, trials: int, seed: int) -> dict[str, Any]:
    warm()  # loads the planner's code once, which else every child does
    gc.freeze()
    gc.disable()  # a child lives for a day
    dice = random.Random(seed)
    name = f"crashing_{os.getpid()}"
    database = copy(source, f"{name}_day")
    day = Day(f"{name}_before")
    try:
        forked(database, scene)
        _, told = forked(database, lambda: whole_day(database, day.name))
        count, calls, visible, day.began, day.outcome = told
        wrong = {}
        chosen = points(count, calls, visible, trials, dice)
        for n, deadly in enumerate(chosen):
            again = dice.randrange(1, count) if n % 4 == 3 else 0
            if problem := trial(f"{name}_{n}", day, deadly, again):
                wrong[f"{deadly}, then {again}"] = problem
        return {"points": count, "trials": len(chosen), "wrong": wrong, "jobs": day.outcome[0]}
    finally:
        for n in range(len(INSTANTS)):
            drop(f"{day.name}_{n}")
        drop(database)
        shutil.rmtree(FOLDER, ignore_errors=True)


if __name__ == "__main__":
    print(json.dumps(main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))))
