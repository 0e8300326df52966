"""Four workers submit 20 jobs a second over real HTTP while two processes run cycles at once:
nothing is lost, nothing doubled.

``LOAD_SECONDS`` says for how long.
"""

import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from django.db import connection
from rest_framework.authtoken.models import Token

from allocator import cycle
from ledger.models import ClosedTimestep, Entry
from tests import loading
from tests.addresses import database_url
from tests.factories import make_role, make_user
from tests.helpers import assert_invariants, assert_reconciled, make_institute
from workloads.models import Job, Run

ROOT = Path(__file__).resolve().parent.parent
WORKERS, PER_SECOND = 4, 20
SECONDS = float(os.environ.get("LOAD_SECONDS", "8"))


@pytest.fixture
def environment(transactional_db, tmp_path) -> dict[str, str]:
    """What the processes need to work on this test's database, by a clock of their own."""
    return {
        **os.environ,
        "DATABASE_URL": database_url(),
        "DATA_DIR": str(tmp_path),
        "DJANGO_SETTINGS_MODULE": "config.settings",
        "CELERY_BROKER_URL": "memory://",
        "REPLAN_AT_ONCE": "false",
        "TIMESTEP_MINUTES": "5",
        "LOG_LEVEL": "WARNING",
        "LOAD_BEGAN": str(time.time()),
    }


@pytest.fixture
def port(environment, tmp_path) -> Iterator[int]:
    """The port of a web server on this test's database, on the loopback only."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        number = free.getsockname()[1]
    log = (tmp_path / "server.log").open("wb")
    server = subprocess.Popen(
        [
            *(sys.executable, "-m", "gunicorn", "tests.loading:application"),
            *("--bind", f"127.0.0.1:{number}", "--workers", "2", "--threads", "4"),
            *("--keep-alive", "30"),
        ],
        cwd=ROOT,
        env=environment,
        stdout=log,
        stderr=log,
    )
    try:
        _await(number, server)
        yield number
    finally:
        server.terminate()
        server.wait(timeout=30)
        log.close()


def _await(port: int, server: subprocess.Popen[bytes]) -> None:
    for _ in range(300):
        assert server.poll() is None, "the server ended at once"
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.1)
    raise AssertionError("the server did not start in 30 s")


@pytest.fixture
def start(environment) -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """Return a function that starts a process of tests.loading; none outlives the test."""
    started = []

    def begin(*arguments: str) -> subprocess.Popen[str]:
        program = [sys.executable, "-m", "tests.loading", *arguments]
        pipe = subprocess.PIPE
        process = subprocess.Popen(
            program, cwd=ROOT, env=environment, stdout=pipe, stderr=pipe, text=True
        )
        started.append(process)
        return started[-1]

    yield begin
    for process in started:
        process.kill()
        process.communicate()


def report(process: subprocess.Popen[str]) -> dict:
    said, errors = process.communicate(timeout=SECONDS * 10 + 60)
    assert process.returncode == 0, errors
    return json.loads(said)


@pytest.mark.slow
def test_twenty_jobs_a_second_while_cycles_run(
    environment, port, start, tmp_path, capsys, settings, monkeypatch
):
    # Beside other work the same jobs come later; all else must hold all the same.
    idle = os.getloadavg()[0] < 0.7 * (os.cpu_count() or 1)
    settings.TIMESTEP_MINUTES = 5
    settings.HORIZON_TIMESTEPS = 64
    monkeypatch.setenv("LOAD_BEGAN", environment["LOAD_BEGAN"])
    place = make_institute(nodes=8)
    tokens = []
    for n in range(WORKERS):
        user = make_user(f"worker{n}")
        make_role(user, place.tree["orlo"], "member")
        tokens.append(Token.objects.create(user=user).key)
    connection.close()

    stop = tmp_path / "stop"
    tickers = [start("tick", str(stop)) for _ in range(2)]
    rate = str(PER_SECOND / WORKERS)
    workers = [
        start("submit", token, str(port), str(n), rate, str(SECONDS))
        for n, token in enumerate(tokens)
    ]
    reports = [report(worker) for worker in workers]
    stop.touch()
    ticks = [report(ticker) for ticker in tickers]

    assert [answer for said in reports for answer in said["bad"]] == []
    assert {status for said in ticks for status in said["statuses"]} == {"committed", "none"}
    ids = {(n, key): found for n, said in enumerate(reports) for key, found in said["ids"].items()}
    assert all(len(found) == 1 for found in ids.values()), "one key, one job"
    wanted = WORKERS * int(PER_SECOND / WORKERS * SECONDS)
    assert len(ids) == len({found[0] for found in ids.values()}) == wanted
    assert Job.objects.count() == wanted
    firsts = Entry.objects.filter(kind="hold", key__regex=r"^hold:[0-9]+:1$").count()
    paid = Job.objects.filter(minimum_runtime_s__gt=0).count()
    assert firsts == paid, "each job that asked for funds was given them once"
    assert Job.objects.filter(state=Job.State.CANCELLED).exists()
    assert Run.objects.filter(end_reason="completed").exists()
    assert ClosedTimestep.objects.count() >= SECONDS * loading.SPEED / 300 - 2

    made = cycle.run(at=loading.now(), trigger="load")
    assert made is not None
    assert_invariants(at=made.at)
    assert_reconciled()
    took = sorted(seconds for said in reports for seconds in said["took"])
    p50, p95 = took[len(took) // 2] * 1000, took[len(took) * 95 // 100] * 1000
    longest = max(said["seconds"] for said in reports)
    cycles = [seconds for said in ticks for seconds in said["cycles"]]
    with capsys.disabled():
        print(
            f"\n{wanted} jobs in {longest:.1f} s on {connection.vendor}: p50 {p50:.0f} ms, "
            f"p95 {p95:.0f} ms, slowest {took[-1] * 1000:.0f} ms; {len(cycles)} cycles, "
            f"slowest {max(cycles) * 1000:.0f} ms"
        )
    if idle:
        assert wanted / longest > PER_SECOND * 0.9, "the rate was kept"
