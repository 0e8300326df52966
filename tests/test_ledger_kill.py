"""kill -9 while a timestep is being closed: the ledger is as before, and closes afterwards."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from ledger import reports, services
from ledger.models import ClosedTimestep, Entry
from tests.addresses import database_url
from tests.factories import (
    T0,
    TIMESTEP,
    make_job,
    make_nodes,
    make_period,
    make_pool,
    make_run,
    make_tree,
)
from tests.ledger_world import CREDIT, give, ledger

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.slow]
ROOT = Path(__file__).resolve().parent.parent

# Closes the first timestep and kills its own process before the n-th statement.
CLOSE = """
import os, signal, sys
from datetime import datetime, timedelta, timezone
import django
django.setup()
from django.db import connection
from ledger import services

start, statement = datetime(2026, 10, 1, tzinfo=timezone.utc), int(sys.argv[1])
sent = 0

def die(execute, *args):
    global sent
    sent += 1
    if sent == statement:
        os.kill(os.getpid(), signal.SIGKILL)
    return execute(*args)

end = start + timedelta(minutes=30)
with connection.execute_wrapper(die):
    print(services.close_timestep(start=start, end=end, parked={}, now=end), sent)
"""


def close_in_a_process(statement: int) -> subprocess.CompletedProcess[str]:
    environment = os.environ | {
        "DATABASE_URL": database_url(),
        "DJANGO_SETTINGS_MODULE": "config.settings",
        "TIMESTEP_MINUTES": "30",
    }
    return subprocess.run(
        [sys.executable, "-c", CLOSE, str(statement)],
        cwd=ROOT, env=environment, capture_output=True, text=True, timeout=120,
    )  # fmt: skip


def test_a_killed_worker_leaves_nothing_behind_and_the_next_one_closes() -> None:
    petrel = make_tree()["orlo/science/petrel"]
    give(petrel, 100, make_period())
    for node in make_nodes(make_pool(), 3):
        job = make_job(petrel)
        services.place_hold(job=job, amount_mgpus=8 * CREDIT, now=T0)
        make_run(job, {node: 0xFF})
    before = ledger()
    for statement in (4, 9, 12, 14):
        killed = close_in_a_process(statement)
        assert killed.returncode == -signal.SIGKILL, killed.stderr
        assert ledger() == before
        assert not ClosedTimestep.objects.exists()

    finished = close_in_a_process(0)
    closed, sent = finished.stdout.split()
    assert closed == "True", finished.stderr
    assert int(sent) >= 14  # the last kill was in the midst of it
    assert Entry.objects.filter(kind="charge").count() == 3
    assert reports.entry_problems(start=T0, end=T0 + TIMESTEP) == []
    after = ledger()
    assert close_in_a_process(0).stdout.split()[0] == "False"
    assert ledger() == after
