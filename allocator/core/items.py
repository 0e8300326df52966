"""What the passes place: waiting jobs, rests of stopped runs, and runs that may be stopped."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple, TypeVar, overload

import numpy as np
from numpy.typing import NDArray

from .bits import span, spans
from .columns import Columns
from .compiled.building import Queue, Stays
from .compiled.tables import Items, Rows, Words
from .plan import Assignment, Preemption
from .present import Held
from .problem import REST, BatchJob, Problem
from .realtime import Sets

if TYPE_CHECKING:
    from .grid import Grid

S = TypeVar("S", bound=np.generic)


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
    index: int  # among the runs that may be stopped
    ends: Rows  # `until` of each of these
    stopped_for: str | None = None

    @property
    def until(self) -> int:
        return int(self.ends[self.index])

    @until.setter
    def until(self, end: int) -> None:
        self.ends[self.index] = end

    @property
    def rows(self) -> slice:
        return slice(self.first, self.first + self.job.gpus)

    @property
    def wish(self) -> int:
        """The word of the timesteps it would like beyond its protection."""
        return span(self.protected, self.until)


class Stoppable(Sequence[Run]):
    """The runs that may be stopped; each is made when it is asked for.

    `held` is how they were at first, `until` how they are, `rows` are theirs among all jobs.
    """

    def __init__(self, problem: Problem, held: Held, rows: Rows) -> None:
        self.problem = problem
        self.held = held
        self.rows = rows
        self.until = held.until.copy()
        self._made: dict[int, Run] = {}

    def __len__(self) -> int:
        return len(self.rows)

    @overload
    def __getitem__(self, at: int) -> Run: ...
    @overload
    def __getitem__(self, at: slice) -> Sequence[Run]: ...
    def __getitem__(self, at: int | slice) -> Run | Sequence[Run]:
        indices = range(len(self))[at]
        return self._run(indices) if isinstance(indices, int) else [self._run(i) for i in indices]

    def names(self) -> list[str]:
        """Of all of them."""
        names = self.problem.columns.names
        return [names[row] for row in self.rows.tolist()]

    def named(self, by_row: Mapping[int, tuple[str, ...]]) -> Iterator[tuple[int, tuple[str, ...]]]:
        """(index, what is named) of those of which something is."""
        if by_row:
            for index, row in enumerate(self.rows.tolist()):
                if row in by_row:
                    yield index, by_row[row]

    def _run(self, index: int) -> Run:
        if index not in self._made:
            held, order = self.held, int(self.held.order[index])
            job = self.problem.jobs[order]
            assert isinstance(job, BatchJob)
            self._made[index] = Run(
                job, order, int(held.leaf[index]), int(held.first[index]),
                int(held.protected[index]), index, self.until,
            )  # fmt: skip
        return self._made[index]


@dataclass(slots=True)
class Placed:
    """One pass's answer, in the order in which it was decided."""

    assignments: list[Assignment] = field(default_factory=list)
    realtime: dict[str, Sets] = field(default_factory=dict)
    preemptions: list[Preemption] = field(default_factory=list)


@dataclass(frozen=True)
class Waiting:
    """A problem's waiting jobs, and room for the rest of every run that may be stopped.

    Row i of `table` is job `names[i]`; the rest of run r (in the file's order) is row
    `len(names) + r`,
    filled in when it is known.
    """

    names: Sequence[str]
    table: Items
    minimum: Rows  # per row: timesteps after which it may be stopped, 0: never, or a rest
    queue: Queue
    unfunded: bool  # whether any job is

    def copies(self) -> tuple[Items, Queue]:
        """What one construction changes: queues, and rows for rests where there can be any."""
        queue = Queue(self.queue.items.copy(), self.queue.begin.copy(), self.queue.end)
        if len(self.table.size) == len(self.names):
            return self.table, queue
        queue = Queue(queue.items, queue.begin, self.queue.end.copy())
        return Items._make(rows.copy() for rows in self.table), queue


def line_up(problem: Problem) -> Waiting:
    """Rows and queues of a problem's waiting jobs."""
    layout, columns = problem.layout, problem.columns
    rows, rests = np.flatnonzero(~columns.running), np.flatnonzero(columns.running)
    leaves, many = columns.leaves(problem), len(rows)

    def of(column: NDArray[S]) -> NDArray[S]:
        found = np.zeros(len(column), column.dtype)
        found[:many] = column[rows]
        return found

    gpus = of(columns.gpus)
    table = Items(
        size=np.searchsorted(layout.fleet.sizes, gpus),
        gpus=gpus,
        length=of(columns.duration),
        allowed=of(_all_starts(problem, columns)),
        pools=of(columns.pool_sets(problem)),
        value=of(columns.value),
        leaf=of(leaves),
        funded=of(columns.funded),
        earliest=of(columns.arrival),
        order=of(columns.order),
        rest=np.zeros(len(columns.names), np.bool_),
    )
    group = leaves * 2 + columns.funded
    return Waiting(
        names=[columns.names[row] for row in rows.tolist()],
        table=table,
        minimum=of(columns.minimum),
        queue=_queues(len(problem.planted.paths), table, group[rows], group[rests]),
        unfunded=not columns.funded[rows].all(),
    )


def _all_starts(problem: Problem, columns: Columns) -> Words:
    """Per job: the word of the timesteps at which it may start, whatever else is placed."""
    last = problem.horizon - (0 if problem.overrun else columns.duration - 1)
    return spans(columns.arrival, np.maximum(last, 0) + np.zeros_like(columns.arrival))


def _queues(count: int, table: Items, group: Rows, rests: Rows) -> Queue:
    """Each leaf's jobs, funded and not, best first, with room for its rests."""
    jobs = len(group)
    best = np.lexsort((table.order[:jobs], table.earliest[:jobs], -table.value[:jobs], group))
    many = np.bincount(group, minlength=2 * count)
    room = np.bincount(rests, minlength=2 * count)
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
    wanted = (table.order, table.leaf, table.length, table.earliest, table.rest)
    known, found = problem.columns, []
    listed = [column[rows].tolist() for column in wanted]
    of = np.searchsorted(known.order, np.array(listed[0], np.int64)).tolist()
    for row, order, leaf, length, earliest, rest in zip(of, *listed, strict=True):
        found.append(
            Item(
                name=known.names[row] + REST if rest else known.names[row],
                order=order,
                leaf=leaf,
                gpus=int(known.gpus[row]),
                length=length,
                earliest=earliest,
                priority=float(known.value[row]),
                pools=known.sets[known.pools[row]],
                funded=bool(known.funded[row]),
                minimum=None if rest else int(known.minimum[row]) or None,
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
