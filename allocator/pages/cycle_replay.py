"""What comes of planning a stored cycle once more, and each waiting job's reason as it was then."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from allocator import outlooks, repeating
from allocator.models import Cycle
from allocator.pages.cycle_parts import Name, Waits
from allocator.pages.cycle_reader import jobs_of, name_of, waits
from allocator.pages.names import Names
from allocator.repeating import Piece, Repeated
from budgets.access import Person


@dataclass(frozen=True)
class Differs:
    """A job that is placed otherwise: when and on how many GPUs; None: not in that plan."""

    name: Name
    then: tuple[datetime, int] | None
    now: tuple[datetime, int] | None


@dataclass(frozen=True)
class Replay:
    """What came of it, as far as the reader may know; ``refused`` says why nothing did.

    ``busy``: nothing but that too many replays run; it may be tried again.
    """

    refused: str = ""
    busy: bool = False
    repeated: Repeated | None = None
    differs: tuple[Differs, ...] = ()
    unseen: int = 0  # jobs that differ, and that the reader may not know
    waits: tuple[Waits, ...] = ()
    waits_unseen: int = 0


def replay(cycle: Cycle, names: Names, by: Person) -> Replay:
    """Plan a cycle once more for somebody, and say whether it is the same plan."""
    try:
        with repeating.turn(by.pk or 0):
            return _replayed(cycle, names)
    except repeating.Busy as error:
        return Replay(refused=str(error), busy=True)


def _replayed(cycle: Cycle, names: Names) -> Replay:
    """Two queries."""
    try:
        made = repeating.repeat(cycle)
    except repeating.NotRepeatable as error:
        return Replay(refused=str(error))
    jobs = jobs_of(made.problem)
    taken = repeating.snapshot_of(cycle, made.problem, jobs)
    then = {job.name for job in made.problem.batch if job.running is None}
    now = {a.job for a in made.result.plan.assignments if a.start == 0}
    foreseen = outlooks.of_plan(cycle, taken, made.result, then - now)
    rows = sorted(foreseen, key=lambda row: (row.start_likely or cycle.at, row.job_id))
    seen = [row for row in rows if names.sees(row.job.budget.path)]
    step = timedelta(minutes=made.problem.timestep_minutes)
    differs = [
        Differs(
            name_of(jobs.get(one.job.removesuffix("+")), names),
            _first(one.then, cycle, step),
            _first(one.now, cycle, step),
        )
        for one in made.differences
    ]
    known = tuple(one for one in differs if one.name.pk is not None)
    return Replay(
        repeated=made,
        differs=known,
        unseen=len(differs) - len(known),
        waits=tuple(waits(row, names) for row in seen),
        waits_unseen=len(rows) - len(seen),
    )


def _first(pieces: tuple[Piece, ...], cycle: Cycle, step: timedelta) -> tuple[datetime, int] | None:
    """When a job begins, and on how many GPUs then."""
    if not pieces:
        return None
    start = pieces[0][0]
    at = cycle.timestep + step * start if start else cycle.at
    return at, sum(gpus for begin, _, _, gpus in pieces if begin == start)
