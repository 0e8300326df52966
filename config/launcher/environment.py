"""The virtual environment in `.venv`: made from the lock files, kept while they stay the same."""

import fcntl
import hashlib
import importlib.util
import os
import re
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from config.launcher.console import Refused, say, step
from config.launcher.processes import ROOT, Processes

VENV = ROOT / ".venv"
PYTHON = VENV / "bin" / "python"
REQUIREMENTS = ROOT / "requirements"
WARM = ("-m", "allocator.core.warm")
COMPILED = ROOT / "allocator" / "core" / "compiled"


def prepare(processes: Processes, *, dev: bool = False) -> None:
    """Bring `.venv` to the state of the lock files; a second call costs milliseconds."""
    with _alone():
        if not _done("base"):
            # Whatever stands there is half made, or from another lock file or Python.
            _create(processes)
            _install(processes, "base")
        if dev and not _done("dev"):
            _install(processes, "dev")
        _compile(processes)


def settings_variables() -> list[str]:
    """Return the names of all environment variables that the settings read."""
    calls = r"env\.\w+\(\s*\"([A-Z][A-Z_]+)\""
    sources = (ROOT / "config" / name for name in ("settings.py", "secrets.py"))
    return sorted({name for file in sources for name in re.findall(calls, file.read_text())})


def without_settings() -> dict[str, str]:
    """Return our environment less every variable that the settings read."""
    names = {*settings_variables(), *(f"{name}_FILE" for name in settings_variables())}
    return {name: value for name, value in os.environ.items() if name not in names}


def _create(processes: Processes) -> None:
    for module in ("venv", "ensurepip"):
        if importlib.util.find_spec(module) is None:
            version = "python{}.{}".format(*sys.version_info)
            raise Refused(
                f"Python's {module} module is missing; on Debian and Ubuntu "
                f"`apt-get install {version}-venv` brings it, then run this again."
            )
    with step("Making the virtual environment .venv"):
        shutil.rmtree(VENV, ignore_errors=True)
        processes.quietly([sys.executable, "-m", "venv", str(VENV)], "Making .venv failed")


def _install(processes: Processes, name: str) -> None:
    lock = REQUIREMENTS / f"{name}.txt"
    count = len(re.findall(r"^\w", lock.read_text(), re.M))
    # The lock file is complete and hashed: nothing is resolved, nothing else is accepted.
    # Byte code is left to the first import: most of what is installed is never imported.
    options = ["--no-deps", "--require-hashes", "--no-input", "--no-cache-dir", "--no-compile"]
    install = [str(PYTHON), "-m", "pip", "install", "--quiet", *options, "-r", str(lock)]
    with step(f"Installing {count} packages from requirements/{name}.txt"):
        processes.quietly(install, f"Installing requirements/{name}.txt failed", env=_inside())
    _stamp(name).write_text(_state(name))


def _compile(processes: Processes) -> None:
    """Compile the planner's inner loops, so that no request or worker has to wait for it."""
    sources = sorted(COMPILED.glob("*.py"))
    digest = hashlib.sha256(b"".join(file.read_bytes() for file in sources)).hexdigest()
    folder = Path(os.environ.get("NUMBA_CACHE_DIR") or COMPILED / "__pycache__") / digest[:16]
    state, stamp, ready = _state("base") + digest, _stamp("planner"), folder / "ready"
    if stamp.exists() and stamp.read_text() == state and ready.exists():
        return
    warm = [str(PYTHON), *WARM]
    with step("Compiling the planner"):
        processes.quietly(warm, "Compiling the planner failed")
    stamp.write_text(state)


def _inside() -> dict[str, str]:
    """Return our environment with its temporary files inside the checkout."""
    folder = ROOT / ".data" / "tmp"
    folder.mkdir(exist_ok=True)
    return {**os.environ, "TMPDIR": str(folder), "PIP_DISABLE_PIP_VERSION_CHECK": "1"}


def _stamp(name: str) -> Path:
    return VENV / f"installed-{name}"


def _done(name: str) -> bool:
    stamp = _stamp(name)
    return PYTHON.exists() and stamp.exists() and stamp.read_text() == _state(name)


def _state(name: str) -> str:
    """Return what an environment depends on: lock file, Python and the place it stands in."""
    digest = hashlib.sha256((REQUIREMENTS / f"{name}.txt").read_bytes()).hexdigest()
    return f"{digest}\n{sys.version}\n{VENV}\n"


@contextmanager
def _alone() -> Iterator[None]:
    """Let one launcher at a time change `.venv`; the lock ends with the process that holds it."""
    folder = ROOT / ".data"
    folder.mkdir(mode=0o700, exist_ok=True)
    with (folder / "setup.lock").open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say("  Another ./run is preparing .venv; waiting for it.")
            fcntl.flock(file, fcntl.LOCK_EX)
        yield
