"""Files of the core's commands: one line and exit 2 when one can't be read or written."""

import contextlib
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

from django.core.management.base import CommandError

from allocator.core.validate import ProblemError


@contextlib.contextmanager
def refusing(name: str) -> Iterator[None]:
    """Turn an unusable file into one line on stderr and exit status 2."""
    try:
        yield
    except ProblemError as error:
        raise CommandError(f"{name}: {error}", returncode=2) from None
    except OSError as error:
        raise CommandError(f"{name}: {error.strerror or error}.", returncode=2) from None


def source(name: str) -> bytes:
    """The bytes of a file."""
    return Path(name).read_bytes()


def write_atomically(name: str, content: str) -> None:
    """The whole file or nothing: a reader never sees a half-written one."""
    target = Path(name)
    handle, draft = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.")
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(content)
        os.chmod(draft, 0o644)
        os.replace(draft, target)
    except BaseException:
        os.unlink(draft)
        raise
