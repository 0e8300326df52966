"""kill -9 of `manage.py retrain`: what was in force stays, and the next night learns."""

import os
import signal
import subprocess
import sys
from datetime import timedelta
from pathlib import Path

import pytest

from forecasting import estimators, retraining
from forecasting.models import Estimator
from tests import factories as make
from tests.addresses import database_url
from tests.factories import T0
from tests.forecast_world import history

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.slow]
ROOT = Path(__file__).resolve().parent.parent
NIGHT = T0 + timedelta(days=10)

# Runs the command and kills its own process before the n-th statement that writes; 0: never.
RETRAIN = """
import os, signal, sys
import django
django.setup()
from django.core.management import call_command
from django.db import connection

at, sent = int(sys.argv[1]), 0

def die(execute, sql, *args):
    global sent
    sent += sql.startswith(("INSERT", "UPDATE"))
    if at and sent == at:
        os.kill(os.getpid(), signal.SIGKILL)
    return execute(sql, *args)

with connection.execute_wrapper(die):
    call_command("retrain", "--kind", "training")
print(sent)
"""


def command(statement: int) -> subprocess.CompletedProcess[str]:
    environment = os.environ | {
        "DATABASE_URL": database_url(),
        "DJANGO_SETTINGS_MODULE": "config.settings",
    }
    return subprocess.run(
        [sys.executable, "-c", RETRAIN, str(statement)],
        cwd=ROOT, env=environment, capture_output=True, text=True, timeout=300,
    )  # fmt: skip


def rows() -> list[tuple[int, str, bytes]]:
    found = Estimator.objects.order_by("pk").values_list("number", "state", "parameters")
    return [(number, state, bytes(data)) for number, state, data in found]


def test_a_killed_command_leaves_the_old_one_in_force_and_the_next_one_switches() -> None:
    petrel, pool = make.make_tree()["orlo/science/petrel"], make.make_pool("h", gpu_type="H100")
    make.make_nodes(pool, 2)
    history(petrel, pool, 20)
    assert retraining.retrain(kind="training", now=NIGHT).switched
    before, version = rows(), estimators.in_force("training").version
    history(petrel, pool, 40, factor=3, since=NIGHT)
    for statement in (1, 2, 3):
        killed = command(statement)
        assert killed.returncode == -signal.SIGKILL, killed.stderr
        assert rows() == before
        assert estimators.in_force("training").version == version
    finished = command(0)
    assert finished.returncode == 0, finished.stderr
    assert finished.stdout.splitlines()[-1] == "3", "each statement that writes was tried"
    assert [(number, state) for number, state, _ in rows()] == [(1, "retired"), (2, "active")]
    assert estimators.in_force("training").version == version.replace("/1", "/2")
