"""Serves the product in the foreground: web, two workers and beat, until Ctrl-C."""

import argparse
import os
import selectors
import socket
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Mapping
from functools import partial
from typing import IO

from config.launcher import environment
from config.launcher.console import Refused, complain, say, step
from config.launcher.environment import PYTHON
from config.launcher.processes import ROOT, Interrupted, Processes

ADDRESS = "127.0.0.1"
START_SECONDS = 60
# An idle Celery worker takes 6 s to stop by itself. A killed one does no harm: what it was at
# rolls back, and stands in the database as due.
STOP_SECONDS = 3.0
MANAGE = [str(PYTHON), str(ROOT / "manage.py")]
WORKER = ["-m", "celery", "-A", "config.worker", "--quiet"]


def run(processes: Processes, options: argparse.Namespace) -> int:
    """Prepare, load and print the demo (unless told not to), then serve."""
    serving = not options.no_serve
    port = options.port or _port_of_environment()
    if serving:
        _refuse_taken(port)
    environment.prepare(processes, meanwhile=partial(_migrate, processes))
    if options.command == "demo":
        code = processes.run([*MANAGE, "demo"])
        if code:
            raise Refused(f"the demo ended with exit code {code}; see above.")
    return _Services(processes, port).serve() if serving else 0


def _migrate(processes: Processes) -> None:
    with step("Bringing the database up to date"):
        migrate = [*MANAGE, "migrate", "--no-input", "--verbosity", "0"]
        processes.quietly(migrate, "The database could not be brought up to date")


def commands(port: int) -> dict[str, list[str]]:
    """Return each service's command line, without the Python it runs in."""
    return {
        "web": [
            *("-m", "gunicorn", "config.wsgi", "--bind", f"{ADDRESS}:{port}"),
            *("--workers", "2", "--threads", "4", "--no-control-socket"),
            *("--worker-tmp-dir", str(ROOT / ".data"), "--log-level", "warning"),
        ],
        "cycle": [*WORKER, *_worker("cycle", 1)],
        # A simulation or a full plan may take its time, and holds up nothing else.
        "long": [*WORKER, *_worker("long", 2)],
        "beat": [*WORKER, "beat", "--loglevel", "WARNING", "--pidfile="],
    }


def _environment() -> dict[str, str]:
    # Celery's warning about root is for servers; a demo may well run on root's own machine.
    quiet = "ignore:You're running the worker with superuser"
    given = os.environ.get("PYTHONWARNINGS")
    return {**os.environ, "PYTHONWARNINGS": f"{given},{quiet}" if given else quiet}


def _worker(queue: str, at_once: int) -> list[str]:
    # Prefork, since only that pool can end a task at its time limit.
    return [
        *("worker", "--queues", queue, "--hostname", f"{queue}@%h"),
        *("--concurrency", str(at_once)),
        *("--loglevel", "WARNING", "--without-gossip", "--without-mingle", "--without-heartbeat"),
    ]


def _port_of_environment() -> int:
    value = os.environ.get("WEB_PORT", "").strip() or "8000"
    if not value.isdigit() or not 1 <= int(value) <= 65535:
        raise Refused(f"WEB_PORT is {value!r}, but must be a whole number from 1 to 65535.")
    return int(value)


def _refuse_taken(port: int) -> None:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((ADDRESS, port))
        except OSError as error:
            raise Refused(
                f"port {port} of {ADDRESS} can't be used ({error.strerror}): stop what uses it, or "
                f"choose another: ./run --port {port + 1 if port < 65535 else 8000}"
            ) from None


class _Services:
    """The four services, and their output line by line behind each one's name."""

    def __init__(self, processes: Processes, port: int) -> None:
        self._processes = processes
        self._port = port
        self._children: dict[str, subprocess.Popen[bytes]] = {}
        self._output = selectors.DefaultSelector()

    def serve(self) -> int:
        """Serve until interrupted (exit code 0) or until a service ends by itself (1)."""
        try:
            for name, command in commands(self._port).items():
                self._start(name, command, _environment())
            self._await_web()
            self._welcome()
            while True:
                self._pump(1.0)
                self._refuse_ended()
        except Interrupted:
            say("\n  Stopping.")
            return 0
        finally:
            self._processes.stop(self._children.values(), grace=STOP_SECONDS)
            self._pump(0.0)

    def _start(self, name: str, command: list[str], env: Mapping[str, str]) -> None:
        child = self._processes.start(
            [str(PYTHON), *command], env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
        )
        assert child.stdout is not None
        os.set_blocking(child.stdout.fileno(), False)
        self._children[name] = child
        self._output.register(child.stdout, selectors.EVENT_READ, name)

    def _pump(self, seconds: float) -> None:
        """Print what the services have written, waiting up to `seconds` for the first of it."""
        for key, _ in self._output.select(seconds):
            stream: IO[bytes] = key.fileobj  # type: ignore[assignment]  # we registered a pipe
            chunk = stream.read()
            if chunk == b"":
                self._output.unregister(stream)
            for line in (chunk or b"").decode(errors="replace").splitlines():
                say(f"{key.data:<5} | {line}")

    def _refuse_ended(self) -> None:
        for name, child in self._children.items():
            if child.poll() is not None:
                self._pump(0.0)
                raise Refused(
                    f"{name} ended by itself (exit code {child.returncode}); all stopped."
                )
        if not self._processes.guarded():
            raise Refused("the process that guards the others is gone; all stopped.")

    def _await_web(self) -> None:
        deadline = time.monotonic() + START_SECONDS
        url = f"http://{ADDRESS}:{self._port}/healthz"
        direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))  # never by a proxy
        while time.monotonic() < deadline:
            self._pump(0.1)
            self._refuse_ended()
            try:
                with direct.open(url, timeout=2):
                    return
            except urllib.error.HTTPError as error:
                complain(f"{url} answers {error.code}: {error.read().decode(errors='replace')}")
                return
            except OSError:
                continue
        raise Refused(
            f"the web server did not answer within {START_SECONDS} s; see its lines above."
        )

    def _welcome(self) -> None:
        say(f"\n  Allotment is at http://{ADDRESS}:{self._port}/  (Ctrl-C stops everything)")
