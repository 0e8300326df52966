"""Planning what a stored cycle saw once more: the core is pure, so the same plan must come of it.

Nothing is written, and nothing is decided by it.
"""

import platform
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

import numpy as np
from django.conf import settings

from allocator import locks, reading
from allocator.core.plan import Result
from allocator.core.problem import Problem
from allocator.core.scenario import read_problem
from allocator.core.settings import Settings
from allocator.core.solve import solve
from allocator.core.validate import ProblemError
from allocator.models import Cycle
from allocator.packing import unpack
from allocator.snapshot import Snapshot
from clusters.saying import say as _
from workloads.models import Job, Run

LONGEST_MS = 10_000  # it does the same work as the cycle did, so that took as long
SEED = 0  # of every cycle
AT_ONCE = 2  # replays by all people together: each keeps a web worker busy
OF_SLOTS, OF_PEOPLE = 7_300_418 << 32, 7_300_419 << 32  # keys of locks, and a number each
CAP = "preemption_cap_percent"
Piece = tuple[int, int, int, int]  # first timestep, timestep after the last, first GPU, GPUs
Grid = list[list[str | None]]


class NotRepeatable(Exception):
    """The cycle can't be planned once more; the text says why in a sentence."""


class Busy(Exception):
    """As many replays run as may at once; the text says so, and what to do."""


@contextmanager
def turn(person: int) -> Iterator[None]:
    """Let somebody (by id) replay: one at a time, and a few of all people. Raises Busy."""
    with ExitStack() as held:
        if not held.enter_context(locks.attempt(OF_PEOPLE + person, f"replay-of-{person}")):
            raise Busy(_("You have a replay that still runs: wait for it, then try again."))
        slots = (locks.attempt(OF_SLOTS + n, f"replay-{n}") for n in range(AT_ONCE))
        if not any(held.enter_context(slot) for slot in slots):
            raise Busy(
                _(
                    "%(n)s replays run, as many as may at once: try again in a few seconds.",
                    n=AT_ONCE,
                )
            )
        yield


@dataclass(frozen=True)
class Difference:
    """A job that the two plans place otherwise; no pieces: it isn't in that plan."""

    job: str
    then: tuple[Piece, ...]
    now: tuple[Piece, ...]


@dataclass(frozen=True)
class Repeated:
    """What came of it. ``versions`` are those that have changed since: name, then, now."""

    cycle: Cycle
    problem: Problem
    result: Result
    differences: tuple[Difference, ...]
    versions: tuple[tuple[str, str, str], ...]

    @property
    def is_same(self) -> bool:
        return not self.differences

    @property
    def milliseconds(self) -> float:
        return self.result.seconds * 1000


def versions() -> dict[str, str]:
    """Return what, beside a snapshot and its hint, decides which plan comes of it."""
    return {
        "allotment": settings.VERSION,
        "python": platform.python_version(),
        "numpy": np.__version__,
        CAP: str(settings.PREEMPTION_CAP_PERCENT),
    }


def repeat(cycle: Cycle) -> Repeated:
    """Plan a cycle's snapshot as it was planned then, and compare the plans.

    Raises NotRepeatable where the snapshot is gone or not to be read, or where it took too long to
    be waited for.
    """
    if why := refusal(cycle):
        raise NotRepeatable(why)
    problem = problem_of(cycle)
    cap = int(cycle.versions.get(CAP, settings.PREEMPTION_CAP_PERCENT))
    result = solve(
        problem,
        mode=cycle.mode,
        seed=SEED,
        hint={job: (int(start), int(gpu)) for job, (start, gpu) in cycle.hint.items()},
        settings=Settings(preempted_percent=cap),
    )
    then: Grid = unpack(bytes(cycle.plan))["grid"]
    return Repeated(
        cycle=cycle,
        problem=problem,
        result=result,
        differences=tuple(differences(then, result.plan.grid())),
        versions=tuple(_changed(cycle.versions)),
    )


def problem_of(cycle: Cycle) -> Problem:
    """Return what a cycle saw. Raises NotRepeatable where another release stored it otherwise."""
    try:
        return read_problem(unpack(bytes(cycle.snapshot)))
    except ProblemError as error:
        by = cycle.versions.get("allotment", "another")
        raise NotRepeatable(
            _(
                "Release %(by)s stored what cycle %(cycle)s saw in a form that release "
                "%(version)s does not read: look at it with release %(by)s. (%(error)s)",
                by=by,
                cycle=cycle.pk,
                version=settings.VERSION,
                error=error,
            )
        ) from error


def refusal(cycle: Cycle) -> str:
    """Say why a cycle can't be planned once more; empty if it can."""
    if cycle.status == Cycle.Status.FAILED:
        return _("It has no plan: there is nothing to compare with.")
    if not cycle.snapshot:
        return gone(cycle)
    if cycle.solve_ms > LONGEST_MS:
        return _(
            "Its plan took %(solve_ms)s s, longer than the %(longest_ms)s s that may be "
            "waited for here: plan its snapshot with manage.py plan.",
            solve_ms=f"{cycle.solve_ms / 1000:.0f}",
            longest_ms=LONGEST_MS // 1000,
        )
    return ""


def gone(cycle: Cycle) -> str:
    """Say that what a cycle saw and planned was let go."""
    return _(
        "What cycle %(cycle)s saw and planned was kept for %(cycles_kept_days)s days "
        "(CYCLES_KEPT_DAYS), and is gone.",
        cycle=cycle.pk,
        cycles_kept_days=settings.CYCLES_KEPT_DAYS,
    )


def differences(then: Grid, now: Grid) -> list[Difference]:
    """Return the jobs that two grids hold otherwise, by name."""
    before, after = _pieces(then), _pieces(now)
    return [
        Difference(name, before.get(name, ()), after.get(name, ()))
        for name in sorted(before.keys() | after.keys())
        if before.get(name) != after.get(name)
    ]


def snapshot_of(cycle: Cycle, problem: Problem, jobs: dict[str, Job]) -> Snapshot:
    """Return a stored problem as the cycle had it, as far as reasons need it."""
    healthy: dict[str, int] = {}
    for node in problem.nodes:
        healthy[node.pool] = healthy.get(node.pool, 0) + node.gpus
    ran = (job.name for job in problem.batch if job.running is not None)
    return Snapshot(
        at=cycle.at,
        origin=cycle.timestep,
        problem=problem,
        nodes=[],
        jobs=jobs,
        runs={name: Run(job=jobs[name]) for name in ran if name in jobs},
        healthy=healthy,
    )


def _pieces(grid: Grid) -> dict[str, tuple[Piece, ...]]:
    found: dict[str, list[Piece]] = {}
    for first, gpus, (name, start, end) in reading.blocks(grid):
        found.setdefault(name, []).append((start, end, first, gpus))
    return {name: tuple(sorted(pieces)) for name, pieces in found.items()}


def _changed(then: dict[str, str]) -> list[tuple[str, str, str]]:
    now = versions()
    return [(name, then[name], now[name]) for name in now if then.get(name, now[name]) != now[name]]
