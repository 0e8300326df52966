"""What the passes place: waiting jobs, rests of stopped runs, and runs that may be stopped."""

from dataclasses import dataclass, field

from .bits import span
from .plan import Assignment, Preemption
from .problem import REST, BatchJob, Problem
from .realtime import Sets


@dataclass(frozen=True, slots=True)
class Settings:
    """What the construction may do; the defaults are the product's."""

    preempted_percent: int = 5  # of a pool's GPUs, per timestep; always at least one block


@dataclass(frozen=True, slots=True)
class Item:
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
    def urgency(self) -> tuple[float, int, int]:
        """Sorts a leaf's own jobs: value, then age, then the file's order."""
        return -self.priority, self.earliest, self.order

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
    had_turn: bool = False

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
    unplaced: list[Item] = field(default_factory=list)


def waiting_item(problem: Problem, job: BatchJob, order: int, leaf: int) -> Item:
    """A waiting job as an item."""
    return Item(
        name=job.name,
        order=order,
        leaf=leaf,
        gpus=job.gpus,
        length=job.duration,
        earliest=job.arrival,
        priority=job.priority,
        pools=job.pools,
        funded=job.funded,
        minimum=job.minimum,
    )


def rest_item(run: Run, ran: int) -> Item:
    """What is left of a run stopped after `ran` timesteps, behind whatever stopped it."""
    job = run.job
    assert job.running is not None
    return Item(
        name=job.name + REST,
        order=run.order,
        leaf=run.leaf,
        gpus=job.gpus,
        length=job.running.remaining - ran,
        earliest=ran + 1,
        priority=job.priority,
        pools=job.pools,
        funded=job.funded,
    )


def allowed_starts(problem: Problem, item: Item) -> int:
    """The word of timesteps at which the item may start, whatever else is placed."""
    if problem.overrun:
        return span(item.earliest, problem.horizon)
    return span(item.earliest, problem.horizon - item.length + 1)
