"""Asks whether a process of the installation can do its work; meant for containers."""

import socket
import time
import urllib.error
import urllib.request
from argparse import ArgumentParser, RawDescriptionHelpFormatter
from typing import Any

from celery import current_app
from django.conf import settings
from django.core.management.base import BaseCommand, CommandError
from django.db import DatabaseError, connection
from kombu.exceptions import OperationalError

SECONDS = 5
# Beat writes its schedule down every 3 minutes.
BEAT_SILENT_SECONDS = 600


class Command(BaseCommand):
    """One line and exit code 0 if all that was asked for is well, else 1."""

    help = (
        "Check that database and broker answer, and what the options name.\n\n"
        "Example:\n  manage.py healthcheck --worker cycle"
    )
    requires_system_checks: list[str] = []

    def create_parser(self, *args: Any, **kwargs: Any) -> Any:
        return super().create_parser(*args, formatter_class=RawDescriptionHelpFormatter, **kwargs)

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--web", action="store_true", help="this machine's web server too")
        parser.add_argument("--worker", metavar="QUEUE", help="this machine's worker of QUEUE too")
        parser.add_argument("--beat", action="store_true", help="that beat wrote its schedule too")

    def handle(self, *args: object, **options: Any) -> None:
        checks = {"database": _database, "broker": _broker}
        if options["web"]:
            checks["web"] = _web
        if options["worker"]:
            checks["worker"] = lambda: _worker(options["worker"])
        if options["beat"]:
            checks["beat"] = _beat
        faults = {name: fault for name, check in checks.items() if (fault := check())}
        if faults:
            raise CommandError("; ".join(f"{name}: {fault}" for name, fault in faults.items()))
        self.stdout.write(f"ok: {', '.join(checks)}")


def _database() -> str | None:
    try:
        with connection.cursor() as cursor:
            cursor.execute("SELECT 1")
    except DatabaseError as error:
        return _first_line(error)
    return None


def _broker() -> str | None:
    try:
        with current_app.connection_for_write(connect_timeout=SECONDS) as broker:
            broker.ensure_connection(max_retries=1, timeout=SECONDS)
    except (OperationalError, OSError) as error:
        return _first_line(error)
    return None


def _web() -> str | None:
    """Ask /healthz under a host name that the server accepts."""
    host = settings.ALLOWED_HOSTS[0].lstrip(".").replace("*", "localhost")
    url = f"http://127.0.0.1:{settings.WEB_PORT}/healthz"
    request = urllib.request.Request(url, headers={"Host": host})
    direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with direct.open(request, timeout=SECONDS):
            return None
    except urllib.error.HTTPError as error:
        return f"{url} answers {error.code}"
    except OSError as error:
        return f"{url} does not answer ({_first_line(error)})"


def _worker(queue: str) -> str | None:
    name = f"{queue}@{socket.gethostname()}"
    try:
        answers = current_app.control.inspect(destination=[name], timeout=SECONDS).ping()
    except (OperationalError, OSError) as error:
        return _first_line(error)
    return None if answers and name in answers else f"{name} does not answer"


def _beat() -> str | None:
    files = list(settings.DATA_DIR.glob("beat-schedule*"))
    if not files:
        return f"no schedule in {settings.DATA_DIR}"
    silent = time.time() - max(file.stat().st_mtime for file in files)
    if silent <= BEAT_SILENT_SECONDS:
        return None
    return f"its schedule was last written {silent:.0f} s ago"


def _first_line(error: Exception) -> str:
    return str(error).strip().partition("\n")[0] or type(error).__name__
