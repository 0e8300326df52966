"""A database that isn't migrated: what pages, the API and commands say."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from django.db import OperationalError, connection
from django.db.migrations.loader import MigrationLoader
from django.db.migrations.recorder import MigrationRecorder
from django.test import Client

import manage
from config.migrated import EMPTY, OLDER, what_to_run

ROOT = Path(__file__).resolve().parent.parent


def fail(*args: object) -> None:
    raise OperationalError("no such table")


def _newest() -> tuple[str, str]:
    ((app, name),) = MigrationLoader(connection).graph.leaf_nodes("budgets")
    return app, name


@pytest.mark.django_db
def test_pages_and_api_say_what_to_run(monkeypatch: pytest.MonkeyPatch) -> None:
    client = Client(raise_request_exception=False)
    monkeypatch.setattr("config.shell.periods.active", fail)
    monkeypatch.setattr("budgets.api.people.authenticate", lambda **given: fail())
    asked = {"username": "a", "password": "b"}
    assert what_to_run() is None
    assert client.get("/sign-in").status_code == 500  # another fault is no reason to migrate
    MigrationRecorder(connection).record_unapplied(*_newest())
    assert what_to_run() == OLDER
    page = client.get("/sign-in")
    assert (page.status_code, page.content.decode()) == (503, OLDER)
    told = client.post("/api/v1/token/", asked, content_type="application/json")
    assert told.status_code == 503
    assert told["Content-Type"] == "application/problem+json"
    assert told.json()["detail"] == OLDER


@pytest.mark.once
def test_commands_say_of_an_empty_database_what_to_run(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "manage.py", "demo"],
        cwd=ROOT,
        env={**os.environ, "DATA_DIR": str(tmp_path), "DATABASE_URL": ""},
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 1
    assert done.stderr.strip().splitlines()[-1:] == [f"allotment: {EMPTY}"]
    assert "Traceback" not in done.stderr


def test_ctrl_c_ends_with_a_word_and_no_traceback(monkeypatch, capsys):
    def interrupted(argv):
        raise KeyboardInterrupt

    monkeypatch.setattr("django.core.management.execute_from_command_line", interrupted)
    with pytest.raises(SystemExit) as ended:
        manage.main()
    assert ended.value.code == 130
    assert capsys.readouterr().err.strip() == "allotment: stopped."
