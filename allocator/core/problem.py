"""The planning problem: what there is, what runs, and who asks for what.

Frozen dataclasses that refuse nonsense when they are made, so that nothing downstream checks again.
Units: GPUs are rows of the grid (0-based, in node order), times are timesteps from the start of the
horizon, ranges are half-open, `usage` and `entitled` are GPU-seconds at the reference rate, shares
are thousandths of a percent of the parent. A file that fails gets one sentence (`ProblemError`).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property
from typing import TYPE_CHECKING, Any

from .validate import ProblemError, number, text, texts, truth, whole, wholes

if TYPE_CHECKING:
    from .columns import Columns
    from .items import Waiting
    from .layout import Layout
    from .present import Present
    from .realtime import Roster
    from .turns import Planted

__all__ = [
    "MAX_HORIZON",
    "REST",
    "BatchJob",
    "BudgetNode",
    "Drain",
    "Kind",
    "Node",
    "Problem",
    "ProblemError",
    "RealtimeJob",
    "Running",
]

MAX_HORIZON = 64  # a GPU's horizon is one 64-bit word
MAX_GPUS = 1 << 16
MAX_TIME = 1 << 20  # timesteps: a duration may run far past the horizon
MAX_AMOUNT = 1 << 62  # GPU-seconds
FULL_SHARE = 100_000  # 100 % in thousandths of a percent
REST = "+"  # the rest of a stopped run comes back under its name and this suffix


class Kind(StrEnum):
    """What a job does; all but real time hold one block from start to end."""

    TRAINING = "training"
    BATCH_INFERENCE = "batch_inference"
    QUANTIZATION = "quantization"
    REALTIME = "realtime"


@dataclass(frozen=True)
class Node:
    """A machine: `gpus` rows of the grid, all of one pool."""

    name: str
    gpus: int
    pool: str = "default"

    def __post_init__(self) -> None:
        text(self.name, "a node's name")
        whole(self.gpus, f"node {self.name!r}: gpus", 1, MAX_GPUS)
        text(self.pool, f"node {self.name!r}: pool")


@dataclass(frozen=True)
class Running:
    """A run under way: it holds its block now, may stop once `protected` timesteps are over.

    `shielded` are budgets whose jobs may not stop it, because they did so lately; `barred` are
    jobs that may not, because either has stopped the other lately. `ahead`: it is of a debug job
    that took the place of its own budget's runs.
    """

    first_gpu: int
    remaining: int
    protected: int
    shielded: tuple[str, ...] = ()
    barred: tuple[str, ...] = ()
    ahead: bool = False

    def __post_init__(self) -> None:
        truth(self.ahead, "running: ahead")
        whole(self.first_gpu, "running: first_gpu", 0, MAX_GPUS)
        whole(self.remaining, "running: remaining", 1, MAX_TIME)
        whole(self.protected, "running: protected", 0, MAX_TIME)
        object.__setattr__(self, "shielded", texts(self.shielded, "running: shielded"))
        object.__setattr__(self, "barred", texts(self.barred, "running: barred"))
        if self.protected > self.remaining:
            raise ProblemError(
                f"running: protected must be at most remaining ({self.remaining}), "
                f"not {self.protected}."
            )


@dataclass(frozen=True)
class BatchJob:
    """Training, batch inference or quantization: one power-of-two block from start to end.

    ``minimum`` (timesteps) says that once it has run so long it may be stopped and come back: it
    may then start in a gap that is too short for all of it, and a run of it may give way to its own
    budget's jobs. None: it only starts where it ends, and can't resume. ``debug``: it is a debug
    job, which doesn't wait for what its budget runs.
    """

    name: str
    kind: Kind
    priority: float
    gpus: int
    duration: int
    arrival: int = 0
    pools: tuple[str, ...] = ()
    budget: str | None = None
    funded: bool = True
    running: Running | None = None
    minimum: int | None = None
    debug: bool = False

    def __post_init__(self) -> None:
        _job_name(self.name)
        what = f"job {self.name!r}"
        truth(self.debug, f"{what}: debug")
        if self.kind not in _BATCH_KINDS:
            raise ProblemError(f"{what}: kind must be training, batch_inference or quantization.")
        number(self.priority, f"{what}: priority", 0, 1e9)
        whole(self.gpus, f"{what}: gpus", 1, MAX_GPUS)
        if self.gpus & (self.gpus - 1):
            raise ProblemError(f"{what}: gpus must be a power of two, not {self.gpus}.")
        whole(self.duration, f"{what}: duration", 1, MAX_TIME)
        whole(self.arrival, f"{what}: arrival", 0, MAX_TIME)
        if self.minimum is not None:
            whole(self.minimum, f"{what}: minimum", 1, self.duration)
        _owner(self, what)
        if self.running is not None and not isinstance(self.running, Running):
            raise ProblemError(f"{what}: running must hold first_gpu, remaining and protected.")

    @property
    def interruptible(self) -> bool:
        """Whether it runs and may be stopped before it is done."""
        return self.running is not None and self.running.protected < self.running.remaining


@dataclass(frozen=True)
class RealtimeJob:
    """A service that follows a demand curve; `held` are its GPUs just before the first timestep.

    ``steady``: the first timestep is under way and the service has had its swaps for it, so it
    keeps those GPUs until the next one.
    """

    name: str
    priority: float
    demand: tuple[int, ...]
    swap_cap: int
    held: tuple[int, ...] | None = None
    pools: tuple[str, ...] = ()
    budget: str | None = None
    funded: bool = True
    steady: bool = False

    def __post_init__(self) -> None:
        _job_name(self.name)
        what = f"job {self.name!r}"
        number(self.priority, f"{what}: priority", 0, 1e9)
        object.__setattr__(self, "demand", wholes(self.demand, f"{what}: demand", 0, MAX_GPUS))
        whole(self.swap_cap, f"{what}: swap_cap", 0, MAX_GPUS)
        if self.held is not None:
            held = wholes(self.held, f"{what}: held", 0, MAX_GPUS)
            if len(set(held)) < len(held):
                raise ProblemError(f"{what}: held must name each GPU once.")
            object.__setattr__(self, "held", tuple(sorted(held)))
        truth(self.steady, f"{what}: steady")
        if self.steady and self.held is None:
            raise ProblemError(f"{what}: steady needs held, the GPUs that it keeps.")
        _owner(self, what)

    def cap_into(self, timestep: int) -> int:
        """The most GPUs it may gain, and the most it may lose, going into a timestep."""
        return 0 if self.steady and timestep == 0 else self.swap_cap

    @property
    def kind(self) -> Kind:
        return Kind.REALTIME


Job = BatchJob | RealtimeJob


@dataclass(frozen=True)
class Drain:
    """A node that may hold nothing in timesteps [start, end)."""

    node: str
    start: int
    end: int

    def __post_init__(self) -> None:
        text(self.node, "a drain's node")
        whole(self.start, f"drain of {self.node!r}: from", 0, MAX_TIME)
        whole(self.end, f"drain of {self.node!r}: to", 0, MAX_TIME)
        if self.end <= self.start:
            raise ProblemError(f"drain of {self.node!r}: to must be after from ({self.start}).")


@dataclass(frozen=True)
class BudgetNode:
    """A budget: `usage` counts at leaves (an inner node's is their sum); entitled 0 = derive it."""

    path: str
    parent: str | None
    shares: int
    usage: int
    entitled: int = 0

    def __post_init__(self) -> None:
        text(self.path, "a budget's path")
        what = f"budget {self.path!r}"
        if self.parent is not None:
            text(self.parent, f"{what}: parent")
        whole(self.shares, f"{what}: shares", 0, FULL_SHARE)
        whole(self.usage, f"{what}: usage", 0, MAX_AMOUNT)
        whole(self.entitled, f"{what}: entitled", 0, MAX_AMOUNT)


@dataclass(frozen=True)
class Problem:
    """Everything one plan depends on; jobs keep the order of their file.

    They are a tuple, or rows that are written already (`columns.Written`).
    """

    name: str
    horizon: int
    timestep_minutes: int
    nodes: tuple[Node, ...]
    jobs: Sequence[Job]
    time_decay: float = 0.97
    shortfall_penalty: float = 8.0
    overrun: bool = False
    drains: tuple[Drain, ...] = ()
    budgets: tuple[BudgetNode, ...] = ()
    family: str = ""

    def __post_init__(self) -> None:
        from .columns import Written  # these read Problem, so they can't be imported above
        from .crosscheck import crosscheck

        text(self.name, "name")
        whole(self.horizon, "horizon", 1, MAX_HORIZON)
        whole(self.timestep_minutes, "timestep_minutes", 1, 24 * 60)
        number(self.time_decay, "time_decay", 0, 1)
        number(self.shortfall_penalty, "shortfall_penalty", 0, 1e6)
        truth(self.overrun, "overrun")
        for field in ("nodes", "jobs", "drains", "budgets"):
            if not isinstance(getattr(self, field), Written):
                object.__setattr__(self, field, tuple(getattr(self, field)))
        crosscheck(self)

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> "Problem":
        """Read the scenario file format; raises `ProblemError` with one sentence."""
        from .scenario import read_problem

        return read_problem(data)

    def to_dict(self) -> dict[str, Any]:
        """The scenario file format, such that `from_dict(to_dict())` equals the problem."""
        from .scenario import write_problem

        return write_problem(self)

    @cached_property
    def batch(self) -> tuple[BatchJob, ...]:
        return tuple(job for job in self.jobs if isinstance(job, BatchJob))

    @cached_property
    def realtime(self) -> tuple[RealtimeJob, ...]:
        if len(self.columns.names) == len(self.jobs):
            return ()
        return tuple(job for job in self.jobs if isinstance(job, RealtimeJob))

    @cached_property
    def by_name(self) -> dict[str, Job]:
        return {job.name: job for job in self.jobs}

    @cached_property
    def columns(self) -> "Columns":
        """The batch-like jobs as arrays, read once."""
        from .columns import columns_of

        return columns_of(self.jobs)

    @cached_property
    def pool_sets(self) -> "frozenset[tuple[str, ...]]":
        """The sets of pools that some job asks for."""
        return frozenset((*self.columns.sets, *(service.pools for service in self.realtime)))

    @cached_property
    def owners(self) -> "frozenset[str | None]":
        """The budgets that have jobs."""
        return frozenset((*self.columns.budgets, *(job.budget for job in self.realtime)))

    @cached_property
    def layout(self) -> "Layout":
        """The fleet's geometry as arrays, worked out once."""
        from .layout import lay_out

        return lay_out(self)

    @cached_property
    def planted(self) -> "Planted":
        """The budgets as arrays, numbered once."""
        from .turns import plant

        return plant(self)

    def prepare(self) -> None:
        """Work out what depends on the problem alone; every later call is for nothing."""
        _ = self.layout, self.planted, self.waiting, self.present, self.rosters

    @cached_property
    def waiting(self) -> "Waiting":
        """The waiting jobs as arrays, sorted into queues once."""
        from .items import line_up

        return line_up(self)

    @cached_property
    def present(self) -> "Present":
        """The runs of batch-like jobs as arrays, read once."""
        from .present import look

        return look(self)

    @cached_property
    def rosters(self) -> "dict[bool, Roster]":
        """Funded (True) and other services as arrays, worked out once."""
        from .realtime import roster

        return {
            funded: roster(self, (job for job in self.realtime if job.funded == funded))
            for funded in (True, False)
        }

    @cached_property
    def gpus(self) -> int:
        """Rows of the grid."""
        return sum(node.gpus for node in self.nodes)

    @cached_property
    def node_of(self) -> tuple[int, ...]:
        """Index of the node of each GPU."""
        return tuple(n for n, node in enumerate(self.nodes) for _ in range(node.gpus))

    @cached_property
    def first_gpu_of(self) -> tuple[int, ...]:
        """First GPU of each node."""
        firsts, total = [], 0
        for node in self.nodes:
            firsts.append(total)
            total += node.gpus
        return tuple(firsts)

    @property
    def timestep_seconds(self) -> int:
        return 60 * self.timestep_minutes


_BATCH_KINDS = frozenset({Kind.TRAINING, Kind.BATCH_INFERENCE, Kind.QUANTIZATION})


def _job_name(name: object) -> None:
    text(name, "a job's name")
    if str(name).endswith(REST):
        raise ProblemError(f"job {name!r}: a name must not end in '+', which marks a run's rest.")


def _owner(job: Job, what: str) -> None:
    object.__setattr__(job, "pools", texts(job.pools, f"{what}: pools"))
    if job.budget is not None:
        text(job.budget, f"{what}: budget")
    truth(job.funded, f"{what}: funded")
