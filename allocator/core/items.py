"""What the passes place: waiting jobs, rests of stopped runs, and runs that may be stopped."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from .bits import span
from .compiled.building import Queue, Stays
from .compiled.tables import Items
from .plan import Assignment, Preemption
from .present import Held
from .problem import REST, BatchJob, Problem
from .realtime import Sets

if TYPE_CHECKING:
    from .grid import Grid


class Item(NamedTuple):
    """Something that waits for a block: `length` timesteps from `earliest` on."""

    name: str
    order: int  # place in the file: the last tie-break
    leaf: int
    gpus: int
    length: int
    earliest: int
    priority: float
    pools: tuple[str, ...]
    funded: bool
    minimum: int | None = None  # it may be stopped after so many timesteps

    @property
    def is_rest(self) -> bool:
        return self.name.endswith(REST)

    @property
    def likeness(self) -> tuple[object, ...]:
        """What two jobs share that only their age tells apart."""
        return (
            *(self.leaf, self.funded, self.is_rest, self.priority, self.gpus, self.length),
            *(self.earliest, self.pools),
        )


@dataclass(slots=True, eq=False)
class Run:
    """A run that may be stopped: it keeps [0, protected) and would like to go on to `until`."""

    job: BatchJob
    order: int
    leaf: int
    first: int
    protected: int
    until: int
    index: int  # among the runs that may be stopped
    stopped_for: str | None = None

    @property
    def rows(self) -> slice:
        return slice(self.first, self.first + self.job.gpus)

    @property
    def wish(self) -> int:
        """The word of the timesteps it would like beyond its protection."""
        return span(self.protected, self.until)


@dataclass(slots=True)
class Placed:
    """One pass's answer, in the order in which it was decided."""

    assignments: list[Assignment] = field(default_factory=list)
    realtime: dict[str, Sets] = field(default_factory=dict)
    preemptions: list[Preemption] = field(default_factory=list)


@dataclass(frozen=True)
class Waiting:
    """A problem's waiting jobs, and room for the rest of every run that may be stopped.

    Row i of `table` is `jobs[i]`; the rest of run r (in the file's order) is row `len(jobs) + r`,
    filled in when it is known.
    """

    jobs: tuple[BatchJob, ...]
    table: Items
    queue: Queue
    unfunded: bool  # whether any job is

    def copies(self) -> tuple[Items, Queue]:
        """What one construction changes: queues, and rows for rests where there can be any."""
        queue = Queue(self.queue.items.copy(), self.queue.begin.copy(), self.queue.end)
        if len(self.table.size) == len(self.jobs):
            return self.table, queue
        queue = Queue(queue.items, queue.begin, self.queue.end.copy())
        return Items._make(rows.copy() for rows in self.table), queue


def line_up(problem: Problem) -> Waiting:
    """Rows and queues of a problem's waiting jobs."""
    layout, leaf_of = problem.layout, problem.planted.leaf_of
    numbered = [
        (order, job)
        for order, job in enumerate(problem.jobs)
        if isinstance(job, BatchJob) and job.running is None
    ]
    jobs = tuple(job for _, job in numbered)
    rests = [job for job in problem.batch if job.running is not None]
    rows = [
        (
            *(layout.size_index[job.gpus], job.gpus, job.duration, 0),
            *(layout.pools_index[job.pools], leaf_of[job.budget], job.funded, job.arrival, order),
        )
        for order, job in numbered
    ]
    columns = np.zeros((9, len(jobs) + len(rests)), np.int64)
    if rows:
        columns[:, : len(rows)] = np.array(rows, np.int64).T
    size, gpus, length, _, pools, leaf, funded, earliest, order = columns
    allowed = np.zeros(columns.shape[1], np.uint64)
    allowed[: len(jobs)] = [_starts(problem, job.arrival, job.duration) for job in jobs]
    value = np.zeros(columns.shape[1])
    value[: len(jobs)] = [job.priority for job in jobs]
    table = Items(
        *(size, gpus, length, allowed, pools, value, leaf, funded.astype(np.bool_)),
        *(earliest, order, np.zeros(columns.shape[1], np.bool_)),
    )
    unfunded = not all(job.funded for job in jobs)
    return Waiting(jobs, table, _queues(problem, table, len(jobs), rests), unfunded)


def _queues(problem: Problem, table: Items, jobs: int, rests: Sequence[BatchJob]) -> Queue:
    """Each leaf's jobs, funded and not, best first, with room for its rests."""
    count, leaf_of = len(problem.planted.paths), problem.planted.leaf_of
    group = table.leaf[:jobs] * 2 + table.funded[:jobs]
    best = np.lexsort((table.order[:jobs], table.earliest[:jobs], -table.value[:jobs], group))
    many = np.bincount(group, minlength=2 * count)
    room = np.bincount(
        np.array([leaf_of[job.budget] * 2 + job.funded for job in rests], np.int64),
        minlength=2 * count,
    )
    begin = np.concatenate(([0], np.cumsum(many + room)[:-1]))
    items = np.zeros(int((many + room).sum()), np.int64)
    before = np.concatenate(([0], np.cumsum(many)[:-1]))
    items[begin[group[best]] + np.arange(jobs) - before[group[best]]] = best
    end = begin + many
    return Queue(items, begin.reshape(count, 2).T.copy(), end.reshape(count, 2).T.copy())


def line_up_runs(held: Held, grid: "Grid", problem: Problem) -> Stays:
    """Runs that may be stopped as arrays, and each leaf's in the order of their turns: the one of
    most value is the last."""
    # Whether nothing is left of it beyond what it would like inside the horizon.
    whole = held.until >= np.minimum(held.remaining, problem.horizon)
    group = held.leaf * 2 + held.funded
    count = len(problem.planted.paths)
    many = np.bincount(group, minlength=2 * count)
    end = np.cumsum(many)
    return Stays(
        first=held.first,
        gpus=held.gpus,
        leaf=held.leaf,
        full=np.where(whole, grid.wish, np.uint64(0)),
        cells=held.until - held.protected,
        now=(held.protected == 0) & (held.until > 0),
        wish=grid.wish,
        wishes=grid.wishes,
        turned=grid.turned,
        items=np.lexsort((-held.order, held.value, group)),
        begin=(end - many).reshape(count, 2).T.copy(),
        end=end.reshape(count, 2).T.copy(),
    )


def item_of(problem: Problem, table: Items, i: int) -> Item:
    """Row i by name."""
    return items_of(problem, table, [i])[0]


def items_of(problem: Problem, table: Items, rows: Sequence[int]) -> list[Item]:
    """The rows by name."""
    columns = (table.order, table.leaf, table.length, table.earliest, table.rest)
    wanted = (column[rows].tolist() for column in columns)
    found = []
    for order, leaf, length, earliest, rest in zip(*wanted, strict=True):
        job = problem.jobs[order]
        assert isinstance(job, BatchJob)
        found.append(
            Item(
                name=job.name + REST if rest else job.name,
                order=order,
                leaf=leaf,
                gpus=job.gpus,
                length=length,
                earliest=earliest,
                priority=job.priority,
                pools=job.pools,
                funded=job.funded,
                minimum=None if rest else job.minimum,
            )
        )
    return found


def write_rest(problem: Problem, table: Items, i: int, run: Run, ran: int) -> None:
    """Row i: what is left of a run stopped after `ran` timesteps, behind whatever stopped it."""
    job, layout = run.job, problem.layout
    assert job.running is not None
    length, earliest = job.running.remaining - ran, ran + 1
    values = (
        *(layout.size_index[job.gpus], job.gpus, length, _starts(problem, earliest, length)),
        *(layout.pools_index[job.pools], job.priority, run.leaf, job.funded),
        *(earliest, run.order, True),
    )
    for rows, value in zip(table, values, strict=True):
        rows[i] = value


def allowed_starts(problem: Problem, item: Item) -> int:
    """The word of timesteps at which the item may start, whatever else is placed."""
    return _starts(problem, item.earliest, item.length)


def _starts(problem: Problem, earliest: int, length: int) -> int:
    if problem.overrun:
        return span(earliest, problem.horizon)
    return span(earliest, problem.horizon - length + 1)
