"""Backup and restore of an embedded installation: the very lines of docs/install.md."""

import sqlite3
import subprocess
from contextlib import closing
from pathlib import Path

import pytest

PAGE = Path(__file__).resolve().parent.parent / "docs" / "install.md"
pytestmark = pytest.mark.once


def lines(name: str) -> str:
    """Return the commands that stand below a mark of the page."""
    below = PAGE.read_text(encoding="utf-8").partition(f"<!-- commands: {name} -->\n\n")[2]
    block = below.partition("\n\n")[0]
    assert all(line.startswith("    ") for line in block.splitlines())
    return block


def do(name: str, folder: Path) -> None:
    subprocess.run(["sh", "-e", "-c", lines(name)], cwd=folder, check=True)


def notes(database: Path) -> list[str]:
    with closing(sqlite3.connect(database)) as connection:
        return [text for (text,) in connection.execute("SELECT text FROM note ORDER BY text")]


def test_what_is_served_is_copied_and_put_back_whole(tmp_path: Path) -> None:
    data = tmp_path / ".data"
    data.mkdir()
    run = tmp_path / "run"
    run.write_text('#!/bin/sh\necho "$@" >> ran\n')
    run.chmod(0o755)
    database = data / "allotment.sqlite3"
    served = sqlite3.connect(database, isolation_level=None)
    served.execute("PRAGMA journal_mode=WAL")
    served.execute("PRAGMA wal_autocheckpoint=0")
    served.execute("CREATE TABLE note (text)")
    served.execute("INSERT INTO note VALUES ('before')")
    do("backup", tmp_path)
    assert notes(tmp_path / "allotment-backup.sqlite3") == ["before"]
    served.execute("INSERT INTO note VALUES ('after')")
    killed = {file.name: file.read_bytes() for file in data.iterdir()}
    served.close()
    for name, content in killed.items():  # as a server that was killed leaves them
        (data / name).write_bytes(content)
    assert (data / "allotment.sqlite3-wal").stat().st_size > 0
    do("restore", tmp_path)
    assert notes(database) == ["before"]
    ran = (tmp_path / "ran").read_text().splitlines()
    assert ran == ["manage migrate", "manage reconcile", "serve"]
