"""A day killed with SIGKILL between any two statements comes out as if nothing had happened.

``CRASH_TRIALS`` says at how many points (0: at each connector call and after each commit, which
takes some minutes), ``CRASH_SEED`` at which ones.
"""

import json
import os
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest
from django.db import connection

ROOT = Path(__file__).resolve().parent.parent
TRIALS = int(os.environ.get("CRASH_TRIALS", "8"))
SEED = os.environ.get("CRASH_SEED", "")


@pytest.fixture
def empty_database(transactional_db, tmp_path: Path) -> str:
    """An empty migrated database of its own: a file, or the name of one to copy."""
    name = str(connection.settings_dict["NAME"])
    if connection.vendor == "postgresql":
        connection.close()  # a database that somebody is connected to can't be copied
        return name
    target = tmp_path / "empty.sqlite3"
    with sqlite3.connect(name) as source, sqlite3.connect(target) as copy:
        source.backup(copy)
    return str(target)


@pytest.mark.slow
def test_a_day_killed_anywhere_comes_out_the_same(empty_database):
    env = {**os.environ, "REPLAN_AT_ONCE": "false", "LOG_LEVEL": "ERROR"}
    if connection.vendor == "sqlite":
        env["DATABASE_URL"] = f"sqlite:///{empty_database}"
    seed = SEED or str(len(connection.vendor))  # other points on the other database
    program = [sys.executable, "-m", "tests.crashing", empty_database, str(TRIALS), seed]
    done = subprocess.run(program, cwd=ROOT, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert report["wrong"] == {}
    assert report["points"] > 500
    assert report["trials"] >= min(TRIALS, 6)
    states = {name: state for name, state, *_ in report["jobs"]}
    assert states == {
        "chat": "running",
        "dear": "cancelled",
        "first": "completed",
        "free": "completed",
        "late": "completed",
        "poor": "completed",
        "second": "cancelled",
    }
