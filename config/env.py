"""Typed readers of environment variables: a wrong value is one sentence on what to change."""

import os
import re
import sys
from collections.abc import Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any, NoReturn
from urllib.parse import parse_qsl, unquote, urlsplit
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from django.core.exceptions import ImproperlyConfigured

TRUE, FALSE = ("true", "1", "yes", "on"), ("false", "0", "no", "off")
EXIT_WRONG_SETTING = 2
LONGEST_TASK_SECONDS = 3600


class WrongSetting(ImproperlyConfigured):
    """An environment variable has a value that can't be used; its text is the whole message."""


def refuse(name: str, value: str, accepted: str) -> NoReturn:
    """Raise the one sentence that names the variable, the wrong value and what is accepted."""
    raise WrongSetting(f"{name} is {value!r}, but must be {accepted}.")


def load_settings_or_exit() -> None:
    """Read the settings now; if one is wrong, print its sentence and exit with status 2."""
    from django.conf import settings

    try:
        _ = settings.INSTALLED_APPS
    except WrongSetting as wrong:
        print(f"allotment: {wrong}", file=sys.stderr)
        sys.exit(EXIT_WRONG_SETTING)


def text(name: str, default: str = "") -> str:
    """Return the variable, stripped; an empty one counts as not given."""
    return os.environ.get(name, "").strip() or default


def boolean(name: str, default: bool) -> bool:
    value = text(name)
    if not value:
        return default
    if value.lower() in TRUE:
        return True
    if value.lower() in FALSE:
        return False
    refuse(name, value, "true or false")


def integer(name: str, default: int, *, least: int, most: int) -> int:
    value = text(name)
    if not value:
        return default
    digits = value.isascii() and value.isdigit()
    if not digits or not least <= int(value) <= most:
        refuse(name, value, f"a whole number from {least} to {most}")
    return int(value)


def price(name: str) -> Decimal | None:
    """Return an amount of money, 0 to 1,000,000 with up to six decimals; None if there is none."""
    value = text(name)
    if not value:
        return None
    if not re.fullmatch(r"[0-9]{1,7}(\.[0-9]{1,6})?", value) or Decimal(value) > 1_000_000:
        refuse(name, value, "a price such as 2.50, at most 1000000")
    return Decimal(value)


def currency(name: str, default: str) -> str:
    value = text(name, default)
    if not re.fullmatch(r"[A-Z]{3}", value):
        refuse(name, value, "a currency's code of three capitals, such as EUR")
    return value


def one_of(name: str, default: str, accepted: Sequence[str]) -> str:
    value = text(name, default)
    if value not in accepted:
        refuse(name, value, "one of " + ", ".join(accepted))
    return value


def names(name: str, default: Sequence[str] = ()) -> list[str]:
    """Return a comma-separated list without its empty parts."""
    return [part.strip() for part in text(name).split(",") if part.strip()] or list(default)


def files(name: str) -> list[str]:
    """Return a comma-separated list of files, each of which can be read."""
    values = names(name)
    for value in values:
        if not Path(value).is_file():
            refuse(name, value, "a comma-separated list of files that there are")
    return values


def origins(name: str) -> list[str]:
    """Return a comma-separated list of origins, each with its scheme."""
    values = names(name)
    for value in values:
        if not value.startswith(("https://", "http://")):
            refuse(name, value, "a comma-separated list such as https://allotment.example.org")
    return values


def timestep_minutes(name: str, default: int) -> int:
    """Return a timestep's length: 5 to 60 minutes, and whole timesteps fill an hour."""
    minutes = integer(name, default, least=5, most=60)
    if 60 % minutes:
        refuse(name, str(minutes), "5, 6, 10, 12, 15, 20, 30 or 60, so that timesteps fill an hour")
    return minutes


def time_zone(name: str, default: str) -> str:
    value = text(name, default)
    try:
        return ZoneInfo(value).key
    except (ZoneInfoNotFoundError, ValueError, OSError):
        refuse(name, value, "the name of a time zone, such as UTC or Europe/Zurich")


def directory(name: str, default: Path) -> Path:
    """Return an absolute directory, made (private to its owner) if it is missing."""
    path = Path(text(name, str(default))).expanduser().absolute()
    try:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        refuse(name, str(path), f"a directory that can be written ({error.strerror})")
    return path


def secret(name: str) -> str:
    """Return the variable, or the content of the file that <name>_FILE names, or ""."""
    file_name = f"{name}_FILE"
    path = text(file_name)
    if not path:
        return text(name)
    if text(name):
        raise WrongSetting(f"{name} and {file_name} are both given; keep only one of them.")
    try:
        return Path(path).read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError):
        refuse(file_name, path, "a text file that can be read")


def database(name: str, default: str) -> dict[str, Any]:
    """Return Django's entry for sqlite:///FILE or postgresql://USER:PASSWORD@HOST:PORT/NAME."""
    value = text(name, default)
    accepted = "sqlite:///FILE or postgresql://USER:PASSWORD@HOST:PORT/NAME"
    shown = value.split("@")[-1] if "@" in value else value  # never print a password
    try:
        parts = urlsplit(value)
        port = parts.port
    except ValueError:
        refuse(name, shown, accepted)
    database_name = unquote(parts.path.removeprefix("/"))
    if parts.scheme == "sqlite" and not parts.netloc and database_name:
        return _sqlite(database_name)
    if parts.scheme not in ("postgresql", "postgres") or not database_name:
        refuse(name, shown, accepted)
    options: dict[str, Any] = dict(parse_qsl(parts.query))
    return {
        "ENGINE": "django.db.backends.postgresql",
        "NAME": database_name,
        "USER": unquote(parts.username or ""),
        "PASSWORD": unquote(parts.password or ""),
        "HOST": options.pop("host", unquote(parts.hostname or "")),
        "PORT": str(port or options.pop("port", "")),
        "CONN_MAX_AGE": 60,
        "CONN_HEALTH_CHECKS": True,
        "OPTIONS": options,
    }


def _sqlite(file_name: str) -> dict[str, Any]:
    path = Path(file_name).absolute()
    return {
        "ENGINE": "django.db.backends.sqlite3",
        "NAME": path,
        # IMMEDIATE takes the write lock when a transaction begins: one that read first would
        # otherwise fail at its first write, at once, whatever the timeout. Without recursive
        # triggers a row that is replaced is deleted past the trigger that forbids it.
        "OPTIONS": {
            "transaction_mode": "IMMEDIATE",
            "timeout": 20,
            "init_command": (
                "PRAGMA journal_mode=WAL; PRAGMA synchronous=NORMAL; PRAGMA recursive_triggers=ON;"
            ),
        },
        # A file, not memory: tests share it between threads, processes and a live server.
        "TEST": {"NAME": path.with_name(f"test_{path.name}")},
    }


def broker(name: str, default: str) -> str:
    """Return the address of Celery's broker; memory:// is for tests, in one process."""
    value = text(name, default)
    if not value.startswith(("filesystem://", "redis://", "rediss://", "memory://")):
        refuse(name, value.split("@")[-1], "filesystem:// or redis://HOST:PORT/NUMBER")
    # A host is never used there, but kombu warns when none is named.
    return "filesystem://localhost" if value == "filesystem://" else value


def broker_options(url: str, folder: Path) -> dict[str, Any]:
    """Return what the broker's transport needs; a file-system broker's folders are made."""
    if url.startswith("filesystem://"):
        for inner in ("queues", "control"):
            (folder / inner).mkdir(mode=0o700, parents=True, exist_ok=True)
        return {
            "data_folder_in": str(folder / "queues"),
            "data_folder_out": str(folder / "queues"),
            "control_folder": str(folder / "control"),
            "polling_interval": 0.02,
        }
    if url.startswith("redis"):
        # A task whose worker died is given to another after this long: more than any task takes.
        return {"visibility_timeout": LONGEST_TASK_SECONDS + 60}
    return {}
