"""The virtual environment in `.venv`: made from the lock files, kept while they stay the same."""

import fcntl
import hashlib
import importlib.util
import os
import re
import shutil
import sys
import sysconfig
import tempfile
import zipfile
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from pathlib import Path

from config.launcher.console import Refused, say, step
from config.launcher.processes import ROOT, Processes

VENV = ROOT / ".venv"
PYTHON = VENV / "bin" / "python"
REQUIREMENTS = ROOT / "requirements"
WARM = ("-m", "allocator.core.warm")
NEEDED_TO_COMPILE = ("llvmlite", "numba", "numpy")
COMPILED = ROOT / "allocator" / "core" / "compiled"


def prepare(
    processes: Processes, *, dev: bool = False, meanwhile: Callable[[], None] | None = None
) -> None:
    """Bring `.venv` to the state of the lock files; a second call costs milliseconds.

    What the planner needs comes first: it compiles while the rest is installed and `meanwhile`,
    which may need all of that, is done.
    """
    with _alone():
        new = not _done("base")
        if new:
            # Whatever stands there is half made, or from another lock file or Python.
            _create(processes)
            _install(processes, "base", only=NEEDED_TO_COMPILE)
        with _compiling(processes):
            if new:
                _install(processes, "base", but=NEEDED_TO_COMPILE)
                _stamp("base").write_text(_state("base"))
            if dev and not _done("dev"):
                _install(processes, "dev")
                _stamp("dev").write_text(_state("dev"))
            if meanwhile is not None:
                meanwhile()


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
        failed = "Making .venv failed"
        processes.quietly([sys.executable, "-m", "venv", "--without-pip", str(VENV)], failed)
        if not _unpack_pip(processes):
            ensure = [str(PYTHON), "-m", "ensurepip", "--upgrade", "--default-pip"]
            processes.quietly(ensure, failed)


def _unpack_pip(processes: Processes) -> bool:
    """Unpack the pip that comes with Python; False where it can't be found or doesn't run.

    A wheel that is pure Python is installed by unpacking it; ensurepip, which starts pip to
    install pip, takes five seconds longer.
    """
    import ensurepip

    folders = [sysconfig.get_config_var("WHEEL_PKG_DIR"), Path(ensurepip.__path__[0], "_bundled")]
    wheels = [wheel for one in folders if one for wheel in Path(one).glob("pip-*-none-any.whl")]
    if not wheels:
        return False
    version = "python{}.{}".format(*sys.version_info)
    with zipfile.ZipFile(wheels[0]) as wheel:
        wheel.extractall(VENV / "lib" / version / "site-packages")
    try:
        processes.quietly([str(PYTHON), "-m", "pip", "--version"], "pip doesn't run")
    except Refused:
        return False
    return True


def _install(
    processes: Processes, name: str, *, only: Collection[str] = (), but: Collection[str] = ()
) -> None:
    """Install a lock file, or some of its packages."""
    pins = _pins(name)
    wanted = [pin for package, pin in pins if (package in only or not only) and package not in but]
    # The lock file is complete and hashed: nothing is resolved, nothing else is accepted.
    # Byte code is left to the first import: most of what is installed is never imported.
    options = ["--no-deps", "--require-hashes", "--no-input", "--no-cache-dir", "--no-compile"]
    env = _inside()
    with (
        step(f"Installing {len(wanted)} packages from requirements/{name}.txt"),
        tempfile.NamedTemporaryFile("w", suffix=".txt", dir=env["TMPDIR"]) as lock,
    ):
        lock.write("\n".join(wanted) + "\n")
        lock.flush()
        install = [str(PYTHON), "-m", "pip", "install", "--quiet", *options, "-r", lock.name]
        processes.quietly(install, f"Installing requirements/{name}.txt failed", env=env)


def _pins(name: str) -> list[tuple[str, str]]:
    """Return the packages of a lock file by name, each with its version and hashes."""
    text = (REQUIREMENTS / f"{name}.txt").read_text()
    found = re.finditer(r"^([a-z0-9-]+)==(?:.*\\\n)*.*$", text, re.MULTILINE)
    return [(pin[1], pin[0]) for pin in found]


@contextmanager
def _compiling(processes: Processes) -> Iterator[None]:
    """Compile the planner's inner loops beside the block, so that no request or worker has to
    wait for it."""
    sources = sorted(COMPILED.glob("*.py"))
    digest = hashlib.sha256(b"".join(file.read_bytes() for file in sources)).hexdigest()
    folder = Path(os.environ.get("NUMBA_CACHE_DIR") or COMPILED / "__pycache__") / digest[:16]
    state, stamp, ready = _state("base") + digest, _stamp("planner"), folder / "ready"
    if stamp.exists() and stamp.read_text() == state and ready.exists():
        yield
        return
    with processes.beside([str(PYTHON), *WARM], "Compiling the planner"):
        yield
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
