"""Ends whatever the launcher started, however the launcher itself ends.

This file runs as a process of its own, in a session of its own, and reads lines from the
launcher: `+GROUP` (a process group was started), `-GROUP` (it is gone), `rm FOLDER` (remove
it at the end). Each child announces its own group before it executes its program, on the
same pipe; so there is no instant in which the launcher may die and leave a child unknown.
The pipe closes when the launcher ends, also by kill -9: then every group left is ended.
"""

import os
import shutil
import signal
import sys
import time

GRACE_SECONDS = 3.0


def alive(group: int) -> bool:
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def send(group: int, number: int) -> None:
    try:
        os.killpg(group, number)
    except (ProcessLookupError, PermissionError):
        return


def end(groups: set[int]) -> None:
    """Ask the groups to stop, wait a little, then kill what is left of them."""
    for group in groups:
        send(group, signal.SIGTERM)
    deadline = time.monotonic() + GRACE_SECONDS
    while any(map(alive, groups)) and time.monotonic() < deadline:
        time.sleep(0.05)
    for group in groups:
        send(group, signal.SIGKILL)


def main() -> None:
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    groups: set[int] = set()
    folders: list[str] = []
    for line in sys.stdin:
        word, rest = line[0], line[1:].strip()
        if word == "+":
            groups.add(int(rest))
        elif word == "-":
            groups.discard(int(rest))
        else:
            folders.append(line.removeprefix("rm ").rstrip("\n"))
    end(groups)
    for folder in folders:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
