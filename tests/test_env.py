"""Settings come from the environment; a wrong one is a sentence, and every one is documented."""

import os
import re
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from django.conf import settings

from config import env
from config.launcher.environment import settings_variables, without_settings
from config.secrets import secret_key

ROOT = Path(__file__).resolve().parent.parent
pytestmark = pytest.mark.once

WRONG: list[tuple[Callable[[], object], str, str]] = [
    # reader of X, a value it refuses, what its sentence says is accepted
    (lambda: env.boolean("X", False), "maybe", "true or false"),
    (lambda: env.integer("X", 5, least=1, most=9), "10", "a whole number from 1 to 9"),
    (lambda: env.integer("X", 5, least=1, most=9), "-1", "a whole number from 1 to 9"),
    (lambda: env.integer("X", 5, least=1, most=9), "1.5", "a whole number from 1 to 9"),
    (lambda: env.integer("X", 5, least=1, most=9), "٣", "a whole number from 1 to 9"),
    (lambda: env.timestep_minutes("X", 30), "7", "5, 6, 10, 12, 15, 20, 30 or 60"),
    (lambda: env.timestep_minutes("X", 30), "90", "from 5 to 60"),
    (lambda: env.one_of("X", "all", ("all", "none")), "some", "one of all, none"),
    (lambda: env.price("X"), "2,50", "a price such as 2.50"),
    (lambda: env.price("X"), "-1", "a price such as 2.50"),
    (lambda: env.price("X"), "1000001", "at most 1000000"),
    (lambda: env.price("X"), "0.0000001", "a price such as 2.50"),
    (lambda: env.currency("X", "USD"), "euro", "three capitals"),
    (lambda: env.time_zone("X", "UTC"), "Mars/Olympus", "the name of a time zone"),
    (lambda: env.time_zone("X", "UTC"), "../etc/passwd", "the name of a time zone"),
    (lambda: env.origins("X"), "example.org", "https://allotment.example.org"),
    (lambda: env.directory("X", Path("/")), "/dev/null/x", "a directory that can be written"),
    (lambda: env.database("X", ""), "mysql://h/n", "postgresql://"),
    (lambda: env.database("X", ""), "postgresql://h:port/n", "postgresql://"),
    (lambda: env.database("X", ""), "postgresql://h", "postgresql://"),
    (lambda: env.database("X", ""), "sqlite://", "sqlite:///FILE"),
    (lambda: env.broker("X", ""), "amqp://guest@h", "redis://"),
]


@pytest.mark.parametrize(("read", "value", "accepted"), WRONG)
def test_a_wrong_value_is_refused_in_one_sentence(
    monkeypatch: pytest.MonkeyPatch, read: Callable[[], object], value: str, accepted: str
) -> None:
    monkeypatch.setenv("X", value)
    with pytest.raises(env.WrongSetting) as refused:
        read()
    sentence = str(refused.value)
    assert sentence.startswith("X is ")
    assert accepted in sentence
    assert "\n" not in sentence


@pytest.mark.parametrize("value", ["", "   "])
def test_an_empty_variable_counts_as_not_given(monkeypatch: pytest.MonkeyPatch, value: str) -> None:
    monkeypatch.setenv("X", value)
    assert env.boolean("X", True) is True
    assert env.integer("X", 5, least=1, most=9) == 5
    assert env.names("X", ["a"]) == ["a"]


def test_booleans_and_lists_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    for value, expected in (("True", True), ("1", True), ("no", False), ("OFF", False)):
        monkeypatch.setenv("X", value)
        assert env.boolean("X", not expected) is expected
    monkeypatch.setenv("X", " a.example.org, ,b.example.org ")
    assert env.names("X") == ["a.example.org", "b.example.org"]


def test_a_postgresql_address_is_taken_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("X", "postgresql://al%40l:p%2Fw@db:5433/allotment?sslmode=require")
    entry = env.database("X", "")
    wanted = {"NAME": "allotment", "USER": "al@l", "PASSWORD": "p/w", "HOST": "db", "PORT": "5433"}
    assert {key: entry[key] for key in wanted} == wanted
    assert entry["OPTIONS"] == {"sslmode": "require"}


def test_a_refused_address_never_shows_its_password(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("X", "postgresql://user:hunter2@db:notaport/name")
    with pytest.raises(env.WrongSetting) as refused:
        env.database("X", "")
    assert "hunter2" not in str(refused.value)


def test_sqlite_takes_its_write_lock_at_the_beginning(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("X", "sqlite:////srv/a.sqlite3")
    entry = env.database("X", "")
    assert entry["NAME"] == Path("/srv/a.sqlite3")
    assert entry["OPTIONS"]["transaction_mode"] == "IMMEDIATE"
    assert "WAL" in entry["OPTIONS"]["init_command"]


def test_a_secret_is_read_from_its_file(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "key").write_text("s" * 60 + "\n")
    monkeypatch.delenv("SECRET_KEY", raising=False)
    monkeypatch.setenv("SECRET_KEY_FILE", str(tmp_path / "key"))
    assert secret_key(tmp_path, may_generate=False) == "s" * 60


def test_a_secret_given_twice_is_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("SECRET_KEY", "s" * 60)
    monkeypatch.setenv("SECRET_KEY_FILE", str(tmp_path / "key"))
    with pytest.raises(env.WrongSetting, match="both given; keep only one"):
        secret_key(tmp_path, may_generate=True)


def test_a_generated_key_is_kept_and_private(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv("SECRET_KEY", raising=False)
    monkeypatch.delenv("SECRET_KEY_FILE", raising=False)
    first = secret_key(tmp_path, may_generate=True)
    assert secret_key(tmp_path, may_generate=True) == first
    assert len(first) >= 50
    assert stat.S_IMODE((tmp_path / "secret-key").stat().st_mode) == 0o600
    assert os.listdir(tmp_path) == ["secret-key"]


@pytest.mark.parametrize("open_to_others", [{"SECURE": "true"}, {"ALLOWED_HOSTS": "a.example.org"}])
def test_a_server_for_others_needs_a_given_key(
    tmp_path: Path, open_to_others: dict[str, str]
) -> None:
    done = _start(tmp_path, ["manage.py", "check"], open_to_others)
    assert done.returncode == 2
    assert "SECRET_KEY is missing" in done.stderr


ENTRY_POINTS = [
    ["manage.py", "check"],
    ["-m", "celery", "-A", "config.worker", "inspect", "ping"],
    ["-c", "import config.wsgi"],
]


@pytest.mark.parametrize("command", ENTRY_POINTS, ids=["manage", "celery", "wsgi"])
def test_every_entry_point_ends_with_the_sentence(tmp_path: Path, command: list[str]) -> None:
    done = _start(tmp_path, command, {"TIMESTEP_MINUTES": "7"})
    sentence = (
        "allotment: TIMESTEP_MINUTES is '7', but must be 5, 6, 10, 12, 15, 20, 30 or 60, "
        "so that timesteps fill an hour.\n"
    )
    assert (done.returncode, done.stdout, done.stderr) == (2, "", sentence)


def test_every_variable_is_documented_and_every_documented_one_is_read() -> None:
    page = (ROOT / "docs" / "settings.md").read_text(encoding="utf-8")
    documented = re.findall(r"^\| `([A-Z_]+)` \|", page, re.M)
    assert sorted(documented) == sorted([*settings_variables(), "SECRET_KEY_FILE"])


def test_only_the_settings_read_the_environment() -> None:
    """An app that read a variable itself would have it undocumented and untyped."""
    apps = ("clusters", "budgets", "workloads", "ledger", "forecasting", "allocator")
    files = [path for app in apps for path in (ROOT / app).rglob("*.py")]
    assert [path for path in files if re.search(r"environ\b|getenv", path.read_text())] == []


def test_the_version_is_the_newest_of_the_changelog() -> None:
    project = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    assert f'version = "{settings.VERSION}"' in project


def _start(
    data_dir: Path, arguments: list[str], variables: dict[str, str]
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *arguments],
        cwd=ROOT,
        env={**without_settings(), "DATA_DIR": str(data_dir), **variables},
        capture_output=True,
        text=True,
        check=False,
    )
