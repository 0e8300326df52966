"""The secret key: given, or made once for an installation that only this machine reaches."""

import contextlib
import os
import secrets
from pathlib import Path

from config import env

SHORTEST = 50


def secret_key(data_dir: Path, *, may_generate: bool) -> str:
    """Return SECRET_KEY (or SECRET_KEY_FILE's content), else the key kept in `data_dir`."""
    given = env.secret("SECRET_KEY")
    if given:
        if len(given) < SHORTEST:
            raise env.WrongSetting(
                f"SECRET_KEY has {len(given)} characters, but must have {SHORTEST} or more."
            )
        return given
    if not may_generate:
        raise env.WrongSetting(
            f"SECRET_KEY is missing: give one of {SHORTEST} or more random characters (or a file "
            "in SECRET_KEY_FILE), since SECURE or ALLOWED_HOSTS opens this server to others."
        )
    return _kept(data_dir / "secret-key")


def _kept(path: Path) -> str:
    # Written aside and linked into place: processes that start together agree on the first
    # one, and none reads half a key.
    if not path.exists():
        aside = path.with_name(f"{path.name}.{os.getpid()}")
        with os.fdopen(os.open(aside, os.O_CREAT | os.O_WRONLY | os.O_TRUNC, 0o600), "w") as file:
            file.write(secrets.token_urlsafe(SHORTEST))
        with contextlib.suppress(FileExistsError):
            os.link(aside, path)
        aside.unlink()
    return path.read_text(encoding="utf-8")
