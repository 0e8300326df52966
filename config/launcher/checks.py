"""`./run check`: everything that is read rather than run."""

from config.launcher.console import Refused, complain, step
from config.launcher.environment import PYTHON
from config.launcher.processes import ROOT, Processes
from config.launcher.testing import test_environment

MANAGE = [str(PYTHON), str(ROOT / "manage.py")]
PRODUCTION = {
    "SECURE": "true",
    "SECRET_KEY": "only-for-this-check-3Jq8vT1nXw6ZbR0yKc5LmH9dGfS2aPeU7iOt4N",
    "ALLOWED_HOSTS": "allotment.example.org",
    "CSRF_TRUSTED_ORIGINS": "https://allotment.example.org",
}
TYPES = "Types (mypy)"
CHECKS = {
    "Lint (ruff check)": [str(PYTHON), "-m", "ruff", "check", "."],
    "Format (ruff format)": [str(PYTHON), "-m", "ruff", "format", "--check", "."],
    "Migrations are complete": [*MANAGE, "makemigrations", "--check", "--dry-run"],
    "Deployment settings": [*MANAGE, "check", "--deploy", "--fail-level", "WARNING"],
    "Layers": [str(PYTHON), "-m", "pytest", "-q", "tests/test_layers.py"],
}


def check(processes: Processes) -> int:
    """Run every check, print what each failing one says, and return 0 if none fails.

    Types take as long as all others together, and run beside them.
    """
    folder = processes.temporary_folder()
    ours = test_environment(folder, f"sqlite:///{folder / 'check.sqlite3'}")
    failures = 0
    try:
        with processes.beside([str(PYTHON), "-m", "mypy", "."], TYPES, env=ours):
            failures = sum(not _passes(processes, name, ours) for name in CHECKS)
    except Refused as refused:
        failures += 1
        complain(str(refused))
    return 1 if failures else 0


def _passes(processes: Processes, name: str, ours: dict[str, str]) -> bool:
    command = CHECKS[name]
    env = {**ours, **PRODUCTION} if "--deploy" in command else ours
    try:
        with step(name):
            processes.quietly(command, f"{name} failed", env=env)
    except Refused as refused:
        complain(str(refused))
        return False
    return True
