"""A soak: processes submit, tick and change shares by a fast clock while they are killed (-9).

    python -m benchmarks.soak --minutes 10 --kill

In a database of its own, on SQLite or on the PostgreSQL server that DATABASE_URL names. Two
tickers, two submitters and somebody who changes shares, cancels and breaks nodes; periods of six
hours turn meanwhile. At the end everything is charged and `reconcile` must be clean. Exit status 0
if it is and no process fell over by itself.
"""

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit, urlunsplit

ROOT = Path(__file__).parents[1]
T0 = datetime(2026, 10, 1, tzinfo=UTC)
SPEED = 120  # the clock's: ten minutes are twenty hours
PERIOD = timedelta(hours=6)
WORKERS = ("tick", "tick", "submit", "submit", "steer")
LEAVES = ("orlo/science/petrel", "orlo/science/auk", "orlo/vision/tern")
NODES, GPUS = 4, 8
SETTINGS = {
    "DJANGO_SETTINGS_MODULE": "config.settings",
    "CELERY_BROKER_URL": "memory://",
    "REPLAN_AT_ONCE": "false",
    "TIMESTEP_MINUTES": "5",
    "LOG_LEVEL": "ERROR",
}


def now() -> datetime:
    """Whole seconds since the soak began, `SPEED` times as fast, from T0 on."""
    return T0 + timedelta(seconds=int((time.time() - float(os.environ["SOAK_BEGAN"])) * SPEED))


# --- What the processes do ------------------------------------------------------------------------


def work(kind: str, number: int, stop: Path) -> None:
    """Do one kind of thing again and again until the file is there."""
    import django

    django.setup()
    dice = random.Random(number)
    once = {"tick": tick, "submit": submit, "steer": steer}[kind]
    while not stop.exists():
        pause = once(dice)
        stop.with_name(f"ready-{number}").touch()
        time.sleep(pause)


def tick(dice: random.Random) -> float:
    from allocator import cycle

    cycle.run(at=now(), trigger="soak")
    return 0.2


def submit(dice: random.Random) -> float:
    from allocator import admission
    from budgets.models import Budget
    from workloads.specs import JobSpec

    lasts = dice.choice([300, 600, 1200, 3600])
    spec = JobSpec(
        name=f"soak-{dice.randrange(10**9)}",
        kind="training",
        gpus=dice.choice([1, 1, 2, 4, 8, 16]),
        minimum_runtime_s=dice.choice([0, 300, 600]),
        resumable=dice.random() < 0.5,
        expected_duration_s=lasts,
        when_unfunded=dice.choice(["wait", "run"]),
        spec={"simulate": {"duration_s": lasts}},
    )
    budget = Budget.objects.get(path=dice.choice(LEAVES))
    admission.submit(budget=budget, user=someone(), spec=spec, now=now())
    return 1.2


def steer(dice: random.Random) -> float:
    """Change shares, cancel a job, break a node for half an hour."""
    from allocator import admission, steering
    from budgets import services, shares
    from budgets.models import Budget
    from clusters.models import Node, SimulatedFault
    from ledger.services import LedgerError
    from workloads.models import Job

    at, luck = now(), dice.random()
    if luck < 0.5:
        parent = Budget.objects.get(path=dice.choice(["orlo", "orlo/science"]))
        children = list(parent.children.all())
        given = {child: dice.randrange(20_000, 100_000 // len(children)) for child in children}
        with suppress(services.Refused, services.StaleBase, LedgerError):  # answers too
            steering.change_shares(
                parent=parent,
                shares=given,
                reason="soak",
                author=someone(),
                base_version=shares.version(parent),
                approve_at_once=True,
                now=at,
            )
    elif luck < 0.9:
        job = Job.objects.filter(ended_at=None).order_by("-pk").first()
        if job is not None:
            admission.cancel(job=job, by=None, now=at)
    else:
        node = dice.choice(list(Node.objects.all()))
        begins = at + timedelta(minutes=2)
        SimulatedFault.objects.create(
            node=node, starts_at=begins, ends_at=begins + timedelta(minutes=30)
        )
    return 2.0


def someone() -> Any:
    from django.contrib.auth.models import User

    return User.objects.get(username="soak")


# --- The scene ------------------------------------------------------------------------------------


def scene(hours: int) -> None:
    """Make a small institute with periods of six hours for so long, all approved."""
    from django.contrib.auth.models import User

    from budgets import services
    from budgets.models import Period, PlannedCapacity
    from clusters.models import Cluster, Node, Pool, PoolRate

    user = User.objects.create_superuser("soak", "soak@example.org", "soak")
    cluster = Cluster.objects.create(slug="soak", name="Soak")
    pool = Pool.objects.create(cluster=cluster, slug="h100", name="H100", gpu_type="h100")
    PoolRate.objects.create(pool=pool, effective_at=T0, rate_per_mille=1000)
    for position in range(NODES):
        Node.objects.create(
            pool=pool, name=f"n{position}", gpus=GPUS, position=position, active_from=T0
        )
    made = {"orlo": services.create_organisation(slug="orlo", name="Orlo", now=T0)}
    for path, share in (("orlo/science", 60_000), ("orlo/vision", 40_000), *_even(LEAVES)):
        parent, _, slug = path.rpartition("/")
        made[path] = services.create_budget(
            parent=made[parent],
            slug=slug,
            name=slug.title(),
            share=share,
            author=user,
            reason="soak",
            now=T0,
        )
    for number in range(hours * 3600 // int(PERIOD.total_seconds()) + 2):
        starts_at = T0 + number * PERIOD
        period = Period.objects.create(
            name=f"period {number}",
            starts_at=starts_at,
            ends_at=starts_at + PERIOD,
            status=Period.Status.APPROVED,
        )
        seconds = NODES * GPUS * int(PERIOD.total_seconds())
        PlannedCapacity.objects.create(
            period=period, pool=pool, gpu_seconds=seconds, rate_per_mille=1000
        )


def _even(paths: Sequence[str]) -> list[tuple[str, int]]:
    return [(path, 50_000) for path in paths]


# --- Killing --------------------------------------------------------------------------------------


class Crew:
    """The processes; whoever is killed is followed by another."""

    def __init__(self, folder: Path) -> None:
        self.stop, self.log = folder / "stop", folder / "log"
        self.number, self.numbers = 0, dict[int, int]()
        self.fallen: Counter[str] = Counter()
        self.at_work = {place: self._begin(kind) for place, kind in enumerate(WORKERS)}

    def _begin(self, kind: str) -> "subprocess.Popen[bytes]":
        self.number += 1
        program = [sys.executable, "-m", "benchmarks.soak", "--work", kind]
        with self.log.open("ab") as log:
            begun = subprocess.Popen(
                [*program, str(self.number), str(self.stop)], cwd=ROOT, stdout=log, stderr=log
            )
        self.numbers[begun.pid] = self.number
        return begun

    def look_after(self) -> None:
        """Follow up whoever fell over by itself."""
        for place, process in self.at_work.items():
            if process.poll() is not None:
                self.fallen[WORKERS[place]] += 1
                self.at_work[place] = self._begin(WORKERS[place])

    def kill(self, dice: random.Random) -> bool:
        """Kill somebody who has done something already, if there is one."""
        ready = [
            place
            for place, process in self.at_work.items()
            if self.stop.with_name(f"ready-{self.numbers[process.pid]}").exists()
        ]
        if not ready:
            return False
        place = dice.choice(ready)
        process = self.at_work[place]
        process.send_signal(signal.SIGKILL)
        process.wait()
        self.at_work[place] = self._begin(WORKERS[place])
        return True

    def end(self) -> None:
        self.stop.touch()
        for process in self.at_work.values():
            try:
                process.wait(timeout=120)
            except subprocess.TimeoutExpired:
                process.kill()


def soak(folder: Path, *, seconds: float, kill: bool, seed: int) -> dict[str, Any]:
    """Let the crew work so long; return the figures."""
    os.environ["SOAK_BEGAN"] = str(time.time())
    dice, crew, kills = random.Random(seed), Crew(folder), 0
    ends = time.monotonic() + seconds
    try:
        while time.monotonic() < ends:
            time.sleep(dice.uniform(0.5, 8.0))
            crew.look_after()
            kills += kill and crew.kill(dice)
    finally:
        crew.end()
    return {"kills": kills, "fell over": dict(crew.fallen), **_charged_up()}


def _charged_up() -> dict[str, Any]:
    """Close what is over, prove the books, count."""
    from django.core.management import call_command
    from django.db.models import Count

    from allocator import cycle
    from allocator.models import Cycle
    from ledger.models import ClosedTimestep, Entry
    from workloads.models import Job, Run

    done = 0
    for _ in range(400):  # until the server has noticed that the lock's last holder is dead
        done += cycle.run(at=now(), trigger="soak") is not None
        if done == 2:  # the second charges what the first found ended
            break
        time.sleep(0.1)
    try:
        call_command("reconcile")
        clean = True
    except SystemExit:
        clean = False
    statuses = Cycle.objects.order_by().values_list("status").annotate(Count("pk"))
    return {
        "clean": clean,
        "cycles": dict(statuses),
        "timesteps": ClosedTimestep.objects.count(),
        "jobs": Job.objects.count(),
        "runs": Run.objects.count(),
        "entries": Entry.objects.count(),
    }


# --- The command ----------------------------------------------------------------------------------


def main(arguments: Sequence[str] | None = None) -> int:
    options = _parser().parse_args(arguments)
    if options.work:
        kind, number, stop = options.work
        work(kind, int(number), Path(stop))
        return 0
    with tempfile.TemporaryDirectory(prefix="allotment-soak-") as name:
        folder = Path(name)
        remove = _database(folder)
        try:
            from .planners import warm_up

            warm_up()  # compiled once, and not in each process that may be killed meanwhile
            scene(int(options.minutes * SPEED / 60) + 1)
            found = soak(folder, seconds=60 * options.minutes, kill=options.kill, seed=options.seed)
            if found["fell over"]:
                print((folder / "log").read_text()[-4000:], file=sys.stderr)
        finally:
            remove()
    print(json.dumps(found, indent=2))
    return 0 if found["clean"] and not found["fell over"] else 1


def _database(folder: Path) -> Callable[[], None]:
    """Make an empty database for all processes; return what removes it."""
    url = os.environ.get("DATABASE_URL", "")
    name, drop = f"allotment_soak_{os.getpid()}", None
    if url.startswith("postgres"):
        import psycopg

        session = psycopg.connect(url, autocommit=True)
        session.execute(f'CREATE DATABASE "{name}"')
        drop = f'DROP DATABASE "{name}" WITH (FORCE)'
        os.environ["DATABASE_URL"] = urlunsplit(urlsplit(url)._replace(path=f"/{name}"))
    else:
        os.environ["DATABASE_URL"] = f"sqlite:///{folder / 'soak.sqlite3'}"
    os.environ.update(SETTINGS | {"DATA_DIR": str(folder)})
    import django

    django.setup()
    from django.core.management import call_command
    from django.db import connection

    call_command("migrate", verbosity=0)

    def remove() -> None:
        connection.close()
        if drop is not None:
            session.execute(drop)
            session.close()

    return remove


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.soak", description=__doc__)
    parser.add_argument("--minutes", type=float, default=10, help="how long; default: 10")
    parser.add_argument("--kill", action="store_true", help="kill a process every few seconds")
    parser.add_argument("--seed", type=int, default=0, help="of who is killed when; default: 0")
    parser.add_argument(
        "--work", nargs=3, metavar=("KIND", "NUMBER", "STOP"), help=argparse.SUPPRESS
    )
    return parser


if __name__ == "__main__":
    sys.exit(main())
