"""What the launcher prints: one line per step with its seconds, and one line per refusal."""

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager


class Refused(Exception):
    """The launcher can't go on; its text is one sentence that says what to do."""


def say(line: str = "") -> None:
    print(line, flush=True)


def complain(line: str) -> None:
    print(f"run: {line}", file=sys.stderr, flush=True)


@contextmanager
def step(name: str) -> Iterator[None]:
    """Print `name` at once, and what became of it, with its seconds, when the block ends."""
    print(f"  {name} ".ljust(58, "."), end=" ", flush=True)
    began = time.monotonic()
    try:
        yield
    except BaseException:
        say("failed")
        raise
    say(f"{time.monotonic() - began:5.1f} s")
