"""Child processes that can't outlive the launcher."""

import ctypes
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType
from typing import IO, Any, NoReturn

from config.launcher import guard
from config.launcher.console import Refused, say, step

ROOT = Path(__file__).resolve().parents[2]
PR_SET_PDEATHSIG = 1


class Interrupted(BaseException):
    """Ctrl-C, or another signal that asks the launcher to end."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.exit_code = 128 + number


def interrupt_on_signals() -> None:
    """Raise `Interrupted` in the main thread when the launcher is asked to end."""

    def interrupted(number: int, frame: FrameType | None) -> NoReturn:
        raise Interrupted(number)

    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, interrupted)


class Processes:
    """Starts children, each in a process group of its own that the guard knows of."""

    def __init__(self) -> None:
        reading, self._writing = os.pipe()
        self._guard = subprocess.Popen(
            [sys.executable, "-I", "-S", guard.__file__], stdin=reading, start_new_session=True
        )
        os.close(reading)
        self._set_death_signal = _death_signal()

    def start(
        self,
        command: Sequence[str],
        *,
        env: Mapping[str, str] | None = None,
        stdout: int | IO[Any] | None = None,
        stderr: int | IO[Any] | None = None,
    ) -> subprocess.Popen[bytes]:
        """Start a command in the checkout, without a terminal to read from."""
        return subprocess.Popen(
            command,
            cwd=ROOT,
            env=env,
            stdin=subprocess.DEVNULL,
            stdout=stdout,
            stderr=stderr,
            start_new_session=True,
            preexec_fn=self._bind(os.getpid()),
        )

    def _bind(self, launcher: int) -> Callable[[], None]:
        """Return what a new child does before it executes its program."""

        def bind() -> None:
            os.write(self._writing, b"+%d\n" % os.getpid())
            self._set_death_signal(signal.SIGTERM)
            # The launcher may have died before the line above: no signal would ever come.
            if os.getppid() != launcher:
                os._exit(1)

        return bind

    def run(self, command: Sequence[str], *, env: Mapping[str, str] | None = None) -> int:
        """Run a command to its end, its output on ours, and return its exit code."""
        child = self.start(command, env=env)
        try:
            return child.wait()
        except Interrupted:
            child.send_signal(signal.SIGINT)
            raise
        finally:
            self.stop([child])

    def quietly(
        self, command: Sequence[str], failed: str, *, env: Mapping[str, str] | None = None
    ) -> None:
        """Run a command to its end; its output is shown only if it fails."""
        with self._quiet(command, env) as finish:
            finish(failed)

    @contextmanager
    def beside(
        self, command: Sequence[str], name: str, *, env: Mapping[str, str] | None = None
    ) -> Iterator[None]:
        """Run a command while the block runs, then wait for its end.

        A line tells that it has begun, since it slows down the steps below, and a step what was
        left of it when they were done.
        """
        with self._quiet(command, env) as finish:
            say(f"  {name}, beside what follows")
            yield
            with step(f"{name}, the rest"):
                finish(f"{name} failed")

    @contextmanager
    def _quiet(
        self, command: Sequence[str], env: Mapping[str, str] | None
    ) -> Iterator[Callable[[str], None]]:
        """Start a command, and end it with the block; what is given waits, and may refuse."""
        with tempfile.TemporaryFile() as output:
            child = self.start(command, env=env, stdout=output, stderr=subprocess.STDOUT)

            def finish(failed: str) -> None:
                if code := child.wait():
                    output.seek(0)
                    text = output.read().decode(errors="replace").rstrip()
                    raise Refused(f"{failed} (exit code {code}):\n{text}")

            try:
                yield finish
            finally:
                self.stop([child])

    def stop(self, children: Iterable[subprocess.Popen[bytes]], grace: float = 10.0) -> None:
        """End the children and their whole groups; who doesn't stop within `grace` s is killed."""
        children = list(children)
        for child in children:
            if child.poll() is None:
                child.terminate()
        deadline = time.monotonic() + grace
        for child in children:
            with suppress(subprocess.TimeoutExpired):
                child.wait(max(0.0, deadline - time.monotonic()))
        for child in children:
            guard.send(child.pid, signal.SIGKILL)
            child.wait()
            os.write(self._writing, b"-%d\n" % child.pid)

    def temporary_folder(self) -> Path:
        """Return a new folder that is removed when the launcher ends, however it ends."""
        folder = tempfile.mkdtemp(prefix="allotment-")
        os.write(self._writing, f"rm {folder}\n".encode())
        return Path(folder)

    def guarded(self) -> bool:
        return self._guard.poll() is None

    def close(self) -> None:
        """Let the guard end what is left, and wait for it."""
        os.close(self._writing)
        self._guard.wait()


def _death_signal() -> Callable[[int], object]:
    """Return the call that asks Linux to signal a process when its parent dies."""
    if sys.platform != "linux":
        return lambda number: None  # the guard alone does it there
    prctl = ctypes.CDLL(None, use_errno=True).prctl
    return lambda number: prctl(PR_SET_PDEATHSIG, int(number), 0, 0, 0)
