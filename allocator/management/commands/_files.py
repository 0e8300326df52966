"""Files of the core's commands: one line and exit 2 when one can't be read or written."""

import contextlib
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TextIO

from django.core.management.base import CommandError

from allocator.core.scenario import MAX_BYTES
from allocator.core.validate import ProblemError

NEW = 0o644  # who may read a file that wasn't there before


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
    """The bytes of a file, no more of them than it takes to see that it is too large."""
    with Path(name).open("rb") as file:
        return file.read(MAX_BYTES + 1)


@contextlib.contextmanager
def output(name: str, *, besides: str) -> Iterator[TextIO]:
    """A file to write to, the whole of it or nothing: a reader never sees a half-written one.

    It is opened before there is anything to write, so that what can't be written is known at once.
    A link is followed and what it names replaced; a pipe or a device is written to as it is. Raises
    CommandError for a directory, a missing one, and the file ``besides``, which is read.
    """
    target = Path(name).resolve()
    if target.is_dir():
        raise CommandError(f"{name}: is a directory; name a file.", returncode=2)
    if not target.parent.is_dir():
        raise CommandError(f"{name}: there is no such directory.", returncode=2)
    if target == Path(besides).resolve():
        raise CommandError(f"{name}: is what is read; name another file.", returncode=2)
    if target.exists() and not target.is_file():
        with target.open("w", encoding="utf-8") as file:
            yield file
        return
    mode = target.stat().st_mode & 0o777 if target.exists() else NEW
    handle, draft = tempfile.mkstemp(dir=target.parent, prefix=".")
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            yield file
        os.chmod(draft, mode)
        os.replace(draft, target)
    except BaseException:
        os.unlink(draft)
        raise
