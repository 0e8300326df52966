"""Compile the planner: `python -m allocator.core.warm`, once per machine and version.

Plans small problems that between them reach every compiled function, so that no later call has to
compile anything: at set-up, or when a worker starts, never in a request.
"""

import fcntl
import re
import shutil
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from .problem import BatchJob, BudgetNode, Drain, Job, Kind, Node, Problem, RealtimeJob, Running
from .solve import solve
from .validate import CannotCompile

LOCK = "lock"  # a file beside compiled code: written anew by whoever warms up
NAME = re.compile("[0-9a-f]{16}")  # of the folder for one version's compiled code
READY = "ready"  # a file beside compiled code: for which Python all of it is there


def is_ready() -> bool:
    """Whether all is on disk, so that `warm` takes less than a second or two."""
    from .compiled import FOLDER

    file = FOLDER / READY
    return file.exists() and file.read_text() == sys.version


def warm() -> float:
    """Compile what is not on disk yet and load the rest; returns the seconds it took.

    One process at a time: another waits, and then only loads. What is on disk but can't be loaded
    is thrown away and made anew. Raises `CannotCompile` with one sentence where this machine can't.
    """
    from .compiled import FOLDER

    began = time.perf_counter()
    with (FOLDER / LOCK).open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        try:
            _plan_all()
            (FOLDER / READY).write_text(sys.version)
            _clear_away_old(FOLDER)
        except Exception:  # whatever a damaged file makes of itself
            _throw_away(FOLDER)
            _plan_again(FOLDER)  # what was loaded before is kept by the next process only
    return time.perf_counter() - began


def _plan_all() -> None:
    for problem in (_busy(), _calm(), *_contested()):
        len(solve(problem, iterations=40).reasons)


def _throw_away(folder: Path) -> None:
    for file in [folder / READY, *folder.rglob("*.nb[ic]")]:
        file.unlink(missing_ok=True)


def _clear_away_old(ours: Path) -> None:
    """Remove what older versions compiled, but for the one used last: its workers may still run."""
    named = [one for one in ours.parent.iterdir() if NAME.fullmatch(one.name) and one != ours]
    used = sorted((one / LOCK for one in named if (one / LOCK).exists()), key=_last_used)
    for lock in used[:-1]:
        shutil.rmtree(lock.parent, ignore_errors=True)


def _last_used(lock: Path) -> int:
    return lock.stat().st_mtime_ns


def _plan_again(folder: Path) -> None:
    try:
        _plan_all()
    except Exception as error:  # numba's own errors are many and long
        first = str(error).strip().splitlines()[0] if str(error).strip() else ""
        raise CannotCompile(
            f"The planner can't be compiled here ({type(error).__name__}: {first}): see that "
            f"{folder} can be written to and its disk isn't full."
        ) from error


def _busy() -> Problem:
    """Budgets, runs that may be stopped, a drain, held GPUs, services in each other's way."""
    leaf, other = "org/a", "org/b"
    return Problem(
        name="warm",
        horizon=8,
        timestep_minutes=30,
        nodes=(Node("n0", 8), Node("n1", 8)),
        jobs=(
            RealtimeJob("s0", 5, (2, 2, 3, 3, 2, 2, 2, 2), 1, held=(6, 7), budget=leaf),
            RealtimeJob("s1", 5, (1,) * 8, 1, held=(5,), budget=other, funded=False),
            _job("run", 4, 6, leaf, running=Running(0, 6, 0), funded=False),
            _job("kept", 1, 6, leaf, running=Running(4, 6, 2)),
            *(_job(f"j{i}", 1 << i % 4, 2 + i % 3, (leaf, other)[i % 2]) for i in range(12)),
        ),
        drains=(Drain("n1", 6, 8),),
        budgets=(
            BudgetNode("org", None, 100_000, 0),
            BudgetNode(leaf, "org", 50_000, 1000),
            BudgetNode(other, "org", 50_000, 0),
        ),
        overrun=True,
    )


def _calm() -> Problem:
    """No budgets; services stack and move aside."""
    return Problem(
        name="warm",
        horizon=8,
        timestep_minutes=60,
        nodes=(Node("n0", 8),),
        jobs=(
            RealtimeJob("s", 5, (1, 1, 2, 2, 1, 1, 1, 1), 1),
            *(_job(f"j{i}", 1 << i % 3, 2 + i % 3, None, priority=1 + i % 5) for i in range(9)),
        ),
    )


def _contested() -> Iterator[Problem]:
    """A run is stopped for a large job, or for a service; the gap until a start is filled; what
    keeps free GPUs scattered is moved."""
    running = _job("stopped", 8, 6, "org/a", running=Running(0, 6, 0))
    large = _job("large", 16, 6, "org/b", priority=9)
    yield _two_nodes(running, large)
    halves = (_job(f"half{i}", 4, 6, "org/a", running=Running(4 * i, 6, 0)) for i in range(2))
    yield _two_nodes(*halves, RealtimeJob("grows", 5, (6,) * 16, 6, budget="org/b"))
    yield _two_nodes(_job("filler", 4, 8, "org/a", minimum=2), large)
    apart = (
        _job(f"apart{i}", 4, 8, "org/a", running=Running(8 * i, 8, 0), minimum=2) for i in range(2)
    )
    whole = _job("whole", 8, 8, "org/a", minimum=2)
    yield replace(_two_nodes(), jobs=(*apart, whole))


def _two_nodes(*jobs: Job) -> Problem:
    kept = _job("kept", 8, 4, "org/a", running=Running(8, 4, 4))
    return Problem(
        name="warm",
        horizon=16,
        timestep_minutes=30,
        nodes=(Node("n0", 8), Node("n1", 8)),
        jobs=(kept, *jobs),
        budgets=(
            BudgetNode("org", None, 100_000, 0),
            BudgetNode("org/a", "org", 50_000, 10**6),
            BudgetNode("org/b", "org", 50_000, 0),
        ),
        overrun=True,
    )


def _job(
    name: str,
    gpus: int,
    duration: int,
    budget: str | None,
    *,
    priority: float = 1,
    funded: bool = True,
    running: Running | None = None,
    minimum: int | None = None,
) -> BatchJob:
    return BatchJob(
        name=name,
        kind=Kind.TRAINING,
        priority=priority,
        gpus=gpus,
        duration=duration,
        budget=budget,
        funded=funded,
        running=running,
        minimum=minimum,
    )


if __name__ == "__main__":
    try:
        warm()
    except CannotCompile as error:
        sys.exit(str(error))
